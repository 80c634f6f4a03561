package fsm_test

import (
	"fmt"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// keyed is a posting with a key and a priority.
func keyed(name string, priority int32, front bool) *v1.Posting {
	p := posting(name, "k")
	p.Key, p.Priority, p.Front = "the key", priority, front
	return p
}

// TestAKeyRaisesItsJob: a posting under a key that is held moves the job that
// has it, and never back.
func TestAKeyRaisesItsJob(t *testing.T) {
	for _, state := range []jobs.State{
		jobs.StateHeld, jobs.StateDelayed, jobs.StateClaimable, jobs.StateCooling, jobs.StateClaimed, jobs.StateSuspended,
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

// TestTheOrderOfTheFront: the last one first, those of one entry in their
// order, and nobody before a higher priority.
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
