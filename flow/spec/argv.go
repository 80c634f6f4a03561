package spec

import (
	"github.com/conductord/conductord/flow/handler"
)

// argv reads the arguments on a handler's command line, see handler.Argv.
func (r *reader) argv(t *table, s *Step) []string {
	if !t.has("argv") {
		return nil
	}
	list, ok := t.values["argv"].([]any)
	if !ok {
		t.fault("argv", "must be a list of strings, not %s", kindOf(t.values["argv"]))
		return nil
	}
	var elements []string
	for _, item := range list {
		element, ok := item.(string)
		if !ok {
			t.fault("argv", "the list must contain only strings, not %s; write it in quotes", kindOf(item))
			return nil
		}
		elements = append(elements, element)
	}
	injected, _ := t.values["inject"].(map[string]any)
	secrets := map[string]bool{} // reported
	err := handler.CheckArgv(elements, func(argument string) bool {
		_, required := s.Requires[argument]
		_, optional := s.Optional[argument]
		value, own := injected[argument]
		if own && !secrets[argument] && hasSecret(value) {
			secrets[argument] = true
			t.fault("argv", "%s has a secret, and all users of a machine can read command lines: read the secret from stdin", quoted(argument))
		}
		return required || optional || own
	})
	for _, fault := range joinedErrors(err) {
		if fault != nil {
			t.fault("argv", "%s", fault)
		}
	}
	return elements
}

// hasSecret reports whether a value refers to a secret, as engine.Options.Secrets resolves it.
func hasSecret(value any) bool {
	switch value := value.(type) {
	case []any:
		for _, part := range value {
			if hasSecret(part) {
				return true
			}
		}
	case map[string]any:
		_, refers := value["secret"].(string)
		if refers && len(value) == 1 {
			return true
		}
		for _, part := range value {
			if hasSecret(part) {
				return true
			}
		}
	}
	return false
}
