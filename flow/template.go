package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A template is a text with references to arguments in braces, as in "disk-{host}" or
// "{order.region}". A string is inserted as its text, any other value as JSON.

// fillTemplate inserts the values of arguments. An absent argument, or an absent value inside one,
// is left empty if mayLack accepts the argument; otherwise it is an error.
func fillTemplate(template string, known func(argument string) bool, value func(argument string) (json.RawMessage, bool), mayLack func(argument string) bool) (string, error) {
	var text strings.Builder
	var faults []error
	for rest := template; ; {
		before, after, found := strings.Cut(rest, "{")
		text.WriteString(before)
		if !found {
			return text.String(), errors.Join(faults...)
		}
		reference, behind, _ := strings.Cut(after, "}")
		rest = behind
		name, path := CutPath(reference, known)
		inner, ok := value(name)
		err := fmt.Errorf("there is no argument %.120q", name)
		if ok {
			inner, err = Inner(name, inner, path)
		}
		if err == nil {
			text.WriteString(valueText(inner))
		} else if !mayLack(name) {
			faults = append(faults, err)
		}
	}
}

// argumentsIn are the arguments that a template names.
func argumentsIn(template string, known func(argument string) bool) []string {
	names := placeholders(template)
	for i := range names {
		names[i], _ = CutPath(names[i], known)
	}
	return names
}

func (s *Step) hasArgument(name string) bool { return slices.Contains(argumentNames(s.requires), name) }

func (s *Step) isRequired(name string) bool {
	return slices.ContainsFunc(s.requires, func(a Argument) bool { return a.Name == name && !a.Optional })
}

// checkTemplate reports braces that are not pairs around arguments of the step. The template is
// named what in the message.
func (s *Step) checkTemplate(what, template string) {
	names := argumentsIn(template, s.hasArgument)
	for _, name := range names {
		if !s.hasArgument(name) {
			s.fault("its %s %q names %q, which is not an argument of the step", what, template, name)
		}
	}
	if pairs := strings.Count(template, "{"); pairs != strings.Count(template, "}") || pairs != len(names) {
		s.fault("its %s %q has braces that are not pairs around a name", what, template)
	}
}

// placeholders are the references in braces.
func placeholders(template string) []string {
	var names []string
	for {
		_, after, found := strings.Cut(template, "{")
		name, behind, closed := strings.Cut(after, "}")
		if !found || !closed {
			return names
		}
		if !strings.Contains(name, "{") {
			names = append(names, name)
		}
		template = behind
	}
}

// valueText is the text of a string, and the JSON of another value.
func valueText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && first(value) == '"' {
		return text
	}
	return compact(value)
}
