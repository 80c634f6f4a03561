package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// warehouse is a cluster that runs orders: reserve, then ship. While the file "shut" exists, shipping fails;
// while "jammed" exists, the undo of a reservation fails; while "busy" exists, shipping continues to run.
// Each step writes a line to the diary of its order.
type warehouse struct {
	*testing.T
	cluster *local.Cluster
	client  *raftboard.Client
	dir     string
}

func openWarehouse(t *testing.T) *warehouse {
	t.Helper()
	w := &warehouse{T: t, dir: t.TempDir()}
	handlers := filepath.Join(w.dir, "handlers")
	const script = `
echo "$CONDUCTORD_STEP $CONDUCTORD_ACTION" >> %[1]s/diary-$CONDUCTORD_JOB
while [ $CONDUCTORD_STEP = ship ] && [ -e %[1]s/busy ]; do sleep 0.05; done
if [ -e %[1]s/%[2]s ]; then echo "%[2]s" >&2; exit 1; fi
echo '"done by a handler"'
`
	writeHandler(t, handlers, "reserve", fmt.Sprintf(script, w.dir, "never"))
	writeHandler(t, handlers, "release", fmt.Sprintf(script, w.dir, "jammed"))
	writeHandler(t, handlers, "ship", fmt.Sprintf(script, w.dir, "shut"))
	w.cluster, w.client = startCluster(t, func(c *config.Config) { c.Conductor.Handlers = []string{handlers} })
	return w
}

const orderDocument = `
name = "order"
pattern = "linear"
[[steps]]
name = "reserve"
handler = "reserve"
revert = "release"
provides = "shelf"
[[steps]]
name = "ship"
handler = "ship"
provides = "parcel"
`

// mark creates or removes one of the files that control the handlers.
func (w *warehouse) mark(name string, there bool) {
	w.Helper()
	path := filepath.Join(w.dir, name)
	err := os.Remove(path)
	if there {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil && !os.IsNotExist(err) {
		w.Fatal(err)
	}
}

// stuck brings an order into a state in which it can be neither shipped nor reverted.
func (w *warehouse) stuck() jobs.Job {
	w.Helper()
	w.mark("shut", true)
	w.mark("jammed", true)
	job, err := jobs.PostOne(within(w.T), w.client, documentPosting(w.T, "order", orderDocument))
	if err != nil {
		w.Fatal(err)
	}
	return w.ends(job.ID, jobs.OutcomeFailed, logbook.FlowFailure)
}

// ends waits for a job's end, and checks it.
func (w *warehouse) ends(id jobs.JobID, outcome jobs.Outcome, state logbook.FlowState) jobs.Job {
	w.Helper()
	job, err := w.client.Wait(within(w.T), id)
	if err != nil {
		w.Fatal(err)
	}
	detail := w.flow(job.Flow)
	if job.Outcome != outcome || detail.State != state {
		w.Fatalf("the job is %s %s (%s), its flow %s", job.State, job.Outcome, job.Reason, detail.State)
	}
	return job
}

func (w *warehouse) flow(id logbook.FlowID) logbook.FlowDetail {
	w.Helper()
	detail, err := w.client.FlowDetail(within(w.T), id)
	if err != nil {
		w.Fatal(err)
	}
	return detail
}

// diary counts the handlers' actions for an order.
func (w *warehouse) diary(job jobs.JobID) map[string]int {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "diary-"+job.String()))
	if err != nil {
		w.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		counts[strings.TrimSpace(line)]++
	}
	return counts
}

// says runs a command of the program, like an operator.
func (w *warehouse) says(args ...string) string {
	w.Helper()
	command := exec.CommandContext(within(w.T), binary, append([]string{"--server", strings.Join(w.cluster.Endpoints(), ",")}, args...)...)
	said, err := command.CombinedOutput()
	if err != nil {
		w.Fatalf("%v: %v\n%s", args, err, said)
	}
	return string(said)
}

