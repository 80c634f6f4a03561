package wire

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// JSONCodec is the JSON form of the API's messages. It is protojson with the field names of the .proto
// files, and these differences:
//
//   - A conductord.v1.Value is embedded as its JSON value, byte for byte. A null is the value null, and
//     not a missing Value.
//   - A token is the text "GENERATION-INDEX", and a position the text "INDEX-ITEM".
//   - A list of named values is an object.
//
// Field names are also accepted in lowerCamelCase. Unknown names are refused.
type JSONCodec struct{}

// Name is the codec's name in content types: application/json.
func (JSONCodec) Name() string { return "json" }

// Marshal encodes a message in one line. Equal messages have equal encodings.
func (JSONCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("cannot write JSON: %T is not a message", message)
	}
	loose, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("cannot write JSON of %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	// protojson varies its white space on purpose. Compact removes it before the values are
	// inserted, because the values keep their white space.
	var tight bytes.Buffer
	if err := json.Compact(&tight, loose); err != nil {
		return nil, fmt.Errorf("internal error: protojson wrote no JSON: %w", err)
	}
	return rewrite(tight.Bytes(), m.ProtoReflect().Descriptor(), false)
}

// Unmarshal decodes a message. ErrInvalid or ErrLimit for other input.
func (JSONCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("cannot read JSON: %T is not a message", message)
	}
	if err := checkJSON(data); err != nil {
		return err
	}
	wrapped, err := rewrite(data, m.ProtoReflect().Descriptor(), true)
	if err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{RecursionLimit: MaxJSONDepth + 1}).Unmarshal(wrapped, m); err != nil {
		return faultOfJSON(data, m.ProtoReflect().Descriptor(), err)
	}
	return nil
}

// IsBinary returns false: the form is text, which can be in a URL or a log.
func (JSONCodec) IsBinary() bool { return false }

// MarshalStable is Marshal, which is stable.
func (c JSONCodec) MarshalStable(message any) ([]byte, error) { return c.Marshal(message) }

// charsetCodec is JSONCodec under the second name that connect registers for JSON. Without it, that name
// would be plain protojson.
type charsetCodec struct{ JSONCodec }

func (charsetCodec) Name() string { return "json; charset=utf-8" }

// checkJSON refuses input that is not one JSON value of limited depth, because the walker trusts
// its input.
func checkJSON(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return &logbook.InvalidError{Field: "request", Reason: "empty; send a JSON object, such as {}"}
	}
	if depth := jsonDepth(data); depth > MaxJSONDepth {
		return &logbook.LimitError{Field: "request", Limit: MaxJSONDepth, Size: int64(depth), Unit: "levels of nesting"}
	}
	if json.Valid(data) {
		return nil
	}
	reason := "more follows after the JSON value"
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, new(json.RawMessage)); errors.As(err, &syntax) {
		reason = fmt.Sprintf("not JSON, at byte %d: %v", syntax.Offset, err)
	}
	return &logbook.InvalidError{Field: "request", Reason: reason}
}

// jsonDepth counts nesting without recursion, in one pass over the bytes.
func jsonDepth(data []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i) - 1
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
}

// form converts between the JSON of protojson and the special form of a message.
type form struct {
	from func(out *bytes.Buffer, written []byte) error // from the output of protojson
	to   func(out *bytes.Buffer, given []byte) error   // to the input of protojson
}

// formOf returns the special form of a message; none for a message in protojson's form.
func formOf(message protoreflect.MessageDescriptor) form {
	switch command.OptionsOf(message).Form {
	case v1.Form_RAW:
		return form{unwrapValue, wrapValue}
	case v1.Form_PAIR:
		return pairForm(message.Fields().Get(0).TextName(), message.Fields().Get(1).TextName())
	}
	return form{}
}

