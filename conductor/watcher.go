package conductor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
)

// maxEarly limits the events kept for runs that have not started: far more than a conductor has
// claims in flight.
const maxEarly = 256

// claimWatcher watches the board for events about the claims of one session: stop requests for
// their jobs, and claims that have ended. It passes the events to the runs.
//
// When its watch breaks, another watch resumes after the last event. A watch without a last event
// first reads what it may have missed: the jobs of all runs, and whether an operator has drained
// the conductor. No run depends on it for safety: a run without events is stopped by its session
// and refused by its token.
type claimWatcher struct {
	board interface {
		jobs.Reader
		jobs.Conductors
	}
	logger  hclog.Logger
	owner   string            // the name of the conductor
	drained func(*jobs.Drain) // called when a drain starts or changes, and with nil when it ends
	watch   jobs.Watch        // used only by follow

	mu   sync.Mutex
	held map[claimKey]*run
	// early are events of claims that have no run yet, oldest first: an event may arrive
	// before the answer to the claim.
	early     []jobs.Event
	forgotten uint64      // log index of the last early event that was dropped, or came before the watch
	drain     *jobs.Drain // the current drain of the conductor; nil: none
}

// runKinds are the kinds of events that a run handles.
var runKinds = []jobs.EventKind{
	jobs.EventStopRequested, jobs.EventResumed, jobs.EventRetryNow, jobs.EventSignalled, jobs.EventDecided, jobs.EventAbandoned, jobs.EventExpired, jobs.EventCompleted, jobs.EventTrashed,
	jobs.EventRetried, jobs.EventContinued, jobs.EventParked,
}

// claimKey identifies one claim of one job.
type claimKey struct {
	job   jobs.JobID
	token jobs.Token
}

func newClaimWatcher(s *workLoop, session jobs.SessionID) *claimWatcher {
	return &claimWatcher{
		board: s.options.Client, logger: s.logger.With("session", session), owner: s.options.Name, held: make(map[claimKey]*run),
		drained: func(drain *jobs.Drain) { s.drained(session, drain) },
		watch:   jobs.Watch{Owner: s.options.Name, Kinds: append(slices.Clone(runKinds), jobs.EventDrained, jobs.EventUndrained), Others: true, Begin: true},
	}
}

// watchClaims watches until ctx ends.
func (f *claimWatcher) watchClaims(ctx context.Context) {
	wait := newBackoff(boardBackoff)
	for ctx.Err() == nil {
		received, err := f.receive(ctx)
		if received {
			wait.Reset()
		}
		if errors.Is(err, jobs.ErrCompacted) {
			f.watch.After, f.watch.Begin = nil, true
		}
		if ctx.Err() == nil {
			f.logger.Debug("claim watch interrupted", "error", err)
		}
		sleep(ctx, wait.NextBackOff())
	}
}

// receive handles the events of one watch until it ends.
func (f *claimWatcher) receive(ctx context.Context) (received bool, err error) {
	for event, err := range f.board.Watch(ctx, f.watch) {
		if err != nil {
			return received, err
		}
		received = true
		switch event.Kind {
		case jobs.EventBegun:
			f.forget(event.Position.Index)
			if err := f.checkAll(ctx); err != nil {
				return received, err
			}
			f.watch.Begin = false
		case jobs.EventDrained, jobs.EventUndrained:
			if err := f.readDrain(ctx); err != nil {
				return received, err
			}
		default:
			f.deliver(event)
		}
		f.watch.After = &event.Position
	}
	return received, nil
}

// deliver passes an event to the run of its claim.
func (f *claimWatcher) deliver(event jobs.Event) {
	f.mu.Lock()
	r := f.held[claimKey{event.Job, event.Token}]
	if r == nil {
		f.early = append(f.early, event)
		if len(f.early) > maxEarly {
			f.forgotten = f.early[0].Position.Index
			f.early = f.early[1:]
		}
	}
	f.mu.Unlock()
	if r != nil {
		r.handle(&event)
	}
}

// add adds a run, and passes it the early events of its claim. Call remove when the run
// is over.
func (f *claimWatcher) add(r *run) {
	own := claimKey{r.claimed.Job.ID, r.token}
	var early []jobs.Event
	f.mu.Lock()
	f.held[own] = r
	for _, event := range f.early {
		if own == (claimKey{event.Job, event.Token}) {
			early = append(early, event)
		}
	}
	missed := f.forgotten >= r.token.Index // a dropped event may have concerned this claim
	drain := f.drain
	f.mu.Unlock()
	if handsOver(drain) {
		r.handOver()
	}
	for i := range early {
		r.handle(&early[i])
	}
	if missed {
		_ = f.check(r.alive, r) // it fails only when the run has ended
	}
}

func (f *claimWatcher) remove(r *run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, claimKey{r.claimed.Job.ID, r.token})
}

// forget makes runs of claims up to a log index read their jobs when they start, because events of
// their claims are lost.
func (f *claimWatcher) forget(index uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgotten = max(f.forgotten, index)
}