// TestPersonGetsAFailedFlowOn: each of the four commands brings a stuck flow to its intended end,
// and finished work is not repeated.
func TestPersonGetsAFailedFlowOn(t *testing.T) {
	t.Parallel()
	w := openWarehouse(t)
	for _, row := range []struct {
		name    string
		mend    []string // files that are removed before
		say     []string // the commands
		outcome jobs.Outcome
		state   logbook.FlowState
		done    map[string]int // additional actions after the flow was stuck
		results map[string]string
	}{
		{
			"undo further", []string{"jammed"}, []string{"retry-revert JOB --reason mended --wait"},
			jobs.OutcomeReverted, logbook.FlowReverted, map[string]int{"reserve revert": 1}, nil,
		},
		{
			"skip the undo", nil, []string{"skip JOB reserve --wait"},
			jobs.OutcomeReverted, logbook.FlowReverted, nil, nil,
		},
		{
			"complete by hand", nil, []string{"complete JOB reserve --hold --result 7", `complete JOB ship --result {"parcel":1} --wait`},
			jobs.OutcomeSuccess, logbook.FlowSuccess, nil, map[string]string{"reserve": "7", "ship": `{"parcel":1}`},
		},
		{
			"run all of it again", []string{"shut"}, []string{"rerun JOB --wait"},
			jobs.OutcomeSuccess, logbook.FlowSuccess, map[string]int{"reserve execute": 1, "ship execute": 1}, map[string]string{"ship": `"done by a handler"`},
		},
		{
			"go on from the step that failed", []string{"shut"}, []string{"rerun JOB --from ship --wait"},
			jobs.OutcomeSuccess, logbook.FlowSuccess, map[string]int{"ship execute": 1}, map[string]string{"ship": `"done by a handler"`},
		},
		{
			"complete one and run the other", []string{"shut"}, []string{"complete JOB reserve --hold --result 7", "rerun JOB --from ship --wait"},
			jobs.OutcomeSuccess, logbook.FlowSuccess, map[string]int{"ship execute": 1}, map[string]string{"reserve": "7", "ship": `"done by a handler"`},
		},
		{
			"undo, and then run it again", []string{"jammed", "shut"}, []string{"retry-revert JOB --wait", "rerun JOB --wait"},
			jobs.OutcomeSuccess, logbook.FlowSuccess, map[string]int{"reserve revert": 1, "reserve execute": 1, "ship execute": 1}, nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := &warehouse{t, w.cluster, w.client, w.dir}
			job := w.stuck()
			before := w.diary(job.ID)
			for _, name := range row.mend {
				w.mark(name, false)
			}
			for _, line := range row.say {
				w.says(append([]string{"flow"}, strings.Fields(strings.ReplaceAll(line, "JOB", job.ID.String()))...)...)
			}
			w.ends(job.ID, row.outcome, row.state)
			for what, count := range w.diary(job.ID) {
				if more := count - before[what]; more != row.done[what] {
					t.Errorf("%q was done %d times more, and %d are right", what, more, row.done[what])
				}
			}
			detail := w.flow(job.Flow)
			for step, want := range row.results {
				atom, _ := detail.Atom(step)
				if got, ok := atom.Result(); !ok || string(got) != want {
					t.Errorf("the result of %s is %s, want %s", step, got, want)
				}
			}
			if n := len(detail.Interventions); n != len(row.say) || len(detail.Pending()) != 0 {
				t.Errorf("%d interventions are recorded, %d of them pending", n, len(detail.Pending()))
			}
		})
	}
}

// TestPersonGetsAHeldFlowOn: a flow that is held at its failure has reverted nothing, and each
// command continues it from there.
func TestPersonGetsAHeldFlowOn(t *testing.T) {
	t.Parallel()
	w := openWarehouse(t)
	for _, row := range []struct {
		say     string
		outcome jobs.Outcome
		state   logbook.FlowState
		done    string // after the flow was held
	}{
		{"rerun JOB --from ship --wait", jobs.OutcomeSuccess, logbook.FlowSuccess, "map[ship execute:1]"},
		{"complete JOB ship --wait", jobs.OutcomeSuccess, logbook.FlowSuccess, "map[]"},
		{"revert JOB --wait", jobs.OutcomeReverted, logbook.FlowReverted, "map[reserve revert:1]"},
	} {
		w.mark("shut", true)
		job, err := jobs.PostOne(within(t), w.client, documentPosting(t, "order", "on_failure = \"hold\""+orderDocument))
		if err != nil {
			t.Fatal(err)
		}
		w.ends(job.ID, jobs.OutcomeFailed, logbook.FlowFailure)
		detail := w.flow(job.Flow)
		if atom, _ := detail.Atom("reserve"); atom.State != logbook.AtomSuccess {
			t.Errorf("reserve is %s in a flow that is held", atom.State)
		}
		if listed := w.says("job", "list", "--needs-attention"); !strings.Contains(listed, job.ID.String()) {
			t.Errorf("no job %s in the list of jobs that need an operator:\n%s", job.ID, listed)
		}
		before := w.diary(job.ID)
		w.mark("shut", false)
		w.says(append([]string{"flow"}, strings.Fields(strings.ReplaceAll(row.say, "JOB", job.ID.String()))...)...)
		w.ends(job.ID, row.outcome, row.state)
		done := w.diary(job.ID)
		for what, count := range before {
			if done[what] -= count; done[what] == 0 {
				delete(done, what)
			}
		}
		if got := fmt.Sprint(done); got != row.done {
			t.Errorf("%s: done %s, want %s", row.say, got, row.done)
		}
	}
}

