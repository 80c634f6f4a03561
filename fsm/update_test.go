package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// executing and executed are the start and the end of an execution.
func executing(number uint32) *v1.Attempt {
	return &v1.Attempt{Action: "execute", Number: number, StartedAt: timestamppb.New(start)}
}

func executed(number uint32, result string) *v1.Attempt {
	a := executing(number)
	a.EndedAt, a.Result = timestamppb.New(start), value(result)
	return a
}

func TestUpdateRefusals(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(saveBook(book("loose", "loose")))
	r.posted(flowPosting("waiting"))
	token := r.claimed("ann", flowPosting("a"))
	r.ok(updateFlow(update("flow of a", token, 1, "running",
		task("x", "running", executing(1)), task("x", "success", executed(1, "1")))))
	zero, old := logbook.Token{}, logbook.Token{Generation: 1, Index: token.Index - 1}
	rows := []struct {
		name string
		u    *v1.Update
		code string
	}{
		{"an unknown flow", update("none", zero, 1, "running"), "not_found"},
		{"an old token", update("flow of a", old, 1, "suspended"), "fenced"},
		{"no token, under a claim", update("flow of a", zero, 1, "suspended"), "fenced"},
		{"no token, before a claim", update("flow of waiting", zero, 1, "running"), "fenced"},
		{"a token, without a job", update("loose", token, 1, "running"), "fenced"},
		{"a gap", update("flow of a", token, 3, "suspended"), "conflict"},
		{"number 0", update("flow of a", token, 0, "suspended"), "invalid"},
		{"a state that is not next", update("flow of a", token, 2, "reverted"), "conflict"},
		{"an unknown state", update("flow of a", token, 2, "DANCING"), "invalid"},
		{"an atom's state that is not next", update("flow of a", token, 2, "", task("y", ""), task("x", "running")), "conflict"},
		{"an atom of another kind", update("flow of a", token, 2, "", &v1.AtomChange{Name: "x", Kind: "retry"}), "conflict"},
		{"a new atom without a kind", update("flow of a", token, 2, "", &v1.AtomChange{Name: "new"}), "invalid"},
		{"an atom without a name", update("flow of a", token, 2, "", task("", "")), "invalid"},
		{"an atom's name of 256 bytes", update("flow of a", token, 2, "", task(strings.Repeat("x", 256), "")), "over_limit"},
		{"an attempt that has ended", update("flow of a", token, 2, "", task("x", "", executed(1, "2"))), "conflict"},
		{"attempt 0", update("flow of a", token, 2, "", task("x", "", executing(0))), "invalid"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) { r.refused(updateFlow(row.u), row.code) })
	}
}

func TestUpdateRepeats(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("a"))
	first := updateFlow(update("flow of a", token, 1, "running", task("x", "running", executing(1))))
	second := updateFlow(update("flow of a", token, 2, "", task("x", "success", executed(1, "1"))))
	r.ok(first)
	r.harmless(first)
	r.ok(second)
	r.harmless(second)
	r.harmless(first)
	last := success("a", token)
	last.Update = update("flow of a", token, 3, "success")
	r.ok(consume(last))
	// A repeated packed call also contains the updates before the ending. They have taken effect,
	// so a "fenced" answer would be false.
	r.harmless(second)
	r.harmless(consume(last))
	r.refused(updateFlow(update("flow of a", token, 4, "")), "fenced")
}

func TestUpdateWithoutAJob(t *testing.T) {
	r := newRig(t)
	r.ok(saveBook(book("b", "f")))
	for i, state := range []string{"running", "reverting", "reverted"} {
		r.ok(updateFlow(update("f", logbook.Token{}, uint64(i+1), state)))
	}
	r.refused(updateFlow(update("f", logbook.Token{}, 4, "running")), "conflict")
	if len(r.events()) != 0 {
		t.Errorf("events of a flow without a job: %q", r.events())
	}
}

// TestUpdateWithoutAJobAfterOne: numbers start again with each token, so a late repeat from
// before a claim would look like the first update after it.
func TestUpdateWithoutAJobAfterOne(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(saveBook(book("book of a", "flow of a")))
	outside := update("flow of a", logbook.Token{}, 1, "running", task("x", "running", executing(1)))
	outside.Cause = &v1.Failure{Kind: "error", Message: "of long ago"}
	r.ok(updateFlow(outside))
	token := r.claimed("ann", flowPosting("a"))
	r.harmless(updateFlow(outside))
	r.ok(updateFlow(update("flow of a", token, 1, "", task("x", "pending", executed(1, "1")))))
	r.ok(trash(ending("a", token)))
	r.refused(updateFlow(outside), "fenced")
	r.refused(updateFlow(update("flow of a", logbook.Token{}, 1, "", task("x", "running", executing(2)))), "fenced")
}

