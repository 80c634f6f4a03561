package fsm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestTimersOfADeposedLeader(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	old := r.TimerEpoch()
	r.ok(beginLeadership())
	if r.TimerEpoch() != r.index || old == r.index {
		t.Errorf("epoch %d after %d, at entry %d", r.TimerEpoch(), old, r.index)
	}
	r.refused(wake(old, 1), "conflict")
	r.refused(sweep(old, 0, 0, 1), "conflict")
}

func TestWakeInPortions(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	for i := range 5 {
		p := posting(fmt.Sprint(i), "k")
		p.NotBefore = timestamppb.New(start.Add(time.Duration(5-i) * time.Second))
		r.posted(p)
	}
	r.now = start.Add(4 * time.Second) // all except job 0
	for _, want := range []struct {
		done uint32
		more bool
	}{{3, true}, {1, false}, {0, false}} {
		if count := r.ok(wake(r.TimerEpoch(), 3)).GetCount(); count.Done != want.done || count.More != want.more {
			t.Errorf("woke %v, not %v", count, want)
		}
	}
	if r.Counts()[jobs.StateDelayed] != 1 || r.job(id("0")).State != jobs.StateDelayed {
		t.Errorf("counts %v", r.Counts())
	}
}

func TestTimeNeverRunsBackwards(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.now = start.Add(-time.Hour)
	r.posted(posting("a", "k"))
	if job := r.job(id("a")); !job.PostedAt.Equal(start) || !r.Time().Equal(start) {
		t.Errorf("posted at %s, time %s", job.PostedAt, r.Time())
	}
}

// finish posts jobs and consumes them, one per second.
func (r *rig) finish(names ...string) {
	r.Helper()
	for _, name := range names {
		r.now = r.now.Add(time.Second)
		r.ok(consume(success(name, r.claimed("ann", posting(name, "k")))))
	}
}

func TestSweep(t *testing.T) {
	rows := []struct {
		name string
		age  time.Duration
		keep uint64
		most uint32
		left int
		more bool
	}{
		{"no bound", 0, 0, 10, 5, false},
		{"keep 2", 0, 2, 10, 2, false},
		{"keep more than there are", 0, 9, 10, 5, false},
		{"older than 2 s", 2 * time.Second, 0, 10, 3, false},
		{"older than 2 s or more than 1", 2 * time.Second, 1, 10, 1, false},
		{"in portions", 0, 1, 3, 2, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(beginLeadership())
			r.ok(open("ann"))
			r.finish("1", "2", "3", "4", "5")
			r.posted(posting("waiting", "k"))
			sweepable, err := r.Sweepable(r.Time(), row.age, row.keep)
			if err != nil || sweepable != (row.left < 5) {
				t.Errorf("sweepable: %t %v", sweepable, err)
			}
			// Time also passes on an idle cluster.
			sweepable, err = r.Sweepable(r.Time().Add(time.Minute), row.age, row.keep)
			if err != nil || sweepable != (row.left < 5 || row.age > 0) {
				t.Errorf("sweepable in a minute: %t %v", sweepable, err)
			}
			count := r.ok(sweep(r.TimerEpoch(), row.age, row.keep, row.most)).GetCount()
			if int(count.Done) != 5-row.left || count.More != row.more {
				t.Errorf("swept %v", count)
			}
			for i := 1; i <= 5; i++ {
				_, err := r.Job(jobID(id(fmt.Sprint(i))))
				if gone := errors.Is(err, jobs.ErrNotFound); gone != (i <= 5-row.left) {
					t.Errorf("job %d: %v", i, err)
				}
			}
			r.job(id("waiting"))
		})
	}
}

// TestSweepCountsStuckJobsApart: jobs that need an operator are removed only by their own age or
// number, for any number of finished jobs.
func TestSweepCountsStuckJobsApart(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("ann"))
	for _, name := range []string{"t1", "t2"} {
		r.ok(trash(ending(name, r.claimed("ann", posting(name, "k")))))
	}
	failed := ending("f", r.claimed("ann", posting("f", "k")))
	failed.Outcome = string(jobs.OutcomeFailed)
	r.ok(consume(failed))
	r.finish("1", "2", "3", "4", "5")
	for _, row := range []struct {
		keep uint64
		want string
	}{{3, "f t1 t2 3 4 5"}, {2, "f t2 4 5"}, {1, "f 5"}} {
		r.ok(sweep(r.TimerEpoch(), 0, row.keep, 100))
		var left []string
		for _, name := range []string{"f", "t1", "t2", "1", "2", "3", "4", "5"} {
			if _, err := r.Job(jobID(id(name))); err == nil {
				left = append(left, name)
			}
		}
		if got := strings.Join(left, " "); got != row.want {
			t.Errorf("keeping %d: %q is left, and %q is right", row.keep, got, row.want)
		}
	}
	r.ok(retry(&v1.JobCommand{Job: id("f"), By: "eve"}))
	if sweepable, err := r.Sweepable(r.Time(), 0, 1); err != nil || sweepable {
		t.Errorf("after one went back to its board: sweepable %t, %v", sweepable, err)
	}
}

