package fsm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// trashed makes a rig in which job "a" is trashed, after a crash and a failure.
func trashed(t *testing.T, p *v1.Posting) *rig {
	t.Helper()
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("ann"))
	r.ok(open("bob"))
	r.claimed("ann", p)
	r.ok(expire("ann", r.TimerEpoch(), 0, 0))
	e := ending("a", r.claimedAgain("bob", id("a")))
	e.Failure = sampleFailure("first")
	r.ok(abandon(e))
	e = ending("a", r.claimedAgain("bob", id("a")))
	e.Reason, e.Failure = "nobody can", sampleFailure("last")
	r.ok(trash(e))
	r.now = r.now.Add(time.Minute)
	return r
}

func sampleFailure(message string) *v1.Failure { return &v1.Failure{Kind: "weather", Message: message} }

func TestRestoredJobsBeginAnew(t *testing.T) {
	for _, row := range []struct {
		name    string
		posting func(*v1.Posting)
		before  func(*rig)
		want    jobs.State
	}{
		{"a plain one", func(*v1.Posting) {}, func(*rig) {}, jobs.StateClaimable},
		{"one that is due later", func(*v1.Posting) {}, func(r *rig) {
			r.ok(retry(said()))
			token := r.claimedAgain("bob", id("a"))
			r.ok(r.changed("later"))
			r.ok(trash(ending("a", token)))
		}, jobs.StateDelayed},
		{"one that was to be suspended", func(*v1.Posting) {}, func(r *rig) {
			r.ok(retry(said()))
			token := r.claimedAgain("bob", id("a"))
			r.ok(suspend(said()))
			r.ok(trash(ending("a", token)))
		}, jobs.StateClaimable},
		{"one that was to be cancelled, with nothing to undo", func(*v1.Posting) {}, func(r *rig) {
			r.ok(retry(said()))
			token := r.claimedAgain("bob", id("a"))
			r.ok(orders["undo"]())
			r.ok(trash(ending("a", token)))
		}, jobs.StateCompleted},
		{"one whose deadline has passed", func(p *v1.Posting) { p.Deadline = timestamppb.New(start.Add(time.Second)) }, func(*rig) {}, jobs.StateClaimable},
		{"one whose deadline is to come", func(p *v1.Posting) { p.Deadline = timestamppb.New(start.Add(time.Hour)) }, func(*rig) {}, jobs.StateClaimable},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := posting("a", "k")
			row.posting(p)
			r := trashed(t, p)
			row.before(r)
			r.ok(retry(said()))
			job := r.job(id("a"))
			if job.State != row.want || job.Crashes+job.Failures > 0 || job.Failure != nil || job.FinishedAt.IsZero() != (row.want != jobs.StateCompleted) {
				t.Errorf("restored as %+v", job)
			}
			if row.want != jobs.StateCompleted {
				r.harmless(retry(said()))
			}
			if err := fsm.Verify(r.Machine); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRestoredEndsAreForgotten: a job fails while its cancellation waits, and completes
// as cancelled when it is restored. Its old owner's ending does not count as that
// completion.
func TestRestoredEndsAreForgotten(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	token := r.claimed("bob", posting("a", "k"))
	r.ok(cancel(said()))
	e := ending("a", token)
	e.Outcome = "failed"
	r.ok(consume(e))
	r.ok(retry(said()))
	if job := r.job(id("a")); job.Outcome != jobs.OutcomeCancelled {
		t.Fatalf("restored, the job is %+v", job)
	}
	for _, outcome := range []string{"failed", "cancelled"} {
		e.Outcome = outcome
		r.refused(consume(e), "fenced")
	}
}

// TestRestoredDeadlineCounts: a future deadline still cancels the restored job.
func TestRestoredDeadlineCounts(t *testing.T) {
	p := posting("a", "k")
	p.Deadline = timestamppb.New(start.Add(time.Hour))
	r := trashed(t, p)
	r.ok(retry(said()))
	r.now = start.Add(2 * time.Hour)
	r.ok(wake(r.TimerEpoch(), 10))
	if job := r.job(id("a")); job.Outcome != jobs.OutcomeCancelled || job.StopRequest.By != jobs.ByDeadline {
		t.Errorf("after its deadline it is %+v", job)
	}
}

// TestRestoredFlowsGoOn: the record is kept, and the flow is updated again under the next claim.
func TestRestoredFlowsGoOn(t *testing.T) {
	r := brought(t, jobs.StateTrashed, true)
	before := r.job(id("a")).Token
	r.ok(retry(said()))
	token := r.claimedAgain("bob", id("a"))
	if token.Compare(before) <= 0 {
		t.Errorf("claimed under %s after %s", token, before)
	}
	r.ok(updateFlow(update("flow of a", token, 1, "", task("x", "success", executed(1, "7")))))
	e := success("a", token)
	e.Update = update("flow of a", token, 2, "success")
	r.ok(consume(e))
	r.refused(retry(said()), "conflict")
}

func TestRestoreRefusals(t *testing.T) {
	finished := func(outcome string) func(*testing.T) *rig {
		return func(t *testing.T) *rig {
			r := newRig(t)
			r.ok(open("bob"))
			e := success("a", r.claimed("bob", posting("a", "k")))
			e.Outcome = outcome
			r.ok(consume(e))
			return r
		}
	}
	for _, row := range []struct {
		name, says string
		rig        func(*testing.T) *rig
	}{
		{"a success", "success", finished("success")},
		{"a job whose book was destroyed", "book and flow were destroyed", func(t *testing.T) *rig {
			r := trashed(t, flowPosting("a"))
			r.ok(destroyBook("book of a"))
			return r
		}},
		{"a job whose book has been saved anew", "a new book has the same id", func(t *testing.T) *rig {
			r := trashed(t, flowPosting("a"))
			r.ok(destroyBook("book of a"))
			r.ok(saveBook(book("book of a", "flow of a")))
			return r
		}},
		{"a job whose flow is that of another", "job number 2", func(t *testing.T) *rig {
			r := trashed(t, flowPosting("a"))
			r.posted(&v1.Posting{Id: id("b"), Name: "b", BookId: id("book of a")})
			return r
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if message := row.rig(t).refused(retry(said()), "conflict"); !strings.Contains(message, row.says) {
				t.Errorf("refused by %q", message)
			}
		})
	}
	r := finished("failed")(t)
	r.ok(retry(said()))
	if job := r.job(id("a")); job.State != jobs.StateClaimable || job.Outcome != "" {
		t.Errorf("a failed job without a flow is restored as %+v", job)
	}
	r.refused(retry(&v1.JobCommand{Job: id("nobody")}), "not_found")
}

// TestPurgedJobsAreGone: jobs are purged only when finished, with their book if no other job refers
// to it.
func TestPurgedJobsAreGone(t *testing.T) {
	r := trashed(t, flowPosting("a"))
	r.posted(&v1.Posting{Id: id("b"), Name: "b", BookId: id("book of a")})
	r.ok(purge(said()))
	if _, err := r.Book(bookID("book of a")); err != nil {
		t.Errorf("the book of another job: %v", err)
	}
	r.refused(purge(said()), "not_found")
	r.refused(purge(&v1.JobCommand{Job: id("b")}), "conflict")
	r.ok(trash(ending("b", r.claimedAgain("bob", id("b")))))
	r.ok(purge(&v1.JobCommand{Job: id("b")}))
	if _, err := r.Book(bookID("book of a")); err == nil {
		t.Error("the book has outlived its last job")
	}
	if told := r.events(); !slices.Contains(told, "purged a trashed") {
		t.Errorf("told %v", told)
	}
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
}

// TestRestoredJobsNeedRoom: a full board refuses to restore a job, and names its limit, unless the
// job is only reverted.
func TestRestoredJobsNeedRoom(t *testing.T) {
	for _, row := range []struct {
		name   string
		limits *v1.BoardLimits
		says   string // of the refusal
	}{
		{"no limit", &v1.BoardLimits{}, ""},
		{"room for both", &v1.BoardLimits{Jobs: 2}, ""},
		{"too many jobs", &v1.BoardLimits{Jobs: 1}, `board "default" is at its limit: at most 1 unfinished job`},
		{"too many bytes", &v1.BoardLimits{Bytes: 60}, `board "default" is at its limit: at most 60 bytes`},
		{"postings alone are slowed down", &v1.BoardLimits{PostingsPerSecond: 1}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := trashed(t, posting("a", "k"))
			r.posted(posting("b", "k"))
			r.ok(limitBoard("", row.limits))
			if row.says == "" {
				r.ok(retry(said()))
				return
			}
			if told := r.refused(retry(said()), "over_limit"); !strings.Contains(told, row.says) {
				t.Errorf("refused with %q", told)
			}
		})
	}
	r := trashed(t, flowPosting("a"))
	r.ok(retry(said()))
	token := r.claimedAgain("bob", id("a"))
	r.ok(updateFlow(update("flow of a", token, 1, "running", task("x", "running"))))
	r.ok(orders["undo"]())
	r.ok(trash(ending("a", token)))
	r.posted(posting("b", "k"))
	r.ok(limitBoard("", &v1.BoardLimits{Jobs: 1}))
	r.ok(retry(said()))
	if got := r.job(id("a")).State; got != jobs.StateClaimable {
		t.Errorf("the work to revert is %s", got)
	}
}
