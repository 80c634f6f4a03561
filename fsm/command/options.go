package command

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// Options are the options of a message in its .proto file. Their comments are in options.proto.
type Options struct {
	IsValue bool
	Form    v1.Form
	Scope   *v1.Scope
	Place   *v1.Place // nil: values have the place of the containing message
	target  []targetField
	classes []v1.Class // by the indexes of fields
	untold  []bool     // by the indexes of fields; also the texts of programs
	told    []bool     // by the indexes of fields: recorded also with the default value
	plain   []bool     // by field: see IsPlain
	paths   map[string][]protoreflect.FieldDescriptor
}

// targetField is a field that names the target of a message. name is its name in the audit log.
type targetField struct{ name, path string }

// options are the options of all messages. They are read once: reading an option costs more than a
// lookup in a map.
var options = sync.OnceValue(func() map[protoreflect.FullName]*Options {
	all := map[protoreflect.FullName]*Options{}
	for _, file := range []protoreflect.FileDescriptor{v1.File_conductord_v1_types_proto, v1.File_conductord_v1_command_proto, v1.File_conductord_v1_service_proto} {
		for i := range file.Messages().Len() {
			all[file.Messages().Get(i).FullName()] = readOptions(file.Messages().Get(i))
		}
	}
	return all
})

func readOptions(message protoreflect.MessageDescriptor) *Options {
	said := message.Options()
	o := &Options{
		IsValue: proto.GetExtension(said, v1.E_IsValue).(bool), Form: proto.GetExtension(said, v1.E_Form).(v1.Form),
		Scope: proto.GetExtension(said, v1.E_Scope).(*v1.Scope), Place: proto.GetExtension(said, v1.E_Place).(*v1.Place),
		paths: map[string][]protoreflect.FieldDescriptor{},
	}
	paths := []string{o.Scope.GetField(), o.Scope.GetJob(), o.Scope.GetAlso(), o.Scope.GetFresh(), o.Scope.GetSession(), o.Place.GetOwner(), o.Place.GetStep()}
	paths = append(paths, o.Place.GetName()...)
	for _, part := range strings.Fields(proto.GetExtension(said, v1.E_Target).(string)) {
		name, path, renamed := strings.Cut(part, "=")
		if !renamed {
			name, path = part[strings.LastIndexByte(part, '.')+1:], part
		}
		o.target, paths = append(o.target, targetField{name, path}), append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		at := message
		for name := range strings.SplitSeq(path, ".") {
			if path != "" {
				field := at.Fields().ByName(protoreflect.Name(name))
				o.paths[path], at = append(o.paths[path], field), field.Message()
			}
		}
	}
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i).Options()
		o.classes = append(o.classes, proto.GetExtension(field, v1.E_Class).(v1.Class))
		o.plain = append(o.plain, proto.GetExtension(field, v1.E_Plain).(bool))
		o.told = append(o.told, proto.GetExtension(field, v1.E_Told).(bool))
		o.untold = append(o.untold, o.classes[i] > v1.Class_SHOWN || proto.GetExtension(field, v1.E_Untold).(bool))
	}
	return o
}

// OptionsOf returns the options of a message of the API or the log; other messages have none.
func OptionsOf(message protoreflect.MessageDescriptor) *Options {
	if known := options()[message.FullName()]; known != nil {
		return known
	}
	return noOptions
}

var noOptions = new(Options)

// ClassOf returns HIDDEN or REDUCED for a field with texts of programs. Clients with value keys encrypt both.
func ClassOf(field protoreflect.FieldDescriptor) v1.Class {
	if classes := OptionsOf(field.ContainingMessage()).classes; len(classes) > 0 {
		return max(classes[field.Index()], v1.Class_SHOWN)
	}
	return v1.Class_SHOWN
}

// IsPlain reports whether nodes read the value of a field, so clients with value keys do not encrypt it.
func IsPlain(field protoreflect.FieldDescriptor) bool {
	options := OptionsOf(field.ContainingMessage())
	return len(options.plain) > 0 && options.plain[field.Index()]
}

// HasValues reports whether a field is of a type with values of programs.
func HasValues(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && OptionsOf(field.Message()).IsValue
}

// Text is the text of the field at a path of the options. It is empty without a path, and for a list.
func (o *Options) Text(message protoreflect.Message, path string) string {
	value, isList := o.value(message, path)
	if !value.IsValid() || isList {
		return ""
	}
	return value.String()
}

// Texts returns the text of a field, or all texts of a list.
func (o *Options) Texts(message protoreflect.Message, path string) []string {
	value, isList := o.value(message, path)
	if !isList {
		return []string{value.String()}
	}
	texts := make([]string, value.List().Len())
	for i := range texts {
		texts[i] = value.List().Get(i).String()
	}
	return texts
}

func (o *Options) value(message protoreflect.Message, path string) (value protoreflect.Value, isList bool) {
	if path == "" {
		return value, false
	}
	for _, field := range o.paths[path] {
		if value.IsValid() {
			message = value.Message()
		}
		value, isList = message.Get(field), field.IsList()
	}
	return value, isList
}
