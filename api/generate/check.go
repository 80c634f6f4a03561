package main

import (
	"errors"
	"fmt"

	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ours is the package of the messages that are checked, and of their options.
const ours = "conductord.v1"

// checker finds messages that do not state their role. Each fault is an error of its own, so that
// one run names all of them.
type checker struct {
	options linker.Resolver
	seen    map[protoreflect.FullName]bool
	faults  []error
}

// check returns an error for each text without a class in the messages of calls. Else it returns the
// names of the messages that are encoded by generated code.
func check(files linker.Files) (fast []string, err error) {
	c := &checker{options: files.AsResolver(), seen: map[protoreflect.FullName]bool{}}
	for _, file := range files {
		for i := range file.Messages().Len() {
			if message := file.Messages().Get(i); c.option(message, "fast").Bool() {
				fast = append(fast, string(message.Name()))
			}
		}
		for s := range file.Services().Len() {
			methods := file.Services().Get(s).Methods()
			for m := range methods.Len() {
				c.texts(methods.Get(m).Input())
				c.texts(methods.Get(m).Output())
			}
		}
	}
	return fast, errors.Join(c.faults...)
}

// option is the value of an option of ours; the default, if it is not set.
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
