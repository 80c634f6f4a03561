package conductor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// doomed is the real board for an owner whose updates are never recorded, and which dies at some
// moment: from then on, none of its calls arrives.
type doomed struct {
	cluster
	dead atomic.Bool
	// refuse is the answer to updates before the death; nil: updates do not arrive.
	refuse error

	mu      sync.Mutex
	endings []jobs.Ending
}

func (d *doomed) gone() error {
	if d.dead.Load() {
		return jobs.ErrUnavailable
	}
	return nil
}

func (d *doomed) Update(_ context.Context, updates ...logbook.Update) ([]error, error) {
	if d.refuse == nil || d.gone() != nil {
		return nil, jobs.ErrUnavailable
	}
	verdicts := make([]error, len(updates))
	for i := range verdicts {
		verdicts[i] = d.refuse
	}
	return verdicts, nil
}

func (d *doomed) OpenSession(ctx context.Context, o jobs.Opening) (jobs.Session, error) {
	if err := d.gone(); err != nil {
		return jobs.Session{}, err
	}
	return d.cluster.OpenSession(ctx, o)
}

func (d *doomed) KeepAlive(ctx context.Context, id jobs.SessionID) error {
	return errors.Join(d.gone(), d.cluster.KeepAlive(ctx, id))
}

func (d *doomed) CloseSession(ctx context.Context, id jobs.SessionID) error {
	if err := d.gone(); err != nil {
		return err
	}
	return d.cluster.CloseSession(ctx, id)
}

func (d *doomed) ClaimNext(ctx context.Context, request jobs.ClaimRequest) ([]jobs.Claimed, error) {
	if err := d.gone(); err != nil {
		return nil, err
	}
	return d.cluster.ClaimNext(ctx, request)
}

func (d *doomed) Abandon(ctx context.Context, e jobs.Ending) error {
	if err := d.gone(); err != nil {
		return err
	}
	d.mu.Lock()
	d.endings = append(d.endings, e)
	d.mu.Unlock()
	return d.cluster.Abandon(ctx, e)
}

// abandoned are the endings of released jobs.
func (d *doomed) abandoned() []jobs.Ending {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.endings
}

// outOfReach runs a conductor that can end without closing its session.
func outOfReach(t *testing.T, o conductor.Options) *conductor.Conductor {
	t.Helper()
	c, err := conductor.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return c
}

// effects counts the executions and the reverts of a step.
type effects struct{ done, undone atomic.Int64 }

// registry has a flow "work" whose first step has the effects. With slow, the step continues for a
// while.
func (e *effects) registry(t *testing.T, slow bool) *flow.Registry {
	first := flow.FuncRevert("a", func(ctx context.Context, _ nothing) (nothing, error) {
		e.done.Add(1)
		if slow {
			<-ctx.Done()
		}
		return nothing{}, ctx.Err()
	}, func(context.Context, nothing, *nothing) error { e.undone.Add(1); return nil })
	return factories{"work": func() ([]flow.Node, error) { return []flow.Node{first, do("b", well)}, nil }}.registry(t)
}

