package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ours is the package of the checked messages and their options.
const ours = "conductord.v1"

// checker finds messages that do not state their role. Each fault is a separate error, so that
// one run names all of them.
type checker struct {
	options linker.Resolver
	seen    map[protoreflect.FullName]bool
	kinds   map[string]protoreflect.FieldDescriptor // commands by name
	faults  []error
}

// check returns an error for each call and command without a rule, for each of their messages without
// a scope, and for each text in them without a class. Without errors, it returns the names of the
// messages that are encoded by generated code.
func check(files linker.Files) (fast []string, err error) {
	c := &checker{options: files.AsResolver(), seen: map[protoreflect.FullName]bool{}, kinds: map[string]protoreflect.FieldDescriptor{}}
	for _, file := range files {
		for i := range file.Messages().Len() {
			message := file.Messages().Get(i)
			c.paths(message)
			if c.option(message, "fast").Bool() {
				fast = append(fast, string(message.Name()))
			}
			if message.Name() == "Command" {
				c.commands(message.Oneofs().ByName("kind").Fields())
			}
		}
		for s := range file.Services().Len() {
			methods := file.Services().Get(s).Methods()
			for m := range methods.Len() {
				c.call(methods.Get(m))
				c.texts(methods.Get(m).Input())
				c.texts(methods.Get(m).Output())
			}
		}
	}
	return fast, errors.Join(c.faults...)
}

// option returns the value of one of our options; its default if unset.
func (c *checker) option(of protoreflect.Descriptor, name string) protoreflect.Value {
	kind, err := c.options.FindExtensionByName(protoreflect.FullName(ours + "." + name))
	if err != nil {
		c.fault("%s: there is no option (%s): %v", of.FullName(), name, err)
		return protoreflect.Value{}
	}
	said, err := proto.Marshal(of.Options())
	options := of.Options().ProtoReflect().New().Interface()
	if err == nil {
		err = proto.UnmarshalOptions{Resolver: c.options}.Unmarshal(said, options)
	}
	if err != nil {
		c.fault("%s: cannot read the options: %v", of.FullName(), err)
	}
	return options.ProtoReflect().Get(kind.TypeDescriptor())
}

// rule is the rule of a call or a command: the needed permission, the applied command, and whether
// it is audited.
func (c *checker) rule(of protoreflect.Descriptor, name string) (needs protoreflect.Name, applies string, audited bool) {
	rule := c.option(of, name).Message()
	field := func(name protoreflect.Name) protoreflect.FieldDescriptor {
		return rule.Descriptor().Fields().ByName(name)
	}
	needed := field("needs").Enum().Values().ByNumber(rule.Get(field("needs")).Enum())
	return needed.Name(), rule.Get(field("applies")).String(), !rule.Get(field("unaudited")).Bool()
}

// call checks a call: it must have its own permission or apply a command.
func (c *checker) call(call protoreflect.MethodDescriptor) {
	c.scope(call.Input())
	needs, applies, _ := c.rule(call, "call")
	switch command := c.kinds[applies]; {
	case applies == "" && needs == "UNSTATED":
		c.fault("call %s.%s: no permission; write option (call).needs, or (call).applies for a call that only applies a command", call.Parent().Name(), call.Name())
	case applies != "" && needs != "UNSTATED":
		c.fault("call %s.%s: it applies %s, which states the permission; leave needs out", call.Parent().Name(), call.Name(), applies)
	case applies != "" && (command == nil || command.Message().FullName() != call.Input().FullName()):
		c.fault("call %s.%s: there is no command %s with the message %s", call.Parent().Name(), call.Name(), applies, call.Input().Name())
	}
}

// commands checks the commands of the log. The leader makes its own commands for permitted calls.
func (c *checker) commands(kinds protoreflect.FieldDescriptors) {
	for i := range kinds.Len() {
		kind := kinds.Get(i)
		c.kinds[string(kind.Name())] = kind
		needs, _, audited := c.rule(kind, "command")
		if needs == "UNSTATED" {
			c.fault("command %s: no permission; write [(command).needs = READ] or another one of options.proto", kind.Name())
		}
		if needs == "LEAD" {
			continue
		}
		if kind.Name() == "post" { // permissions are checked per posting
			c.scope(kind.Message().Fields().ByName("postings").Message())
		}
		c.scope(kind.Message())
		if audited && c.option(kind.Message(), "target").String() == "" {
			c.fault("command %s is audited, and message %s names no target; write option (target)", kind.Name(), kind.Message().Name())
		}
	}
}

// scope checks that a message states its scope.
func (c *checker) scope(message protoreflect.MessageDescriptor) {
	scope := c.option(message, "scope").Message()
	fields := scope.Descriptor().Fields()
	on := fields.ByName("on").Enum().Values().ByNumber(scope.Get(fields.ByName("on")).Enum()).Name()
	switch hasField := scope.Has(fields.ByName("field")); {
	case on == "UNSCOPED":
		c.fault("message %s: no scope; write option (scope) = {on: …} (options.proto explains the scopes)", message.Name())
	case !hasField && on != "CLUSTER" && on != "PARTS" && on != "OWN":
		c.fault("message %s: its scope %s names no field; write option (scope) = {on: %s, field: …}", message.Name(), on, on)
	}
}

// paths checks that the paths in the options of a message lead to scalar fields.
func (c *checker) paths(message protoreflect.MessageDescriptor) {
	for _, option := range []string{"scope", "place"} {
		c.option(message, option).Message().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			switch {
			case field.IsList():
				for i := range value.List().Len() {
					c.path(message, value.List().Get(i).String())
				}
			case field.Kind() == protoreflect.StringKind:
				c.path(message, value.String())
			}
			return true
		})
	}
	for part := range strings.FieldsSeq(c.option(message, "target").String()) {
		_, path, renamed := strings.Cut(part, "=")
		if !renamed {
			path = part
		}
		c.path(message, path)
	}
}

// path checks that a path leads to a scalar field.
func (c *checker) path(message protoreflect.MessageDescriptor, text string) {
	at := message
	for name := range strings.SplitSeq(text, ".") {
		var field protoreflect.FieldDescriptor
		if at != nil {
			field = at.Fields().ByName(protoreflect.Name(name))
		}
		if field == nil {
			c.fault("message %s: an option names %q, and there is no such field", message.Name(), text)
			return
		}
		at = field.Message()
	}
	if at != nil {
		c.fault("message %s: an option names %q, which is a message and no text", message.Name(), text)
	}
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

// texts checks the fields of a message, and of all messages in it.
func (c *checker) texts(message protoreflect.MessageDescriptor) {
	if c.seen[message.FullName()] || message.ParentFile().Package() != ours {
		return
	}
	c.seen[message.FullName()] = true
	if c.option(message, "is_value").Bool() {
		return
	}
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		isText := field.IsMap() || field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.BytesKind
		switch has := c.option(field, "class").Enum() != 0; {
		case isText && !has:
			c.fault("message %s, field %s: a text without a class; write [(class) = SHOWN], HIDDEN or REDUCED behind its number (options.proto explains them)",
				message.Name(), field.Name())
		case has && !isText:
			c.fault("message %s, field %s: it has a class and is no text; a message with a program's values has the option (is_value)", message.Name(), field.Name())
		case field.Message() != nil && !field.IsMap():
			c.texts(field.Message())
		}
	}
}
