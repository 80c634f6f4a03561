package conductor_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// trip is a flow of three steps that records its calls. Its second step runs until the test
// releases it.
type trip struct {
	began chan struct{} // one token per start of the second step
	free  chan struct{} // when closed, the second step ends by itself

	mu   sync.Mutex
	done []string
}

func newTrip() *trip { return &trip{began: make(chan struct{}, 10), free: make(chan struct{})} }

func (p *trip) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = append(p.done, what)
}

func (p *trip) noted() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.done, ", ")
}

func (p *trip) registry(t *testing.T) *flow.Registry {
	step := func(name string, wait func(context.Context) error) *flow.Step {
		return flow.FuncRevert(name, func(ctx context.Context, _ nothing) (nothing, error) {
			err := wait(ctx)
			if err != nil {
				p.note(name + " was stopped")
			} else {
				p.note(name)
			}
			return nothing{}, err
		}, func(context.Context, nothing, *nothing) error {
			p.note("undo " + name)
			return nil
		})
	}
	stay := func(ctx context.Context) error {
		p.began <- struct{}{}
		select {
		case <-p.free:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return factories{"trip": func() ([]flow.Node, error) {
		return []flow.Node{step("fly", well), step("stay", stay), step("drive", well)}, nil
	}}.registry(t)
}

// under waits until a job is in a state.
func under(t *testing.T, c cluster, id jobs.JobID, state jobs.State) jobs.Job {
	t.Helper()
	var job jobs.Job
	until(t, fmt.Sprintf("the job is %s", state), func() bool {
		var err error
		if job, err = c.Job(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return job.State == state
	})
	return job
}

// steered makes a stop request through the board, and waits until the conductor has noticed it.
func steered(t *testing.T, notices *diary, give func(context.Context, jobs.JobCommand) error, o jobs.JobCommand) {
	t.Helper()
	before := notices.count(conductor.MomentStopRequested)
	if err := give(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	until(t, "the stop request has arrived", func() bool { return notices.count(conductor.MomentStopRequested) > before })
}

// noticed returns options with a diary.
func noticed(c cluster, registry *flow.Registry) (conductor.Options, *diary) {
	notices := &diary{}
	o := options(c, registry)
	o.Notify = notices.note
	return o, notices
}

func order(job jobs.Job, revert bool) jobs.JobCommand {
	return jobs.JobCommand{Job: job.ID, Revert: revert, By: "ann", Reason: "it rains"}
}

// held is a job of kind "trip" whose second step runs.
func held(t *testing.T, c cluster, p *trip) jobs.Job {
	t.Helper()
	job := post(t, c, "trip", nil)
	<-p.began
	until(t, "the beginning is recorded", func() bool { return attempts(detailOf(t, c, job), "stay") == 1 })
	got, err := c.Job(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSuspendedJobRunsTheRestWhenResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := openCluster(t), newTrip()
		o, notices := noticed(c, p.registry(t))
		running(t, o)
		job := held(t, c, p)
		steered(t, notices, c.Suspend, order(job, false))
		close(p.free)
		suspended := under(t, c, job.ID, jobs.StateSuspended)
		if got := p.noted(); got != "fly, stay" {
			t.Errorf("suspended after: %s", got)
		}
		if state := detailOf(t, c, job).State; state != logbook.FlowSuspended {
			t.Errorf("the flow is %s", state)
		}
		if !strings.Contains(suspended.Reason, "it rains") || suspended.StopRequest == nil || suspended.StopRequest.By != "ann" {
			t.Errorf("reason %q, order %+v", suspended.Reason, suspended.StopRequest)
		}
		if err := c.Resume(t.Context(), order(job, false)); err != nil {
			t.Fatal(err)
		}
		if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeSuccess || got.Claims != 2 || got.Crashes != 0 || got.StopRequest != nil {
			t.Errorf("outcome %q after %d claims, %d crashes, order %+v", got.Outcome, got.Claims, got.Crashes, got.StopRequest)
		}
		if got := p.noted(); got != "fly, stay, drive" {
			t.Errorf("in all: %s", got)
		}
	})
}

// A suspension can interrupt running steps, even after a suspension that lets them finish.
func TestSuspensionsThatInterrupt(t *testing.T) {
	for _, first := range []jobs.StepsPolicy{jobs.StepsInterrupt, jobs.StepsFinish} {
		synctest.Test(t, func(t *testing.T) {
			c, p := openCluster(t), newTrip()
			o, notices := noticed(c, p.registry(t))
			running(t, o)
			job := held(t, c, p)
			request := order(job, false)
			request.Steps = first
			steered(t, notices, c.Suspend, request)
			if request.Steps = jobs.StepsInterrupt; first != request.Steps {
				steered(t, notices, c.Suspend, request)
			}
			under(t, c, job.ID, jobs.StateSuspended)
			close(p.free)
			if err := c.Resume(t.Context(), order(job, false)); err != nil {
				t.Fatal(err)
			}
			if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeSuccess {
				t.Errorf("%s first: outcome %q", first, got.Outcome)
			}
			if got := p.noted(); got != "fly, stay was stopped, stay, drive" {
				t.Errorf("%s first: done: %s", first, got)
			}
		})
	}
}

func TestCancelledJobs(t *testing.T) {
	for _, row := range []struct {
		name   string
		revert bool
		steps  jobs.StepsPolicy
		flow   logbook.FlowState
		done   string
	}{
		{"to be undone", true, jobs.StepsDefault, logbook.FlowReverted, "fly, stay was stopped, undo stay, undo fly"},
		{"to be left", false, jobs.StepsDefault, logbook.FlowSuspended, "fly, stay was stopped"},
		{"to be undone when its steps have finished", true, jobs.StepsFinish, logbook.FlowReverted, "fly, stay, undo stay, undo fly"},
		{"to be left when its steps have finished", false, jobs.StepsFinish, logbook.FlowSuspended, "fly, stay"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := openCluster(t), newTrip()
				o, notices := noticed(c, p.registry(t))
				running(t, o)
				job := held(t, c, p)
				request := order(job, row.revert)
				request.Steps = row.steps
				steered(t, notices, c.Cancel, request)
				if row.steps == jobs.StepsFinish {
					close(p.free)
				}
				got := finished(t, c, job.ID)
				if got.State != jobs.StateCompleted || got.Outcome != jobs.OutcomeCancelled || got.Reason != "it rains" || got.Claims != 1 {
					t.Errorf("the job is %s, %q because of %q after %d claims", got.State, got.Outcome, got.Reason, got.Claims)
				}
				if row.revert && kindOf(got.Failure) != logbook.FailureOperator {
					t.Errorf("the cause is %+v", got.Failure)
				}
				if state := detailOf(t, c, job).State; state != row.flow {
					t.Errorf("the flow is %s", state)
				}
				if got := p.noted(); got != row.done {
					t.Errorf("done: %s", got)
				}
				if err := c.Cancel(t.Context(), order(job, row.revert)); err != nil {
					t.Errorf("the repeat: %v", err)
				}
			})
		})
	}
}