// TestUnrecordedEffectsAreUndone: the first step of a flow runs, and its owner is lost before the
// step is recorded. Cancelling the job then reverts the step, and the job does not end as if it had
// never started.
func TestUnrecordedEffectsAreUndone(t *testing.T) {
	for _, row := range []struct {
		name   string
		slow   bool
		lose   func(t *testing.T, d *doomed, c *conductor.Conductor)
		before bool // cancelled before its owner is lost
	}{
		{"it dies", false, nil, false},
		{"it dies while the step runs", true, nil, false},
		{"it dies when it was told to undo it", false, nil, true},
		{"it stops while the step runs", true, func(t *testing.T, _ *doomed, c *conductor.Conductor) { drain(t, c) }, false},
		{"it stops, and cannot record that", false, func(t *testing.T, _ *doomed, c *conductor.Conductor) { drain(t, c) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e effects
				d := &doomed{cluster: openCluster(t)}
				c := outOfReach(t, options(d, e.registry(t, row.slow)))
				job := post(t, d.cluster, "work", nil)
				until(t, "the step has run", func() bool { return e.done.Load() == 1 })
				cancel := func() {
					if err := d.Cancel(t.Context(), jobs.JobCommand{Job: job.ID, Revert: true}); err != nil {
						t.Fatal(err)
					}
				}
				if row.before {
					cancel()
				}
				if row.lose != nil {
					row.lose(t, d, c)
				}
				d.dead.Store(true)
				expireSessions(t, d.cluster)
				if detail := detailOf(t, d.cluster, job); detail.Begun.IsZero() || detail.Sequence != 0 {
					t.Fatalf("after update %d the flow may have begun under %s", detail.Sequence, detail.Begun)
				}
				if !row.before {
					cancel()
				}
				if now, err := d.Job(t.Context(), job.ID); err != nil || now.State.Finished() {
					t.Fatalf("the job is %s %s, and nothing is undone (%v)", now.State, now.Outcome, err)
				}
				running(t, options(d.cluster, e.registry(t, false)))
				if got := finished(t, d.cluster, job.ID); got.Outcome != jobs.OutcomeCancelled {
					t.Errorf("the job is %s, %s", got.State, got.Outcome)
				}
				if detail := detailOf(t, d.cluster, job); e.done.Load() != 1 || e.undone.Load() != 1 || detail.State != logbook.FlowReverted {
					t.Errorf("the step was done %d times and undone %d times, and the flow is %s", e.done.Load(), e.undone.Load(), detail.State)
				}
			})
		})
	}
}

// TestRefusedBeginningIsTold: an owner whose first update is refused releases the job as possibly
// started. The next owner records the lost execution as an attempt.
func TestRefusedBeginningIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e effects
		d := &doomed{cluster: openCluster(t), refuse: &logbook.LimitError{Field: "result", Limit: 1, Size: 2, Unit: "bytes"}}
		running(t, options(d, e.registry(t, false)))
		job := post(t, d.cluster, "work", nil)
		until(t, "the job is released", func() bool { return len(d.abandoned()) > 0 })
		if d.abandoned()[0].Recorded {
			t.Error("the owner says that all that it has begun is recorded")
		}
		d.dead.Store(true)
		expireSessions(t, d.cluster)
		running(t, options(d.cluster, e.registry(t, false)))
		if got := finished(t, d.cluster, job.ID); got.Outcome != jobs.OutcomeSuccess {
			t.Errorf("the job is %s, %s", got.State, got.Outcome)
		}
		if detail := detailOf(t, d.cluster, job); attempts(detail, "a") != 2 {
			t.Errorf("%d executions are recorded; the unrecorded one must be recorded", attempts(detail, "a"))
		}
	})
}

// TestFirstStepNeedsNoRecord: the first step starts with the claim, while the logbook accepts
// nothing.
func TestFirstStepNeedsNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e effects
		d := &doomed{cluster: openCluster(t)}
		outOfReach(t, options(d, e.registry(t, false)))
		job := post(t, d.cluster, "work", nil)
		synctest.Wait()
		detail := detailOf(t, d.cluster, job)
		if e.done.Load() != 1 || detail.Sequence != 0 || !detail.Begun.IsZero() {
			t.Errorf("the step was done %d times after update %d, and may have begun under %s", e.done.Load(), detail.Sequence, detail.Begun)
		}
	})
}

// counted counts the updates before the endings of jobs.
type counted struct {
	cluster
	updates, endings atomic.Int64
}

func (c *counted) Update(ctx context.Context, updates ...logbook.Update) ([]error, error) {
	c.updates.Add(int64(len(updates)))
	return c.cluster.Update(ctx, updates...)
}

func (c *counted) Consume(ctx context.Context, e jobs.Ending) error {
	c.endings.Add(1)
	return c.cluster.Consume(ctx, e)
}

