package command_test

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/longtest"
)

// messageKinds are all messages of the wire and of the log.
func messageKinds(t testing.TB) []protoreflect.MessageType {
	var kinds []protoreflect.MessageType
	for _, file := range []protoreflect.FileDescriptor{
		v1.File_conductord_v1_types_proto, v1.File_conductord_v1_command_proto, v1.File_conductord_v1_service_proto,
	} {
		for i := range file.Messages().Len() {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(file.Messages().Get(i).FullName())
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// decodesAlike compares the generated decoder with protobuf's own, for bytes that protobuf has
// written, and reports whether they agree. Other bytes must not crash the generated decoder.
// It may accept them, because protobuf itself decodes all input from outside.
func decodesAlike(t interface {
	Helper()
	Fatalf(string, ...any)
}, kind protoreflect.MessageType, data []byte) bool {
	t.Helper()
	want, got := kind.New().Interface(), kind.New().Interface()
	wantErr, err := proto.Unmarshal(data, want), command.DecodeMessage(data, got)
	if wantErr != nil {
		return false
	}
	written, wantErr := proto.MarshalOptions{Deterministic: true}.Marshal(want)
	if _, unknown := unknownByReflection(want.ProtoReflect()); wantErr != nil || unknown || !bytes.Equal(written, data) {
		return false
	}
	if err != nil || !proto.Equal(got, want) {
		t.Fatalf("%s from %x:\ngot  %v %v\nwant %v", kind.Descriptor().Name(), data, got, err, want)
	}
	if name, found := unknownField(got); found {
		t.Fatalf("%s from %x: found an unknown field in %q", kind.Descriptor().Name(), data, name)
	}
	return true
}

// unknownField calls the generated finder, which exists for all messages in an entry.
func unknownField(message proto.Message) (name string, found bool) {
	if finder, ok := message.(interface{ UnknownField() (string, bool) }); ok {
		return finder.UnknownField()
	}
	return unknownByReflection(message.ProtoReflect())
}

// unknownByReflection finds a message with an unknown field by the tables of protobuf.
func unknownByReflection(m protoreflect.Message) (name string, found bool) {
	if len(m.GetUnknown()) > 0 {
		return string(m.Descriptor().FullName()), true
	}
	within := func(item protoreflect.Message) bool {
		name, found = unknownByReflection(item)
		return !found
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(_ protoreflect.MapKey, item protoreflect.Value) bool { return within(item.Message()) })
		case field.IsMap() || field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				if !within(value.List().Get(i).Message()) {
					break
				}
			}
		default:
			within(value.Message())
		}
		return !found
	})
	return name, found
}

// TestGeneratedDecodingIsProtobufs fills every message of the wire and of the log, and
// compares the generated decoder with protobuf's. It decodes each message unchanged, with an
// unknown field, and with damage that must not crash the decoder.
func TestGeneratedDecodingIsProtobufs(t *testing.T) {
	longtest.Checks(t, 30)
	for _, kind := range messageKinds(t) {
		t.Run(string(kind.Descriptor().Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				data := encodedFilled(t, kind)
				if !decodesAlike(t, kind, data) {
					t.Fatalf("%x was not compared", data)
				}
				got := kind.New().Interface()
				if err := command.DecodeMessage(withField(data), got); err != nil {
					t.Fatalf("with an unknown field: %v", err)
				}
				if name, found := unknownField(got); !found || name != string(kind.Descriptor().FullName()) {
					t.Fatalf("an unknown field was found in %q: %t", name, found)
				}
				for range 5 {
					decodesAlike(t, kind, mutated(t, data))
				}
			})
		})
	}
}

func encodedFilled(t *rapid.T, kind protoreflect.MessageType) []byte {
	filled := kind.New()
	fill(t, filled, 3)
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(filled.Interface())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// mutated changes a few bytes. Most of them become small numbers, which are frequent as lengths and
// tags.
func mutated(t *rapid.T, data []byte) []byte {
	data = slices.Clone(data)
	for range rapid.IntRange(1, 3).Draw(t, "mutations") {
		at := rapid.IntRange(0, len(data)).Draw(t, "at")
		switch rapid.IntRange(0, 4).Draw(t, "mutation") {
		case 0:
			data = data[:at]
		case 1:
			data = slices.Insert(data, at, rapid.Byte().Draw(t, "byte"))
		case 2:
			if at < len(data) {
				data = slices.Delete(data, at, at+1)
			}
		case 3:
			if at < len(data) {
				data[at] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
			}
		case 4:
			if at < len(data) {
				data[at] = byte(rapid.IntRange(0, 40).Draw(t, "small"))
			}
		}
	}
	return data
}

// TestDecodeCopies: a decoded message shares no memory with its input, which a call or a page of a
// file may hold.
func TestDecodeCopies(t *testing.T) {
	want := &v1.Posting{Name: "name", Details: &v1.Value{Json: []byte(`{"a":1}`)}, Store: []*v1.NamedValue{{Name: "key", Value: &v1.Value{Json: []byte("7")}}}}
	data := marshal(t, want)
	got := &v1.Posting{}
	if err := command.DecodeMessage(data, got); err != nil {
		t.Fatal(err)
	}
	copy(data, bytes.Repeat([]byte("?"), len(data)))
	if !proto.Equal(got, want) {
		t.Errorf("the message has changed with the bytes that it was read from: %v", got)
	}
}

// FuzzDecode: for any bytes, decoding does not panic. Input that protobuf could have written is
// decoded like by protobuf.
func FuzzDecode(f *testing.F) {
	kinds := messageKinds(f)
	for i, kind := range kinds {
		f.Add(i, rapid.Custom(func(t *rapid.T) []byte {
			rapid.Bool().Draw(t, "something") // a message without fields draws nothing else
			return encodedFilled(t, kind)
		}).Example(i))
	}
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		decodesAlike(t, kinds[uint(which)%uint(len(kinds))], data)
	})
}