// A cancelled flow that was not reverted continues under a new job, or the new job reverts it.
func TestALeftFlowGoesOnUnderANewJob(t *testing.T) {
	for _, row := range []struct {
		name    string
		revert  bool
		outcome jobs.Outcome
		done    string
	}{
		{"forwards", false, jobs.OutcomeSuccess, "fly, stay was stopped, stay, drive"},
		{"backwards", true, jobs.OutcomeCancelled, "fly, stay was stopped, undo stay, undo fly"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := openCluster(t), newTrip()
				o, notices := noticed(c, p.registry(t))
				running(t, o)
				left := held(t, c, p)
				steered(t, notices, c.Cancel, order(left, false))
				finished(t, c, left.ID)
				close(p.free)
				next := postOne(t, c, jobs.Posting{Name: "next", BookID: left.Book, Hold: true})
				if row.revert {
					if err := c.Cancel(t.Context(), order(next, true)); err != nil {
						t.Fatal(err)
					}
				}
				if !row.revert {
					if err := c.Change(t.Context(), jobs.Change{Job: next.ID, Release: true, By: "ann"}); err != nil {
						t.Fatal(err)
					}
				}
				if got := finished(t, c, next.ID); got.Outcome != row.outcome || got.Flow != left.Flow {
					t.Errorf("the next job is %s, %q", got.State, got.Outcome)
				}
				if got := p.noted(); got != row.done {
					t.Errorf("done: %s", got)
				}
			})
		})
	}
}

// If an unclaimed job's flow has started, the next owner reverts it.
func TestTheNextOwnerUndoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := openCluster(t), newTrip()
		first := running(t, options(c, p.registry(t)))
		job := held(t, c, p)
		drained := make(chan error, 1)
		go func() { drained <- first.Drain(t.Context()) }()
		synctest.Wait() // until all jobs wait for the second step, and no further step starts
		close(p.free)
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		if err := c.Cancel(t.Context(), order(job, true)); err != nil {
			t.Fatal(err)
		}
		under(t, c, job.ID, jobs.StateClaimable)
		running(t, options(c, p.registry(t)))
		if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeCancelled || got.Claims != 2 {
			t.Errorf("outcome %q after %d claims", got.Outcome, got.Claims)
		}
		if got := p.noted(); got != "fly, stay, undo stay, undo fly" {
			t.Errorf("done: %s", got)
		}
	})
}