// TestIrreversibleStepIsNotRepeated brings a flow forwards that stopped at a step which cannot be undone:
// the step, and one beside it that has no undo, keep their results. Each command that is proposed lists the
// steps that it runs, and so does its dry run.
func TestIrreversibleStepIsNotRepeated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	handlers, ledger, mended := filepath.Join(dir, "handlers"), filepath.Join(dir, "done"), filepath.Join(dir, "mended")
	writeHandler(t, handlers, "work", `echo "$CONDUCTORD_STEP" >> '`+ledger+`'`)
	writeHandler(t, handlers, "refuse", "echo 'the old table is gone' >&2; exit 65")
	writeHandler(t, handlers, "tell", `sleep 0.5; [ -e '`+mended+`' ] || { echo 'the cache does not answer' >&2; exit 1; }; echo tell >> '`+ledger+`'`)
	step := func(text string) string { return "[[steps]]\n" + text + "\n" }
	document := "name = \"switch-over\"\n" + step("name = \"copy\"\nhandler = \"work\"\nrevert = \"work\"") +
		step("name = \"switch\"\nhandler = \"work\"\nrevert = \"refuse\"\nafter = [\"copy\"]") +
		step("name = \"tell\"\nafter = [\"switch\"]") + step("name = \"count\"\nhandler = \"work\"\nafter = [\"switch\"]") +
		step("name = \"sweep\"\nhandler = \"work\"\nafter = [\"tell\"]")
	d := atDesk(t, handlers)
	id := d.says(document, "flow", "run", "-")
	d.waits(id)
	shown := squeezed(d.shows(id))
	for _, want := range []string{
		"failed step: tell", "failure: handler.exit: handler tell ended with status 1: the cache does not answer", "revert failed: step switch: handler.exit: handler refuse",
		"# after you have fixed the cause of the failed revert: reverts: switch, copy", "switch # if it has nothing left to undo: reverts: copy",
		"--result JSON tell # if its work is done: runs: sweep", "--from tell # runs again: tell; runs: sweep", " # runs again: copy, switch, tell, count; runs: sweep",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	for arguments, want := range map[string]string{
		"rerun ID --from tell": "runs again: tell runs: sweep", "rerun ID": "runs again: copy switch tell count runs: sweep", "complete ID tell": "runs: sweep",
		"retry-revert ID": "reverts: switch copy", "skip ID switch": "reverts: copy skips: switch",
	} {
		args := strings.Fields("flow " + strings.ReplaceAll(arguments, "ID", id) + " --dry-run")
		if said := strings.Join(strings.Fields(d.says("", args...)), " "); said != want {
			t.Errorf("%s --dry-run says %q, want %q", arguments, said, want)
		}
	}
	for _, file := range []string{mended, ledger} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.says("", "flow", "rerun", id, "--from", "tell")
	if job := d.waits(id); job.Outcome != jobs.OutcomeSuccess {
		t.Errorf("the job is %s, %q", job.State, job.Outcome)
	}
	if done, _ := os.ReadFile(ledger); string(done) != "tell\nsweep\n" {
		t.Errorf("it has done:\n%s", done)
	}
}

