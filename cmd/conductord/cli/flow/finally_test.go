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

const finallyDocument = `name = "greet"
on_failure = "hold"
[[steps]]
name = "make-greeting"
revert = "forget-greeting"
[[steps]]
name = "say-greeting"
after = ["make-greeting"]
[[finally]]
name = "report"
`

// TestFinallyTranscript: the plan, a held flow and a dry run show the finally step.
func TestFinallyTranscript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clitest.Open(t)
		path := filepath.Join(t.TempDir(), "flow.toml")
		if err := os.WriteFile(path, []byte(finallyDocument), 0o600); err != nil {
			t.Fatal(err)
		}
		posted := clitest.Run(t, cluster, "flow", "run", path)
		id, err := jobs.ParseJobID(strings.TrimSpace(posted.Out))
		if err != nil {
			t.Fatal(posted)
		}
		document, err := spec.Parse([]byte(finallyDocument), path)
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
			{"plan " + path, "3. report: finally\n"},
			{"plan -o json " + path, `"finally": true`},
			{"graph " + path, `label="report (finally)"`},
			{"show ID", "report pending finally"},
			{"revert ID --dry-run", "runs: report\n"},
			{"rerun ID --from say-greeting --dry-run", "runs: report\n"},
		} {
			got := clitest.Run(t, cluster, append([]string{"flow"}, strings.Fields(strings.ReplaceAll(row.args, "ID", id.String()))...)...)
			if got.Code != 0 || !strings.Contains(clitest.Steady(got.Out+got.Err), row.says) && !strings.Contains(got.Out, row.says) {
				t.Errorf("%s: %+v", row.args, got)
			}
		}
	})
}
