package fields_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/fields"
)

const change = `{"type": "object", "required": ["ticket"], "additionalProperties": false,
	"properties": {"ticket": {"type": "string", "pattern": "^CHG-[0-9]+$"}, "until": {"type": "string", "format": "date"}, "hosts": {"type": "integer", "maximum": 10}}}`

// TestCheck: the answers of a decision pass, or the error names the refused fields.
func TestCheck(t *testing.T) {
	for _, row := range []struct{ schema, answers, want string }{
		{change, `{"ticket": "CHG-1"}`, ""},
		{change, `{"ticket": "CHG-1", "until": "2030-01-31", "hosts": 10}`, ""},
		{"", "", ""},
		{`{}`, `{"any": [1]}`, ""},
		{`{"properties": {"a": {}}}`, "", ""},
		{"", `{"ticket": "CHG-1"}`, "has no fields"},
		{change, "", "answers is invalid: missing property 'ticket'; `conductord approval show` prints the fields"},
		{change, `{"ticket": "1"}`, "/ticket"},
		{change, `{"ticket": 7, "hosts": 11}`, "/hosts"},
		{change, `{"ticket": "CHG-1", "until": "soon"}`, "/until"},
		{change, `{"ticket": "CHG-1", "tickets": 2}`, "tickets"},
		{change, `["CHG-1"]`, "no JSON object"},
		{change, `{"ticket"`, "no JSON"},
		{`{"required": ` + `"ticket"}`, `{}`, "approve fields"},
	} {
		err := fields.Check(json.RawMessage(row.schema), json.RawMessage(row.answers))
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s with %s: %v", row.schema, row.answers, err)
		case row.want != "" && (!errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s with %s: got %v, want %q", row.schema, row.answers, err, row.want)
		}
	}
}

// TestCheckSchema: a schema loads nothing, refers to nothing, and is about an object.
func TestCheckSchema(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type": "array"}`: "the answers are an object",
		`[]`:                "no JSON object",
		`{`:                 "no",
		`{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}`: "cannot have references",
		`{"allOf": [{"$dynamicRef": "file:///etc/passwd"}]}`:               "cannot have references",
		`{"$schema": "https://example.com/schema"}`:                        "draft",
		`{"properties": {"a": {"type": "text"}}}`:                          "/properties/a/type",
		`{"properties": {"a": {"pattern": "("}}}`:                          "pattern",
	} {
		if err := fields.CheckSchema(json.RawMessage(schema)); !errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", schema, err, want)
		}
	}
	long := json.RawMessage(`{"title": "` + strings.Repeat("x", logbook.MaxFields) + `"}`)
	if err := fields.CheckSchema(long); !errors.Is(err, logbook.ErrLimit) {
		t.Errorf("a long schema: got %v, want a limit", err)
	}
}