// pairForm writes a message of two numbers as the text "FIRST-SECOND".
func pairForm(first, second string) form {
	return form{
		from: func(out *bytes.Buffer, written []byte) error {
			numbers := map[string]json.RawMessage{}
			if err := json.Unmarshal(written, &numbers); err != nil {
				return fmt.Errorf("internal error: protojson wrote two numbers as %.64q: %w", written, err)
			}
			number := func(name string) string { // of 64 bits, then in quotes, or of 32; protojson omits zero
				return cmp.Or(strings.Trim(string(numbers[name]), `"`), "0")
			}
			fmt.Fprintf(out, `"%s-%s"`, number(first), number(second))
			return nil
		},
		to: func(out *bytes.Buffer, given []byte) error {
			if string(given) == "null" {
				out.Write(given)
				return nil
			}
			var text string
			err := json.Unmarshal(given, &text)
			before, after, found := strings.Cut(text, "-")
			_, errBefore := strconv.ParseUint(before, 10, 64)
			_, errAfter := strconv.ParseUint(after, 10, 64)
			if err != nil || !found || errBefore != nil || errAfter != nil {
				form := strings.ToUpper(first + "-" + second)
				return &logbook.InvalidError{Field: "request", Reason: fmt.Sprintf("%.64q is not text of the form %s", given, form)}
			}
			fmt.Fprintf(out, `{"%s":"%s","%s":"%s"}`, first, before, second, after)
			return nil
		},
	}
}

// wrapValue converts a value from the users' form to the input of protojson.
func wrapValue(out *bytes.Buffer, value []byte) error {
	out.WriteString(`{"json":"`)
	encoder := base64.NewEncoder(base64.StdEncoding, out)
	_, _ = encoder.Write(value) // a Buffer accepts everything
	_ = encoder.Close()
	out.WriteString(`"}`)
	return nil
}

// unwrapValue converts the output of protojson to the contained value.
func unwrapValue(out *bytes.Buffer, wrapped []byte) error {
	var holder struct{ JSON []byte }
	if err := json.Unmarshal(wrapped, &holder); err != nil {
		return fmt.Errorf("internal error: protojson wrote a value as %.64q: %w", wrapped, err)
	}
	switch {
	case len(holder.JSON) == 0:
		out.WriteString("null") // an empty value means none
	case !json.Valid(holder.JSON):
		return fmt.Errorf("cannot write JSON: a value holds %.64q, which is not JSON", holder.JSON)
	default:
		out.Write(bytes.TrimSpace(holder.JSON))
	}
	return nil
}

