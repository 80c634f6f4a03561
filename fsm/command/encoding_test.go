package command_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
)

// TestGeneratedEncodingIsProtobufs fills every message of the wire and of the log, and
// compares the generated encoding with protobuf's deterministic one. It fails if "make api"
// was not run after a change of a .proto file, because a new field is then missing.
func TestGeneratedEncodingIsProtobufs(t *testing.T) {
	for _, file := range []protoreflect.FileDescriptor{
		v1.File_conductord_v1_types_proto, v1.File_conductord_v1_command_proto, v1.File_conductord_v1_service_proto,
	} {
		for i := range file.Messages().Len() {
			descriptor := file.Messages().Get(i)
			t.Run(string(descriptor.Name()), func(t *testing.T) { checkEncoding(t, descriptor) })
		}
	}
}

func checkEncoding(t *testing.T, descriptor protoreflect.MessageDescriptor) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		filled := kind.New()
		fill(t, filled, 3)
		message := filled.Interface()
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		if size := command.SizeOf(message); size != len(want) {
			t.Fatalf("the size is %d, and should be %d, of %v", size, len(want), message)
		}
		got, err := command.AppendMessage([]byte("before"), message, len(want))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Fatalf("got  %x\nwant %x\nof %v", got, want, message)
		}
	})
}

// fill sets fields at random, sometimes all. Of each oneof, the last drawn field stays.
func fill(t *rapid.T, m protoreflect.Message, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		if !rapid.Bool().Draw(t, "set") || (depth == 0 && field.Message() != nil) {
			continue
		}
		switch {
		case field.IsMap():
			entries := m.Mutable(field).Map()
			for range rapid.IntRange(1, 4).Draw(t, "entries") {
				key := scalar(t, field.MapKey()).MapKey()
				entries.Set(key, element(t, field.MapValue(), entries.NewValue(), depth))
			}
		case field.IsList():
			items := m.Mutable(field).List()
			for range rapid.IntRange(1, 3).Draw(t, "items") {
				items.Append(element(t, field, items.NewElement(), depth))
			}
		default:
			m.Set(field, element(t, field, m.NewField(field), depth))
		}
	}
}

func element(t *rapid.T, field protoreflect.FieldDescriptor, fresh protoreflect.Value, depth int) protoreflect.Value {
	if field.Message() == nil {
		return scalar(t, field)
	}
	fill(t, fresh.Message(), depth-1)
	return fresh
}

func scalar(t *rapid.T, field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "uint32"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "uint64"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64().Draw(t, "double"))
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(rapid.IntRange(0, values.Len()-1).Draw(t, "enum")).Number())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.StringN(0, 12, -1).Draw(t, "string"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "bytes"))
	}
	t.Fatalf("this test cannot fill a field of kind %s", field.Kind())
	return protoreflect.Value{}
}
