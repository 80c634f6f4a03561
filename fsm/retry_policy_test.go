package fsm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// patient makes the posting of job "a" with a flow and a retry policy.
func patient(attempts uint32, then string) *v1.Posting {
	p := flowPosting("a")
	p.Retry = &v1.RetryPolicy{
		Attempts: attempts, Delay: lasting(10 * time.Second), BackoffPercent: 200, PriorityStep: -10, OnFailure: then,
	}
	return p
}

// retrying opens a machine on which job "a" is posted, and bob can claim it.
func retrying(t *testing.T, p *v1.Posting) *rig {
	t.Helper()
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	r.posted(p)
	return r
}

// attempt lets bob claim job "a", and ends its flow. It returns the ending, which is not sent yet.
func (r *rig) attempt(state string) *v1.Ending {
	r.Helper()
	token := r.claimedAgain("bob", id("a"))
	e := ending("a", token)
	number := uint64(1)
	step := func(state string, atoms ...*v1.AtomChange) *v1.Update {
		u := update("flow of a", token, number, state, atoms...)
		number++
		return u
	}
	tries := uint32(0)
	flow := r.flow("flow of a")
	if atom, ok := flow.Atom("x"); ok {
		tries = uint32(len(atom.Attempts))
		r.ok(updateFlow(step("running", task("x", "pending"))))
	}
	r.ok(updateFlow(step("running", task("x", "running", executing(tries+1)), task("x", "failure", executed(tries+1, "1")))))
	r.ok(updateFlow(step("reverting", task("x", "reverting"))))
	switch state {
	case "reverted":
		e.Outcome, e.Update = "reverted", step(state, task("x", "reverted"))
	case "failure":
		e.Outcome, e.Update = "failed", step(state, task("x", "revert_failure"))
	}
	e.Update.Cause = &v1.Failure{Kind: "weather", Message: "snow", Step: "x"}
	e.Failure = e.Update.Cause
	return e
}

// rest waits until a job's delay has passed.
func (r *rig) rest(d time.Duration) {
	r.Helper()
	r.now = r.now.Add(d)
	r.ok(wake(r.TimerEpoch(), 10))
}

// TestAttempts: the states of a job whose flow is reverted repeatedly, line by line. A repeated
// ending counts as one attempt.
func TestAttempts(t *testing.T) {
	for _, row := range []struct {
		name     string
		attempts uint32
		then     string
		want     []string
	}{
		{"no further attempts", 1, "", []string{"completed reverted 1"}},
		{"used up", 3, "", []string{"cooling 1 in 10s priority -10", "cooling 2 in 20s priority -20", "completed reverted 3"}},
		{"tried for ever", 2, "retry", []string{"cooling 1 in 10s priority -10", "cooling 2 in 10s priority -20", "cooling 3 in 10s priority -30"}},
		{"parked", 2, "park", []string{"cooling 1 in 10s priority -10", "held 2"}},
		{"parked at once", 0, "park", []string{"held 1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := retrying(t, patient(row.attempts, row.then))
			for n, want := range row.want {
				e := r.attempt("reverted")
				r.ok(consume(e))
				r.harmless(consume(e))
				job := r.job(id("a"))
				got := fmt.Sprint(job.State)
				switch job.State {
				case jobs.StateCooling:
					got += fmt.Sprintf(" %d in %s priority %d", job.Attempts, job.DueAt.Sub(r.now), job.Priority)
				case jobs.StateCompleted:
					got += fmt.Sprintf(" %s %d", job.Outcome, job.Attempts)
				default:
					got += fmt.Sprint(" ", job.Attempts)
				}
				if got != want {
					t.Fatalf("after attempt %d the job is %q, want %q", n+1, got, want)
				}
				flow := r.flow("flow of a")
				if again := job.State == jobs.StateCooling; flow.Resumable() != again || flow.State != logbook.FlowReverted {
					t.Errorf("after attempt %d the flow is %s, resumable: %t", n+1, flow.State, flow.Resumable())
				}
				if found := r.errorsOf("a"); len(found) != n+1 || found[0].How != jobs.HowReverted || found[0].Failure.Kind != "weather" {
					t.Errorf("after attempt %d the errors are %v", n+1, found)
				}
				if job.State == jobs.StateCooling {
					r.refused(claim("bob", id("a"), "early"), "unclaimable")
					r.rest(job.DueAt.Sub(r.now))
				}
			}
		})
	}
}

