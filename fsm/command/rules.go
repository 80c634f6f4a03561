package command

import (
	"iter"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// Messages are the messages of the API and the log, whose options tables are made from.
func Messages() iter.Seq[protoreflect.MessageDescriptor] {
	return func(yield func(protoreflect.MessageDescriptor) bool) {
		for _, file := range []protoreflect.FileDescriptor{v1.File_conductord_v1_types_proto, v1.File_conductord_v1_command_proto, v1.File_conductord_v1_service_proto} {
			for i := range file.Messages().Len() {
				if !yield(file.Messages().Get(i)) {
					return
				}
			}
		}
	}
}

// RuleOf is the rule of a command or a call; nil if there is none of that name.
func RuleOf(name string) *v1.Rule { return rules[name] }

// PermissionOf is the permission that a command or a call needs. No role has the one of an unknown name.
func PermissionOf(name string) Permission {
	return Permission(strings.ToLower(RuleOf(name).GetNeeds().String()))
}

// Path leads from a message to one of its fields, or to a field of a message in it.
type Path []protoreflect.FieldDescriptor

// PathOf is the path with a text, such as "schedule.board". An empty text is no path.
func PathOf(message protoreflect.MessageDescriptor, text string) (p Path) {
	for name := range strings.SplitSeq(text, ".") {
		if text != "" {
			field := message.Fields().ByName(protoreflect.Name(name))
			p, message = append(p, field), field.Message()
		}
	}
	return p
}

func (p Path) value(message protoreflect.Message) protoreflect.Value {
	last := len(p) - 1
	for _, field := range p[:last] {
		message = message.Get(field).Message()
	}
	return message.Get(p[last])
}

// Text is the text of the field; empty without a path, and of a list.
func (p Path) Text(message protoreflect.Message) string {
	if len(p) == 0 || p[len(p)-1].IsList() {
		return ""
	}
	return p.value(message).String()
}

// Texts are the text of the field, or those of its list.
func (p Path) Texts(message protoreflect.Message) []string {
	if !p[len(p)-1].IsList() {
		return []string{p.Text(message)}
	}
	list := p.value(message).List()
	texts := make([]string, list.Len())
	for i := range texts {
		texts[i] = list.Get(i).String()
	}
	return texts
}
