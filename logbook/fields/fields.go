// Package fields checks the answers of an approval against the JSON schema of its fields.
//
// A schema is JSON Schema of the draft 2020-12, with the formats checked. It loads nothing, and has no references:
// without them, the time of a check is bounded by the sizes of the schema and the answers. Answers are an object.
package fields

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/conductord/conductord/logbook"
)

// CheckSchema checks the schema of an approval's fields. ErrInvalid, ErrLimit.
func CheckSchema(schema json.RawMessage) error {
	_, err := compile(schema)
	return err
}

// Check checks answers against a schema. Without a schema, answers must be absent. ErrInvalid names all refused fields.
func Check(schema, answers json.RawMessage) error {
	if len(schema) == 0 {
		if len(answers) > 0 {
			return &logbook.InvalidError{Field: "decision answers", Reason: "set, but the approval has no fields; omit the answers"}
		}
		return nil
	}
	compiled, err := compile(schema)
	if err != nil {
		return err
	}
	if len(answers) == 0 {
		answers = json.RawMessage("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(answers))
	if err != nil {
		return &logbook.InvalidError{Field: "decision answers", Reason: "no JSON: " + err.Error()}
	}
	if _, isObject := value.(map[string]any); !isObject {
		return &logbook.InvalidError{Field: "decision answers", Reason: `no JSON object; write {"FIELD": VALUE}`}
	}
	if err := compiled.Validate(value); err != nil {
		return &logbook.InvalidError{Field: "decision answers", Reason: reasons(err) + "; `conductord approval show` prints the fields"}
	}
	return nil
}

// maxReasons limits the length of an error, because answers can have thousands of faults.
const maxReasons = 1_000

// reasons makes one line of the faults that a schema has found.
func reasons(err error) string {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) > 1 {
		lines = lines[1:] // the first one has only the name of the schema
	}
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "- "), "at '': ") // the whole object
	}
	text := strings.Join(lines, "; ")
	if len(text) > maxReasons {
		text = strings.ToValidUTF8(text[:maxReasons], "") + " …"
	}
	return text
}

// location is the place of every schema: no reference leads to it.
const location = "fields.json"

func compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	limits := logbook.MaxLimits
	limits.Value = logbook.MaxFields
	if err := limits.CheckValue("approve fields", schema); err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, refused("no JSON: " + err.Error())
	}
	table, isObject := value.(map[string]any)
	if !isObject {
		return nil, refused("no JSON object")
	}
	if kind, given := table["type"]; given && kind != "object" {
		return nil, refused(fmt.Sprintf(`its type is %v, and the answers are an object; write type = "object"`, kind))
	}
	if keyword := reference(value); keyword != "" {
		return nil, refused(fmt.Sprintf("it has the keyword %s; a schema of fields cannot have references", keyword))
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(location, value); err != nil {
		return nil, refused(err.Error())
	}
	compiled, err := compiler.Compile(location)
	if err != nil {
		return nil, refused(reasons(err))
	}
	return compiled, nil
}

func refused(reason string) error {
	return &logbook.InvalidError{Field: "approve fields", Reason: "no JSON schema of fields: " + reason}
}

// reference finds a keyword that refers to a schema; empty: there is none.
func reference(value any) string {
	switch value := value.(type) {
	case []any:
		for _, part := range value {
			if keyword := reference(part); keyword != "" {
				return keyword
			}
		}
	case map[string]any:
		for key, part := range value {
			if slices.Contains([]string{"$ref", "$dynamicRef", "$recursiveRef"}, key) {
				return key
			}
			if keyword := reference(part); keyword != "" {
				return keyword
			}
		}
	}
	return ""
}

// noLoader refuses to load schemas from files and networks.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("it names the schema " + url + ", and only draft 2020-12 and earlier drafts are known")
}
