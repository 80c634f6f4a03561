package wire

import (
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

// options are the options of the .proto files that decide how a message is written, hidden and
// encrypted. They are read once, because reading one costs more than a look into a map.
type options struct {
	classes map[protoreflect.FullName]v1.Class // of the fields that not everyone may read
	values  map[protoreflect.FullName]bool
	forms   map[protoreflect.FullName]form
}

var stated = sync.OnceValue(func() *options {
	o := &options{classes: map[protoreflect.FullName]v1.Class{}, values: map[protoreflect.FullName]bool{}, forms: map[protoreflect.FullName]form{}}
	for message := range command.Messages() {
		o.read(message)
	}
	return o
})

func (o *options) read(message protoreflect.MessageDescriptor) {
	if proto.GetExtension(message.Options(), v1.E_IsValue).(bool) {
		o.values[message.FullName()] = true
	}
	fields := message.Fields()
	switch proto.GetExtension(message.Options(), v1.E_Form).(v1.Form) {
	case v1.Form_RAW:
		o.forms[message.FullName()] = form{from: unwrapValue, to: wrapValue}
	case v1.Form_PAIR:
		o.forms[message.FullName()] = pairForm(fields.Get(0).TextName(), fields.Get(1).TextName())
	case v1.Form_NAMED:
		o.forms[message.FullName()] = form{named: true}
	}
	for i := range fields.Len() {
		field := fields.Get(i)
		if class := proto.GetExtension(field.Options(), v1.E_Class).(v1.Class); class > v1.Class_SHOWN {
			o.classes[field.FullName()] = class
		}
	}
}

// ClassOf is HIDDEN or REDUCED for a field with texts of programs. Clients with keys for values
// encrypt both. Other fields are SHOWN.
func ClassOf(field protoreflect.FieldDescriptor) v1.Class {
	return max(stated().classes[field.FullName()], v1.Class_SHOWN)
}

// HasValues reports whether a field is of a type with values of programs.
func HasValues(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && stated().values[field.Message().FullName()]
}
