package flow_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestFlowInterventions(t *testing.T) {
	cluster := clitest.Open(t)
	idle := "conductord: the job waits: no live conductor builds flows of kind \"document\" from board \"default\"\n"
	undone := "next:     job ID is claimable; the conductor that claims it next reverts its flow further\n"
	forwards := "next:     job ID is claimable; the conductor that claims it next runs its flow forwards\n"
	for _, row := range []struct {
		name string
		args string // several commands on one flow; the row checks the last
		code int
		out  string
		err  string // part of it
	}{
		{"undo further", "retry-revert ID --reason mended", 0, "recorded: retry-revert, at TIME by ann: mended\n" + undone, idle},
		{"skip", "skip ID make-greeting", 0, "recorded: skip make-greeting, at TIME by ann\n" + undone, idle},
		{"complete", `complete ID say-greeting --result {"said":"Hello"}`, 0, "recorded: complete say-greeting = {\"said\":\"Hello\"}, at TIME by ann\n" + forwards, idle},
		{"complete what has not begun", "complete ID wave", 0, "recorded: complete wave, at TIME by ann\n" + forwards, idle},
		{"rerun all", "rerun ID", 0, "recorded: rerun, at TIME by ann\n" + forwards, idle},
		{"rerun from a step", "rerun ID --from say-greeting", 0, "recorded: rerun say-greeting, at TIME by ann\n" + forwards, idle},
		{"hold", "complete ID say-greeting --hold", 0, "recorded: complete say-greeting (held), at TIME by ann\nnext:     nothing until an intervention without --hold follows: see `conductord flow show ID`\n", ""},
		{"the same again", "skip ID make-greeting --id 5bd43f3b-7a3e-4b55-9d3a-8a2d8f1c0001; skip ID make-greeting --id 5bd43f3b-7a3e-4b55-9d3a-8a2d8f1c0001", 0,
			"recorded: skip make-greeting, at TIME by ann\n" + undone, idle},
		{"one more before a claim", "retry-revert ID; rerun ID", 0, "recorded: rerun, at TIME by ann\n" + forwards, idle},
		{"skip what was not undone", "skip ID say-greeting", cli.ExitConflict, "", "steps whose revert has failed or was interrupted: make-greeting\n"},
		{"skip what is not there", "skip ID sing", cli.ExitNotFound, "", "the flow has no step \"sing\"\nconductord: steps whose revert has failed or was interrupted: make-greeting\n"},
		{"back, with one held that goes forwards", "complete ID say-greeting --hold; skip ID make-greeting", 0, "recorded: skip make-greeting, at TIME by ann\n" + forwards, idle},
		{"back after forwards, before a claim", "rerun ID; retry-revert ID", 0, "recorded: retry-revert, at TIME by ann\n" + forwards, idle},
		{"rerun from an empty variable", "rerun ID --from=", cli.ExitUsage, "", "--from is empty"},
		{"complete what is not there", "complete ID sing", cli.ExitNotFound, "", "its steps: make-greeting, say-greeting, wave\n"},
		{"rerun from what is not there", "rerun ID --from sing", cli.ExitNotFound, "", "its steps: make-greeting, say-greeting, wave\n"},
		{"a result that is no JSON", "complete ID wave --result {", cli.ExitUsage, "", "--result"},
		{"a result that is not there", "complete ID wave --result @none.json", cli.ExitUsage, "", "none.json"},
		{"hold and wait", "skip ID make-greeting --hold --wait", cli.ExitUsage, "", "--hold exclude"},
		{"take back", "complete ID say-greeting --hold; take-back ID", 0, "recorded: take-back, at TIME by ann\nnext:     nothing: job ID is completed: failed\n", ""},
		{"take back one of two", "complete ID say-greeting --hold; skip ID make-greeting; take-back ID say-greeting", 0, "recorded: take-back say-greeting, at TIME by ann\n" + undone, ""},
		{"take back one of two that hold", "complete ID say-greeting --hold; skip ID make-greeting --hold; take-back ID make-greeting", 0,
			"recorded: take-back make-greeting, at TIME by ann\nnext:     nothing until an intervention without --hold follows: see `conductord flow show ID`\n", ""},
		{"take back what nobody has begun", "rerun ID; take-back ID", 0, "recorded: take-back, at TIME by ann\nnext:     nothing: job ID is completed: failed\n", ""},
		{"take back nothing", "take-back ID", cli.ExitConflict, "", "the flow has no pending intervention\n"},
		{"take back what was not said", "skip ID make-greeting; take-back ID wave", cli.ExitConflict, "", `step "wave" has no pending intervention`},
		{"hold what cannot be held", "rerun ID --hold", cli.ExitUsage, "", "there is no flag --hold\n"},
		{"dry run of a rerun", "rerun ID --from say-greeting --dry-run", 0, "runs again: say-greeting\n", ""},
		{"dry run of all", "rerun ID --dry-run", 0, "runs again: make-greeting\n say-greeting\n", ""},
		{"dry run of a completion", "complete ID say-greeting --dry-run", 0, "", "no step would run or be reverted"},
		{"dry run with what is held", "complete ID say-greeting --hold; skip ID make-greeting --dry-run", 0, "", "no step would run or be reverted"},
		{"dry run of what cannot be done", "skip ID say-greeting --dry-run", cli.ExitConflict, "", "steps whose revert has failed or was interrupted: make-greeting\n"},
		{"dry run changes nothing", "rerun ID --dry-run; take-back ID", cli.ExitConflict, "", "the flow has no pending intervention\n"},
		{"no step", "skip ID", cli.ExitUsage, "", "STEP is missing\nconductord: usage: conductord flow skip FLOW|JOB STEP [flags]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			job, flow := clitest.StuckFlow(t, cluster)
			for _, id := range []string{job.String(), flow} {
				var got clitest.Said
				for _, line := range strings.Split(row.args, ";") {
					args := append([]string{"flow"}, strings.Fields(strings.ReplaceAll(line, "ID", id))...)
					got = clitest.Run(t, cluster, append(args, "--by", "ann")...)
				}
				if got.Code != row.code || clitest.Steady(got.Out) != spaces(row.out) || !strings.Contains(clitest.Steady(got.Err), row.err) {
					t.Errorf("got %d\n%s\n%s", got.Code, clitest.Steady(got.Out), clitest.Steady(got.Err))
				}
			}
		})
	}
	expectCode(t, clitest.Run(t, cluster, "flow", "rerun", jobs.NewJobID().String()), cli.ExitNotFound)
	done := clitest.PostHello(t, cluster)
	clitest.NewWorker(t, cluster, done).Succeed()
	got := clitest.Run(t, cluster, "flow", "rerun", done.String())
	if got.Code != cli.ExitConflict || !strings.Contains(got.Err, "the flow has succeeded") {
		t.Errorf("a flow that has succeeded: %+v", got)
	}
}

