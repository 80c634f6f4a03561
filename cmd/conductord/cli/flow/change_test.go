package flow_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

func TestFlowChange(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		name, args string
		code       int
		out, err   string
	}{
		{"one step", "--map say-greeting=speak", 0, "renamed: say-greeting → speak\n", ""},
		{"dry run", "--map say-greeting=speak --dry-run", 0, "renames: say-greeting → speak\n", ""},
		{"no mapping", "", cli.ExitUsage, "", "--map is missing"},
		{"no new name", "--map say-greeting", cli.ExitUsage, "", `"say-greeting" is not OLD=NEW`},
		{"one name for two", "--map say-greeting=x --map make-greeting=x", cli.ExitUsage, "", `the same name, "x"`},
		{"an instance", "--map say-greeting[0]=x", cli.ExitUsage, "", `rename step "say-greeting"`},
		{"a step that has not started", "--map wave=x", cli.ExitNotFound, "", `no started step "wave"`},
		{"a recorded name", "--map say-greeting=make-greeting", cli.ExitConflict, "", `step "make-greeting" has started too`},
		{"a step whose revert failed", "--map make-greeting=x", cli.ExitConflict, "", "rename the step when it has ended"},
		{"one of two is refused", "--map say-greeting=speak --map make-greeting=x", cli.ExitConflict, "", "rename the step when it has ended"},
	} {
		t.Run(row.name, func(t *testing.T) {
			job, flow := clitest.StuckFlow(t, cluster)
			args := append([]string{"flow", "change", job.String(), "--by", "ann"}, strings.Fields(row.args)...)
			got := clitest.Run(t, cluster, args...)
			if got.Code != row.code || !strings.Contains(spaced(got.Out), row.out) || !strings.Contains(got.Err, row.err) {
				t.Errorf("got %+v", got)
			}
			shown := clitest.Run(t, cluster, "flow", "show", flow).Out
			if changed := row.name == "one step"; strings.Contains(shown, "speak") != changed || strings.Contains(shown, "rename say-greeting to speak") != changed || strings.Contains(shown, "[withdrawn]") {
				t.Errorf("the flow is shown as\n%s", shown)
			}
		})
	}
	expectCode(t, clitest.Run(t, cluster, "flow", "change", jobs.NewJobID().String(), "--map", "a=b"), cli.ExitNotFound)
	claimed := clitest.PostHello(t, cluster)
	w := clitest.NewWorker(t, cluster, claimed)
	w.Update("running", w.Begin("make-greeting"))
	w.Update("", w.Finish("make-greeting", `{"greeting":"Hello"}`, nil))
	got := clitest.Run(t, cluster, "flow", "change", claimed.String(), "--map", "make-greeting=x")
	if got.Code != cli.ExitConflict || !strings.Contains(got.Err, "w1 holds its job") {
		t.Errorf("a claimed job: %+v", got)
	}
	if got := clitest.Run(t, cluster, "-o", "json", "flow", "change", claimed.String(), "--map", "make-greeting=x", "--dry-run"); got.Code != 0 || !strings.Contains(got.Out, `"to": "x"`) || !strings.Contains(got.Out, `"dry_run": true`) {
		t.Errorf("as JSON: %+v", got)
	}
}

// spaced writes one space between words.
func spaced(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}