// TestWholeRunInItsEnding: a job with a quick flow costs two writes, its posting and its ending. A
// watch sees the flow's end.
func TestWholeRunInItsEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{cluster: openCluster(t)}
		running(t, options(c, factories{"work": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil }}.registry(t)))
		job := post(t, c, "work", nil)
		if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeSuccess {
			t.Fatalf("the job is %s, %s", got.State, got.Outcome)
		}
		if c.updates.Load() != 0 || c.endings.Load() != 1 {
			t.Errorf("%d updates and %d endings were sent", c.updates.Load(), c.endings.Load())
		}
		detail := detailOf(t, c, job)
		if detail.State != logbook.FlowSuccess || detail.Sequence != 1 || !detail.Begun.IsZero() || attempts(detail, "a") != 1 {
			t.Errorf("after update %d the flow is %s, with %d executions, and may have begun under %s", detail.Sequence, detail.State, attempts(detail, "a"), detail.Begun)
		}
		var seen []string
		for event, err := range c.Watch(t.Context(), jobs.Watch{Job: job.ID, Flows: true, After: &jobs.Position{}}) {
			if err != nil {
				t.Fatal(err)
			}
			if seen = append(seen, string(event.Kind)+event.FlowState+fmt.Sprint(event.Steps)); event.Kind == jobs.EventCompleted {
				break
			}
		}
		if got, want := fmt.Sprint(seen), "[posted[] claimed[] flowsuccess[{a success}] completed[]]"; got != want {
			t.Errorf("a watch sees %s, want %s", got, want)
		}
	})
}

// TestJobsThatNeverBeganAreCancelledAtOnce: a job that was released before its flow started is
// cancelled without a conductor.
func TestJobsThatNeverBeganAreCancelledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		o := options(c, factories{"work": func() ([]flow.Node, error) { return nil, errors.New("not here") }}.registry(t))
		o.Elsewhere = func(*logbook.FlowDetail, jobs.Entity) bool { return true }
		o.AbandonDelay, o.MaxAbandonDelay = time.Hour, time.Hour
		running(t, o)
		another := options(c, simple(t))
		another.Name, another.Labels = "another", nil
		idle := running(t, another)
		idle.Pause()
		registered(t, c, 2)
		job := post(t, c, "work", nil)
		until(t, "the job was released", func() bool {
			now, err := c.Job(t.Context(), job.ID)
			return err == nil && now.State == jobs.StateCooling
		})
		if err := c.Cancel(t.Context(), jobs.JobCommand{Job: job.ID, Revert: true}); err != nil {
			t.Fatal(err)
		}
		if now, err := c.Job(t.Context(), job.ID); err != nil || now.Outcome != jobs.OutcomeCancelled {
			t.Errorf("the job is %s, %s (%v)", now.State, now.Outcome, err)
		}
	})
}

// TestEndingsSayWhatIsRecorded: an ending has Recorded only if everything is recorded.
func TestEndingsSayWhatIsRecorded(t *testing.T) {
	trouble := errors.New("the journal is full")
	for _, row := range []struct {
		name     string
		end      engine.End
		err      error
		recorded bool
	}{
		{"it has come to its end", engine.End{State: logbook.FlowSuccess}, nil, true},
		{"it is released while it waits", engine.End{State: logbook.FlowRunning, WaitUntil: time.Now(), Update: &logbook.Update{}}, nil, true},
		{"it never began", engine.End{}, trouble, true},
		{"it began, and has met trouble", engine.End{Unrecorded: true}, trouble, false},
		{"it began, and is handed over", engine.End{Unrecorded: true}, fmt.Errorf("%w: now", conductor.ErrHandOver), false},
		{"nobody knows where it ended", engine.End{State: logbook.FlowRunning, Update: &logbook.Update{}}, nil, false},
	} {
		_, ending := conductor.Decide(conductor.Options{}, jobs.Job{ID: jobs.NewJobID()}, row.end, row.err)
		if ending.Recorded != row.recorded {
			t.Errorf("%s: the ending says %v, want %v", row.name, ending.Recorded, row.recorded)
		}
	}
}
