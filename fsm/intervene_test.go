package fsm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// asked is an intervention in the flow of job "a"; its id is derived from its content.
func asked(kind, step string) *v1.Intervention {
	return &v1.Intervention{Id: id(kind + step), Flow: id("flow of a"), Kind: kind, Step: step, By: "ann@desk", Reason: "so it is to be"}
}

func held(i *v1.Intervention) *v1.Command {
	i.Hold = true
	return intervene(i)
}

// stuck ends job "a" with a flow in a state: step x has succeeded, and its revert has failed or
// succeeded; step y failed, and z did not start.
func stuck(t *testing.T, state string) *rig {
	t.Helper()
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	r.fail("a", state)
	return r
}

// fail claims a job and ends it with its flow in a state.
func (r *rig) fail(name, state string) logbook.Token {
	r.Helper()
	return r.failAs(flowPosting(name), state)
}

func (r *rig) failAs(p *v1.Posting, state string) logbook.Token {
	r.Helper()
	token, name, flow := r.claimed("bob", p), p.Name, "flow of "+p.Name
	began := update(flow, token, 1, "running", task("x", "running", executing(1)), task("x", "success", executed(1, "1")),
		task("y", "running", executing(1)), task("y", "failure", executed(1, "1")))
	began.Definition = definition("x", "y", "z")
	r.ok(updateFlow(began))
	e := ending(name, token)
	switch state {
	case "success":
		e.Outcome, e.Update = "success", update(flow, token, 2, state)
	case "reverted":
		r.ok(updateFlow(update(flow, token, 2, "reverting", task("x", "reverting"))))
		e.Outcome, e.Update = "reverted", update(flow, token, 3, state, task("x", "reverted"))
	case "failure":
		r.ok(updateFlow(update(flow, token, 2, "reverting", task("x", "reverting"))))
		e.Outcome, e.Update = "failed", update(flow, token, 3, state, task("x", "revert_failure"))
		e.Update.Cause = &v1.Failure{Kind: "error", Message: "so it went"}
		e.Failure, e.Reason = e.Update.Cause, "it failed"
	}
	r.ok(consume(e))
	return token
}

func definition(steps ...string) *v1.Definition {
	var defined []logbook.DefinedStep
	for _, step := range steps {
		defined = append(defined, logbook.DefinedStep{Name: step})
	}
	packed, err := logbook.PackSteps(defined)
	if err != nil {
		panic(err)
	}
	return &v1.Definition{Hash: strings.Join(steps, " "), Packed: packed}
}

