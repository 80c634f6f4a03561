//go:build unix

package spec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// TestRetriesByFailure runs a handler that always fails, and counts its executions: a permanent
// failure, kinds and exit statuses end the retries of steps, flows and documents.
func TestRetriesByFailure(t *testing.T) {
	const plain, permanent, spoilt = "exit 75", "exit 65", `echo '{"failure": {"kind": "image.unacceptable"}}'; exit 1`
	for i, row := range []struct {
		end                  string // of the handler
		document, flow, step string // their retries
		runs                 int
	}{
		{plain, "", `{for_each = ["a", "b", "c"], provides = "host"}`, "", 3},
		{permanent, "", `{for_each = ["a", "b", "c"], provides = "host"}`, "", 1},
		{permanent, "", `{for_each = ["a", "b", "c"], permanent = "end"}`, "", 1},
		{permanent, "", `{for_each = ["a", "b", "c"], permanent = "retry"}`, "", 3},
		{permanent, "{times = 2}", `{times = 3}`, "{attempts = 4}", 1},
		{permanent, `{times = 2, permanent = "retry"}`, `{times = 3}`, "{attempts = 4}", 2},
		{spoilt, "", `{times = 3}`, "", 3},
		{spoilt, "", `{times = 3, never = ["image.unacceptable"]}`, "", 1},
		{spoilt, "", `{times = 3, never = [1]}`, "", 1},
		{spoilt, "", `{times = 3, never = [75]}`, "", 3},
		{plain, "", `{times = 3, only = ["timeout", 75]}`, "", 3},
		{spoilt, "", `{times = 3, only = ["timeout", 75]}`, "", 1},
		{plain, `{times = 3, never = ["handler.exit"]}`, "", "", 1},
		{spoilt, `{times = 3, never = ["handler.exit"]}`, "", "", 3},
		{plain, "", "", "{attempts = 3, only = [75]}", 3},
		{plain, "", "", "{attempts = 3, only = [74]}", 1},
		{spoilt, "", "", `{attempts = 3, never = ["image.unacceptable"]}`, 1},
		{spoilt, "", "{times = 2}", `{attempts = 3, never = ["image.unacceptable"]}`, 2},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			directory := t.TempDir()
			if err := os.WriteFile(filepath.Join(directory, "create"), []byte("#!/bin/sh\ncat > /dev/null\n"+row.end+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			set, err := handler.Open(directory)
			if err != nil {
				t.Fatal(err)
			}
			retry := func(text string) string {
				if text == "" {
					return ""
				}
				return "retry = " + text + "\n"
			}
			text := "name = \"volume\"\n" + retry(row.document) + "[[steps]]\nname = \"somewhere\"\n" + retry(row.flow) +
				"[[steps.steps]]\nname = \"create\"\n" + retry(row.step)
			document, err := spec.Parse([]byte(text), "volume.toml")
			if err != nil {
				t.Fatal(err)
			}
			built, err := document.Build(set)
			if err != nil {
				t.Fatal(err)
			}
			result, _ := engine.RunLocal(t.Context(), built, nil)
			runs := 0
			atom, _ := result.Detail.Atom("create")
			for _, attempt := range atom.Attempts {
				if attempt.Action == logbook.ActionExecute {
					runs++
				}
			}
			if result.State != logbook.FlowReverted || runs != row.runs {
				t.Errorf("%s after %d executions, want %d:\n%s%s", result.State, runs, row.runs, text, row.end)
			}
		})
	}
}
