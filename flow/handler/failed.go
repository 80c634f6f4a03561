package handler

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// saidFailure is the failure object that a handler can print. All fields are optional.
type saidFailure struct {
	Kind    string         `json:"kind"`
	Message string         `json:"message"`
	Details logbook.Values `json:"details"`
	Stack   string         `json:"stack"`
	Causes  []saidFailure  `json:"causes"`
}

// failed returns the failure of a handler that ended with a status other than 0. It takes the
// failure from stdout, if that is an object with the field failure, and otherwise the last line
// of stderr.
func (t *task) failed(name string, status int, stderr string, answer []byte) *logbook.Failure {
	exit := exitFailure(name, status, stderr)
	var printed struct {
		Failure json.RawMessage `json:"failure"`
	}
	if json.Unmarshal(answer, &printed) != nil || printed.Failure == nil {
		return exit
	}
	field := "the failure that handler " + name + " has printed"
	err := t.settings.limits.CheckValue(field, printed.Failure)
	var said saidFailure
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(printed.Failure))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&said)
	}
	if err != nil {
		exit.Message = fmt.Sprintf("%.1000s; %s is ignored: %v", exit.Message, field, err)
		return exit
	}
	if said.Message == "" {
		said.Message = exit.Message
	}
	failure := said.failure()
	failure.Code, failure.Permanent = exit.Code, exit.Permanent
	return &failure
}

func (s *saidFailure) failure() logbook.Failure {
	f := logbook.Failure{Kind: s.Kind, Message: s.Message, Details: s.Details, Stack: s.Stack}
	if f.Kind == "" {
		f.Kind = logbook.FailureExit
	}
	for i := range s.Causes {
		f.Causes = append(f.Causes, s.Causes[i].failure())
	}
	return f
}