func (r *rig) flow(name string) logbook.FlowDetail {
	r.Helper()
	flow, more, err := r.Flow(flowID(name), fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil || more {
		r.Fatal(more, err)
	}
	return flow
}

// TestInterventions: the admitted interventions, and the refusals of the others.
func TestInterventions(t *testing.T) {
	for _, row := range []struct {
		flow, kind, step string
		code, says       string // of a refusal
	}{
		{"failure", "retry-revert", "", "", ""},
		{"failure", "skip", "x", "", ""},
		{"failure", "skip", "y", "conflict", `step "y" is failure`},
		{"failure", "skip", "z", "conflict", `step "z" is pending`},
		{"failure", "complete", "x", "", ""},
		{"failure", "complete", "y", "", ""},
		{"failure", "complete", "z", "", ""},
		{"failure", "complete", "u", "not_found", `no step "u"`},
		{"failure", "rerun", "", "", ""},
		{"failure", "rerun", "z", "", ""},
		{"failure", "rerun", "u", "not_found", `no step "u"`},
		{"reverted", "rerun", "", "", ""},
		{"reverted", "rerun", "x", "", ""},
		{"reverted", "retry-revert", "", "conflict", "is in the state reverted"},
		{"reverted", "skip", "x", "conflict", "is in the state reverted"},
		{"reverted", "complete", "x", "conflict", "is in the state reverted"},
		{"success", "rerun", "", "conflict", "is in the state success"},
		{"success", "complete", "y", "conflict", "is in the state success"},
	} {
		t.Run(strings.TrimSpace(row.kind+" "+row.step)+" in "+row.flow, func(t *testing.T) {
			r := stuck(t, row.flow)
			before, flow := r.job(id("a")), r.flow("flow of a")
			r.now = r.now.Add(time.Minute)
			c := intervene(asked(row.kind, row.step))
			if row.code != "" {
				if said := r.refused(c, row.code); !strings.Contains(said, row.says) || !strings.Contains(said, row.kind) {
					t.Errorf("the refusal says %q", said)
				}
				return
			}
			r.ok(c)
			r.harmless(c)
			r.reopened(before, flow, row.kind, row.step)
		})
	}
}

// reopened checks job "a" and its flow after an intervention.
func (r *rig) reopened(before jobs.Job, flow logbook.FlowDetail, kind, step string) {
	r.Helper()
	job := r.job(id("a"))
	want := before
	want.State, want.Outcome, want.Reason, want.Failure = jobs.StateClaimable, "", "", nil
	want.StartedAt, want.FinishedAt, want.ModifiedAt = time.Time{}, time.Time{}, r.now
	want.ClaimableAt = job.ClaimableAt
	if whole(job) != whole(want) {
		r.Errorf("the job is\n%+v, not\n%+v", job, want)
	}
	got := r.flow("flow of a")
	if len(got.Interventions) != 1 {
		r.Fatalf("interventions: %+v", got.Interventions)
	}
	i := got.Interventions[0]
	if string(i.Kind) != kind || i.Step != step || i.By != "ann@desk" || i.Reason != "so it is to be" || !i.At.Equal(r.now) || i.Token.Compare(flow.Fence) <= 0 {
		r.Errorf("recorded as %+v", i)
	}
	if len(got.Pending()) != 1 || !got.Resumable() || got.State != flow.State || got.Fence != flow.Fence {
		r.Errorf("the flow is %+v", got)
	}
	events, err := r.Events(jobs.Position{}, 0)
	if err != nil {
		r.Fatal(err)
	}
	last := events[len(events)-1]
	if last.Kind != jobs.EventReopened || last.State != jobs.StateClaimable || last.Request == nil || last.Request.Kind != jobs.RequestIntervene ||
		last.Request.By != "ann@desk" || !last.Request.At.Equal(r.now) || !strings.HasPrefix(last.Reason, kind) {
		r.Errorf("the event is %+v", last)
	}
}

// TestInterventionIsCarriedOut: the next owner of the job gets the intervention and can continue
// the flow. A second intervention then follows a second failure.
func TestInterventionIsCarriedOut(t *testing.T) {
	r := stuck(t, "failure")
	old := r.job(id("a"))
	r.ok(intervene(asked("retry-revert", "")))
	r.refused(updateFlow(update("flow of a", old.Token, 4, "reverting")), "fenced")
	for round := range 2 {
		token := r.claimedAgain("bob", id("a"))
		claimed, omitted, err := r.Claimed(jobID(id("a")), fsm.Unbounded)
		if err != nil || omitted || !claimed.Flow.Resumable() || len(claimed.Flow.Pending()) != 1 || claimed.Flow.Definition == nil {
			t.Fatalf("claimed %+v, %v", claimed, err)
		}
		if said := r.refused(intervene(asked("rerun", "")), "conflict"); !strings.Contains(said, "bob holds its job") {
			t.Errorf("the refusal says %q", said)
		}
		r.ok(updateFlow(update("flow of a", token, 1, "reverting", task("x", "reverting"))))
		if flow := r.flow("flow of a"); len(flow.Pending()) != 0 || len(flow.Interventions) != round+1 {
			t.Errorf("the flow is %+v", flow)
		}
		e := ending("a", token)
		if round > 0 {
			e.Outcome, e.Update = "reverted", update("flow of a", token, 2, "reverted", task("x", "reverted"))
			r.ok(consume(e))
			r.harmless(consume(e))
			break
		}
		e.Outcome, e.Update = "failed", update("flow of a", token, 2, "failure", task("x", "revert_failure"))
		r.ok(consume(e))
		r.ok(intervene(asked("skip", "x")))
		r.harmless(intervene(asked("retry-revert", "")))
	}
	if job := r.job(id("a")); job.Outcome != jobs.OutcomeReverted || job.Claims != 3 {
		t.Errorf("the job is %+v", job)
	}
	r.refused(updateFlow(update("flow of a", logbook.Token{}, 1, "running")), "fenced")
}

// TestInterventionsThatHold: interventions with hold wait for an intervention without hold.
func TestInterventionsThatHold(t *testing.T) {
	r := stuck(t, "failure")
	before := r.job(id("a"))
	r.ok(held(asked("complete", "y")))
	r.harmless(held(asked("complete", "y")))
	if job := r.job(id("a")); whole(job) != whole(before) {
		t.Errorf("the job is\n%+v, not\n%+v", job, before)
	}
	if flow := r.flow("flow of a"); flow.Resumable() || len(flow.Pending()) != 1 {
		t.Errorf("the flow is %+v", flow)
	}
	r.refused(claim("bob", id("a"), "too early"), "unclaimable")
	r.ok(intervene(asked("skip", "x")))
	r.ok(held(asked("complete", "z")))
	if flow := r.flow("flow of a"); !flow.Resumable() || len(flow.Pending()) != 3 {
		t.Errorf("the flow is %+v", flow)
	}
	r.claimedAgain("bob", id("a"))
	words := r.events()
	want := []string{"intervened a completed", "reopened a claimable", "intervened a claimable", "claimed a claimed"}
	if got := words[len(words)-len(want):]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events %q", got)
	}
}