// spaces is the text that steady writes between columns.
func spaces(text string) string { return strings.ReplaceAll(text, "next:     ", "next: ") }

func expectCode(t *testing.T, got clitest.Said, code int) {
	t.Helper()
	if got.Code != code {
		t.Errorf("code %d, want %d: %+v", got.Code, code, got)
	}
}

func TestFlowInterventionAsJSON(t *testing.T) {
	cluster := clitest.Open(t)
	id, _ := clitest.StuckFlow(t, cluster)
	got := clitest.Run(t, cluster, "-o", "json", "flow", "complete", "--result", "7", "--reason", "seen", id.String(), "say-greeting")
	var told struct {
		Intervention, Job json.RawMessage
		FlowState         logbook.FlowState `json:"flow_state"`
		Next              string
	}
	if err := json.Unmarshal([]byte(got.Out), &told); err != nil || got.Code != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	i := clitest.ReadJSON(t, string(told.Intervention), &v1.Intervention{}, command.InterventionFromProto)
	if i.Kind != logbook.InterveneComplete || i.Step != "say-greeting" || string(i.Result) != "7" || i.Reason != "seen" || !strings.Contains(i.By, "@") || i.At.IsZero() || i.Token.IsZero() {
		t.Errorf("recorded %+v", i)
	}
	if told.FlowState != logbook.FlowFailure || told.Next == "" {
		t.Errorf("told %+v", told)
	}
	if job := clitest.ReadJob(t, string(told.Job)); job.ID != id || job.State != jobs.StateClaimable {
		t.Errorf("its job %+v", job)
	}
}