func TestSweepTakesTheBookWithItsLastJob(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("ann"))
	r.ok(trash(ending("a", r.claimed("ann", flowPosting("a")))))
	again := posting("again", "")
	again.BookId = id("book of a")
	r.ok(trash(ending("again", r.claimed("ann", again))))
	r.ok(sweep(r.TimerEpoch(), 0, 1, 10))
	if _, err := r.Book(bookID("book of a")); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(time.Minute)
	r.ok(open("bob"))
	r.ok(sweep(r.TimerEpoch(), time.Second, 0, 10))
	if _, err := r.Book(bookID("book of a")); !errors.Is(err, logbook.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, _, err := r.Flow(flowID("flow of a"), fsm.Part{MaxBytes: fsm.Unbounded}); !errors.Is(err, logbook.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestSweepLeavesABookSavedAnew(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("ann"))
	r.ok(trash(ending("a", r.claimed("ann", flowPosting("a")))))
	r.ok(destroyBook("book of a"))
	r.now = r.now.Add(time.Minute)
	r.ok(saveBook(book("book of a", "flow of a")))
	r.ok(sweep(r.TimerEpoch(), time.Second, 0, 10))
	if r.Counts()[jobs.StateTrashed] != 0 {
		t.Error("nothing was swept")
	}
	if _, err := r.Book(bookID("book of a")); err != nil {
		t.Error(err)
	}
}

// TestOwnRetention: a job with its own retention is swept after that time, before or after other
// jobs, for each end. Its book is removed with it. Such jobs are counted separately.
func TestOwnRetention(t *testing.T) {
	for _, row := range []struct {
		name  string
		after time.Duration // time since the jobs ended
		age   time.Duration
		keep  uint64
		want  string // the remaining jobs: short and failed are kept for a minute, long for a week, and plain by the policy
	}{
		{"none is over", time.Minute, time.Hour, 10, "short failed long plain"},
		{"the short ones are over", time.Minute + 2, time.Hour, 10, "long plain"},
		{"the long one outlives the policy", 25 * time.Hour, time.Hour, 10, "long"},
		{"all are over", 8 * 24 * time.Hour, time.Hour, 10, ""},
		{"there is no policy", 8 * 24 * time.Hour, 0, 0, "plain"},
		{"too many have a time of their own", time.Second, time.Hour, 2, "failed long plain"},
		{"far too many", time.Second, time.Hour, 1, "long plain"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(beginLeadership())
			r.ok(open("bob"))
			for name, kept := range map[string]time.Duration{"long": 7 * 24 * time.Hour, "plain": 0, "short": time.Minute} {
				p := flowPosting(name)
				if kept > 0 {
					p.Retention = lasting(kept)
				}
				r.posted(p)
				r.ok(cancel(&v1.JobCommand{Job: id(name)}))
			}
			p := posting("failed", "k")
			p.Retention = lasting(time.Minute + 1) // the next job after "short"
			e := ending("failed", r.claimed("bob", p))
			e.Outcome = "failed"
			r.ok(consume(e))
			r.now = r.now.Add(row.after)
			for more := true; more; {
				more = r.ok(sweep(r.TimerEpoch(), row.age, row.keep, 1)).GetCount().More
			}
			if sweepable, err := r.Sweepable(r.now, row.age, row.keep); sweepable || err != nil {
				t.Errorf("after all sweeps, there is more to sweep: %t, %v", sweepable, err)
			}
			var left []string
			for _, name := range []string{"short", "failed", "long", "plain"} {
				if _, err := r.Job(jobID(id(name))); err == nil {
					left = append(left, name)
				} else if _, _, err := r.Flow(flowID("flow of "+name), fsm.Part{MaxBytes: fsm.Unbounded}); err == nil && name != "failed" {
					t.Errorf("%s is gone, and its flow is there", name)
				}
			}
			if got := strings.Join(left, " "); got != row.want {
				t.Errorf("%q are left, want %q", got, row.want)
			}
		})
	}
}

// TestOwnRetentionIsLiftedWithTheJob: a restored job is not swept at the end of its former
// retention.
func TestOwnRetentionIsLiftedWithTheJob(t *testing.T) {
	p := posting("a", "k")
	p.Retention = lasting(time.Minute)
	r := trashed(t, p)
	r.ok(retry(said()))
	r.now = r.now.Add(time.Hour)
	if done := r.ok(sweep(r.TimerEpoch(), time.Hour, 1, 10)).GetCount().Done; done != 0 {
		t.Errorf("%d jobs are swept", done)
	}
	r.ok(cancel(said()))
	r.ok(purge(said()))
}
