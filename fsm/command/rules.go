package command

import (
	"strings"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// rules are the rules that the .proto files state, by the name of a command, such as "post", or of a
// call, such as "BoardService/Post". callOf is the call that applies a command, by the command's name.
var rules, callOf = readRules()

func readRules() (rules map[string]*v1.Rule, callOf map[string]string) {
	rules, callOf = map[string]*v1.Rule{}, map[string]string{}
	kinds := (&v1.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		rules[string(kinds.Get(i).Name())] = proto.GetExtension(kinds.Get(i).Options(), v1.E_Command).(*v1.Rule)
	}
	services := v1.File_conductord_v1_service_proto.Services()
	for s := range services.Len() {
		for m := range services.Get(s).Methods().Len() {
			method := services.Get(s).Methods().Get(m)
			name, rule := string(services.Get(s).Name()+"/"+method.Name()), proto.GetExtension(method.Options(), v1.E_Call).(*v1.Rule)
			if applied := rule.GetApplies(); applied != "" {
				callOf[applied], rule = name, rules[applied]
			}
			rules[name] = rule
		}
	}
	return rules, callOf
}

// RuleOf returns the rule of a command or a call; nil if the name has no rule.
func RuleOf(name string) *v1.Rule { return rules[name] }

// PermissionOf returns the permission that a command or a call needs. For an unknown name, it returns a
// permission that no role has.
func PermissionOf(name string) Permission {
	return Permission(strings.ToLower(RuleOf(name).GetNeeds().String()))
}
