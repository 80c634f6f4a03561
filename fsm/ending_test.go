package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// verbs are the three endings, for a job without a flow.
var verbs = []struct {
	name  string
	with  func(*v1.Ending) *v1.Command
	word  string // the outcome
	state jobs.State
	event string
}{
	{"consume", consume, "reverted", jobs.StateCompleted, "completed"},
	{"abandon", abandon, "", jobs.StateClaimable, "abandoned"},
	{"trash", trash, "", jobs.StateTrashed, "trashed"},
}

func TestEndings(t *testing.T) {
	for _, verb := range verbs {
		t.Run(verb.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(open("ann"))
			token := r.claimed("ann", posting("a", "k"))
			e := ending("a", token)
			e.Outcome, e.Reason = verb.word, "so it is"
			e.Failure = &v1.Failure{Kind: "error", Message: "broken", Causes: []*v1.Failure{{Kind: "root"}}}
			r.now = r.now.Add(time.Second)
			r.refused(verb.with(ending("none", token)), "not_found")
			wrong := ending("a", logbook.Token{Generation: 1, Index: token.Index - 1})
			wrong.Outcome = verb.word
			if message := r.refused(verb.with(wrong), "fenced"); !strings.Contains(message, token.String()) {
				t.Errorf("the message does not name the token: %s", message)
			}
			r.ok(verb.with(e))
			job := r.job(id("a"))
			if job.State != verb.state || job.Claim != nil || job.Token != token || job.Reason != e.Reason ||
				string(job.Outcome) != verb.word || !job.Failure.Matches("root") || !job.ModifiedAt.Equal(r.now) ||
				job.FinishedAt.IsZero() == job.State.Finished() {
				t.Errorf("ended as %+v", job)
			}
			r.harmless(verb.with(proto.Clone(e).(*v1.Ending)))
			for _, other := range verbs {
				if other.name != verb.name {
					changed := proto.Clone(e).(*v1.Ending)
					changed.Outcome = other.word
					r.refused(other.with(changed), "fenced")
				}
			}
			if want := verb.event + " a " + string(verb.state); !slices.Contains(r.events(), want) {
				t.Errorf("no event %q in %q", want, r.events())
			}
			if session, err := r.Session(sessionID("ann")); err != nil || session.Claims != 0 {
				t.Errorf("session %+v: %v", session, err)
			}
		})
	}
}

func TestConsumeWithAnotherOutcomeIsNoRepeat(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	token := r.claimed("ann", posting("a", "k"))
	r.ok(consume(success("a", token)))
	other := success("a", token)
	other.Outcome = "failed"
	r.refused(consume(other), "fenced")
}

func TestEndingAfterTheSessionIsFenced(t *testing.T) {
	for _, verb := range verbs {
		t.Run(verb.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(open("ann"))
			r.ok(beginLeadership())
			token := r.claimed("ann", posting("a", "k"))
			r.ok(expire("ann", r.TimerEpoch(), 0, 0))
			e := ending("a", token)
			e.Outcome = verb.word
			r.refused(verb.with(e), "fenced")
			r.ok(open("bob"))
			r.ok(claim("bob", id("a"), "n"))
			if message := r.refused(verb.with(e), "fenced"); !strings.Contains(message, "bob") {
				t.Errorf("the message does not name the owner: %s", message)
			}
		})
	}
}

func TestAbandonWithDelay(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("ann"))
	e := ending("a", r.claimed("ann", posting("a", "k")))
	e.Delay = lasting(time.Minute)
	r.ok(abandon(e))
	job := r.job(id("a"))
	if job.Failures != 0 {
		t.Errorf("an abandonment without a failure was counted as %d", job.Failures)
	}
	if job.State != jobs.StateCooling || !job.DueAt.Equal(r.now.Add(time.Minute)) || !r.NextDue().Equal(job.DueAt) {
		t.Errorf("abandoned as %s until %s; next due %s", job.State, job.DueAt, r.NextDue())
	}
	r.harmless(abandon(e))
	r.now = r.now.Add(time.Minute)
	r.ok(wake(r.TimerEpoch(), 1))
	if job := r.job(id("a")); job.State != jobs.StateClaimable {
		t.Errorf("after the delay it is %s", job.State)
	}
	r.harmless(abandon(e))
}

func TestAbandonCountsFailures(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.posted(posting("a", "k"))
	for n := 1; n <= 3; n++ {
		e := ending("a", r.claimedAgain("ann", id("a")))
		e.Failure = &v1.Failure{Kind: "error", Message: "no disk"}
		r.ok(abandon(e))
		if job := r.job(id("a")); job.Failures != n || job.Claims != n || job.Crashes != 0 {
			t.Errorf("after abandonment %d: %d failures, %d claims, %d crashes", n, job.Failures, job.Claims, job.Crashes)
		}
	}
}