// TestInterventionMeetsTheJob: the state of the flow's last job decides.
func TestInterventionMeetsTheJob(t *testing.T) {
	undo := &v1.JobCommand{Job: id("a"), By: "eve", Revert: true}
	for _, row := range []struct {
		name string
		make func(*testing.T) *rig
		ask  *v1.Intervention
		want string // the job's state and stop request; or the code of a refusal
	}{
		{"a flow that never had a job", func(t *testing.T) *rig {
			r := newRig(t)
			r.ok(saveBook(book("book of a", "flow of a")))
			for i, state := range []string{"running", "reverting", "failure"} {
				r.ok(updateFlow(update("flow of a", logbook.Token{}, uint64(i+1), state)))
			}
			return r
		}, asked("rerun", ""), "conflict"},
		{"no flow", newRigOf, asked("rerun", ""), "not_found"},
		{"a flow whose last job was swept", func(t *testing.T) *rig {
			r := stuck(t, "failure")
			p := posting("b", "")
			p.BookId = id("book of a")
			r.claimed("bob", p) // keeps the book
			r.ok(trash(ending("b", r.job(id("b")).Token)))
			r.now = r.now.Add(time.Minute)
			r.fail("c", "success")
			r.ok(sweep(r.TimerEpoch(), 30*time.Second, 0, 10))
			return r
		}, asked("rerun", ""), "not_found"},
		{"a trashed job", func(t *testing.T) *rig {
			r := stuck(t, "failure")
			r.ok(intervene(asked("retry-revert", "")))
			r.claimedAgain("bob", id("a"))
			r.ok(expire("bob", r.TimerEpoch(), 0, 1))
			if job := r.job(id("a")); job.State != jobs.StateTrashed || job.Crashes != 1 {
				t.Fatalf("the job is %+v", job)
			}
			return r
		}, asked("rerun", ""), "claimable -"},
		{"a job that waits after a crash", func(t *testing.T) *rig {
			r := stuck(t, "failure")
			r.ok(intervene(asked("retry-revert", "")))
			r.claimedAgain("bob", id("a"))
			r.ok(expire("bob", r.TimerEpoch(), time.Minute, 5))
			return r
		}, asked("skip", "x"), "cooling -"},
		{"a job that is suspended", func(t *testing.T) *rig {
			r := stuck(t, "failure")
			r.ok(intervene(asked("retry-revert", "")))
			r.ok(suspend(&v1.JobCommand{Job: id("a"), By: "eve"}))
			return r
		}, asked("rerun", ""), "suspended suspend"},
		{"a cancelled job, undone further", func(t *testing.T) *rig { return stuckUnder(t, cancel(undo)) }, asked("skip", "x"), "claimable cancel"},
		{"a cancelled job, run again", func(t *testing.T) *rig { return stuckUnder(t, cancel(undo)) }, asked("rerun", ""), "claimable -"},
		{"a job under an order to stop", func(t *testing.T) *rig {
			return stuckUnder(t, cancel(&v1.JobCommand{Job: id("a"), By: "eve"}))
		}, asked("retry-revert", ""), "claimable -"},
		{"a job under an order to suspend", func(t *testing.T) *rig {
			return stuckUnder(t, suspend(&v1.JobCommand{Job: id("a"), By: "eve"}))
		}, asked("retry-revert", ""), "claimable -"},
		{"a job whose owner has just let it go", func(t *testing.T) *rig {
			r := newRig(t)
			r.ok(open("bob"))
			token := r.begin(flowPosting("a"), "flow of a")
			r.ok(updateFlow(update("flow of a", token, 2, "reverting", task("x", "reverting"))))
			r.ok(updateFlow(update("flow of a", token, 3, "failure", task("x", "revert_failure"))))
			r.ok(abandon(ending("a", token)))
			return r
		}, asked("skip", "x"), "claimable -"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := row.make(t)
			switch row.want {
			case "conflict", "not_found":
				r.refused(intervene(row.ask), row.want)
				return
			}
			r.ok(intervene(row.ask))
			r.harmless(intervene(row.ask))
			job, under := r.job(id("a")), "-"
			if job.StopRequest != nil {
				under = string(job.StopRequest.Kind)
			}
			if got := fmt.Sprint(job.State, " ", under); got != row.want || job.Outcome != "" || job.Crashes+job.Failures > 0 && job.State == jobs.StateClaimable {
				t.Errorf("the job is %s: %+v", got, job)
			}
		})
	}
}