// TestFlowInterventionIsWaitedFor: the exit code depends on the job's end and the direction of
// the intervention.
func TestFlowInterventionIsWaitedFor(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		args string
		end  jobs.Outcome
		code int
	}{
		{"retry-revert ID", jobs.OutcomeReverted, 0},
		{"retry-revert ID", jobs.OutcomeFailed, cli.ExitFailed},
		{"rerun ID", jobs.OutcomeSuccess, 0},
		{"rerun ID", jobs.OutcomeReverted, cli.ExitFailed},
	} {
		id, _ := clitest.StuckFlow(t, cluster)
		ended := make(chan struct{})
		go func() { // ends with the job
			defer close(ended)
			for event, err := range cluster.Watch(t.Context(), jobs.Watch{Job: id, After: &jobs.Position{}}) {
				if err != nil || event.Kind == jobs.EventReopened {
					break
				}
			}
			clitest.NewWorker(t, cluster, id).EndAs(row.end)
		}()
		got := clitest.Run(t, cluster, append([]string{"flow"}, append(strings.Fields(strings.ReplaceAll(row.args, "ID", id.String())), "--wait", "--timeout", "30s")...)...)
		<-ended
		if got.Code != row.code || !strings.Contains(got.Err, "completed: "+string(row.end)) {
			t.Errorf("%s that ends %s: %+v", row.args, row.end, got)
		}
	}
}

// TestFailedFlowSaysHowToGoOn: with the very commands, and the job points there.
func TestFailedFlowSaysHowToGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clitest.Open(t)
		id, flow := clitest.StuckFlow(t, cluster)
		shown := clitest.Run(t, cluster, "flow", "show", "--attempts", id.String())
		for _, want := range []string{
			"definition: hash-of-hello\n", "state: failure\n",
			"next steps: conductord flow retry-revert ID # after you have fixed the cause of the failed revert: reverts: make-greeting\n",
			"conductord flow skip ID make-greeting # if it has nothing left to undo: runs nothing\n",
			"conductord flow complete ID --result JSON say-greeting # if its work is done: runs nothing\n",
			"conductord flow rerun ID --from say-greeting # runs again: say-greeting\n",
			"conductord flow rerun ID # runs again: make-greeting, say-greeting\n",
			"make-greeting revert 1 TIME TOOK w1 - 1-",
			"handler.exit: no way back\n",
		} {
			if !strings.Contains(clitest.Steady(shown.Out), want) {
				t.Errorf("no %q in\n%s", want, clitest.Steady(shown.Out))
			}
		}
		if !strings.Contains(shown.Out, flow) {
			t.Errorf("the commands name another flow than %s:\n%s", flow, shown.Out)
		}
		if got := clitest.Run(t, cluster, "job", "get", id.String()); !strings.Contains(clitest.Steady(got.Out), "next step: an operator must repair the flow: `conductord flow show ID` lists the repairs\n") {
			t.Errorf("the job is shown as\n%s", clitest.Steady(got.Out))
		}
		clitest.Run(t, cluster, "flow", "retry-revert", "--by", "ann", "--reason", "mended", id.String())
		shown = clitest.Run(t, cluster, "flow", "show", id.String())
		for _, want := range []string{
			"interventions: retry-revert, at TIME by ann: mended [not applied yet]\n",
			"next steps: none: a conductor applies the recorded intervention when it claims the job\n",
		} {
			if !strings.Contains(clitest.Steady(shown.Out), want) {
				t.Errorf("no %q in\n%s", want, clitest.Steady(shown.Out))
			}
		}
		watched := clitest.Run(t, cluster, "--timeout", "300ms", "job", "watch", "--after", "0-0", id.String())
		if want := " reopened ID \"hello\" claimable request=intervene by=ann"; !strings.Contains(clitest.Steady(watched.Out), want) {
			t.Errorf("no %q in\n%s", want, clitest.Steady(watched.Out))
		}
	})
}

