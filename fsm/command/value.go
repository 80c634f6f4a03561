package command

import (
	"encoding/json"
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

// ValueFromProto converts one JSON value, sharing its bytes. Whether they are
// JSON is for Check to say.
func ValueFromProto(value *v1.Value) json.RawMessage {
	if len(value.GetJson()) == 0 {
		return nil
	}
	return value.GetJson()
}

// ValuesToProto converts named values.
func ValuesToProto(values logbook.Values) map[string]*v1.Value {
	if len(values) == 0 {
		return nil
	}
	messages := make(map[string]*v1.Value, len(values))
	for name, value := range values {
		messages[name] = &v1.Value{Json: value}
	}
	return messages
}

// ValuesFromProto converts named values.
func ValuesFromProto(messages map[string]*v1.Value) logbook.Values {
	if len(messages) == 0 {
		return nil
	}
	values := make(logbook.Values, len(messages))
	for name, message := range messages {
		values[name] = ValueFromProto(message)
	}
	return values
}

// text makes any bytes fit for a message. It is for what people read and
// nobody compares: error texts and the output of handlers may hold any bytes,
// and one bad byte must not keep the evidence from being recorded. The
// replacement is one byte long, so that what was within a limit stays within.
func text(s string) string { return strings.ToValidUTF8(s, "?") }