func (r *rig) errorsOf(job string) []jobs.JobError {
	r.Helper()
	page, err := r.Errors(jobs.ErrorQuery{Job: jobID(id(job))})
	if err != nil {
		r.Fatal(err)
	}
	return page.Items
}

// TestNotTriedAgain: ends that are not retried, even if attempts are left.
func TestNotTriedAgain(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(*v1.Posting)
		end  func(*rig, *v1.Ending)
		how  string // state of the flow at its end
		want string
	}{
		{"a permanent failure", nil, func(_ *rig, e *v1.Ending) { e.Failure.Permanent = true }, "reverted", "held reverted"},
		{"a kind that the policy names", func(p *v1.Posting) { p.Retry.Never = []string{"storm", "weather"} }, nil, "reverted", "held reverted"},
		{"the kind of a cause", func(p *v1.Posting) { p.Retry.Never = []string{"winter"} }, func(_ *rig, e *v1.Ending) {
			e.Failure.Causes = []*v1.Failure{{Kind: "winter"}}
		}, "reverted", "cooling reverted"},
		{"an exit status that the policy names", func(p *v1.Posting) { p.Retry.Never = []string{"17"} }, func(_ *rig, e *v1.Ending) { e.Failure.Code = 17 }, "reverted", "held reverted"},
		{"a kind that the policy does not name", func(p *v1.Posting) { p.Retry.Only = []string{"winter", "75"} }, nil, "reverted", "held reverted"},
		{"the flow's cause, where the owner says nothing", func(p *v1.Posting) { p.Retry.Never = []string{"weather"} }, func(_ *rig, e *v1.Ending) {
			e.Failure = nil
		}, "reverted", "held reverted"},
		{"a flow that could not be undone", nil, nil, "failure", "held failed"},
		{"tried for ever, but half undone", func(p *v1.Posting) { p.Retry.OnFailure = "retry" }, nil, "failure", "completed failed"},
		{"no time before the deadline", func(p *v1.Posting) { p.Deadline = timestamppb.New(start.Add(10 * time.Second)) }, nil, "reverted", "held reverted"},
		{"being cancelled", nil, func(r *rig, _ *v1.Ending) { r.ok(cancel(said())) }, "reverted", "completed reverted"},
		{"done, in the end", nil, func(_ *rig, e *v1.Ending) { e.Outcome, e.Update = "success", nil }, "reverted", "refused"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := patient(5, "park")
			if row.make != nil {
				row.make(p)
			}
			r := retrying(t, p)
			e := r.attempt(row.how)
			if row.end != nil {
				row.end(r, e)
			}
			if row.want == "refused" {
				r.refused(consume(e), "invalid")
				return
			}
			r.ok(consume(e))
			r.harmless(consume(e))
			job := r.job(id("a"))
			if got := fmt.Sprint(job.State, " ", max(job.Outcome, job.Attempted)); got != row.want || job.Attempts != 1 {
				t.Errorf("the job is %s after %d attempts, want %s", got, job.Attempts, row.want)
			}
		})
	}
}

// TestParked: the operations on a parked job, by the end of its flow.
func TestParked(t *testing.T) {
	freed := change(&v1.Change{Job: id("a"), Release: true, By: "ann"})
	for _, row := range []struct {
		name, flow string
		say        *v1.Command
		code       string
		want       string
		rerun      bool
	}{
		{"released", "reverted", freed, "", "claimable ", true},
		{"released, half undone", "failure", freed, "conflict", "held ", false},
		{"cancelled", "reverted", cancel(said()), "", "completed cancelled", false},
		{"cancelled, half undone", "failure", cancel(said()), "", "completed failed", false},
		{"run again", "reverted", intervene(asked("rerun", "")), "", "claimable ", true},
		{"undone further", "failure", intervene(asked("retry-revert", "")), "", "claimable ", true},
		{"skipped, and held", "failure", held(asked("skip", "x")), "", "held ", false},
		{"suspended", "reverted", suspend(said()), "", "suspended ", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := retrying(t, patient(1, "park"))
			e := r.attempt(row.flow)
			r.ok(consume(e))
			parked := r.job(id("a"))
			if parked.State != jobs.StateHeld || !parked.Parked || !parked.Held || !strings.Contains(parked.Reason, "snow") {
				t.Fatalf("parked as %+v", parked)
			}
			r.rest(time.Hour)
			if r.job(id("a")).State != jobs.StateHeld {
				t.Fatal("a parked job goes on by itself")
			}
			if row.code != "" {
				if told := r.refused(row.say, row.code); !strings.Contains(told, "failure") {
					t.Errorf("refused with %q", told)
				}
			} else {
				r.ok(row.say)
				r.harmless(row.say)
			}
			job, flow := r.job(id("a")), r.flow("flow of a")
			if got := fmt.Sprint(job.State, " ", job.Outcome); got != row.want || flow.Resumable() != row.rerun {
				t.Errorf("the job is %s, and its flow resumable: %t; want %s and %t", got, flow.Resumable(), row.want, row.rerun)
			}
			if row.rerun {
				if job.Attempts != 0 || job.Parked || job.Held {
					t.Errorf("it goes on as %+v", job)
				}
				r.refused(consume(e), "fenced")
			}
		})
	}
}