func newRigOf(t *testing.T) *rig { return newRig(t) }

// stuckUnder lets the flow of job "a" fail while the job has a stop request.
func stuckUnder(t *testing.T, order *v1.Command) *rig {
	t.Helper()
	r := newRig(t)
	r.ok(open("bob"))
	token := r.begin(flowPosting("a"), "flow of a")
	r.ok(order)
	r.ok(updateFlow(update("flow of a", token, 2, "reverting", task("x", "reverting"))))
	e := ending("a", token)
	e.Outcome, e.Update = "failed", update("flow of a", token, 3, "failure", task("x", "revert_failure"))
	r.ok(consume(e))
	return r
}

// TestInterventionInOneEntry: an intervention's token is newer than the token of the flow's
// last update, and older than the tokens of later claims, even if one entry contained all of
// them.
func TestInterventionInOneEntry(t *testing.T) {
	r := stuck(t, "failure")
	results := r.do(intervene(asked("skip", "x")), claim("bob", id("a"), "at once"), intervene(asked("rerun", "")))
	for i, want := range []string{"", "unclaimable", ""} {
		if got := results[i].GetError().GetCode(); got != want {
			t.Errorf("command %d: %v", i, results[i])
		}
	}
	token := r.claimedAgain("bob", id("a"))
	e := ending("a", token)
	e.Outcome, e.Update = "failed", update("flow of a", token, 1, "reverting", task("x", "reverting"), task("x", "revert_failure"))
	r.ok(updateFlow(e.Update))
	e.Update = update("flow of a", token, 2, "failure")
	r.ok(consume(e))
	r.ok(intervene(asked("retry-revert", "")))

	// A claim, the flow's update and its end in one entry, and then an intervention.
	now := logbook.Token{Generation: 1, Index: r.index + 1}
	again := ending("a", now)
	again.Outcome, again.Update = "failed", update("flow of a", now, 2, "failure", task("x", "revert_failure"))
	results = r.do(claim("bob", id("a"), "packed"), updateFlow(update("flow of a", now, 1, "reverting", task("x", "reverting"))),
		consume(again), intervene(asked("complete", "y")))
	for i, want := range []string{"", "", "", "conflict"} {
		if got := results[i].GetError().GetCode(); got != want {
			t.Errorf("command %d: %v", i, results[i])
		}
	}
	r.ok(intervene(asked("complete", "y")))
}

