package fsm_test

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

func moving(to string) *v1.Command {
	return change(&v1.Change{Job: id("a"), Board: to, By: "ann", Reason: "it is late"})
}

// TestJobsAreMoved: a move in every state, with a flow and without.
func TestJobsAreMoved(t *testing.T) {
	for _, state := range jobs.States {
		for _, begun := range []bool{false, true} {
			t.Run(string(state), func(t *testing.T) {
				r := brought(t, state, begun)
				r.ok(&v1.Command{Kind: &v1.Command_CreateBoard{CreateBoard: &v1.BoardCommand{Board: "night"}}})
				if state.Finished() || state == jobs.StateClaimed {
					r.refused(moving("night"), "conflict")
					return
				}
				r.harmless(moving(jobs.DefaultBoard))
				r.refused(moving("nowhere"), "not_found")
				r.ok(moving("night"))
				r.harmless(moving("night"))
				if job := r.job(id("a")); job.Board != "night" || job.State != state {
					t.Errorf("it is %s on %q", job.State, job.Board)
				}
				if err := fsm.Verify(r.Machine); err != nil {
					t.Error(err)
				}
				r.ok(moving(jobs.DefaultBoard))
				if err := fsm.Verify(r.Machine); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestMovesAreBounded: a move needs room on the target board, and under the quotas that did not
// count the job before.
func TestMovesAreBounded(t *testing.T) {
	r := newRig(t)
	r.posted(onBoard("a", "orders/new"))
	r.posted(onBoard("b", "orders/late"))
	r.ok(saveQuota(ofOrders, access.Amounts{Jobs: 2}))
	r.ok(moving("orders/late"))
	if used := r.used(ofOrders); used.Jobs != 2 {
		t.Errorf("within its quota: %+v", used)
	}
	r.posted(onBoard("c", "night"))
	r.ok(moving("night"))
	if used := r.used(ofOrders); used.Jobs != 1 {
		t.Errorf("out of its quota: %+v", used)
	}
	r.posted(onBoard("d", "orders/new"))
	if said := r.refused(moving("orders/new"), "over_limit"); !strings.Contains(said, `quota of boards "orders/*" is at its limit`) {
		t.Error(said)
	}
	r.posted(onBoard("e", "day"))
	r.ok(&v1.Command{Kind: &v1.Command_LimitBoard{LimitBoard: &v1.LimitBoardCommand{Board: "day", Limits: &v1.BoardLimits{Jobs: 1, PostingsPerSecond: 1}}}})
	if said := r.refused(moving("day"), "over_limit"); !strings.Contains(said, `board "day" is at its limit: at most 1 unfinished job`) {
		t.Error(said)
	}
	r.ok(cancel(&v1.JobCommand{Job: id("e")}))
	r.ok(moving("day")) // a move does not count for the posting rate
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
}

// TestMovesTakeTheirKeyAndBook: no board gets a second job with the same key. A book moves with its
// only job.
func TestMovesTakeTheirKeyAndBook(t *testing.T) {
	r := newRig(t)
	keyed, other := onBoard("a", "day"), onBoard("b", "night")
	keyed.Key, other.Key = "k", "k"
	keyed.Kind, keyed.Book, keyed.Flow = "", book("", "flow of a", "flow of e"), flowID("flow of a").String()
	r.posted(keyed)
	r.posted(other)
	if said := r.refused(moving("night"), "conflict"); !strings.Contains(said, `on board "night", job `+id("b")+` has the key "k"`) {
		t.Error(said)
	}
	r.ok(cancel(&v1.JobCommand{Job: id("b")}))
	r.ok(moving("night"))
	if board, found, err := r.BoardOfFlow(flowID("flow of a")); err != nil || !found || board != "night" {
		t.Errorf("its flow is on board %q, %t, %v", board, found, err)
	}
	if job, err := r.JobOfFlow(flowID("flow of a")); err != nil || job.String() != id("a") {
		t.Errorf("its flow is of job %s, %v", job, err)
	}
	if job, err := r.JobOfFlow(flowID("flow of e")); err != nil || !job.IsZero() {
		t.Errorf("a flow that no job refers to is of job %s, %v", job, err)
	}
	if existed := r.ok(post(&v1.Posting{Id: id("c"), Name: "c", Kind: "k", Board: "night", Key: "k"})).GetPost().Posted[0]; existed.Job != id("a") {
		t.Errorf("posted under its key: %v", existed)
	}
	r.posted(&v1.Posting{Id: id("d"), Name: "d", Kind: "k", Board: "day", Key: "k"})
	r.posted(&v1.Posting{Id: id("e"), Name: "e", Board: "night", BookId: keyed.Book.Id, Flow: flowID("flow of e").String()})
	r.posted(onBoard("f", "dawn"))
	r.ok(moving("dawn"))
	if board, _, err := r.BoardOfFlow(flowID("flow of a")); err != nil || board != "night" {
		t.Errorf("the flow of two jobs is on board %q, %v", board, err)
	}
}

// TestMovedJobsAgeAnew: the waiting time on one board does not raise a job on another.
func TestMovedJobsAgeAnew(t *testing.T) {
	for _, suspended := range []bool{false, true} {
		r := newRig(t)
		r.ok(open("ann"))
		r.posted(onBoard("other", "night"))
		r.posted(onBoard("first", "day"))
		r.ok(ageBoard("day", time.Second))
		r.ok(ageBoard("night", time.Second))
		r.posted(onBoard("a", "day"))
		r.ok(cancel(&v1.JobCommand{Job: id("other")}))
		if suspended {
			r.ok(suspend(&v1.JobCommand{Job: id("a")}))
		}
		r.now = r.now.Add(10 * time.Second)
		p := onBoard("b", "night")
		p.Priority = 3
		r.posted(p)
		r.ok(moving("night"))
		if suspended {
			r.ok(resume(&v1.JobCommand{Job: id("a")}))
		}
		r.now = r.now.Add(time.Second)
		if granted := r.ok(claimNext("ann", "n", 1, []string{"night"}, []string{"k"})).GetClaim().Granted; len(granted) != 1 || granted[0].Job != id("b") {
			t.Errorf("suspended %t: granted %v", suspended, granted)
		}
	}
}

// TestFront: the last job that was put to the front is the first of its priority.
func TestFront(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	for _, name := range []string{"x", "y", "a", "b"} {
		r.posted(posting(name, "k"))
	}
	high := posting("h", "k")
	high.Priority = 1
	r.posted(high)
	for _, name := range []string{"a", "b"} {
		r.ok(change(&v1.Change{Job: id(name), Front: true, Id: id("change " + name)}))
	}
	r.harmless(change(&v1.Change{Job: id("a"), Front: true, Id: id("change a")}))
	r.harmless(change(&v1.Change{Job: id("a"), Front: true})) // a repeat without an id cannot be recognised
	var order []string
	for _, granted := range r.ok(claimNext("ann", "n", 5, nil, []string{"k"})).GetClaim().Granted {
		order = append(order, r.job(granted.Job).Name)
	}
	if got := strings.Join(order, " "); got != "h b a x y" {
		t.Errorf("claimed %s", got)
	}
}