func TestConsumeAgreesWithTheFlow(t *testing.T) {
	ends := map[string][]string{ // outcome → states of the flow before it
		"success": {"running", "success"}, "reverted": {"running", "reverting", "reverted"}, "failed": {"running", "failure"},
	}
	for outcome, path := range ends {
		for said := range ends {
			t.Run(outcome+" said to be "+said, func(t *testing.T) {
				r := newRig(t)
				r.ok(open("ann"))
				token := r.claimed("ann", flowPosting("a"))
				for i, state := range path[:len(path)-1] {
					r.ok(updateFlow(update("flow of a", token, uint64(i+1), state)))
				}
				e := ending("a", token)
				e.Outcome = said
				r.refused(consume(e), "invalid") // the flow has not ended
				e.Update = update("flow of a", token, uint64(len(path)), path[len(path)-1])
				if said != outcome {
					r.refused(consume(e), "invalid")
					return
				}
				r.ok(consume(e))
				r.harmless(consume(e))
				flow, _, err := r.Flow(flowID("flow of a"), fsm.Part{MaxBytes: fsm.Unbounded})
				if err != nil || string(flow.State) != path[len(path)-1] || r.job(id("a")).State != jobs.StateCompleted {
					t.Errorf("flow %s, job %s: %v", flow.State, r.job(id("a")).State, err)
				}
			})
		}
	}
}

func TestEndingAndUpdateAreOneWrite(t *testing.T) {
	bad := []struct {
		name   string
		update func(token logbook.Token) *v1.Update
		code   string
	}{
		{"a gap", func(t logbook.Token) *v1.Update { return update("flow of a", t, 3, "running") }, "conflict"},
		{"a move that is none", func(t logbook.Token) *v1.Update { return update("flow of a", t, 1, "reverted") }, "conflict"},
		{"an atom's move that is none", func(t logbook.Token) *v1.Update {
			return update("flow of a", t, 1, "running", task("x", "running"), task("y", "reverted"))
		}, "conflict"},
		{"another flow", func(t logbook.Token) *v1.Update { return update("flow of b", t, 1, "running") }, "invalid"},
		{"another token", func(t logbook.Token) *v1.Update {
			return update("flow of a", logbook.Token{Generation: 9, Index: 9}, 1, "running")
		}, "fenced"},
	}
	for _, row := range bad {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(open("ann"))
			r.posted(flowPosting("b"))
			token := r.claimed("ann", flowPosting("a"))
			for _, verb := range verbs[1:] {
				e := ending("a", token)
				e.Update = row.update(token)
				r.refused(verb.with(e), row.code)
			}
			e := ending("a", token)
			e.Update = update("flow of a", token, 1, "suspended", task("x", "running"))
			r.ok(abandon(e))
			flow, _, err := r.Flow(flowID("flow of a"), fsm.Part{MaxBytes: fsm.Unbounded})
			if err != nil || flow.State != logbook.FlowSuspended || len(flow.Atoms) != 1 {
				t.Errorf("the update is missing: %+v %v", flow, err)
			}
		})
	}
}

func TestFlowIsFreeAfterItsJob(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("a"))
	again := &v1.Posting{Id: id("again"), Name: "again", BookId: id("book of a")}
	if code := r.ok(post(again)).GetPost().Posted[0].GetError().GetCode(); code != "conflict" {
		t.Errorf("a second job of the flow: %q", code)
	}
	r.ok(trash(ending("a", token)))
	r.posted(again)
	second := r.ok(claim("ann", id("again"), "n")).GetClaim().Granted[0].Token
	r.ok(updateFlow(update("flow of a", command.TokenFromProto(second), 1, "running")))
}

// TestPagesOfLongThings: reasons and failures can be long, but their pages must fit into an answer.
func TestPagesOfLongThings(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	long := strings.Repeat("x", 250<<10)
	const count = 7
	for i := range count {
		e := ending(fmt.Sprint(i), r.claimed("ann", posting(fmt.Sprint(i), "k")))
		e.Failure, e.Reason = &v1.Failure{Kind: "error", Message: long}, long
		r.ok(trash(e))
	}
	var pages []int
	for after := ""; ; {
		page, err := r.Jobs(jobs.Query{After: after})
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, len(page.Items))
		if after = page.Next; after == "" {
			break
		}
	}
	if !slices.Equal(pages, []int{3, 3, 1}) {
		t.Errorf("pages of %d jobs", pages)
	}
	trashed, size := 0, 0
	for after := (jobs.Position{}); ; size = 0 {
		events, err := r.Events(after, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, event := range events {
			if after = event.Position; event.Kind == jobs.EventTrashed {
				trashed++
			}
			size += len(event.Reason)
		}
		if size > 2<<20 {
			t.Errorf("one page of events has %d bytes", size)
		}
	}
	if trashed != count {
		t.Errorf("read %d ends of jobs", trashed)
	}
}