// TestManyLongAttempts: a flow with a step of very many attempts must still fit into an answer,
// with all data that a conductor needs to resume it.
func TestManyLongAttempts(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("a"))
	long := strings.Repeat("x", logbook.MaxStderr)
	do := func(sequence uint64, state string, change *v1.AtomChange) {
		if result := r.do(updateFlow(update("flow of a", token, sequence, state, change)))[0]; result.Error != nil {
			t.Fatal(result)
		}
	}
	const executions, reverts = 40, 20
	do(1, "running", task("x", "running"))
	for n := uint32(1); n <= executions; n++ {
		attempt := executed(n, `"`+long+`"`)
		attempt.Stderr = fmt.Sprint(n, " ", long)
		if n < executions {
			attempt.Failure = &v1.Failure{Kind: "error", Message: long, Step: "x", Permanent: true}
		}
		do(uint64(n)+1, "", task("x", "", attempt))
	}
	do(executions+2, "reverting", task("x", "reverting"))
	for n := uint32(1); n <= reverts; n++ {
		attempt := executed(n, "")
		attempt.Action, attempt.Result, attempt.Stderr, attempt.Failure = "revert", nil, long, &v1.Failure{Kind: "error", Message: long}
		do(executions+2+uint64(n), "", task("x", "", attempt))
	}
	if err := fsm.Verify(r.Machine); err != nil {
		t.Fatal(err)
	}
	flow, more, err := r.Flow(flowID("flow of a"), fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil || more || len(flow.Atoms[0].Attempts) != executions+reverts {
		t.Fatal(len(flow.Atoms[0].Attempts), more, err)
	}
	if size := proto.Size(command.FlowDetailToProto(&flow)); size > 1<<20 {
		t.Errorf("the flow takes %d bytes", size)
	}
	for i, a := range flow.Atoms[0].Attempts {
		whole := a.Action == logbook.ActionExecute && a.Number == executions || a.Action == logbook.ActionRevert && a.Number == reverts
		succeeded := a.Action == logbook.ActionExecute && a.Number == executions
		switch {
		case !a.Ended() || (a.Failure == nil) != succeeded:
			t.Errorf("attempt %d: %+v", i, a)
		case whole && (len(a.Stderr) < logbook.MaxStderr || a.StderrTruncated):
			t.Errorf("attempt %d is cut", i)
		case a.Shortened && whole, !a.Shortened && len(a.Stderr) < logbook.MaxStderr:
			t.Errorf("attempt %d is shortened: %t", i, a.Shortened)
		case !whole && a.Stderr == "" && !a.StderrTruncated:
			t.Errorf("attempt %d does not say that it is cut", i)
		case !whole && a.Failure.Kind != "error":
			t.Errorf("attempt %d has lost its failure's kind: %+v", i, a.Failure)
		}
	}
	if result, ok := flow.Atoms[0].Result(); !ok || len(result) < logbook.MaxStderr {
		t.Errorf("the result is lost: %t", ok)
	}
}

// TestManyRounds: a retry keeps the values of all its rounds, for any number of failures: a missing
// value would be tried again.
func TestManyRounds(t *testing.T) {
	const rounds, failures = 100, 16
	r := newRig(t)
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("a"))
	for n := uint32(1); n <= rounds; n++ {
		attempt := executed(n, fmt.Sprintf(`"%d %s"`, n, strings.Repeat("v", 2<<10)))
		for range failures {
			attempt.Failures = append(attempt.Failures, &v1.Failure{Kind: "error", Message: strings.Repeat("x", 1<<10), Step: "x"})
		}
		change := task("again", "", attempt)
		change.Kind = string(logbook.KindRetry)
		state := ""
		if n == 1 {
			state = "running"
		}
		if result := r.do(updateFlow(update("flow of a", token, uint64(n), state, change)))[0]; result.Error != nil {
			t.Fatal(result)
		}
	}
	flow, _, err := r.Flow(flowID("flow of a"), fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil || len(flow.Atoms[0].Attempts) != rounds {
		t.Fatal(len(flow.Atoms[0].Attempts), err)
	}
	if size := proto.Size(command.FlowDetailToProto(&flow)); size > 1<<20 {
		t.Errorf("the flow takes %d bytes", size)
	}
	for i, a := range flow.Atoms[0].Attempts {
		if !strings.HasPrefix(string(a.Result), fmt.Sprintf(`"%d v`, i+1)) || len(a.Failures) != failures || a.Failures[0].Step != "x" {
			t.Errorf("round %d: a result of %d bytes and %d failures", i+1, len(a.Result), len(a.Failures))
		}
	}
}

