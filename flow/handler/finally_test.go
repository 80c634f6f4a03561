package handler_test

import (
	"encoding/json"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// TestFinally: a finally step gets the cause of a failure on stdin and in its environment, and none after a success.
func TestFinally(t *testing.T) {
	directory := t.TempDir()
	install(t, directory, "do", `echo "{\"cause\":\"${CONDUCTORD_CAUSE-none}\",\"input\":$(cat)}"`)
	task := open(t, directory).Task("do", "")
	for _, row := range []struct {
		name string
		call flow.Call
		want string
	}{
		{"a success", flow.Call{Final: true}, `{"cause":"none","input":{"$cause":null,"room":"12"}}`},
		{"a failure", flow.Call{Final: true, Cause: logbook.RevertCause{Kind: logbook.CauseFailure, Reason: "pay: declined"}},
			`{"cause":"failure","input":{"$cause":{"kind":"failure","reason":"pay: declined"},"room":"12"}}`},
		{"another step", flow.Call{}, `{"cause":"none","input":{"room":"12"}}`},
	} {
		c := row.call
		c.Action, c.Arguments = logbook.ActionExecute, logbook.Values{"room": json.RawMessage(`"12"`)}
		result, err := task.Execute(t.Context(), &c)
		if text, _ := json.Marshal(result); err != nil || string(text) != row.want {
			t.Errorf("%s: %s, %v; want %s", row.name, text, err, row.want)
		}
	}
}