// TestAGivenUpJobComesBackFree: a job that was parked and then cancelled is no longer held
// when an operator continues its undo.
func TestAGivenUpJobComesBackFree(t *testing.T) {
	for _, flow := range []string{"reverted", "failure"} {
		r := retrying(t, patient(1, "park"))
		r.ok(consume(r.attempt(flow)))
		if flow == "failure" {
			r.ok(held(asked("complete", "x")))
		}
		r.ok(cancel(said()))
		r.harmless(cancel(said()))
		if after := r.flow("flow of a"); len(after.Pending()) != 0 {
			t.Errorf("of a job that was given up, it is still to be carried out: %+v", after.Pending())
		}
		if job := r.job(id("a")); job.Held || job.Parked {
			t.Errorf("cancelled after %s, it is %+v", flow, job)
		}
		if flow == "failure" {
			r.ok(intervene(asked("retry-revert", "")))
			if job := r.job(id("a")); job.State != jobs.StateClaimable || job.Held {
				t.Errorf("to be undone further, it is %+v", job)
			}
		}
	}
}

// TestParkedJobsKeepTheirPlace: a released job has all its attempts again. A job that was suspended
// while it was parked waits until it is resumed.
func TestParkedJobsKeepTheirPlace(t *testing.T) {
	r := retrying(t, patient(2, "park"))
	for range 2 {
		r.ok(consume(r.attempt("reverted")))
		r.rest(time.Hour)
	}
	r.ok(suspend(said()))
	r.ok(change(&v1.Change{Job: id("a"), Release: true, By: "ann"}))
	if job := r.job(id("a")); job.State != jobs.StateSuspended || job.Held {
		t.Fatalf("released while suspended, it is %+v", job)
	}
	r.ok(resume(said()))
	e := r.attempt("reverted")
	r.ok(consume(e))
	if job := r.job(id("a")); job.State != jobs.StateCooling || job.Attempts != 1 {
		t.Errorf("after the release it is %s with %d attempts", job.State, job.Attempts)
	}
	flow := r.flow("flow of a")
	var by []string
	for _, i := range flow.Interventions {
		by = append(by, fmt.Sprint(i.Kind, " by ", i.By))
	}
	if got := strings.Join(by, ", "); got != "rerun by retry policy, rerun by ann, rerun by retry policy" {
		t.Errorf("the flow ran again: %s", got)
	}
}

// TestAnAttemptEndsInOneEntry: a job that will be tried again is never granted in the same
// entry. The token of that claim would not be newer than the intervention that reruns the
// flow.
func TestAnAttemptEndsInOneEntry(t *testing.T) {
	r := retrying(t, patient(3, ""))
	e := r.attempt("reverted")
	results := r.do(consume(e), wake(r.TimerEpoch(), 10), change(&v1.Change{Job: id("a"), NotBefore: timestamppb.New(r.now)}), claimNext("bob", "now", 1, nil, nil))
	if results[0].GetError() != nil || len(results[3].GetClaim().GetGranted()) != 0 {
		t.Errorf("answered with %v", results)
	}
	parked := retrying(t, patient(1, "park"))
	parked.ok(consume(parked.attempt("reverted")))
	results = parked.do(change(&v1.Change{Job: id("a"), Release: true}), claimNext("bob", "now", 1, nil, nil))
	if results[0].GetError() != nil || len(results[1].GetClaim().GetGranted()) != 0 {
		t.Errorf("answered with %v", results)
	}
	parked.attempt("reverted")
}

