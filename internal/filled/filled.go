// Package filled makes protobuf messages with all of their fields set, for tests over every message
// of the API.
package filled

import (
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// depth bounds messages that contain their own type.
const depth = 8

// Calls are the calls of a file by name, such as "BoardService/Post".
func Calls(file protoreflect.FileDescriptor) iter.Seq2[string, protoreflect.MethodDescriptor] {
	return func(yield func(string, protoreflect.MethodDescriptor) bool) {
		for s := range file.Services().Len() {
			service := file.Services().Get(s)
			for m := range service.Methods().Len() {
				method := service.Methods().Get(m)
				if !yield(string(service.Name())+"/"+string(method.Name()), method) {
					return
				}
			}
		}
	}
}

// Messages returns filled messages of a type: one, or one for each field of its oneof. text
// supplies their texts. Lists and maps have one item.
func Messages(of protoreflect.MessageType, text func(protoreflect.FieldDescriptor) string) (all []proto.Message) {
	variants := 1
	if oneofs := of.Descriptor().Oneofs(); oneofs.Len() > 0 {
		variants = oneofs.Get(0).Fields().Len()
	}
	for variant := range variants {
		message := of.New()
		fill(message, text, variant, depth)
		all = append(all, message.Interface())
	}
	return all
}

func fill(message protoreflect.Message, text func(protoreflect.FieldDescriptor) string, variant, depth int) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if oneof := field.ContainingOneof(); oneof != nil && oneof.Fields().Get(variant%oneof.Fields().Len()) != field {
			continue
		}
		scalar := func(of protoreflect.FieldDescriptor) protoreflect.Value {
			switch of.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(text(field))
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte(text(field)))
			case protoreflect.BoolKind:
				return protoreflect.ValueOfBool(true)
			}
			return one(of)
		}
		switch {
		case field.IsMap():
			message.Mutable(field).Map().Set(scalar(field.MapKey()).MapKey(), scalar(field.MapValue()))
		case field.Message() != nil && depth == 0:
		case field.Message() != nil && field.IsList():
			fill(message.Mutable(field).List().AppendMutable().Message(), text, variant, depth-1)
		case field.Message() != nil:
			fill(message.Mutable(field).Message(), text, variant, depth-1)
		case field.IsList():
			message.Mutable(field).List().Append(scalar(field))
		default:
			message.Set(field, scalar(field))
		}
	}
}

// one is the number 1 as a field has it.
func one(of protoreflect.FieldDescriptor) protoreflect.Value {
	switch of.Kind() {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(1)
	}
	return protoreflect.ValueOfInt64(1)
}

// Texts calls do for each text in a message: strings, bytes and map keys.
func Texts(message protoreflect.Message, do func(field protoreflect.FieldDescriptor, text string)) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		scalar := func(value protoreflect.Value) {
			switch said := value.Interface().(type) {
			case string:
				do(field, said)
			case []byte:
				do(field, string(said))
			case protoreflect.Message:
				Texts(said, do)
			}
		}
		switch {
		case field.IsMap():
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				scalar(key.Value())
				scalar(value)
				return true
			})
		case field.IsList():
			for i := range value.List().Len() {
				scalar(value.List().Get(i))
			}
		default:
			scalar(value)
		}
		return true
	})
}