// checkAll reads the drain, and the jobs of all runs.
func (f *claimWatcher) checkAll(ctx context.Context) error {
	if err := f.readDrain(ctx); err != nil {
		return err
	}
	for _, r := range f.runs() {
		if err := f.check(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (f *claimWatcher) runs() []*run {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.held))
}

// readDrain reads whether an operator has drained the conductor, and acts on it. The board itself
// gives no jobs to a drained conductor.
func (f *claimWatcher) readDrain(ctx context.Context) error {
	var drains []jobs.Drain
	err := repeat(ctx, func(ctx context.Context) (err error) {
		drains, err = f.board.Drains(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var now *jobs.Drain
	if i := slices.IndexFunc(drains, func(d jobs.Drain) bool { return d.Conductor == f.owner }); i >= 0 {
		now = &drains[i]
	}
	f.mu.Lock()
	before := f.drain
	f.drain = now
	f.mu.Unlock()
	if now == before || (now != nil && before != nil && *now == *before) {
		return nil
	}
	f.drained(now)
	if handsOver(now) {
		for _, r := range f.runs() {
			r.handOver()
		}
	}
	return nil
}

func handsOver(drain *jobs.Drain) bool { return drain != nil && !drain.Finish }

// check reads the job of a run, and passes on its stop request or the end of its claim.
func (f *claimWatcher) check(ctx context.Context, r *run) error {
	var job jobs.Job
	err := repeat(ctx, func(ctx context.Context) (err error) {
		job, err = f.board.Job(ctx, r.claimed.Job.ID)
		return err
	})
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		r.claimEnded("the job is gone")
		return nil
	case err != nil:
		return err
	case job.Claim == nil || job.Claim.Token != r.token:
		r.claimEnded(fmt.Sprintf("the job is %s", job.State))
	default:
		r.applyStopRequest(job.StopRequest)
	}
	return nil
}

// runControl suspends, reverts or stops a run from outside.
type runControl struct {
	suspend context.CancelFunc // no more steps start
	revert  context.CancelFunc // the flow reverts
	// interrupts receives the grace of the latest request that ends running steps.
	interrupts chan time.Duration
	retryNow   chan string             // steps that must not wait for their next attempts; empty: all
	signals    chan engine.TakenSignal // signals that waits of the flow have taken
	cut        context.CancelCauseFunc // steps are stopped, and the job is released
	lose       context.CancelCauseFunc

	// Contexts that the functions above end. working also ends with alive.
	suspended, reverting, working, alive context.Context

	mu          sync.Mutex
	stopRequest *jobs.OperatorRequest // the latest; nil: none, or it was withdrawn
	limit       *time.Timer           // of a hand-over: stops steps that still run then; nil: no hand-over
	ended       bool                  // the run is over
}

// maxRetryNow bounds the requests that the engine has not taken yet. The record has the dropped ones, so
// the next owner carries them out.
const maxRetryNow = 64

// newRunControl makes the control of a run whose claim ends with alive. The run is
// suspended when claiming ends, if not before.
func newRunControl(alive, claiming context.Context) *runControl {
	s := &runControl{interrupts: make(chan time.Duration, 1), retryNow: make(chan string, maxRetryNow), signals: make(chan engine.TakenSignal, maxRetryNow)}
	s.alive, s.lose = context.WithCancelCause(alive)
	s.working, s.cut = context.WithCancelCause(s.alive)
	s.suspended, s.suspend = context.WithCancel(claiming)
	s.reverting, s.revert = context.WithCancel(context.WithoutCancel(claiming))
	return s
}

// end frees the contexts and the timer.
func (s *runControl) end() {
	s.mu.Lock()
	if s.ended = true; s.limit != nil {
		s.limit.Stop()
	}
	s.mu.Unlock()
	s.lose(errRunEnded)
	s.suspend()
	s.revert()
}

// stopWithin suspends the run, and after the grace stops the steps that still run.
func (s *runControl) stopWithin(grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.limit != nil {
		return
	}
	s.suspend()
	s.limit = time.AfterFunc(grace, func() { s.cut(errDrained) }) // ends with the run
}

// stopping reports whether stopWithin was called.
func (s *runControl) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit != nil
}

// setStopRequest follows a stop request; nil means that the previous request was withdrawn. A flow
// that was suspended by the withdrawn request still stops: its job is released, and continues at
// once under another claim. setStopRequest reports whether the request is new.
func (s *runControl) setStopRequest(request *jobs.OperatorRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.stopRequest
	s.stopRequest = request
	switch {
	case request == nil:
		return last != nil
	case last != nil && *last == *request:
		return false
	case request.Kind == jobs.RequestCancel && request.Revert:
		s.revert()
	default:
		s.suspend()
	}
	if request.Interrupts() {
		select { // a grace that the engine has not taken yet is obsolete
		case <-s.interrupts:
		default:
		}
		s.interrupts <- request.Grace
	}
	return true
}

// latestStopRequest is the latest stop request; nil: none, or it was withdrawn.
func (s *runControl) latestStopRequest() *jobs.OperatorRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopRequest
}

// claimEnded stops the run, which must not write from then on. If the run itself has already ended its
// job, claimEnded is harmless.
func (s *runControl) claimEnded(why string) { s.lose(fmt.Errorf("%w: %s", errClaimEnded, why)) }
