package dashboard

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/conductord/conductord/jobs"
)

// property is one property in the JSON schema of an approval's answers, with the keywords that a form can show.
type property struct {
	Type        any               `json:"type"` // a word, or a list of words
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Enum        []json.RawMessage `json:"enum"`
	Default     json.RawMessage   `json:"default"`
}

// schema is the JSON schema of answers.
type schema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

// wholeAnswers is the form field for the answers of a schema without properties: one JSON object.
const wholeAnswers = "answers"

// answerField is the name of the form field of a property.
func answerField(property string) string { return "field-" + property }

// propertyOf reads a property. A property that is no object, such as true, has any value.
func propertyOf(raw json.RawMessage) *property {
	p := &property{}
	_ = json.Unmarshal(raw, p)
	return p
}

// answerInputs are the form fields of a schema: required ones first, and by name.
func answerInputs(fields json.RawMessage) (inputs []input) {
	if len(fields) == 0 {
		return nil
	}
	var s schema
	_ = json.Unmarshal(fields, &s) // the flow's document was refused unless it is a schema
	if len(s.Properties) == 0 {
		return []input{{Name: wholeAnswers, Label: "Answers, as a JSON object", Kind: "lines"}}
	}
	for _, required := range []bool{true, false} {
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, name) == required {
				inputs = append(inputs, propertyOf(s.Properties[name]).input(name, required))
			}
		}
	}
	return inputs
}

func (f *property) input(name string, required bool) input {
	in := input{Name: answerField(name), Label: cut(name, maxName), Required: required, Value: plainText(f.Default)}
	if f.Title != "" {
		in.Label = cut(f.Title, maxLine)
	}
	if f.Description != "" {
		in.Label += ": " + cut(f.Description, maxLine)
	}
	switch {
	case len(f.Enum) > 0:
		for _, choice := range f.Enum {
			in.Choices = append(in.Choices, plainText(choice))
		}
	case f.Type == "boolean":
		in.Choices = []string{"true", "false"}
	case f.Type == "integer":
		in.Kind = "integer"
	case f.Type == "number":
		in.Kind = "decimal"
	case f.Type != "string":
		in.Kind, in.Value = "lines", string(f.Default)
		in.Label += " (JSON)"
	}
	if len(in.Choices) > 0 && !required {
		in.Unchosen = "no answer"
	}
	return in
}

// plainText is the content of a string, and the JSON of another value.
func plainText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// answers makes the answers of the form. It only translates texts to JSON: the leader checks them against the schema.
func (v *visit) answers(fields json.RawMessage) (json.RawMessage, error) {
	if len(fields) == 0 {
		return nil, nil
	}
	var s schema
	_ = json.Unmarshal(fields, &s)
	if len(s.Properties) == 0 {
		text := v.form(wholeAnswers)
		if text == "" {
			return nil, nil
		}
		return jsonOf(wholeAnswers, text)
	}
	answers := make(map[string]json.RawMessage)
	for name, raw := range s.Properties {
		text := v.form(answerField(name))
		if text == "" {
			continue
		}
		f := propertyOf(raw)
		value, err := f.value(name, text)
		if err != nil {
			return nil, err
		}
		answers[name] = value
	}
	return json.Marshal(answers)
}

// value is the JSON of a form field.
func (f *property) value(name, text string) (json.RawMessage, error) {
	for _, choice := range f.Enum {
		if plainText(choice) == text {
			return choice, nil
		}
	}
	if f.Type == "string" || len(f.Enum) > 0 {
		return json.Marshal(text)
	}
	return jsonOf(name, text)
}

func jsonOf(name, text string) (json.RawMessage, error) {
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("%w: field %s is %.64q, and must be JSON, such as 7, true or [\"a\"]", jobs.ErrInvalid, name, text)
	}
	return json.RawMessage(text), nil
}
