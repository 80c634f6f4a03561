package command_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
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

// decodesAlike holds our decoding of any bytes against protobuf's.
func decodesAlike(t interface {
	Helper()
	Fatalf(string, ...any)
}, kind protoreflect.MessageType, data []byte) (unknown, decoded bool) {
	t.Helper()
	want, got := kind.New().Interface(), kind.New().Interface()
	wantErr := proto.Unmarshal(data, want)
	unknown, err := v1.Decode(string(data), got)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%s from %x: got error %v, want %v", kind.Descriptor().Name(), data, err, wantErr)
	}
	if err != nil {
		return unknown, false
	}
	wantBytes, wantErr := proto.MarshalOptions{Deterministic: true}.Marshal(want)
	gotBytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(got)
	if err != nil || wantErr != nil || !bytes.Equal(gotBytes, wantBytes) || !proto.Equal(got, want) {
		t.Fatalf("%s from %x:\ngot  %v %v\nwant %v %v", kind.Descriptor().Name(), data, got, err, want, wantErr)
	}
	wantName, wantFound := unknownByReflection(want.ProtoReflect())
	name, found := got.(interface{ UnknownField() (string, bool) }).UnknownField()
	if found != wantFound || found && (!unknown || wantName == "") {
		t.Fatalf("%s from %x: found an unknown field in %q: %t (%t), and protobuf one in %q: %t", kind.Descriptor().Name(), data, name, found, unknown, wantName, wantFound)
	}
	return unknown, true
}

// unknownByReflection finds a message that holds an unknown field by the tables
// of protobuf.
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

