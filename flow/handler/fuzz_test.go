package handler_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

// FuzzSaidNotYet: any output of a handler is one of three things: a "not yet" with a valid
// time and details, a recordable failure of kind "result", or neither.
func FuzzSaidNotYet(f *testing.F) {
	for _, text := range []string{"", "null", `{}`, `{"not_yet":"30s"}`, `{"not_yet":"30s","details":{"a":1}}`, `{"not_yet":17}`, `{"not_yet":null}`,
		`{"not_yet":"-1h"}`, `{"not_yet":"9999999h"}`, `{"not_yet":"30s","details":"\ud800"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		err := handler.SaidNotYet("h", answer)
		if err == nil {
			return
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(answer, &object) != nil {
			t.Fatalf("%q is no object, and means %v", answer, err)
		}
		failure := flow.FailureOf(err)
		if checked := logbook.MaxLimits.CheckFailure("failure", failure); checked != nil {
			t.Fatalf("what %q means cannot be recorded: %v", answer, checked)
		}
		var said *logbook.Failure
		if errors.As(err, &said) && said.Kind != logbook.FailureResult {
			t.Fatalf("%q is a failure of kind %s", answer, said.Kind)
		}
	})
}