// Any caller that knows a claim's token can end it. The run then stops at once, and writes nothing
// more.
func TestClaimsEndedByOthers(t *testing.T) {
	ending := func(job jobs.Job) jobs.Ending { return jobs.Ending{Job: job.ID, Token: job.Token, Reason: "by hand"} }
	for name, end := range map[string]func(cluster, jobs.Job) error{
		"trashed":   func(c cluster, job jobs.Job) error { return c.Trash(context.Background(), ending(job)) },
		"abandoned": func(c cluster, job jobs.Job) error { return c.Abandon(context.Background(), delayed(ending(job))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := openCluster(t), newTrip()
				o, notices := noticed(c, p.registry(t))
				running(t, o)
				job := held(t, c, p)
				before := detailOf(t, c, job).Sequence
				if err := end(c, job); err != nil {
					t.Fatal(err)
				}
				until(t, "the loss is noticed", func() bool { return notices.count(conductor.MomentClaimLost) == 1 })
				if got := p.noted(); got != "fly, stay was stopped" {
					t.Errorf("done: %s", got)
				}
				if after := detailOf(t, c, job).Sequence; after != before {
					t.Errorf("%d updates were written after the claim was over", after-before)
				}
				if notices.count(conductor.MomentSessionLost) != 0 {
					t.Error("the session was given up for it")
				}
			})
		})
	}
}

func delayed(e jobs.Ending) jobs.Ending {
	e.Delay = time.Hour
	return e
}

// crackling is a board whose watches break. The board can lose the events between two watches.
type crackling struct {
	cluster
	broken chan error    // error that ends the current watch
	ended  chan struct{} // one token per watch that has ended this way
	whole  chan struct{} // one token per watch that can start
	looks  atomic.Int64  // number of reads of jobs
}

func newCrackling(c cluster) *crackling {
	return &crackling{cluster: c, broken: make(chan error, 1), ended: make(chan struct{}, 1), whole: make(chan struct{}, 1)}
}

func (b *crackling) Job(ctx context.Context, id jobs.JobID) (jobs.Job, error) {
	b.looks.Add(1)
	return b.cluster.Job(ctx, id)
}

func (b *crackling) Watch(ctx context.Context, watch jobs.Watch) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		select {
		case <-b.whole:
		case <-ctx.Done():
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stopped := make(chan struct{})
		defer close(stopped)
		go func() {
			select {
			case err := <-b.broken:
				cancel(err)
			case <-stopped:
			}
		}()
		for event, err := range b.cluster.Watch(ctx, watch) {
			if !yield(event, err) {
				return
			}
		}
		if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
			b.ended <- struct{}{}
			yield(jobs.Event{}, err)
		}
	}
}

// For every fault of the watch, stop requests reach the run, and the run continues.
func TestBrokenWatches(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault error
		reads bool // the conductor reads its held jobs again
	}{
		{"the connection is lost", jobs.ErrUnavailable, false},
		{"older events are gone", jobs.ErrCompacted, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := newCrackling(openCluster(t)), newTrip()
				o, notices := noticed(c, p.registry(t))
				c.whole <- struct{}{}
				running(t, o)
				job := held(t, c, p)
				synctest.Wait() // the first watch has begun; a watch that breaks before reads the jobs in any case
				c.broken <- row.fault
				<-c.ended
				if err := c.Cancel(t.Context(), order(job, true)); err != nil {
					t.Fatal(err)
				}
				before := c.looks.Load()
				c.whole <- struct{}{}
				until(t, "the stop request has arrived", func() bool { return notices.count(conductor.MomentStopRequested) == 1 })
				if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeCancelled {
					t.Errorf("outcome %q, done: %s", got.Outcome, p.noted())
				}
				if got := p.noted(); got != "fly, stay was stopped, undo stay, undo fly" {
					t.Errorf("done: %s", got)
				}
				if reads := c.looks.Load() > before; reads != row.reads {
					t.Errorf("the job was read: %t", reads)
				}
			})
		})
	}
}

func TestRunsGoOnWithoutAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrackling(openCluster(t)) // no watch ever starts
		registry := factories{"work": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil }}.registry(t)
		running(t, options(c, registry))
		if got := finished(t, c, post(t, c, "work", nil).ID); got.Outcome != jobs.OutcomeSuccess {
			t.Errorf("outcome %q", got.Outcome)
		}
	})
}

