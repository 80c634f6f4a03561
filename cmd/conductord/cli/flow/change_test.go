package flow_test

import (
	"slices"
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
		{"one step", "--map say-greeting=speak", 0, "renamed: say-greeting → speak\n", `the job keeps its document, which has no step "speak": the flow does not continue`},
		{"dry run", "--map say-greeting=speak --dry-run", 0, "renames: say-greeting → speak\n", ""},
		{"no mapping", "", cli.ExitUsage, "", "--map is missing"},
		{"no new name", "--map say-greeting", cli.ExitUsage, "", `"say-greeting" is not OLD=NEW`},
		{"one name for two", "--map say-greeting=x --map make-greeting=x", cli.ExitUsage, "", `the same name, "x"`},
		{"an instance", "--map say-greeting[0]=x", cli.ExitUsage, "", `rename step "say-greeting"`},
		{"a step that has not started", "--map wave=x", cli.ExitNotFound, "", `no started step "wave"`},
		{"one step twice", "--map say-greeting=speak --map speak=talk --dry-run", 0, "renames: say-greeting → speak\nspeak → talk\n", ""},
		{"and back", "--map say-greeting=speak --map speak=say-greeting --dry-run", 0, "renames: say-greeting → speak\nspeak → say-greeting\n", "none"},
		{"a recorded name", "--map say-greeting=make-greeting", cli.ExitConflict, "", `step "make-greeting" has started too`},
		{"a step whose revert failed", "--map make-greeting=x", cli.ExitConflict, "", "rename the step when it has ended"},
		{"one of two is refused", "--map say-greeting=speak --map make-greeting=x", cli.ExitConflict, "", "rename the step when it has ended"},
	} {
		t.Run(row.name, func(t *testing.T) {
			job, flow := clitest.StuckFlow(t, cluster)
			args := append([]string{"flow", "change", job.String(), "--by", "ann"}, strings.Fields(row.args)...)
			got := clitest.Run(t, cluster, args...)
			if got.Code != row.code || !strings.Contains(spaced(got.Out), row.out) || !strings.Contains(got.Err, row.err) && (row.err != "none" || got.Err != "") {
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

// TestFlowChangeTogether: renames are checked together, so an impossible one leaves the others undone.
func TestFlowChangeTogether(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.PostHello(t, cluster)
	w := clitest.NewWorker(t, cluster, id)
	w.Update("running", w.Begin("make-greeting"))
	w.Update("", w.Finish("make-greeting", `{"greeting":"Hello"}`, nil), w.Begin("say-greeting"))
	w.Update("", w.Finish("say-greeting", "7", nil))
	expectCode(t, clitest.Run(t, cluster, "job", "suspend", id.String()), 0)
	w.Must(cluster.Abandon(t.Context(), jobs.Ending{Job: id, Token: w.Claimed.Job.Token}))
	change := append([]string{"flow", "change", id.String(), "--by", "ann"}, strings.Fields("--map say-greeting=speak --map make-greeting=say-greeting")...)
	for _, args := range [][]string{append(slices.Clone(change), "--dry-run"), change} {
		got := clitest.Run(t, cluster, args...)
		if got.Code != cli.ExitConflict || !strings.Contains(got.Err, `"say-greeting" is a former name of step "speak"`) {
			t.Errorf("%v: %+v", args, got)
		}
	}
	detail, err := cluster.FlowDetail(t.Context(), w.Claimed.Job.Flow)
	if w.Must(err); len(detail.Interventions) != 0 {
		t.Errorf("recorded: %+v", detail.Interventions)
	}
	expectCode(t, clitest.Run(t, cluster, append(change[:len(change)-1], "make-greeting=greet")...), 0)
}

// spaced writes one space between words.
func spaced(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}