// TestReopenedJobsNeedRoom: a full board refuses to reopen or restore a job, and names its
// limit. It accepts an intervention that only continues the undo, and an intervention that
// reopens no job.
func TestReopenedJobsNeedRoom(t *testing.T) {
	undo := &v1.JobCommand{Job: id("a"), By: "eve", Revert: true}
	ended := func(t *testing.T) *rig { return stuck(t, "failure") }
	cancelled := func(t *testing.T) *rig { return stuckUnder(t, cancel(undo)) }
	heard := func(t *testing.T) *rig {
		r := ended(t)
		r.ok(held(asked("complete", "z")))
		return r
	}
	for _, row := range []struct {
		name   string
		make   func(*testing.T) *rig
		limits *v1.BoardLimits
		ask    *v1.Intervention
		says   string // of the refusal
	}{
		{"no limit", ended, &v1.BoardLimits{}, asked("rerun", ""), ""},
		{"room for both", ended, &v1.BoardLimits{Jobs: 2}, asked("rerun", ""), ""},
		{"too many jobs", ended, &v1.BoardLimits{Jobs: 1}, asked("rerun", ""), `board "default" is at its limit: at most 1 unfinished job`},
		{"too many jobs, backwards", ended, &v1.BoardLimits{Jobs: 1}, asked("retry-revert", ""), `board "default" is at its limit: at most 1 unfinished job`},
		{"too many bytes", ended, &v1.BoardLimits{Bytes: 200}, asked("complete", "y"), `board "default" is at its limit: at most 200 bytes`},
		{"a cancelled job, undone further", cancelled, &v1.BoardLimits{Jobs: 1}, asked("retry-revert", ""), ""},
		{"a cancelled job, run again", cancelled, &v1.BoardLimits{Jobs: 1}, asked("rerun", ""), `board "default" is at its limit: at most 1 unfinished job`},
		{"a word that holds", ended, &v1.BoardLimits{Jobs: 1}, held(asked("complete", "y")).GetIntervene(), ""},
		{"a word that is taken back", heard, &v1.BoardLimits{Jobs: 1}, asked("take-back", ""), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := row.make(t)
			r.posted(posting("b", "k"))
			r.ok(limitBoard("", row.limits))
			if row.says == "" {
				r.ok(intervene(row.ask))
				return
			}
			if told := r.refused(intervene(row.ask), "over_limit"); !strings.Contains(told, row.says) {
				t.Errorf("refused with %q", told)
			}
		})
	}
}

// TestInterventionsAreBounded: in number, and in the bytes that an owner gets.
func TestInterventionsAreBounded(t *testing.T) {
	longtest.Skip(t)
	r := stuck(t, "failure")
	long := `"` + strings.Repeat("x", fsm.MaxPending/2-600) + `"`
	for i, want := range []string{"", "", "over_limit"} {
		c := held(&v1.Intervention{Id: id(fmt.Sprint(i)), Flow: id("flow of a"), Kind: "complete", Step: "y", Result: value(long), By: "ann"})
		if want != "" {
			r.refused(c, want)
			continue
		}
		r.ok(c)
	}
	for n, rest := 2, logbook.MaxInterventions-2; rest > 0; n, rest = n+1, rest-1 {
		c := held(&v1.Intervention{Id: id(fmt.Sprint(n)), Flow: id("flow of a"), Kind: "skip", Step: "x", By: "ann", Reason: strings.Repeat("y", logbook.MaxReason)})
		if n == 2 {
			r.refused(c, "over_limit")
		}
		if n%100 == 2 {
			r.carryOut(n)
			rest-- // the end of the run that performs it
		}
		if result := r.do(c)[0]; result.Error != nil {
			t.Fatal(n, result)
		}
	}
	r.refused(intervene(asked("rerun", "")), "over_limit")
	flow := r.flow("flow of a")
	if n := len(flow.Interventions); n != logbook.MaxInterventions {
		t.Errorf("%d interventions", n)
	}
	size := 0
	for _, i := range flow.Interventions[:len(flow.Interventions)-len(flow.Pending())] {
		size += len(i.Reason) + len(i.Result)
		if i.By == "" || i.Kind == "" || i.At.IsZero() {
			t.Fatalf("shortened to %+v", i)
		}
	}
	if size > fsm.MaxAnswered || len(flow.Interventions[0].Result) > 0 || flow.Pending()[0].Reason == "" {
		t.Errorf("the applied interventions have %d bytes", size)
	}
}

// carryOut lets the flow of job "a" fail again, after the pending interventions.
func (r *rig) carryOut(n int) {
	r.Helper()
	if r.job(id("a")).State.Finished() {
		name := fmt.Sprint("go on ", n)
		r.ok(intervene(&v1.Intervention{Id: id(name), Flow: id("flow of a"), Kind: "retry-revert", By: "ann"}))
	}
	token := r.claimedAgain("bob", id("a"))
	r.ok(updateFlow(update("flow of a", token, 1, "reverting", task("x", "reverting"))))
	e := ending("a", token)
	e.Outcome, e.Update = "failed", update("flow of a", token, 2, "failure", task("x", "revert_failure"))
	r.ok(consume(e))
}

