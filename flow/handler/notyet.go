package handler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// notYet reads the output of a handler that ended with ExitTryAgain. It returns nil unless the
// output is an object with the field not_yet. It needs status and field, so that no result and
// no failure is taken for a "not yet".
func notYet(name string, answer []byte) error {
	var said struct {
		NotYet  json.RawMessage `json:"not_yet"`
		Details json.RawMessage `json:"details"`
	}
	if err := json.Unmarshal(answer, &said); err != nil || said.NotYet == nil {
		return nil
	}
	if err := logbook.MaxLimits.CheckValue("stdout of handler "+name, answer); err != nil {
		return failure(logbook.FailureResult, ExitTryAgain, err.Error(), "")
	}
	var text string
	err := json.Unmarshal(said.NotYet, &text)
	var after time.Duration
	if err == nil {
		after, err = time.ParseDuration(text)
	}
	if err != nil {
		const excerpt = 80
		return failure(logbook.FailureResult, ExitTryAgain,
			fmt.Sprintf("handler %s reports \"not yet\", and not_yet is not a duration such as \"30s\": %.*s", name, excerpt, said.NotYet), "")
	}
	if len(said.Details) == 0 || bytes.Equal(said.Details, []byte("null")) {
		return flow.NotYet(after)
	}
	return flow.NotYet(after, said.Details)
}
