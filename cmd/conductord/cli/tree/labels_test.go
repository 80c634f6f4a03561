package tree_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/logbook"
)

const platforms = `
name = "build"
store = {zone = "eu"}

[[steps]]
name = "pick"
provides = ["pool"]

[[steps]]
name = "systems"
each = {over = "systems", as = "system"}

[[steps.steps]]
name = "archs"
each = {over = "system.archs", as = "arch"}

[[steps.steps.steps]]
name = "compile"
worker = true
worker_labels = ["{system.name}-{arch}", "{zone}", "{pool}", "{late}"]
requires = ["system", "arch", "zone", "pool", "late"]
`

// TestLabelsOfAWaitingStep: the labels that a worker needs have the values of the step's arguments. A label without a
// recorded value stays as written.
func TestLabelsOfAWaitingStep(t *testing.T) {
	const running, success = logbook.AtomRunning, logbook.AtomSuccess
	text := "inputs = [\"late\", \"systems\"]\n" + platforms
	detail := drawn(t, text, logbook.FlowRunning,
		atom("pick", success, `{"pool":7}`),
		kind(logbook.KindEach, atom("systems", success, `[{"name":"mac","archs":["x"]},{"name":"linux","archs":["x","arm"]}]`)),
		kind(logbook.KindEach, atom("archs[0]", success, `["x"]`)), kind(logbook.KindEach, atom("archs[1]", success, `["x","arm"]`)),
		atom("compile[0][0]", success, ""), atom("compile[1][1]", running, "", forWorker("")))
	detail.Store = logbook.Values{"zone": []byte(`"eu"`)}
	got := strings.Join(tree.DrawTree(detail, noon, false), "\n")
	if want := "compile[1][1]  waits for a worker  2s  compile + linux-arm + eu + 7 + {late}"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}