// TestReopenedAmongManyFinished: the row of a finished job is found at every place, even among
// jobs that finished at one time, and after other rows were removed.
func TestReopenedAmongManyFinished(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	const failed = 12
	for i := range failed {
		r.fail(fmt.Sprint(i), "failure")
		if i%3 == 0 {
			r.now = r.now.Add(time.Second)
		}
	}
	for _, i := range []int{5, 0, 11, 4, 6, 1, 10} {
		name := fmt.Sprint(i)
		r.ok(intervene(&v1.Intervention{Id: id(name), Flow: id("flow of " + name), Kind: "rerun", By: "ann"}))
		if job := r.job(id(name)); job.State != jobs.StateClaimable {
			t.Errorf("job %d is %s", i, job.State)
		}
	}
	if got := r.Counts()[jobs.StateCompleted]; got != failed-7 {
		t.Errorf("%d jobs are completed", got)
	}
	if done := r.ok(sweep(r.TimerEpoch(), 0, 2, 100)).GetCount().Done; done != failed-7-2 {
		t.Errorf("%d jobs were swept", done)
	}
}

// TestDefinitionIsWrittenAlone: the cost of a flow's update depends on its changes.
func TestDefinitionIsWrittenAlone(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	p := flowPosting("a")
	p.Book.Flows[0].Targets, p.Book.Flows[0].OnChange = []string{"x"}, "pin"
	token := r.claimed("bob", p)
	u := update("flow of a", token, 1, "running", task("x", "running", executing(1)))
	u.Definition = definition("x", "y")
	r.ok(updateFlow(u))
	r.ok(updateFlow(update("flow of a", token, 2, "")))
	flow := r.flow("flow of a")
	if flow.Definition == nil || flow.Definition.Hash != "x y" || fmt.Sprint(flow.Targets) != "[x]" || flow.OnChange != logbook.ChangePin {
		t.Errorf("the flow is %+v", flow)
	}
	part, _, err := r.Flow(flowID("flow of a"), fsm.Part{AtomsOnly: true, MaxBytes: fsm.Unbounded})
	if err != nil || part.Definition != nil || part.Targets != nil || part.Sequence != 2 {
		t.Errorf("without the rest, the flow is %+v, %v", part, err)
	}
	changed := flowPosting("a").Book
	r.refused(saveBook(changed), "conflict")
	changed.Flows[0].Targets, changed.Flows[0].OnChange = []string{"x"}, "pin"
	r.harmless(saveBook(changed))
	r.ok(trash(ending("a", token)))
	r.ok(destroyBook("book of a"))
	if _, _, err := r.Flow(flowID("flow of a"), fsm.Part{}); !errors.Is(err, logbook.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// whole is a job with all its fields, in JSON.
func whole(job jobs.Job) string {
	text, err := json.Marshal(job)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestPointOfNoReturnIsNotRevertedByHand: the atoms of points of no return count, also those that the
// intervention does not name.
func TestPointOfNoReturnIsNotRevertedByHand(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	token, flow := r.claimed("bob", flowPosting("a")), "flow of a"
	began := update(flow, token, 1, "running", task("x", "running", executing(1)), task("x", "success", executed(1, "1")),
		task("y", "running", executing(1)), task("y", "failure", executed(1, "1")))
	packed, err := logbook.PackSteps([]logbook.DefinedStep{{Name: "x", NoReturn: true}, {Name: "y"}})
	if err != nil {
		t.Fatal(err)
	}
	began.Definition = &v1.Definition{Hash: "h", Packed: packed}
	r.ok(updateFlow(began))
	e := ending("a", token)
	e.Outcome, e.Update = "failed", update(flow, token, 2, "failure")
	e.Update.Cause = &v1.Failure{Kind: "error", Message: "so it went"}
	e.Failure, e.Reason = e.Update.Cause, "it failed"
	r.ok(consume(e))
	for _, kind := range []string{"revert", "retry-revert", "rerun"} {
		if said := r.refused(intervene(asked(kind, "")), "conflict"); !strings.Contains(said, `step "x" is a point of no return`) {
			t.Errorf("the refusal of %s says %q", kind, said)
		}
	}
	r.ok(intervene(asked("rerun", "y")))
}
