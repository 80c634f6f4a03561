package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// keyed is a posting with a key and a priority.
func keyed(name string, priority int32, front bool) *v1.Posting {
	p := posting(name, "k")
	p.Key, p.Priority, p.Front = "the key", priority, front
	return p
}

// TestAKeyRaisesItsJob: a posting with a used key can move the job with this key forwards, and
// never backwards.
func TestAKeyRaisesItsJob(t *testing.T) {
	for _, state := range []jobs.State{
		jobs.StateHeld, jobs.StateDelayed, jobs.StateClaimable, jobs.StateCooling, jobs.StateWaiting, jobs.StateClaimed, jobs.StateSuspended,
	} {
		t.Run(string(state), func(t *testing.T) {
			r := broughtWith(t, state, false, func(p *v1.Posting) { p.Key = "the key" })
			r.harmless(post(keyed("b", -1, false)))
			r.harmless(post(keyed("b", 0, false)))
			result := r.ok(post(keyed("b", 7, false))).GetPost().Posted[0]
			if result.Job != id("a") || !result.Existed {
				t.Errorf("answered with %v", result)
			}
			r.harmless(post(keyed("b", 7, false)))
			r.ok(post(keyed("c", 3, true)))
			r.harmless(post(keyed("c", 3, true)))
			if job := r.job(id("a")); job.Priority != 7 || job.Front == 0 || job.State != state {
				t.Errorf("the job is %s with priority %d, front %d", job.State, job.Priority, job.Front)
			}
		})
	}
	for _, state := range []jobs.State{jobs.StateCompleted, jobs.StateTrashed} {
		t.Run(string(state), func(t *testing.T) {
			r := broughtWith(t, state, false, func(p *v1.Posting) { p.Key = "the key" })
			r.posted(keyed("b", 0, false))
			if job := r.job(id("b")); job.State != jobs.StateClaimable || job.Key != "the key" {
				t.Errorf("the next job is %+v", job)
			}
		})
	}
}

// TestTheOrderOfTheFront: the latest job comes first, jobs of one entry keep their order, and no
// job passes a higher priority.
func TestTheOrderOfTheFront(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	front := func(name string) *v1.Posting {
		p := posting(name, "k")
		p.Front = true
		return p
	}
	high := posting("high", "k")
	high.Priority = 1
	r.posted(posting("plain", "k"))
	r.posted(front("a"))
	r.ok(post(front("b"), front("c")))
	r.posted(high)
	r.posted(posting("last", "l"))
	var got []string
	for _, granted := range r.ok(claimNext("bob", "n", 10, nil, nil)).GetClaim().Granted {
		got = append(got, r.job(granted.Job).Name)
	}
	if want := "[high b c a plain last]"; fmt.Sprint(got) != want {
		t.Errorf("claimed %v, not %s", got, want)
	}
}

// comesBack are all ways in which a finished job becomes unfinished. The job is "a", or the last
// job of the flow of "a".
var comesBack = []struct {
	name   string
	finish func(*testing.T, *rig)
	back   *v1.Command
}{
	{"a trashed job is retried", func(_ *testing.T, r *rig) { r.ok(trash(ending("a", r.beginPlain()))) }, retry(said())},
	{"a trashed job that was cancelled is undone further", func(_ *testing.T, r *rig) {
		token := r.begin(keyedFlow(), "flow of a")
		r.ok(cancel(&v1.JobCommand{Job: id("a"), Revert: true}))
		r.ok(trash(ending("a", token)))
	}, retry(said())},
	{"a failed job without a flow is retried", func(_ *testing.T, r *rig) {
		e := ending("a", r.beginPlain())
		e.Outcome = "failed"
		r.ok(consume(e))
	}, retry(said())},
	{"a reverted flow is retried", failedAs("reverted"), retry(said())},
	{"a half-undone flow is retried", failedAs("failure"), retry(said())},
	{"a flow is rerun", failedAs("failure"), intervene(asked("rerun", ""))},
	{"a flow is rerun from a step", failedAs("reverted"), intervene(asked("rerun", "y"))},
	{"a step is completed", failedAs("failure"), intervene(asked("complete", "y"))},
	{"a step is skipped", failedAs("failure"), intervene(asked("skip", "x"))},
	{"the undo is retried", failedAs("failure"), intervene(asked("retry-revert", ""))},
	{"an intervention releases the held ones", func(t *testing.T, r *rig) {
		failedAs("failure")(t, r)
		r.ok(held(asked("skip", "x")))
	}, intervene(asked("complete", "y"))},
}

func keyedFlow() *v1.Posting {
	p := flowPosting("a")
	p.Key = "the key"
	return p
}

// beginPlain claims a job "a" without a flow.
func (r *rig) beginPlain() logbook.Token { return r.claimed("bob", keyed("a", 0, false)) }

func failedAs(state string) func(*testing.T, *rig) {
	return func(_ *testing.T, r *rig) { r.failAs(keyedFlow(), state) }
}

// TestNoJobComesBackToATakenKey: each such way is refused while another unfinished job has the key,
// and changes nothing. It succeeds when that job is finished. The key does not change.
func TestNoJobComesBackToATakenKey(t *testing.T) {
	for _, row := range comesBack {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(beginLeadership())
			r.ok(open("bob"))
			row.finish(t, r)
			other := keyed("b", 0, false)
			other.Hold = true
			r.posted(other)
			want := fmt.Sprintf(`on board "default", job %s has the key "the key" and is not finished: wait until this job is finished, or cancel it`, id("b"))
			if said := r.refused(row.back, "conflict"); !strings.Contains(said, want) {
				t.Errorf("the refusal says %q", said)
			}
			if job := r.job(id("a")); job.Key != "the key" || !job.State.Finished() {
				t.Errorf("refused, the job is %s with key %q", job.State, job.Key)
			}
			r.ok(cancel(&v1.JobCommand{Job: id("b")}))
			r.ok(row.back)
			if job := r.job(id("a")); job.Key != "the key" || job.State != jobs.StateClaimable {
				t.Errorf("back, the job is %s with key %q", job.State, job.Key)
			}
			if existed := r.ok(post(keyed("c", 0, false))).GetPost().Posted[0]; existed.Job != id("a") {
				t.Errorf("posted under its key: %v", existed)
			}
		})
	}
}
