package handler

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// Limits of a handler's command line. With the smallest stack limit, Linux allows 128 KiB for
// the command line and the environment together, so both stay below that.
const (
	MaxArgv        = 256
	MaxArgument    = 32 << 10 // bytes of one argument
	maxCommandLine = 96 << 10 // bytes of all arguments
)

// Argv gives a handler arguments on its command line, to execute and to revert. An element can
// name arguments of the step in braces, as in "--amount={amount}", and values inside them, as in
// "{order.id}": see flow.CheckPath. A string is inserted as its text, any other value as JSON.
// "{{" and "}}" are literal braces. An element that names an absent argument is left out. If an
// argument lacks the inner value, the step fails with the kind logbook.FailureArgument, unless
// MayLack names the argument. A step that would put a secret on a command line fails, because
// all users of the machine can read it.
func Argv(elements ...string) Option { return func(s *settings) { s.argv = elements } }

// MayLack names arguments that can lack the inner values that Argv names: an element with a missing
// inner value is left out.
func MayLack(arguments ...string) Option { return func(s *settings) { s.mayLack = arguments } }

// CheckArgv refuses elements that cannot be on a command line, and elements that name an
// argument that the step lacks.
func CheckArgv(elements []string, has func(argument string) bool) error {
	if len(elements) > MaxArgv {
		return &logbook.LimitError{Field: "argv", Limit: MaxArgv, Size: int64(len(elements)), Unit: "arguments"}
	}
	var faults []error
	for i, element := range elements {
		_, err := expand(element, func(reference string) string {
			if argument, _ := flow.CutPath(reference, has); !has(argument) {
				faults = append(faults, fmt.Errorf("%.80q is not an argument of the step", argument))
			}
			return ""
		})
		if err == nil {
			err = checkArgument(i, element)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func checkArgument(number int, text string) error {
	field := fmt.Sprintf("argv[%d]", number)
	switch {
	case len(text) > MaxArgument:
		return &logbook.LimitError{Field: field, Limit: MaxArgument, Size: int64(len(text)), Unit: "bytes"}
	case strings.Contains(text, "\x00"):
		return &logbook.InvalidError{Field: field, Reason: "it has a NUL byte, which ends an argument"}
	}
	return nil
}

// expand replaces the names in braces by values.
func expand(element string, value func(argument string) string) (string, error) {
	var text strings.Builder
	for rest := element; ; {
		at := strings.IndexAny(rest, "{}")
		if at < 0 {
			text.WriteString(rest)
			return text.String(), nil
		}
		text.WriteString(rest[:at])
		brace := rest[at : at+1]
		if rest = rest[at+1:]; strings.HasPrefix(rest, brace) {
			text.WriteString(brace)
			rest = rest[1:]
			continue
		}
		name, behind, closed := strings.Cut(rest, "}")
		if brace == "}" || !closed || name == "" || strings.Contains(name, "{") {
			return "", fmt.Errorf("%.80q has a brace that is not part of a pair around a name; write {{ and }} for braces", element)
		}
		text.WriteString(value(name))
		rest = behind
	}
}

// arguments are the command line of a call.
func arguments(elements, mayLack []string, call *flow.Call) ([]string, error) {
	var argv []string
	size := 0
	known := func(name string) bool {
		_, ok := call.Arguments[name]
		return ok || slices.Contains(mayLack, name)
	}
	for i, element := range elements {
		absent, secret, lacking := false, "", error(nil)
		text, err := expand(element, func(reference string) string {
			name, path := flow.CutPath(reference, known)
			value, ok := call.Arguments[name]
			if absent = absent || !ok; slices.Contains(call.Secrets, name) {
				secret = name
			}
			if !ok {
				return ""
			}
			inner, err := flow.Inner(name, value, path)
			switch {
			case err != nil && slices.Contains(mayLack, name):
				absent = true
			case err != nil:
				lacking = fmt.Errorf("cannot fill argv[%d]: %w", i, err)
			}
			return valueText(inner)
		})
		if absent {
			continue
		}
		if secret != "" {
			return nil, &logbook.Failure{Kind: logbook.FailureSecret, Permanent: true, Message: fmt.Sprintf(
				"argv[%d] would show the secret argument %q to all users of the machine: remove it from argv; the handler reads the argument on stdin", i, secret)}
		}
		if err = cmp.Or(err, lacking); err == nil {
			err = checkArgument(i, text)
		}
		if size += len(text) + 1; err == nil && size > maxCommandLine {
			err = &logbook.LimitError{Field: "argv", Limit: maxCommandLine, Size: int64(size), Unit: "bytes"}
		}
		if err != nil {
			return nil, &logbook.Failure{Kind: logbook.FailureArgument, Permanent: true, Message: err.Error()}
		}
		argv = append(argv, text)
	}
	return argv, nil
}

// valueText is the text of a string, and the JSON of another value.
func valueText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && !bytes.Equal(value, []byte("null")) {
		return text
	}
	var short bytes.Buffer
	_ = json.Compact(&short, value) // for a missing value
	return short.String()
}
