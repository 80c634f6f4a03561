package fsm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// wishes are the possible changes of job "a", as words of the rows below.
var wishes = map[string]func(*rig) *v1.Change{
	"release": func(*rig) *v1.Change { return &v1.Change{Release: true} },
	"prefer":  func(*rig) *v1.Change { return &v1.Change{Priority: proto.Int32(7)} },
	"soon":    func(r *rig) *v1.Change { return &v1.Change{NotBefore: timestamppb.New(r.now)} },
	"later":   func(*rig) *v1.Change { return &v1.Change{NotBefore: timestamppb.New(start.Add(2 * time.Hour))} },
}

func (r *rig) changed(words ...string) *v1.Command {
	whole := &v1.Change{Job: id("a"), By: "ann@desk", Reason: "so it is to be"}
	for _, word := range words {
		proto.Merge(whole, wishes[word](r))
	}
	return change(whole)
}

// TestJobsAreChanged is the second table of jobs.Controller: every change in every
// state, with a flow and without.
func TestJobsAreChanged(t *testing.T) {
	const same, refused = "same", "refused"
	for _, row := range []struct {
		state                        jobs.State
		release, prefer, soon, later string // expected state after each change
	}{
		{jobs.StateHeld, "claimable", "held", "held", "held"},
		{jobs.StateDelayed, same, "delayed", "claimable", "delayed"},
		{jobs.StateClaimable, same, "claimable", "claimable", "delayed"},
		{jobs.StateCooling, refused, "cooling", refused, "delayed"},
		{jobs.StateWaiting, refused, "waiting", refused, "delayed"},
		{jobs.StateClaimed, same, "claimed", "claimed", "claimed"},
		{jobs.StateSuspended, same, "suspended", "suspended", "suspended"},
		{jobs.StateCompleted, same, refused, refused, refused},
		{jobs.StateTrashed, same, refused, refused, refused},
	} {
		for word, want := range map[string]string{"release": row.release, "prefer": row.prefer, "soon": row.soon, "later": row.later} {
			for _, begun := range []bool{false, true} {
				t.Run(fmt.Sprint(word, " of a ", row.state, " job, flow begun: ", begun), func(t *testing.T) {
					r := brought(t, row.state, begun)
					r.now = r.now.Add(time.Second)
					c := r.changed(word)
					switch want {
					case same:
						r.harmless(c)
					case refused:
						if message := r.refused(c, "conflict"); !strings.Contains(message, string(row.state)) {
							t.Errorf("the refusal does not say how the job stands: %s", message)
						}
					default:
						r.ok(c)
						r.has(c.GetChange(), want)
						r.now = r.now.Add(time.Second)
						r.harmless(c)
					}
				})
			}
		}
	}
}

// has checks that job "a" is in a state, and that the change took effect.
func (r *rig) has(c *v1.Change, state string) {
	r.Helper()
	job := r.job(id("a"))
	if string(job.State) != state || !job.ModifiedAt.Equal(r.now) {
		r.Errorf("the job is %s since %s, not %s", job.State, job.ModifiedAt, state)
	}
	if (c.Priority != nil && int32(job.Priority) != *c.Priority) || (c.NotBefore != nil && !job.NotBefore.Equal(c.NotBefore.AsTime())) {
		r.Errorf("the job has priority %d and time %s after %v", job.Priority, job.NotBefore, c)
	}
	events, err := r.Events(jobs.Position{}, 0)
	if err != nil {
		r.Fatal(err)
	}
	last := events[len(events)-1]
	if last.Kind != jobs.EventChanged || last.Request == nil || last.Request.Kind != jobs.RequestChange || last.Request.By != "ann@desk" || last.Reason != "so it is to be" {
		r.Errorf("the event of the change is %+v", last)
	}
}

