package conductor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// path is the real board with hooks before and after calls. A hook that returns an error prevents
// the call.
type path struct {
	cluster
	open, opened func(jobs.Opening) error
	close        func(ctx context.Context) error
	end          func(verb string, ending jobs.Ending) error
	bare         bool // claims are returned without their flow details
	// claimed is called with new claims before the conductor gets them.
	claimed func(ctx context.Context) error
	alter   func(*jobs.Job)         // changes jobs in answers to claims
	asked   func(jobs.ClaimRequest) // called with each claim request, after its answer

	mu       sync.Mutex
	openings []jobs.SessionID
}

func (r *path) OpenSession(ctx context.Context, o jobs.Opening) (jobs.Session, error) {
	r.mu.Lock()
	r.openings = append(r.openings, o.ID)
	r.mu.Unlock()
	if r.open != nil {
		if err := r.open(o); err != nil {
			return jobs.Session{}, err
		}
	}
	session, err := r.cluster.OpenSession(ctx, o)
	if err == nil && r.opened != nil {
		err = r.opened(o)
	}
	return session, err
}

func (r *path) ClaimNext(ctx context.Context, request jobs.ClaimRequest) ([]jobs.Claimed, error) {
	claimed, err := r.cluster.ClaimNext(ctx, request)
	if r.asked != nil {
		r.asked(request)
	}
	for i := range claimed {
		if r.bare {
			claimed[i].Flow = nil
		}
		if r.alter != nil {
			r.alter(&claimed[i].Job)
		}
	}
	if len(claimed) > 0 && r.claimed != nil {
		if err := r.claimed(ctx); err != nil {
			return nil, err
		}
	}
	return claimed, err
}

func (r *path) CloseSession(ctx context.Context, id jobs.SessionID) error {
	if r.close != nil {
		return r.close(ctx)
	}
	return r.cluster.CloseSession(ctx, id)
}

func (r *path) Consume(ctx context.Context, e jobs.Ending) error {
	if r.end != nil {
		if err := r.end("consume", e); err != nil {
			return err
		}
	}
	return r.cluster.Consume(ctx, e)
}

func (r *path) Abandon(ctx context.Context, e jobs.Ending) error {
	if r.end != nil {
		if err := r.end("abandon", e); err != nil {
			return err
		}
	}
	return r.cluster.Abandon(ctx, e)
}

func simple(t *testing.T) *flow.Registry {
	return factories{"work": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil }}.registry(t)
}

// TestLateTryOfAClaim: no claim is lost if an earlier try reaches the board only after the
// conductor got the answer "no job". The conductor runs the job that the late try has claimed,
// and continues if that claim has already ended.
func TestLateTryOfAClaim(t *testing.T) {
	for _, row := range []struct {
		name   string
		over   bool // the claim ends before the conductor claims again
		claims int
	}{
		{"the claim holds", false, 1},
		{"the claim is over", true, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &path{cluster: openCluster(t)}
				posted := make(chan jobs.JobID, 1)
				r.asked = func(request jobs.ClaimRequest) {
					r.asked = nil // only the first time
					job := post(t, r.cluster, "work", nil)
					late, err := r.cluster.ClaimNext(t.Context(), request)
					if err == nil && row.over {
						err = r.cluster.Abandon(t.Context(), jobs.Ending{Job: job.ID, Token: late[0].Job.Token})
					}
					if err != nil {
						t.Error(err)
					}
					posted <- job.ID
				}
				_, run := made(t, options(r, simple(t)))
				run()
				if got := finished(t, r.cluster, <-posted); got.State != jobs.StateCompleted || got.Claims != row.claims {
					t.Errorf("the job is %s after %d claims", got.State, got.Claims)
				}
			})
		})
	}
}

// A claim that does not belong to the conductor starts nothing. The repeated request settles its
// ownership.
func TestClaimOfAnotherStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &path{cluster: openCluster(t)}
		alterations := []func(*jobs.Job){
			func(j *jobs.Job) { j.Claim = nil },
			func(j *jobs.Job) { claim := *j.Claim; claim.Session = jobs.NewSessionID(); j.Claim = &claim },
			func(j *jobs.Job) { claim := *j.Claim; claim.Token.Index += 2; j.Claim = &claim },
			func(*jobs.Job) {},
		}
		var answers, executions, early atomic.Int64
		r.alter = func(j *jobs.Job) { alterations[min(int(answers.Add(1)), len(alterations))-1](j) }
		_, run := made(t, options(r, factories{"work": func() ([]flow.Node, error) {
			return []flow.Node{do("a", func(context.Context) error {
				executions.Add(1)
				if answers.Load() < int64(len(alterations)) {
					early.Add(1)
				}
				return nil
			})}, nil
		}}.registry(t)))
		run()
		job := finished(t, r.cluster, post(t, r.cluster, "work", nil).ID)
		if executions.Load() != 1 || early.Load() != 0 || job.State != jobs.StateCompleted || job.Claims != 1 {
			t.Errorf("executed %d times, %d of them under another's claim; job %s after %d claims", executions.Load(), early.Load(), job.State, job.Claims)
		}
	})
}