// TestHeldFlowSaysHowToGoOn: a flow that is held has other commands than one whose revert has failed.
func TestHeldFlowSaysHowToGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clitest.Open(t)
		id := clitest.PostHello(t, cluster)
		clitest.NewWorker(t, cluster, id).Fail()
		shown := clitest.Run(t, cluster, "flow", "show", id.String())
		want := "next steps: conductord flow rerun ID --from say-greeting # after you have fixed the cause of the failure: runs again: say-greeting\n" +
			" conductord flow complete ID --result JSON say-greeting # if its work is done: runs nothing\n" +
			" conductord flow revert ID # runs nothing\n" +
			" conductord flow rerun ID # runs again: make-greeting, say-greeting\n"
		if !strings.Contains(clitest.Steady(shown.Out), want) {
			t.Errorf("no %q in\n%s", want, clitest.Steady(shown.Out))
		}
		explained := clitest.Run(t, cluster, "job", "explain", id.String())
		if want := "its flow is held at a failure"; !strings.Contains(explained.Out, want) {
			t.Errorf("no %q in\n%s", want, explained.Out)
		}
		if got := clitest.Run(t, cluster, "flow", "skip", id.String(), "say-greeting"); got.Code != cli.ExitConflict || !strings.Contains(got.Err, "the flow is held, and no revert has failed") {
			t.Errorf("skip: %+v", got)
		}
		if got := clitest.Run(t, cluster, "flow", "revert", id.String(), "--by", "ann"); got.Code != 0 || !strings.Contains(clitest.Steady(got.Out), "recorded: revert, at TIME by ann\n") {
			t.Errorf("revert: %+v", got)
		}
	})
}

// pointDocument is hello with a point of no return as its first step.
const pointDocument = `name = "switch-over"
[[steps]]
name = "make-greeting"
point_of_no_return = true
[[steps]]
name = "say-greeting"
after = ["make-greeting"]
`

// TestPointOfNoReturnTranscript: the dangerous repairs are refused at once, each with a reason that names
// the step, and no proposed command is one of them.
func TestPointOfNoReturnTranscript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clitest.Open(t)
		path, definition := written(t, pointDocument)
		if got := clitest.Run(t, cluster, "flow", "plan", path); !strings.Contains(got.Out, "1. make-greeting: point of no return\n") {
			t.Errorf("plan: %+v", got)
		}
		posted := clitest.Run(t, cluster, "flow", "run", path)
		id, err := jobs.ParseJobID(strings.TrimSpace(posted.Out))
		if err != nil {
			t.Fatal(posted)
		}
		clitest.NewWorker(t, cluster, id).FailAs(&definition)
		shown := clitest.Steady(clitest.Run(t, cluster, "flow", "show", id.String()).Out)
		for _, want := range []string{
			"no return: the flow is not reverted, because step make-greeting is a point of no return and has succeeded\n",
			"next steps: conductord flow rerun ID --from say-greeting # after you have fixed the cause of the failure: runs again: say-greeting\n" +
				" conductord flow complete ID --result JSON say-greeting # if its work is done: runs nothing\n\n",
			" ✓ make-greeting success point of no return ",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("no %q in\n%s", want, shown)
			}
		}
		for _, row := range []struct {
			args string
			code int
			says string
		}{
			{"rerun ID", cli.ExitConflict, `step "make-greeting" is a point of no return and has succeeded`},
			{"revert ID", cli.ExitConflict, `step "make-greeting" is a point of no return and has succeeded`},
			{"retry-revert ID", cli.ExitConflict, `step "make-greeting" is a point of no return and has succeeded`},
			{"rerun ID --dry-run", cli.ExitConflict, `step "make-greeting" is a point of no return and has succeeded`},
			{"revert ID --dry-run", cli.ExitConflict, `step "make-greeting" is a point of no return and has succeeded`},
			{"rerun ID --from say-greeting --dry-run", 0, "runs again: say-greeting\n"},
			{"complete ID say-greeting --dry-run", 0, "no step would run or be reverted"},
			{"rerun ID --from make-greeting --dry-run", 0, "runs again: make-greeting\n say-greeting\n"},
			{"rerun ID --from say-greeting", 0, "recorded: rerun say-greeting"},
		} {
			got := clitest.Run(t, cluster, append([]string{"flow"}, strings.Fields(strings.ReplaceAll(row.args, "ID", id.String()))...)...)
			if got.Code != row.code || !strings.Contains(clitest.Steady(got.Out+got.Err), row.says) {
				t.Errorf("%s: %+v", row.args, got)
			}
		}
	})
}