// TestChangedTimesOutlast: a new time applies in every state of the job, when nothing else blocks
// the job.
func TestChangedTimesOutlast(t *testing.T) {
	for _, row := range []struct {
		name  string
		state jobs.State
		then  func(*rig)
		want  jobs.State
	}{
		{"a held job, released", jobs.StateHeld, func(r *rig) { r.ok(r.changed("release")) }, jobs.StateDelayed},
		{"a suspended job, resumed", jobs.StateSuspended, func(r *rig) { r.ok(resume(&v1.JobCommand{Job: id("a")})) }, jobs.StateDelayed},
		{"a claimed job, given back", jobs.StateClaimed, func(r *rig) { r.ok(abandon(ending("a", r.job(id("a")).Token))) }, jobs.StateDelayed},
		{"a claimed job, given back for a short time", jobs.StateClaimed, func(r *rig) {
			e := ending("a", r.job(id("a")).Token)
			e.Delay = lasting(time.Minute)
			r.ok(abandon(e))
		}, jobs.StateDelayed},
		{"a claimed job, given back for a long time", jobs.StateClaimed, func(r *rig) {
			e := ending("a", r.job(id("a")).Token)
			e.Delay = lasting(24 * time.Hour)
			r.ok(abandon(e))
		}, jobs.StateCooling},
		{"a claimed job, lost", jobs.StateClaimed, func(r *rig) { r.ok(expire("bob", r.TimerEpoch(), time.Second, 0)) }, jobs.StateDelayed},
		{"a claimed job, suspended and given back", jobs.StateClaimed, func(r *rig) {
			r.ok(suspend(&v1.JobCommand{Job: id("a")}))
			r.ok(abandon(ending("a", r.job(id("a")).Token)))
			r.ok(resume(&v1.JobCommand{Job: id("a")}))
		}, jobs.StateDelayed},
		{"a delayed job, brought forward", jobs.StateDelayed, func(r *rig) { r.ok(r.changed("soon")) }, jobs.StateClaimable},
		{"a claimable job, due", jobs.StateClaimable, func(r *rig) {
			r.now = start.Add(2 * time.Hour)
			r.ok(wake(r.TimerEpoch(), 10))
		}, jobs.StateClaimable},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := brought(t, row.state, false)
			r.ok(r.changed("later"))
			row.then(r)
			if job := r.job(id("a")); job.State != row.want {
				t.Errorf("it is %s until %s", job.State, job.DueAt)
			}
		})
	}
}

// TestChangesUnderOrders: the start time of a job that is being cancelled cannot change, but the
// job can be moved ahead of others.
func TestChangesUnderOrders(t *testing.T) {
	for _, state := range []jobs.State{jobs.StateClaimed, jobs.StateClaimable} {
		r := brought(t, state, true)
		r.ok(orders["undo"]())
		r.refused(r.changed("later"), "conflict")
		r.refused(r.changed("later", "prefer"), "conflict")
		r.ok(r.changed("prefer"))
		if job := r.job(id("a")); job.State != state || job.Priority != 7 {
			t.Errorf("the job is %s with priority %d", job.State, job.Priority)
		}
	}
}

func TestChangedPriorityMovesAJob(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	for _, name := range []string{"c", "b", "a"} {
		r.posted(posting(name, "k"))
	}
	r.ok(r.changed("prefer"))
	if got := r.ok(claimNext("bob", "n", 1, nil, nil)).GetClaim().Granted; len(got) != 1 || got[0].Job != id("a") {
		t.Errorf("claimed %v", got)
	}
	r.refused(change(&v1.Change{Job: id("nobody"), Release: true}), "not_found")
}

// TestReleaseWakesConductors: no conductor can claim a held job; its release wakes waiting
// conductors.
func TestReleaseWakesConductors(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	p := posting("a", "k")
	p.Hold = true
	r.posted(p)
	if message := r.refused(claim("bob", id("a"), "n"), "unclaimable"); !strings.Contains(message, "held") {
		t.Errorf("the refusal does not say why: %s", message)
	}
	if got := r.ok(claimNext("bob", "m", 1, nil, nil)).GetClaim().Granted; len(got) != 0 {
		t.Errorf("claimed %v", got)
	}
	r.ok(r.changed("release"))
	if woken := r.changes[len(r.changes)-1].Claimable; len(woken) != 1 || woken[0] != (fsm.Queue{Board: "default", Kind: "k"}) {
		t.Errorf("woken: %v", woken)
	}
	r.claimedAgain("bob", id("a"))
}

// TestChangesAreKnown: a job keeps the ids of its last sixteen changes.
func TestChangesAreKnown(t *testing.T) {
	r := newRig(t)
	r.posted(posting("a", "k"))
	named := func(word string, priority int32) *v1.Command {
		return change(&v1.Change{Id: id(word), Job: id("a"), Priority: &priority})
	}
	r.ok(named("first", 1))
	r.ok(change(&v1.Change{Job: id("a"), Priority: proto.Int32(2)}))
	r.harmless(named("first", 1))
	r.refused(named("first", 3), "conflict")
	for n := range jobs.MaxKnownChanges - 1 {
		r.ok(named(fmt.Sprint("other ", n), 2)) // a repeated id, which changes nothing
	}
	r.harmless(named("first", 1))
	r.ok(named("one more", 2))
	r.ok(named("first", 1))
	if got := r.job(id("a")).Priority; got != 1 {
		t.Errorf("forgotten, the first change is made again: the priority is %d", got)
	}
}