// TestFlowsAreRunAgainWithinBounds: each run is recorded, so the number of runs is bounded and
// leaves room for operators' interventions.
func TestFlowsAreRunAgainWithinBounds(t *testing.T) {
	p := patient(0, "retry")
	p.Retry.Delay = lasting(jobs.MinRetryDelay)
	p.Retry.BackoffPercent = 100
	r := retrying(t, p)
	const most = logbook.MaxInterventions / 2
	for n := 1; ; n++ {
		granted := r.do(claim("bob", id("a"), fmt.Sprint("nonce ", n)))[0].GetClaim().GetGranted()
		token := command.TokenFromProto(granted[0].GetToken())
		e := ending("a", token)
		e.Outcome, e.Update = "reverted", update("flow of a", token, 3, "reverted")
		r.do(updateFlow(update("flow of a", token, 1, "running")), updateFlow(update("flow of a", token, 2, "reverting")), consume(e))
		if r.job(id("a")).State.Finished() {
			if n != most+1 {
				t.Errorf("it was given up after %d attempts, want %d", n, most+1)
			}
			return
		}
		r.now = r.now.Add(time.Second)
		r.do(wake(r.TimerEpoch(), 10))
	}
}

// TestAttemptsWithoutAFlow: a job without a flow is retried in the same way, with the same
// events.
func TestAttemptsWithoutAFlow(t *testing.T) {
	p := posting("a", "mail")
	p.Retry = &v1.RetryPolicy{Attempts: 2, Delay: lasting(time.Minute), JitterPercent: 50, OnFailure: "park"}
	r := retrying(t, p)
	e := ending("a", r.claimedAgain("bob", id("a")))
	e.Outcome, e.Reason = "failed", "no network"
	r.ok(consume(e))
	r.harmless(consume(e))
	wait := r.job(id("a")).DueAt.Sub(r.now)
	if wait <= 30*time.Second || wait > time.Minute || wait == 45*time.Second {
		t.Errorf("it waits for %s", wait)
	}
	r.rest(wait)
	e = ending("a", r.claimedAgain("bob", id("a")))
	e.Outcome = "failed"
	r.ok(consume(e))
	r.ok(change(&v1.Change{Job: id("a"), Release: true, By: "ann"}))
	want := []string{"posted", "claimed", "retried", "cooled", "claimed", "parked", "changed"}
	var got []string
	for _, event := range r.events() {
		if word := strings.Fields(event)[0]; !strings.HasPrefix(word, "session") {
			got = append(got, word)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("told %v, want %v", got, want)
	}
	if job := r.job(id("a")); job.State != jobs.StateClaimable {
		t.Errorf("released, it is %s", job.State)
	}
}

// TestParkedAreCounted: a job counts as parked on its board until an operator releases it, even
// while it is suspended. Changes has each retry.
func TestParkedAreCounted(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	failed := func(p *v1.Posting) {
		e := ending(p.Name, r.claimed("bob", p))
		e.Outcome = "failed"
		r.ok(consume(e))
	}
	for _, name := range []string{"a", "b", "c"} {
		p := posting(name, "k")
		p.Retry = &v1.RetryPolicy{OnFailure: "park"}
		failed(p)
	}
	again := posting("again", "k")
	again.Retry = &v1.RetryPolicy{Attempts: 2, OnFailure: "park"}
	r.changes = nil
	failed(again)
	if retried := r.changes[len(r.changes)-1].Retried; retried != 1 {
		t.Errorf("%d retries were told", retried)
	}
	for _, row := range []struct {
		what    string
		command *v1.Command
		want    uint64
	}{
		{"suspended", suspend(&v1.JobCommand{Job: id("a")}), 3},
		{"released while it is suspended", change(&v1.Change{Job: id("a"), Release: true}), 2},
		{"resumed", resume(&v1.JobCommand{Job: id("a")}), 2},
		{"released", change(&v1.Change{Job: id("b"), Release: true}), 1},
		{"given another priority", change(&v1.Change{Job: id("c"), Priority: new(int32)}), 1},
		{"cancelled", cancel(&v1.JobCommand{Job: id("c")}), 0},
	} {
		r.ok(row.command)
		if got := r.board("").Parked; got != row.want {
			t.Errorf("%s: %d are parked, not %d", row.what, got, row.want)
		}
	}
}
