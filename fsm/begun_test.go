package fsm_test

import (
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// claimBeginning claims the first job for bob, with or without Begins.
func (r *rig) claimBeginning(begins bool) logbook.Token {
	r.Helper()
	c := claimNext("bob", "nonce of beginning "+r.now.String(), 1, []string{jobs.DefaultBoard}, nil)
	c.GetClaimNext().Begins = begins
	granted := r.ok(c).GetClaim().Granted
	if len(granted) != 1 {
		r.Fatalf("%d jobs were granted", len(granted))
	}
	return command.TokenFromProto(granted[0].Token)
}

// endsOfClaims are the ways in which a claim of job "a" ends, as words of the rows below. No such
// end records anything of the job's flow.
var endsOfClaims = map[string]func(r *rig, token logbook.Token){
	"session expires": func(r *rig, _ logbook.Token) { r.ok(expire("bob", r.TimerEpoch(), time.Second, 0)) },
	"session expires once too often": func(r *rig, _ logbook.Token) {
		r.ok(expire("bob", r.TimerEpoch(), time.Second, 1))
	},
	"session is closed": func(r *rig, _ logbook.Token) { r.ok(closing("bob")) },
	"claim expires": func(r *rig, token logbook.Token) {
		r.ok(&v1.Command{Kind: &v1.Command_ExtendClaim{ExtendClaim: &v1.ExtendClaimCommand{
			Job: id("a"), Token: command.TokenToProto(token), Expiry: lasting(time.Minute),
		}}})
		r.ok(&v1.Command{Kind: &v1.Command_ExpireClaim{ExpireClaim: &v1.ExpireClaimCommand{
			Job: id("a"), Token: command.TokenToProto(token), TimerEpoch: r.TimerEpoch(), CoolDown: lasting(time.Second), Extensions: 1,
		}}})
	},
	"abandoned":           func(r *rig, token logbook.Token) { r.ok(abandon(ending("a", token))) },
	"abandoned, recorded": func(r *rig, token logbook.Token) { r.ok(abandon(recorded("a", token))) },
	"trashed":             func(r *rig, token logbook.Token) { r.ok(trash(ending("a", token))) },
	"trashed, recorded":   func(r *rig, token logbook.Token) { r.ok(trash(recorded("a", token))) },
	"cancelled": func(r *rig, token logbook.Token) {
		r.ok(cancel(said()))
		e := ending("a", token)
		e.Outcome = "cancelled"
		r.ok(consume(e))
	},
	"cancelled, recorded": func(r *rig, token logbook.Token) {
		r.ok(cancel(said()))
		e := recorded("a", token)
		e.Outcome = "cancelled"
		r.ok(consume(e))
	},
}

func recorded(job string, token logbook.Token) *v1.Ending {
	e := ending(job, token)
	e.Recorded = true
	return e
}

// TestFlowsThatMayHaveBegun: if a claim has Begins, every end of the claim notes that the flow may
// have started, unless the owner reports that everything is recorded. With this note, only an owner
// can revert the job.
func TestFlowsThatMayHaveBegun(t *testing.T) {
	for _, row := range []struct {
		end    string
		begins bool
		begun  bool
		undone string // state of the job after it is restored, if it was trashed, and then cancelled with revert
	}{
		{"session expires", true, true, "cooling"},
		{"session expires", false, false, "completed"},
		{"session expires once too often", true, true, "claimable"},
		{"session expires once too often", false, false, "completed"},
		{"session is closed", true, true, "claimable"},
		{"session is closed", false, false, "completed"},
		{"claim expires", true, true, "cooling"},
		{"claim expires", false, false, "completed"},
		{"abandoned", true, true, "claimable"},
		{"abandoned", false, false, "completed"},
		{"abandoned, recorded", true, false, "completed"},
		{"abandoned, recorded", false, false, "completed"},
		{"trashed", true, true, "claimable"},
		{"trashed", false, false, "completed"},
		{"trashed, recorded", true, false, "completed"},
		{"cancelled", true, true, ""},
		{"cancelled", false, false, ""},
		{"cancelled, recorded", true, false, ""},
	} {
		name := row.end + map[bool]string{true: ", begins", false: ""}[row.begins]
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.ok(beginLeadership())
			r.ok(open("bob"))
			r.posted(flowPosting("a"))
			token := r.claimBeginning(row.begins)
			if claim := r.job(id("a")).Claim; claim.Begins != row.begins {
				t.Errorf("the claim begins flows: %v", claim.Begins)
			}
			endsOfClaims[row.end](r, token)
			want := logbook.Token{}
			if row.begun {
				want = token
			}
			if got := r.flow("flow of a").Begun; got != want {
				t.Errorf("the flow may have begun under %s, want %s", got, want)
			}
			if row.undone == "" {
				return
			}
			if r.job(id("a")).State == jobs.StateTrashed {
				r.ok(retry(&v1.JobCommand{Job: id("a")}))
			}
			r.ok(orders["undo"]())
			if got := r.job(id("a")).State; string(got) != row.undone {
				t.Errorf("the job is %s, want %s", got, row.undone)
			}
		})
	}
}