// rewrite copies the JSON form of a message, and converts every message with a special form: to
// protojson's form if reads is true, otherwise from protojson's form. The data are valid JSON of
// limited depth.
func rewrite(data []byte, message protoreflect.MessageDescriptor, reads bool) ([]byte, error) {
	w := walker{data: data, reads: reads}
	w.out.Grow(len(data) + len(data)/2)
	if err := w.message(message); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// walker passes over JSON data once, and copies it. Each of its methods starts before a JSON value
// and ends after it.
type walker struct {
	data  []byte
	at    int
	out   bytes.Buffer
	reads bool // from our form to protojson's
}

// message copies a message of the given type. If a value is not the object that the type requires,
// protojson refuses it with a better error.
func (w *walker) message(kind protoreflect.MessageDescriptor) error {
	if ours := formOf(kind); ours.to != nil {
		w.peek()
		if w.reads {
			return ours.to(&w.out, w.next())
		}
		return ours.from(&w.out, w.next())
	}
	if w.peek() != '{' || wellKnown(kind) {
		w.out.Write(w.next())
		return nil
	}
	return w.members('{', '}', func(key string) error {
		field := fieldOf(kind, key)
		if field == nil {
			return &logbook.InvalidError{Field: fmt.Sprintf("%.64q", key), Reason: fmt.Sprintf("%s has no such field", kind.FullName())}
		}
		return w.field(field)
	})
}

// field copies the value of a field, which may be a list or a map.
func (w *walker) field(field protoreflect.FieldDescriptor) error {
	named := isNamed(field)
	switch {
	case named && w.reads && w.peek() == '{':
		return w.readNamed(field)
	case named && w.reads && w.peek() != 'n':
		return &logbook.InvalidError{Field: field.TextName(), Reason: "not an object of names and values"}
	case named && !w.reads:
		return w.writeNamed()
	case field.IsMap() || field.Message() == nil:
		w.out.Write(w.next())
		return nil
	case field.IsList() && w.peek() == '[':
		return w.members('[', ']', func(string) error { return w.message(field.Message()) })
	case field.IsList():
		w.out.Write(w.next())
		return nil
	}
	return w.message(field.Message())
}

// readNamed turns an object into the list of named values that protojson reads.
func (w *walker) readNamed(field protoreflect.FieldDescriptor) error {
	var names []string
	w.out.WriteByte('[')
	err := w.each('}', func(name string, quoted []byte) error {
		if slices.Contains(names, name) {
			return &logbook.InvalidError{Field: field.TextName(), Reason: fmt.Sprintf("duplicate name %.64q", name)}
		}
		names = append(names, name)
		fmt.Fprintf(&w.out, `{"name":%s,"value":`, quoted)
		err := w.message(field.Message().Fields().ByName("value").Message())
		w.out.WriteByte('}')
		return err
	})
	w.out.WriteByte(']')
	return err
}

// writeNamed turns the list that protojson wrote into an object.
func (w *walker) writeNamed() error {
	var named []struct{ Name, Value json.RawMessage }
	if err := json.Unmarshal(w.next(), &named); err != nil {
		return fmt.Errorf("internal error: protojson wrote no list of named values: %w", err)
	}
	w.out.WriteByte('{')
	for i, one := range named {
		if i > 0 {
			w.out.WriteByte(',')
		}
		w.out.WriteString(cmp.Or(string(one.Name), `""`)) // protojson omits an empty name
		w.out.WriteByte(':')
		if err := unwrapValue(&w.out, []byte(cmp.Or(string(one.Value), "{}"))); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

// members copies an object or an array, and calls member for each value in
// it, with its key in an object.
func (w *walker) members(opening, closing byte, member func(key string) error) error {
	w.out.WriteByte(opening)
	err := w.each(closing, func(key string, quoted []byte) error {
		if quoted != nil {
			w.out.Write(quoted)
			w.out.WriteByte(':')
		}
		return member(key)
	})
	w.out.WriteByte(closing)
	return err
}

// each passes over an object or an array, and calls member before each value, which member copies.
// In an object it also passes the key. Commas are copied.
func (w *walker) each(closing byte, member func(key string, quoted []byte) error) error {
	w.peek()
	w.at++
	for w.peek() != closing {
		if w.peek() == ',' {
			w.at++
			w.out.WriteByte(',')
		}
		var key string
		var quoted []byte
		if closing == '}' {
			w.peek()
			quoted = w.next()
			if err := json.Unmarshal(quoted, &key); err != nil {
				return fmt.Errorf("internal error: key %.64q: %w", quoted, err)
			}
			w.peek()
			w.at++ // the colon
		}
		if err := member(key, quoted); err != nil {
			return err
		}
	}
	w.at++
	return nil
}

// peek skips white space and returns the byte that follows.
func (w *walker) peek() byte {
	for {
		switch c := w.data[w.at]; c {
		case ' ', '\t', '\r', '\n':
			w.at++
		default:
			return c
		}
	}
}

// next returns the bytes of one JSON value and moves to the position after it.
func (w *walker) next() []byte {
	first := w.peek()
	start := w.at
	switch first {
	case '"':
		w.at = endOfString(w.data, start)
	case '{', '[':
		w.at = endOfGroup(w.data, start)
	default:
		for w.at < len(w.data) && !bytes.ContainsRune([]byte(" \t\r\n,]}"), rune(w.data[w.at])) {
			w.at++
		}
	}
	return w.data[start:w.at]
}

// endOfString is the index after the string that starts at start, or the length of the data if the
// string has no end.
func endOfString(data []byte, start int) int {
	for i := start + 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// endOfGroup is the index after the object or array that starts at start.
func endOfGroup(data []byte, start int) int {
	depth := 0
	for i := start; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(data)
}