// written writes a flow document to a file, and returns its definition.
func written(t *testing.T, text string) (path string, definition logbook.Definition) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "flow.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	document, err := spec.Parse([]byte(text), path)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := document.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return path, plan.Definition()
}

// TestNextStepsAfterRequest: a flow that a request has stopped after a point of no return has next steps too,
// although no step has failed.
func TestNextStepsAfterRequest(t *testing.T) {
	path, definition := written(t, pointDocument)
	for name, want := range map[string]string{
		"interrupted": "next steps: conductord flow rerun ID --from say-greeting # runs again: say-greeting\n" +
			" conductord flow complete ID --result JSON say-greeting # if its work is done: runs nothing\n\n",
		"not started": "next steps: conductord flow rerun ID --from say-greeting # runs: say-greeting\n\n",
	} {
		cluster := clitest.Open(t)
		w := clitest.NewWorker(t, cluster, clitest.Post(t, cluster, "--flow", path))
		w.Update(logbook.FlowRunning, w.Begin("make-greeting"))
		last := w.Next(logbook.FlowFailure, w.Finish("make-greeting", "1", nil))
		if name == "interrupted" {
			change := w.Finish("say-greeting", "", &logbook.Failure{Kind: logbook.FailureInterrupted, Message: "the flow is undone"})
			change.State = logbook.AtomPending
			last.Atoms = append(last.Atoms, change)
		}
		last.Definition, last.Cause = &definition, &logbook.Failure{Kind: logbook.FailureOperator, Message: "cancel was requested by ann"}
		w.Must(cluster.Consume(t.Context(), jobs.Ending{Job: w.Claimed.Job.ID, Token: w.Claimed.Job.Token, Outcome: jobs.OutcomeFailed, Update: &last}))
		shown := clitest.Steady(clitest.Run(t, cluster, "flow", "show", w.Claimed.Job.ID.String()).Out)
		if !strings.Contains(shown, want) {
			t.Errorf("%s: no %q in\n%s", name, want, shown)
		}
	}
}

// TestNextStepsAfterDrop: no failure came before the failed revert of a member that was not needed. A step after
// the flow of the members can continue.
func TestNextStepsAfterDrop(t *testing.T) {
	text := "name = \"first\"\n[[steps]]\nname = \"m\"\nenough = 1\n[[steps.steps]]\nname = \"a\"\n[[steps.steps]]\n" +
		"name = \"b\"\nrevert = \"b\"\n[[steps]]\nname = \"c\"\nafter = [\"m\"]\n"
	path, definition := written(t, text)
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--flow", path)
	w := clitest.NewWorker(t, cluster, id)
	w.Update(logbook.FlowRunning, w.Begin("a"), w.Begin("b"))
	dropped := w.Finish("b", "", &logbook.Failure{Kind: logbook.FailureExit, Message: "no way back"})
	dropped.Attempts[0].Action, dropped.State, dropped.Intention = logbook.ActionRevert, logbook.AtomReverting, logbook.IntendDrop
	w.Update("", w.Finish("a", "1", nil), dropped)
	dropped.State, dropped.Attempts = logbook.AtomRevertFailure, nil
	last := w.Next(logbook.FlowFailure, dropped)
	last.Definition = &definition
	last.Cause = &logbook.Failure{Kind: logbook.FailureExit, Message: "no way back", Step: "b"}
	w.Must(cluster.Consume(t.Context(), jobs.Ending{Job: id, Token: w.Claimed.Job.Token, Outcome: jobs.OutcomeFailed, Update: &last, Failure: last.Cause}))
	for _, row := range []struct{ command, has, lacks string }{
		{"flow show", "revert failed: step b: handler.exit: no way back\n", "failed step"},
		{"flow show", " conductord flow rerun ID --from c # runs: c\n", "complete"},
		{"job get", "revert failed: step b: handler.exit: no way back\n", "failed step"},
	} {
		got := clitest.Steady(clitest.Run(t, cluster, append(strings.Fields(row.command), id.String())...).Out)
		if !strings.Contains(got, row.has) || strings.Contains(got, row.lacks) {
			t.Errorf("%s: want %q and no %q in\n%s", row.command, row.has, row.lacks, got)
		}
	}
}