// TestOrdersBeforeTheClaimIsLost: the state of a job whose claim is lost after a stop request. With
// a revert, a job whose flow may have started waits for an owner.
func TestOrdersBeforeTheClaimIsLost(t *testing.T) {
	for _, row := range []struct {
		order  string
		begins bool
		state  string
	}{
		{"undo", true, "cooling"},
		{"undo", false, "completed"},
		{"stop", true, "completed"},
		{"suspend", true, "suspended"},
	} {
		r := newRig(t)
		r.ok(beginLeadership())
		r.ok(open("bob"))
		r.posted(flowPosting("a"))
		r.claimBeginning(row.begins)
		r.ok(orders[row.order]())
		r.ok(expire("bob", r.TimerEpoch(), time.Second, 0))
		if got := r.job(id("a")).State; string(got) != row.state {
			t.Errorf("%s, begins %v: the job is %s, want %s", row.order, row.begins, got, row.state)
		}
	}
}

// TestDeadlineOfAFlowThatMayHaveBegun: the board cancels the job as if its flow had started.
func TestDeadlineOfAFlowThatMayHaveBegun(t *testing.T) {
	for _, begins := range []bool{true, false} {
		r := newRig(t)
		r.ok(beginLeadership())
		r.ok(open("bob"))
		p := flowPosting("a")
		p.Deadline = command.TimeToProto(r.now.Add(time.Second))
		r.posted(p)
		r.ok(abandon(ending("a", r.claimBeginning(begins))))
		r.now = r.now.Add(time.Minute)
		r.ok(wake(r.TimerEpoch(), 10))
		want := map[bool]jobs.State{true: jobs.StateClaimable, false: jobs.StateCompleted}[begins]
		if got := r.job(id("a")).State; got != want {
			t.Errorf("begins %v: the job is %s, want %s", begins, got, want)
		}
	}
}

// TestFirstUpdateTellsWhatHasBegun: the first update removes the note, and no later end of a claim
// restores it. An ending removes the note too.
func TestFirstUpdateTellsWhatHasBegun(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	r.posted(flowPosting("a"))
	first := r.claimBeginning(true)
	r.ok(abandon(ending("a", first)))
	r.now = r.now.Add(time.Second)
	second := r.claimBeginning(true)
	r.ok(abandon(recorded("a", second)))
	if got := r.flow("flow of a").Begun; got != first {
		t.Errorf("after a claim under which nothing began, the flow may have begun under %s, want %s", got, first)
	}
	r.now = r.now.Add(time.Second)
	third := r.claimBeginning(true)
	if got := r.flow("flow of a").Begun; got != first {
		t.Errorf("while it is claimed, the flow may have begun under %s, want %s", got, first)
	}
	r.ok(updateFlow(update("flow of a", third, 1, "running", task("x", "running", executing(1)))))
	r.ok(closing("bob"))
	if got := r.flow("flow of a"); !got.Begun.IsZero() {
		t.Errorf("with an update, the flow may have begun under %s", got.Begun)
	}
}

