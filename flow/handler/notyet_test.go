//go:build unix

package handler_test

import (
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
)

func TestHandlersSayNotYet(t *testing.T) {
	directory := t.TempDir()
	install(t, directory, "plain", `echo '{"not_yet":"30s"}'; exit 75`)
	install(t, directory, "tells", `echo "{\"not_yet\":\"1m\",\"details\":{\"asked\":$CONDUCTORD_ASKED}}"; exit 75`)
	install(t, directory, "null", `echo '{"not_yet":"0s","details":null}'; exit 75`)
	set := open(t, directory)
	for name, want := range map[string]flow.NotYetError{
		"plain": {After: 30 * time.Second},
		"tells": {After: time.Minute, Details: []byte(`{"asked":3}`)},
		"null":  {After: flow.MinAsk},
	} {
		c := call(nil)
		c.Asked = 3
		_, err := set.Task(name, name).Execute(t.Context(), c)
		undo := set.Task(name, name).(flow.Reverter).Revert(t.Context(), c)
		for _, err := range []error{err, undo} {
			said, ok := flow.AsNotYet(err)
			if !ok || said.After != want.After || string(said.Details) != string(want.Details) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