func TestUpdateKeepsEveryAttempt(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("a"))
	sequence := uint64(0)
	next := func(state string, changes ...*v1.AtomChange) {
		sequence++
		r.ok(updateFlow(update("flow of a", token, sequence, state, changes...)))
	}
	failed := func(number uint32) *v1.Attempt {
		a := executing(number)
		a.EndedAt, a.Failure, a.Stderr = timestamppb.New(start), &v1.Failure{Kind: "error"}, "oh"
		return a
	}
	next("running", task("b", ""), task("a", "running", executing(1)))
	next("", task("a", "pending", failed(1)))
	next("", task("a", "running", executing(2)))
	// Its conductor dies here. The outcome of attempt 2 is recorded after the start of attempt 3.
	next("", task("a", "", executing(3)))
	next("", task("a", "", failed(2)))
	next("", task("a", "success", executed(3, `{"n":1}`)))
	next("reverting", task("a", "reverting", &v1.Attempt{Action: "revert", Number: 1}))
	flow, more, err := r.Flow(flowID("flow of a"), fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil || more {
		t.Fatal(more, err)
	}
	if flow.Sequence != sequence || flow.Fence != token || flow.Atoms[0].Name != "b" || flow.Atoms[1].Name != "a" {
		t.Errorf("flow %+v", flow)
	}
	var got []string
	for _, a := range flow.Atoms[1].Attempts {
		got = append(got, fmt.Sprintf("%s %d %t %t %s", a.Action, a.Number, a.Ended(), a.Failure != nil, a.Result))
	}
	want := "execute 1 true true |execute 2 true true |execute 3 true false {\"n\":1}|revert 1 false false "
	if strings.Join(got, "|") != want {
		t.Errorf("attempts %q", strings.Join(got, "|"))
	}
	if result, ok := flow.Atoms[1].Result(); !ok || string(result) != `{"n":1}` {
		t.Errorf("result %s %t", result, ok)
	}
}

func TestUpdateCauseStaysBesideTheStore(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("a"))
	u := update("flow of a", token, 1, "running")
	u.Cause = &v1.Failure{Kind: "timeout", Message: "too long", Step: "x"}
	r.ok(updateFlow(u))
	r.ok(updateFlow(update("flow of a", token, 2, "reverting")))
	flow, _, err := r.Flow(flowID("flow of a"), fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil || !flow.Cause.Matches("timeout") || string(flow.Store["a"]) != " 1" || len(flow.Factory.Args) == 0 {
		t.Errorf("flow %+v: %v", flow, err)
	}
}

func TestFlowEvents(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("a"))
	before := r.LastPosition()
	r.ok(updateFlow(update("flow of a", token, 1, "running", task("x", "running", executing(1)), task("y", ""))))
	r.ok(updateFlow(update("flow of a", token, 2, "", task("y", "")))) // a silent update, which causes no event
	r.ok(updateFlow(update("flow of a", token, 3, "", task("x", "success", executed(1, "1")), task("y", "running"))))
	events, err := r.Events(before, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, event := range events {
		line := fmt.Sprintf("%s %s", event.Kind, event.FlowState)
		for _, step := range event.Steps {
			line += " " + step.Name + "=" + step.State
		}
		if event.Kind != jobs.EventFlow || event.Job != jobID(id("a")) || event.Token != token {
			t.Errorf("event %+v", event)
		}
		got = append(got, line)
	}
	if want := "flow running x=running|flow  x=success y=running"; strings.Join(got, "|") != want {
		t.Errorf("events %q", got)
	}
}

func TestTooManySteps(t *testing.T) {
	r := newRig(t)
	r.ok(saveBook(book("b", "f")))
	var atoms []*v1.AtomChange
	for i := range logbook.MaxLimits.Steps {
		atoms = append(atoms, task(fmt.Sprint(i), ""))
	}
	if result := r.do(updateFlow(update("f", logbook.Token{}, 1, "", atoms...)))[0]; result.GetError() != nil {
		t.Fatal(result)
	}
	result := r.do(updateFlow(update("f", logbook.Token{}, 2, "", task("one more", ""))))[0]
	if result.GetError().GetCode() != "over_limit" {
		t.Errorf("one more: %v", result)
	}
	flow, _, err := r.Flow(flowID("f"), fsm.Part{Skip: logbook.MaxLimits.Steps - 1, MaxBytes: fsm.Unbounded})
	if err != nil || len(flow.Atoms) != 1 || flow.Atoms[0].Name != fmt.Sprint(logbook.MaxLimits.Steps-1) {
		t.Errorf("%d atoms: %v", len(flow.Atoms), err)
	}
}