// TestWordsOfSteps: what steps have said on stderr is shown, of the step that is
// the cause first, and with --attempts of all of them.
func TestWordsOfSteps(t *testing.T) {
	cluster := clitest.Open(t)
	id, flow := clitest.StuckFlow(t, cluster)
	shown := clitest.Run(t, cluster, "flow", "show", "--attempts", flow)
	for _, want := range []string{
		"\nstderr of the revert: no key\n for the room\n",
		"\nmake-greeting revert 1\n handler.exit: no way back\n stderr: no key\n stderr: for the room\n",
		"\nsay-greeting execute 1\n handler.exit: exit status 3\n stderr: connecting\n stderr: no such guest\\u001b[31m\n",
	} {
		if !strings.Contains(clitest.Steady(shown.Out), want) {
			t.Errorf("no %q in\n%s", want, shown.Out)
		}
	}

	if got := clitest.Run(t, cluster, "flow", "retry-revert", flow); got.Code != 0 {
		t.Fatal(got)
	}
	w := clitest.NewWorker(t, cluster, id)
	w.Update(logbook.FlowReverting, logbook.AtomChange{Name: "make-greeting", State: logbook.AtomReverting})
	last := w.Next(logbook.FlowReverted, logbook.AtomChange{Name: "make-greeting", State: logbook.AtomReverted})
	last.Cause = &logbook.Failure{Kind: logbook.FailureExit, Message: "exit status 3", Step: "say-greeting"}
	w.Must(w.Cluster.Consume(t.Context(), jobs.Ending{Job: id, Token: w.Claimed.Job.Token, Outcome: jobs.OutcomeReverted, Update: &last}))
	got := clitest.Run(t, cluster, "job", "get", id.String())
	if !strings.Contains(clitest.Steady(got.Out), "failed step: say-greeting\nfailure: handler.exit: exit status 3\nstderr: connecting\n") {
		t.Errorf("another step's words:\n%s", got.Out)
	}
	if got := clitest.Run(t, cluster, "flow", "show", flow); !strings.Contains(got.Out, "conductord flow rerun "+flow+"   #") || strings.Contains(got.Out, "skip") {
		t.Errorf("a flow that is undone can be run again, and nothing else:\n%s", got.Out)
	}
}

// TestJobListByOutcome finds the flows that need an operator among all others,
// also behind more jobs than are listed.
func TestJobListByOutcome(t *testing.T) {
	cluster := clitest.Open(t)
	clitest.NewWorker(t, cluster, clitest.PostHello(t, cluster)).Succeed()
	first, _ := clitest.StuckFlow(t, cluster)
	second, _ := clitest.StuckFlow(t, cluster)
	clitest.Post(t, cluster, "--kind", "k")
	for _, row := range []struct {
		args string
		want []string
		err  string
	}{
		{"--outcome failed", []string{second.String(), first.String()}, ""},
		{"--outcome failed --limit 2 --reverse", []string{first.String(), second.String()}, ""},
		{"--outcome failed --limit 1", []string{second.String()}, "shown: 1; all items: --limit 0"},
		{"--outcome Reverted", nil, ""},
	} {
		got := clitest.Run(t, cluster, append([]string{"job", "list", "-o", "json"}, strings.Fields(row.args)...)...)
		listed := clitest.ReadJobs(t, got.Out)
		ids := []string{}
		for _, job := range listed {
			ids = append(ids, job.ID.String())
		}
		if strings.Join(ids, " ") != strings.Join(row.want, " ") {
			t.Errorf("%s lists %s", row.args, ids)
		}
		if row.err == "" && got.Err != "" || !strings.Contains(got.Err, row.err) {
			t.Errorf("%s says %q", row.args, got.Err)
		}
	}
	if got := clitest.Run(t, cluster, "job", "list", "--outcome", "stuck"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "success, reverted, failed, cancelled") {
		t.Errorf("got %+v", got)
	}
}