// No step starts under a claim whose answer is lost, or that is made while the session is lost or
// the conductor drains. The job is neither stuck nor run twice.
func TestClaimsOnTheirWay(t *testing.T) {
	for _, row := range []struct {
		name          string
		expire, drain bool
		lost          bool // the answer is lost
		state         jobs.State
		claims        int
		executions    int64
	}{
		{name: "the answer is lost", lost: true, state: jobs.StateCompleted, claims: 1, executions: 1},
		{name: "the session expires", expire: true, state: jobs.StateCompleted, claims: 2, executions: 1},
		{name: "both", expire: true, lost: true, state: jobs.StateCompleted, claims: 2, executions: 1},
		{name: "the conductor drains", drain: true, state: jobs.StateClaimable, claims: 1},
		{name: "the conductor drains and the answer is lost", drain: true, lost: true, state: jobs.StateClaimable, claims: 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &path{cluster: openCluster(t)}
				var executions, calls atomic.Int64
				o := options(r, factories{"work": func() ([]flow.Node, error) {
					return []flow.Node{do("a", func(context.Context) error { executions.Add(1); return nil }, flow.AtMostOnce())}, nil
				}}.registry(t))
				o.TTL = ttl
				conductor, run := made(t, o)
				made := make(chan struct{}) // the first claim
				r.claimed = func(ctx context.Context) error {
					if calls.Add(1) > 1 {
						return nil
					}
					close(made)
					if row.expire {
						expireSessions(t, r.cluster)
					}
					if row.drain {
						<-ctx.Done() // the drain below ends it
					}
					if row.lost {
						return jobs.ErrUncertain
					}
					return nil
				}
				run()
				job := post(t, r.cluster, "work", nil)
				<-made
				if row.drain {
					drain(t, conductor)
				} else {
					finished(t, r.cluster, job.ID)
				}
				until(t, "the job is released", func() bool {
					now, err := r.Job(t.Context(), job.ID)
					return err == nil && now.State == row.state && now.Claims == row.claims
				})
				if got := executions.Load(); got != row.executions {
					t.Errorf("the step was executed %d times, not %d", got, row.executions)
				}
			})
		})
	}
}

func TestOpeningASession(t *testing.T) {
	rows := []struct {
		name         string
		open, opened func(call int64) error
		ids          int // number of ids that were tried
		openings     int
	}{
		{name: "at once", ids: 1, openings: 1},
		{name: "no leader", ids: 1, openings: 4, open: func(call int64) error {
			if call <= 3 {
				return jobs.ErrUnavailable
			}
			return nil
		}},
		{name: "the answer is lost", ids: 1, openings: 2, opened: func(call int64) error {
			if call == 1 {
				return jobs.ErrUncertain
			}
			return nil
		}},
		{name: "the id is taken", ids: 2, openings: 2, open: func(call int64) error {
			if call == 1 {
				return jobs.ErrConflict
			}
			return nil
		}},
		{name: "the answer takes longer than a keep-alive", ids: 1, openings: 1, opened: func(int64) error {
			time.Sleep(ttl * 3 / 10)
			return nil
		}},
		{name: "the answer takes longer than the session lives", ids: 1, openings: 1, opened: func(int64) error {
			time.Sleep(ttl * 11 / 10)
			return nil
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				board := &path{cluster: openCluster(t)}
				board.open = func(jobs.Opening) error {
					call := calls.Add(1)
					if row.open == nil {
						return nil
					}
					return row.open(call)
				}
				board.opened = func(jobs.Opening) error {
					if row.opened == nil {
						return nil
					}
					return row.opened(calls.Load())
				}
				var notices diary
				o := options(board, simple(t))
				o.TTL, o.Notify = ttl, notices.note
				running(t, o)
				if job := finished(t, board, post(t, board, "work", nil).ID); job.Outcome != jobs.OutcomeSuccess {
					t.Errorf("outcome %q", job.Outcome)
				}
				if lost := notices.count(conductor.MomentSessionLost); lost != 0 {
					t.Errorf("%d sessions were lost", lost)
				}
				different := slices.Clone(board.openings)
				slices.SortFunc(different, func(a, b jobs.SessionID) int { return strings.Compare(a.String(), b.String()) })
				if ids := len(slices.Compact(different)); ids != row.ids || len(board.openings) != row.openings {
					t.Errorf("%d openings with %d ids, want %d with %d", len(board.openings), ids, row.openings, row.ids)
				}
			})
		})
	}
}

// A flow that is too large for the answer to a claim is read separately.
func TestFlowIsReadApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &path{cluster: openCluster(t), bare: true}
		running(t, options(board, simple(t)))
		if job := finished(t, board, post(t, board, "work", nil).ID); job.Outcome != jobs.OutcomeSuccess {
			t.Errorf("outcome %q, failure %+v", job.Outcome, job.Failure)
		}
	})
}

func TestStopsWithoutABoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &path{cluster: openCluster(t), open: func(jobs.Opening) error { return jobs.ErrUnavailable }}
		c, err := conductor.New(options(board, simple(t)))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		synctest.Wait()
		drain(t, c)
		if err := <-ended; err != nil {
			t.Errorf("run ended with: %v", err)
		}
	})
}

// A board that keeps the session alive and accepts nothing else, like nodes with full disks, does
// not delay the stop of a conductor.
func TestStopsWhenNothingIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := make(chan struct{})
		r := &path{cluster: openCluster(t)}
		r.end = func(string, jobs.Ending) error { return jobs.ErrUnavailable }
		r.close = func(context.Context) error { return jobs.ErrUnavailable }
		c, err := conductor.New(options(r, factories{"work": func() ([]flow.Node, error) {
			return []flow.Node{do("a", func(ctx context.Context) error { close(began); <-ctx.Done(); return nil })}, nil
		}}.registry(t)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		post(t, r.cluster, "work", nil)
		<-began
		cancel()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("nothing is said of the session that is left open")
			}
		case <-time.After(time.Minute):
			t.Error("it has not stopped after a minute")
			r.end = nil
			expireSessions(t, r.cluster)
			<-ended
		}
	})
}

func TestSessionThatCannotBeClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", jobs.ErrUncertain, ctx.Err())
		}
		board := &path{cluster: openCluster(t), close: silent}
		c, err := conductor.New(options(board, simple(t)))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		drain(t, c)
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "cannot close session") {
			t.Errorf("run ended with: %v", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// After the board has refused an ending, the job must not keep an owner that no longer works on it.
func TestRefusedEndings(t *testing.T) {
	tooLarge := &logbook.LimitError{Field: "update", Limit: 1, Size: 2, Unit: "bytes"}
	rows := []struct {
		name    string
		refuses func(verb string, e jobs.Ending) error
		reason  string
	}{
		{"the flow's end", func(verb string, e jobs.Ending) error {
			if verb == "consume" {
				return tooLarge
			}
			return nil
		}, "update is too large"},
		{"the flow's end, and the evidence", func(verb string, e jobs.Ending) error {
			if verb == "consume" || e.Failure != nil {
				return tooLarge
			}
			return nil
		}, "its ending was refused"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var healed atomic.Bool
				board := &path{cluster: openCluster(t)}
				board.end = func(verb string, e jobs.Ending) error {
					if healed.Load() {
						return nil
					}
					return row.refuses(verb, e)
				}
				var notices diary
				o := options(board, simple(t))
				o.Notify = notices.note
				running(t, o)
				id := post(t, board, "work", nil).ID
				until(t, "the job is released", func() bool { return notices.count(conductor.MomentAbandoned) == 1 })
				job, err := board.Job(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if job.State != jobs.StateCooling || !strings.Contains(job.Reason, row.reason) {
					t.Errorf("job is %s: %q", job.State, job.Reason)
				}
				healed.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				if job, err := board.Wait(ctx, id); err != nil || job.Outcome != jobs.OutcomeSuccess {
					t.Errorf("outcome %q, %v", job.Outcome, err)
				}
			})
		})
	}
}

// A claim that ends while the session lives, for example because an operator releases the job,
// stops only that run.
func TestFencedRunStopsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		began, proceed := make(chan struct{}), make(chan struct{})
		registry := factories{
			"taken": func() ([]flow.Node, error) {
				return []flow.Node{do("a", func(context.Context) error { close(began); <-proceed; return nil }), do("b", func(context.Context) error {
					return errors.New("this step must not start")
				}, flow.AtMostOnce())}, nil
			},
			"work": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil },
		}.registry(t)
		var notices diary
		o := options(c, registry)
		o.Notify = notices.note
		running(t, o)
		job := post(t, c, "taken", nil)
		<-began
		held, err := c.Job(t.Context(), job.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Trash(t.Context(), jobs.Ending{Job: job.ID, Token: held.Token, Reason: "not wanted any more"}); err != nil {
			t.Fatal(err)
		}
		close(proceed)
		until(t, "the loss is noticed", func() bool { return notices.count(conductor.MomentClaimLost) == 1 })
		if got := detailOf(t, c, job); attempts(got, "b") != 0 || got.State.Finished() {
			t.Errorf("after the loss the flow is %s, step b was executed %d times", got.State, attempts(got, "b"))
		}
		if other := finished(t, c, post(t, c, "work", nil).ID); other.Outcome != jobs.OutcomeSuccess {
			t.Errorf("another job: outcome %q", other.Outcome)
		}
		if notices.count(conductor.MomentSessionLost) != 0 {
			t.Error("the session was given up")
		}
	})
}