// TestRunningFlowsMayHaveBegun: steps of a running flow may have started under a claim with Begins that has ended
// without an update under its own token. The next update removes the note.
func TestRunningFlowsMayHaveBegun(t *testing.T) {
	for _, row := range []struct {
		state   string // of the flow, by the update under the first claim
		begins  bool
		updates bool // under the second claim
		begun   bool
	}{
		{"running", true, false, true},
		{"running", false, false, false},
		{"running", true, true, false},
		{"suspended", true, false, false},
		{"reverting", true, false, false},
	} {
		r := newRig(t)
		r.ok(beginLeadership())
		r.ok(open("bob"))
		r.posted(flowPosting("a"))
		first := r.claimBeginning(true)
		state := row.state
		if state == "reverting" {
			r.ok(updateFlow(update("flow of a", first, 1, "running", task("x", "success", executed(1, "1")))))
			r.ok(updateFlow(update("flow of a", first, 2, state)))
		} else {
			r.ok(updateFlow(update("flow of a", first, 1, state, task("x", "success", executed(1, "1")))))
		}
		r.ok(abandon(ending("a", first)))
		r.now = r.now.Add(time.Second)
		second, want := r.claimBeginning(row.begins), logbook.Token{}
		if row.updates {
			r.ok(updateFlow(update("flow of a", second, 1, "", task("y", "running", executing(1)))))
		}
		r.ok(abandon(ending("a", second)))
		if row.begun {
			want = second
		}
		if got := r.flow("flow of a").Begun; got != want {
			t.Errorf("%s, begins %v, updated %v: the flow may have begun under %s, want %s", row.state, row.begins, row.updates, got, want)
		}
		if !row.begun {
			continue
		}
		r.now = r.now.Add(time.Second)
		third := r.claimBeginning(true)
		r.ok(updateFlow(update("flow of a", third, 1, "", task("y", "running", executing(1)))))
		if got := r.flow("flow of a").Begun; !got.IsZero() {
			t.Errorf("with an update, the flow may have begun under %s", got)
		}
	}
}

// TestPlanOfAFlowThatMayHaveBegun: the plan cannot change, because steps may have run.
func TestPlanOfAFlowThatMayHaveBegun(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	r.posted(flowPosting("a"))
	r.ok(trash(ending("a", r.claimBeginning(true))))
	same, other := book("book of a", "flow of a"), book("book of a", "flow of a")
	other.Flows[0].Factory.Name = "other"
	r.ok(saveBook(same))
	r.refused(saveBook(other), "conflict")

	// Another job continues the flow unchanged.
	p := posting("b", "")
	p.BookId = id("book of a")
	r.posted(p)
	r.now = r.now.Add(time.Second)
	r.claimBeginning(false)
	if r.flow("flow of a").Begun.IsZero() {
		t.Error("the next job's owner is not told that the flow may have begun")
	}
	r.ok(cancel(&v1.JobCommand{Job: id("b"), Revert: true}))
	r.ok(closing("bob"))
	if got := r.job(id("b")).State; got != jobs.StateClaimable {
		t.Errorf("the next job is %s, and must be reverted", got)
	}
}

// TestUndoingIsNotSkipped: a cancelled job whose flow may have started does not complete while its
// revert is outstanding, even if an owner leaves the flow unchanged.
func TestUndoingIsNotSkipped(t *testing.T) {
	for _, row := range []struct {
		name     string
		order    string
		begins   [2]bool // Begins of each claim
		recorded bool    // Recorded of the last owner's ending
		code     string  // code of the refusal; empty: the job is completed
	}{
		{"under the present claim", "undo", [2]bool{false, true}, false, "invalid"},
		{"not, as its owner says", "undo", [2]bool{false, true}, true, ""},
		{"under the claim before", "undo", [2]bool{true, false}, true, "invalid"},
		{"under no claim", "undo", [2]bool{false, false}, false, ""},
		{"but is to be left as it stands", "stop", [2]bool{true, true}, false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(beginLeadership())
			r.ok(open("bob"))
			r.posted(flowPosting("a"))
			r.ok(abandon(ending("a", r.claimBeginning(row.begins[0]))))
			r.now = r.now.Add(time.Second)
			e := ending("a", r.claimBeginning(row.begins[1]))
			r.ok(orders[row.order]())
			e.Outcome, e.Recorded = "cancelled", row.recorded
			if row.code != "" {
				r.refused(consume(e), row.code)
				return
			}
			r.ok(consume(e))
		})
	}
}
