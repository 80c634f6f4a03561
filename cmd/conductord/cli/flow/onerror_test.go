package flow_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
)

const onErrorDocument = `name = "greet"
[[steps]]
name = "make-greeting"
revert = "forget-greeting"
[[steps]]
name = "say-greeting"
after = ["make-greeting"]
[[on_error]]
name = "report"
`

// TestOnErrorTranscript: the plan, the picture and a held flow show the on_error step.
func TestOnErrorTranscript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clitest.Open(t)
		path := filepath.Join(t.TempDir(), "flow.toml")
		if err := os.WriteFile(path, []byte(onErrorDocument), 0o600); err != nil {
			t.Fatal(err)
		}
		posted := clitest.Run(t, cluster, "flow", "run", path)
		id, err := jobs.ParseJobID(strings.TrimSpace(posted.Out))
		if err != nil {
			t.Fatal(posted)
		}
		document, err := spec.Parse([]byte(onErrorDocument), path)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := document.Compile()
		if err != nil {
			t.Fatal(err)
		}
		definition := plan.Definition()
		clitest.NewWorker(t, cluster, id).FailAs(&definition)
		for _, row := range []struct{ args, says string }{
			{"plan " + path, "3. report: on_error\n"},
			{"plan -o json " + path, `"on_error": true`},
			{"graph " + path, `label="report (on_error)"`},
			{"show ID", "report pending on_error"},
			{"rerun ID --from say-greeting --dry-run", "runs again: say-greeting\n"},
			{"complete ID say-greeting --dry-run", "no step would run or be reverted"},
		} {
			got := clitest.Run(t, cluster, append([]string{"flow"}, strings.Fields(strings.ReplaceAll(row.args, "ID", id.String()))...)...)
			if got.Code != 0 || !strings.Contains(clitest.Steady(got.Out+got.Err), row.says) && !strings.Contains(got.Out, row.says) {
				t.Errorf("%s: %+v", row.args, got)
			}
			if strings.Contains(row.args, "dry-run") && strings.Contains(got.Out, "report") {
				t.Errorf("%s lists an on_error step, which runs only after another failure: %+v", row.args, got)
			}
		}
	})
}