// TestGeneratedDecodingIsProtobufs fills every message of the wire and of the
// log, and compares what the generated code reads of it with what protobuf
// does: as it is usually encoded, and changed in ways that a decoder meets in
// data from outside.
func TestGeneratedDecodingIsProtobufs(t *testing.T) {
	for _, kind := range messageKinds(t) {
		t.Run(string(kind.Descriptor().Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				data := encodedFilled(t, kind)
				if unknown, ok := decodesAlike(t, kind, data); unknown || !ok {
					t.Fatalf("%x was left to protobuf", data)
				}
				decodesAlike(t, kind, withField(data))
				decodesAlike(t, kind, slices.Concat(data, encodedFilled(t, kind))) // fields stand twice, and are merged
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
	data, err := proto.Marshal(filled.Interface())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// mutated changes a few bytes: most of them become small numbers, as lengths and
// tags are.
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

// TestDecodeOddForms: what the generated code leaves to protobuf, and the bounds
// of what it reads itself.
func TestDecodeOddForms(t *testing.T) {
	field := func(number protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
	}
	number := func(number protowire.Number, n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), n)
	}
	causes := func(depth int) []byte {
		var data []byte
		for range depth {
			data = field(causesNumber(t), data)
		}
		return data
	}
	value := field(1, []byte(`7`))
	for _, row := range []struct {
		name    string
		message proto.Message
		data    []byte
		refused bool
	}{
		{"nothing", &v1.Job{}, nil, false},
		{"text that is not UTF-8", &v1.Value{}, field(2, []byte{0xff}), false}, // a field that a value does not have
		{"a name that is not UTF-8", &v1.Board{}, field(1, []byte{0xff}), true},
		{"a key of a map that is not UTF-8", &v1.Posting{}, field(10, slices.Concat(field(1, []byte{0xff}), field(2, value))), true},
		{"a map without a value", &v1.Posting{}, field(10, field(1, []byte("a"))), false},
		{"a map without a key", &v1.Posting{}, field(10, field(2, value)), false},
		{"a map with more in an entry", &v1.Posting{}, field(10, withField(field(2, value))), false},
		{"a map with a value in two parts", &v1.Posting{}, field(10, slices.Concat(field(2, value), field(2, withField(nil)))), false},
		{"a time with more in it", &v1.Posting{}, field(11, withField(number(1, 5))), false},
		{"a time in two parts", &v1.Posting{}, slices.Concat(field(11, number(1, 5)), field(11, number(2, 6))), false},
		{"a text where a number is known", &v1.Posting{}, field(4, []byte("x")), false},
		{"a number where a text is known", &v1.Posting{}, number(1, 9), false},
		{"numbers one by one", &v1.Tally{}, slices.Concat(number(1, 9), number(1, 300)), false},
		{"numbers both ways", &v1.Tally{}, slices.Concat(number(1, 9), field(1, []byte{1, 2, 0xac, 2})), false},
		{"half a number", &v1.Tally{}, field(1, []byte{1, 0xac}), true},
		{"a number that is too long", &v1.Tally{}, slices.Concat([]byte{2 << 3}, bytes.Repeat([]byte{0xff}, 10)), true},
		{"a tag in ten bytes", &v1.Board{}, slices.Concat([]byte{0x8a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0}, []byte{1, 'a'}), false},
		{"a length beyond the end", &v1.Board{}, []byte{10, 2, 'a'}, true},
		{"a length beyond all numbers", &v1.Board{}, slices.Concat([]byte{10}, protowire.AppendVarint(nil, 1<<64-1)), true},
		{"field 0", &v1.Board{}, []byte{0, 0}, true},
		{"a field with too large a number", &v1.Board{}, protowire.AppendVarint(protowire.AppendVarint(nil, 1<<32), 1), true},
		{"a group", &v1.Board{}, []byte{0xf3, 0x40, 8, 1, 0xf4, 0x40}, false},
		{"a group without an end", &v1.Board{}, []byte{0xf3, 0x40, 8, 1}, true},
		{"an end without a group", &v1.Board{}, []byte{0xf4, 0x40}, true},
		{"one of several, and then another", &v1.Command{}, slices.Concat(field(1, nil), field(2, nil), field(1, nil)), false},
		{"one of several in two parts", &v1.Command{}, slices.Concat(field(2, field(1, []byte("a"))), field(2, field(2, []byte("b")))), false},
		{"causes as deep as ours go", &v1.Failure{}, causes(99), false},
		{"causes deeper than that", &v1.Failure{}, causes(101), false},
		{"causes as deep as protobuf's go", &v1.Failure{}, causes(9_999), false},
		{"causes deeper than that", &v1.Failure{}, causes(10_001), true},
	} {
		_, decoded := decodesAlike(t, row.message.ProtoReflect().Type(), row.data)
		if decoded == row.refused {
			t.Errorf("%s: decoded %t", row.name, decoded)
		}
	}
}

func causesNumber(t *testing.T) protowire.Number {
	field := (&v1.Failure{}).ProtoReflect().Descriptor().Fields().ByName("causes")
	if field == nil {
		t.Fatal("a failure has no causes")
	}
	return field.Number()
}

// TestDecodeCopies: a message's bytes are its own, also where its text is not.
func TestDecodeCopies(t *testing.T) {
	data := strings.Clone(string(marshal(t, &v1.Value{Json: []byte(`{"a":1}`)})))
	var value v1.Value
	if _, err := v1.Decode(data, &value); err != nil {
		t.Fatal(err)
	}
	value.Json[0] = 'x'
	if strings.Contains(data, "x") {
		t.Error("writing to the message has changed the text")
	}
}

// FuzzDecode: whatever the bytes, the verdict and the message are protobuf's.
func FuzzDecode(f *testing.F) {
	kinds := messageKinds(f)
	for i, kind := range kinds {
		f.Add(i, rapid.Custom(func(t *rapid.T) []byte {
			rapid.Bool().Draw(t, "something") // which a message without fields does not draw
			return encodedFilled(t, kind)
		}).Example(i))
	}
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		decodesAlike(t, kinds[uint(which)%uint(len(kinds))], data)
	})
}