// slow is a board with slow answers to claims: the job gets stop requests, and the conductor their
// events, before the claim's answer arrives.
type slow struct {
	cluster
	revert bool // the request is to cancel and revert, not to suspend
	more   int  // further requests, which are withdrawn again
	begun  chan struct{}
	told   chan jobs.EventKind
}

func (s *slow) Watch(ctx context.Context, watch jobs.Watch) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		for event, err := range s.cluster.Watch(ctx, watch) {
			if !yield(event, err) {
				return
			}
			switch event.Kind {
			case jobs.EventBegun:
				close(s.begun)
			case jobs.EventStopRequested, jobs.EventResumed:
				s.told <- event.Kind
			}
		}
	}
}

func (s *slow) ClaimNext(ctx context.Context, request jobs.ClaimRequest) ([]jobs.Claimed, error) {
	claimed, err := s.cluster.ClaimNext(ctx, request)
	for _, one := range claimed {
		give := func(calls ...func(context.Context, jobs.JobCommand) error) {
			for _, call := range calls {
				if callErr := call(ctx, jobs.JobCommand{Job: one.Job.ID, Reason: "early", Revert: s.revert}); callErr != nil {
					err = callErr
					return
				}
				<-s.told
			}
		}
		for range s.more {
			give(s.Suspend, s.Resume)
		}
		if s.revert {
			give(s.Cancel)
			continue
		}
		give(s.Suspend)
		if s.more > 0 { // events of other claims, so that this claim's events are dropped
			posted, postErr := s.Post(ctx, jobs.Posting{Name: "other", Kind: "other"})
			if postErr != nil {
				return nil, postErr
			}
			other, claimErr := s.Claim(ctx, request.Session, posted[0].Job.ID, jobs.NewNonce())
			if claimErr != nil {
				return nil, claimErr
			}
			one = other
			for range s.more {
				give(s.Suspend, s.Resume)
			}
		}
	}
	return claimed, err
}

func TestOrdersBeforeTheRunBegins(t *testing.T) {
	for name, more := range map[string]int{"they are kept": 0, "there are too many to keep": 200} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newTrip()
				s := &slow{cluster: openCluster(t), more: more, begun: make(chan struct{}), told: make(chan jobs.EventKind, 1)}
				running(t, options(s, p.registry(t)))
				<-s.begun
				job := under(t, s, post(t, s, "trip", nil).ID, jobs.StateSuspended)
				if got := p.noted(); job.Claims != 1 || got != "" {
					t.Errorf("after %d claims, done: %s", job.Claims, got)
				}
			})
		})
	}
}

// late is a board whose watch starts after a claim was granted and its job suspended, and before
// the answer to the claim arrives.
type late struct {
	cluster
	ordered, begun chan struct{}
}

func (l *late) Watch(ctx context.Context, watch jobs.Watch) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		select {
		case <-l.ordered:
		case <-ctx.Done():
			return
		}
		for event, err := range l.cluster.Watch(ctx, watch) {
			if !yield(event, err) {
				return
			}
			if event.Kind == jobs.EventBegun {
				close(l.begun)
			}
		}
	}
}

func (l *late) ClaimNext(ctx context.Context, request jobs.ClaimRequest) ([]jobs.Claimed, error) {
	claimed, err := l.cluster.ClaimNext(ctx, request)
	if len(claimed) > 0 {
		err = errors.Join(err, l.Suspend(ctx, jobs.JobCommand{Job: claimed[0].Job.ID}))
		close(l.ordered)
		<-l.begun
	}
	return claimed, err
}

func TestOrdersBeforeTheWatchBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTrip()
		l := &late{cluster: openCluster(t), ordered: make(chan struct{}), begun: make(chan struct{})}
		running(t, options(l, p.registry(t)))
		job := under(t, l, post(t, l, "trip", nil).ID, jobs.StateSuspended)
		if got := p.noted(); job.Claims != 1 || got != "" {
			t.Errorf("after %d claims, done: %s", job.Claims, got)
		}
	})
}

// A flow whose revert is requested before its start ends without running any step.
func TestCancelledBeforeTheRunBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTrip()
		s := &slow{cluster: openCluster(t), revert: true, begun: make(chan struct{}), told: make(chan jobs.EventKind, 1)}
		running(t, options(s, p.registry(t)))
		<-s.begun
		job := finished(t, s, post(t, s, "trip", nil).ID)
		if got := p.noted(); job.Outcome != jobs.OutcomeCancelled || job.Claims != 1 || got != "" {
			t.Errorf("outcome %q after %d claims, done: %s", job.Outcome, job.Claims, got)
		}
		if state := detailOf(t, s, job).State; state != logbook.FlowReverted {
			t.Errorf("the flow is %s", state)
		}
	})
}