// TestPointOfNoReturnIsNotRepeated: behind a point of no return, neither a failure, a cancellation nor a
// repair undoes a step or runs the point again.
func TestPointOfNoReturnIsNotRepeated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	handlers, ledger, mended := filepath.Join(dir, "handlers"), filepath.Join(dir, "done"), filepath.Join(dir, "mended")
	writeHandler(t, handlers, "work", `echo "$CONDUCTORD_STEP $CONDUCTORD_ACTION" >> '`+ledger+`'`)
	writeHandler(t, handlers, "tell", `sleep 0.5; [ -e '`+mended+`' ] || { echo 'the cache does not answer' >&2; exit 1; }; echo tell >> '`+ledger+`'`)
	step := func(text string) string { return "[[steps]]\n" + text + "\n" }
	document := "name = \"switch-over\"\n" + step("name = \"copy\"\nhandler = \"work\"\nrevert = \"work\"") +
		step("name = \"switch\"\nhandler = \"work\"\npoint_of_no_return = true\nafter = [\"copy\"]") +
		step("name = \"tell\"\nafter = [\"switch\"]") + step("name = \"count\"\nhandler = \"work\"\nrevert = \"work\"\nafter = [\"switch\"]")
	d := atDesk(t, handlers)
	for _, row := range []struct{ args, done string }{
		{"flow rerun ID --from tell", "tell\n"},
		{"flow complete ID tell", ""},
	} {
		for _, file := range []string{mended, ledger} {
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
		}
		id := d.says(document, "flow", "run", "-")
		if row.done == "" {
			eventually(t, "count is done", func() bool { done, _ := os.ReadFile(ledger); return strings.Contains(string(done), "count") })
			command(t, "", "job", "cancel", id, "--wait-for-steps", "--server", d.address) // unless tell has failed before
		}
		if job := d.waits(id); job.Outcome != jobs.OutcomeFailed {
			t.Fatalf("%s: the job is %s, %q", row.args, job.State, job.Outcome)
		}
		if done, _ := os.ReadFile(ledger); strings.Contains(string(done), "revert") {
			t.Errorf("undone:\n%s", done)
		}
		for _, refused := range []string{"rerun ID", "rerun ID --from copy", "revert ID", "retry-revert ID"} {
			got := command(t, "", append(strings.Fields("flow "+strings.ReplaceAll(refused, "ID", id)), "--server", d.address)...)
			if got.code != 4 || !strings.Contains(got.err, `step "switch" is a point of no return`) {
				t.Errorf("%s: %+v", refused, got)
			}
		}
		for _, file := range []string{mended, ledger} {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d.says("", strings.Fields(strings.ReplaceAll(row.args, "ID", id))...)
		if job := d.waits(id); job.Outcome != jobs.OutcomeSuccess {
			t.Errorf("%s: the job is %s, %q", row.args, job.State, job.Outcome)
		}
		if done, _ := os.ReadFile(ledger); string(done) != row.done {
			t.Errorf("%s has done:\n%s", row.args, done)
		}
	}
}

// TestInterventionOutlivesItsLeader: an acknowledged intervention is carried out, although
// the leader is killed at once, and the job's owner with it.
func TestInterventionOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	w := openWarehouse(t)
	job := w.stuck()
	w.mark("jammed", false)
	w.says("flow", "retry-revert", job.ID.String(), "--reason", "mended")
	leaderOf(t, w.cluster, w.client).Kill()
	job = w.ends(job.ID, jobs.OutcomeReverted, logbook.FlowReverted)
	detail := w.flow(job.Flow)
	if len(detail.Interventions) != 1 || detail.Interventions[0].Reason != "mended" || detail.Interventions[0].By == "" {
		t.Errorf("the flow remembers %+v", detail.Interventions)
	}
}

// TestCancelledFlowIsUndoneFurther: a job whose revert failed after a cancel is cancelled at the
// end.
func TestCancelledFlowIsUndoneFurther(t *testing.T) {
	t.Parallel()
	w := openWarehouse(t)
	w.mark("busy", true)
	w.mark("jammed", true)
	job, err := jobs.PostOne(within(t), w.client, documentPosting(t, "order", orderDocument))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the order is being shipped", func() bool {
		text, err := os.ReadFile(filepath.Join(w.dir, "diary-"+job.ID.String()))
		return err == nil && strings.Contains(string(text), "ship execute")
	})
	w.says("job", "cancel", job.ID.String())
	eventually(t, "the owner knows that the job is cancelled", func() bool {
		return slices.ContainsFunc(w.cluster.Nodes, func(node *local.Node) bool {
			log, err := os.ReadFile(node.Log)
			return err == nil && strings.Contains(string(log), "stop request received")
		})
	})
	w.mark("busy", false)
	w.ends(job.ID, jobs.OutcomeFailed, logbook.FlowFailure)
	w.mark("jammed", false)
	w.says("flow", "retry-revert", job.ID.String(), "--wait")
	job = w.ends(job.ID, jobs.OutcomeCancelled, logbook.FlowReverted)
	if job.StopRequest == nil || job.StopRequest.Kind != jobs.RequestCancel {
		t.Errorf("the job is under the order %+v", job.StopRequest)
	}
}
