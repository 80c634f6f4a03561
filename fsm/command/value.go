package command

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

// ValueToProto converts one JSON value, sharing its bytes. An empty value is
// none, and unset.
func ValueToProto(value json.RawMessage) *v1.Value {
	if len(value) == 0 {
		return nil
	}
	return &v1.Value{Json: value}
}

// ValueFromProto converts one JSON value, and shares its bytes. Check verifies that they are JSON.
func ValueFromProto(value *v1.Value) json.RawMessage {
	if len(value.GetJson()) == 0 {
		return nil
	}
	return value.GetJson()
}

// ValuesToProto converts named values, in the order of their names.
func ValuesToProto(values logbook.Values) []*v1.NamedValue {
	if len(values) == 0 {
		return nil
	}
	messages := make([]*v1.NamedValue, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		messages = append(messages, &v1.NamedValue{Name: name, Value: &v1.Value{Json: values[name]}})
	}
	return messages
}

// sortValues puts named values into the order of their names.
func sortValues(values []*v1.NamedValue) {
	byName := func(a, b *v1.NamedValue) int { return strings.Compare(a.GetName(), b.GetName()) }
	if !slices.IsSortedFunc(values, byName) {
		slices.SortStableFunc(values, byName)
	}
}

// ValuesFromProto converts named values.
func ValuesFromProto(messages []*v1.NamedValue) logbook.Values {
	if len(messages) == 0 {
		return nil
	}
	values := make(logbook.Values, len(messages))
	for _, message := range messages {
		values[message.GetName()] = ValueFromProto(message.GetValue())
	}
	return values
}

// text makes any bytes valid for a message. Use it for texts that people read and no program
// compares: error texts and the output of handlers can contain any bytes, and one bad byte must not
// prevent the record. The replacement is one byte long, so a text within a limit stays within the
// limit.
func text(s string) string { return strings.ToValidUTF8(s, "?") }
