package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// faultOfJSON explains why protojson refuses a message. The errors of protojson name types of the encoding, and
// no limits. The error has the first field whose value has a wrong type or is out of range. If there is no such field,
// it has protojson's text. The data have passed checkJSON and rewrite.
func faultOfJSON(data []byte, message protoreflect.MessageDescriptor, refused error) error {
	if err := valueFault(data, message); err != nil {
		return err
	}
	return &logbook.InvalidError{Field: "request", Reason: refused.Error()}
}

// valueFault returns the first field whose value has a wrong type or is out of range; nil if there is none.
func valueFault(data []byte, message protoreflect.MessageDescriptor) error {
	w := walker{data: data}
	return w.faultInMessage("request", message)
}

// faultInMessage finds the first fault in a message, which is the value of the field with this name.
func (w *walker) faultInMessage(name string, message protoreflect.MessageDescriptor) error {
	if formOf(message).to != nil { // rewrite has checked it
		w.next()
		return nil
	}
	if w.peek() != '{' || wellKnown(message) {
		return invalid(name, refusedMessage(message, w.next()))
	}
	return w.each('}', func(key string, _ []byte) error { return w.faultInField(fieldOf(message, key)) })
}

// faultInField finds the first fault in the value of a field.
func (w *walker) faultInField(field protoreflect.FieldDescriptor) error {
	first, name := w.peek(), field.TextName()
	switch {
	case first == 'n', isNamed(field): // null means unset, and rewrite has checked named values
		w.next()
		return nil
	case field.IsMap():
		return invalid(name, unless(first == '{', w.next(), "an object"))
	case field.IsList() && first != '[':
		return invalid(name, unless(false, w.next(), "a list"))
	case field.IsList():
		return w.each(']', func(string, []byte) error { return w.faultInOne(field) })
	}
	return w.faultInOne(field)
}

// faultInOne finds the first fault in the only value of a field, or in one value of its list.
func (w *walker) faultInOne(field protoreflect.FieldDescriptor) error {
	if field.Message() != nil {
		return w.faultInMessage(field.TextName(), field.Message())
	}
	return invalid(field.TextName(), refusedScalar(field.Kind(), w.next()))
}

func invalid(name, reason string) error {
	if reason == "" {
		return nil
	}
	return &logbook.InvalidError{Field: name, Reason: reason}
}

// unless returns a reason if a value is not what its field requires.
func unless(ok bool, given []byte, want string) string {
	if ok {
		return ""
	}
	return shown(given) + " is not " + want
}

// shown is a JSON value in an error: short, and without the content of objects and lists.
func shown(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return fmt.Sprintf("%.64q", textOf(value))
	}
	return fmt.Sprintf("%.64s", value)
}

// textOf is the text of a JSON string.
func textOf(value []byte) (text string) {
	_ = json.Unmarshal(value, &text) // the data are valid JSON
	return text
}

// wellKnown reports whether protojson has a special form for a message.
func wellKnown(message protoreflect.MessageDescriptor) bool {
	return message.FullName().Parent() == "google.protobuf"
}

func refusedMessage(message protoreflect.MessageDescriptor, value []byte) string {
	switch message.FullName() {
	case "google.protobuf.Timestamp":
		return unless(protojson.Unmarshal(value, new(timestamppb.Timestamp)) == nil, value, `a time such as "2026-01-31T15:04:05Z"`)
	case "google.protobuf.Duration":
		return unless(protojson.Unmarshal(value, new(durationpb.Duration)) == nil, value, `a duration in seconds such as "1.5s"`)
	}
	return unless(value[0] == '{', value, "an object")
}

// refusedScalar returns the reason why a value is not of a kind. It may accept a value that protojson refuses, but
// never the reverse.
func refusedScalar(kind protoreflect.Kind, value []byte) string {
	switch kind {
	case protoreflect.BoolKind:
		return unless(value[0] == 't' || value[0] == 'f', value, "true or false")
	case protoreflect.StringKind, protoreflect.BytesKind:
		return unless(value[0] == '"', value, "text")
	case protoreflect.Int32Kind, protoreflect.Sint32Kind:
		return unless(isInt(value, 32), value, fmt.Sprintf("a whole number from %d to %d", math.MinInt32, math.MaxInt32))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind:
		return unless(isInt(value, 64), value, fmt.Sprintf("a whole number from %d to %d", math.MinInt64, math.MaxInt64))
	case protoreflect.Uint32Kind:
		return unless(isUint(value, 32), value, fmt.Sprintf("a whole number from 0 to %d", uint32(math.MaxUint32)))
	case protoreflect.Uint64Kind:
		return unless(isUint(value, 64), value, fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)))
	}
	return ""
}

func isInt(value []byte, bits int) bool {
	text := numberText(value)
	if strings.ContainsAny(text, ".eE") {
		return isWhole(text, -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1))
	}
	_, err := strconv.ParseInt(text, 10, bits)
	return err == nil
}

func isUint(value []byte, bits int) bool {
	text := numberText(value)
	if strings.ContainsAny(text, ".eE") {
		return isWhole(text, 0, math.Ldexp(1, bits))
	}
	_, err := strconv.ParseUint(text, 10, bits)
	return err == nil || text == "-0"
}

// numberText is the text of a number, which may be in quotes.
func numberText(value []byte) string {
	if value[0] == '"' {
		return textOf(value)
	}
	return string(value)
}

// isWhole reports whether a text is a whole number with a fraction or an exponent, such as 1e3.
func isWhole(text string, low, high float64) bool {
	number, err := strconv.ParseFloat(text, 64)
	return err == nil && number == math.Trunc(number) && number >= low && number <= high
}

// fieldOf is the field with a name of JSON or of the .proto file; nil if there is none.
func fieldOf(message protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if field := message.Fields().ByJSONName(key); field != nil {
		return field
	}
	return message.Fields().ByTextName(key)
}

// isNamed reports whether a field is a list of named values, which is an object in our form.
func isNamed(field protoreflect.FieldDescriptor) bool {
	return field.IsList() && field.Message() != nil && command.OptionsOf(field.Message()).Form == v1.Form_NAMED
}
