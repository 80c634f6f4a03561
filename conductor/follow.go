package conductor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/jobs"
)

// maxEarly bounds the events that are kept for runs that have yet to begin: many
// more than a conductor has claims in flight.
const maxEarly = 256

// follower watches the board for what others do to the claims of one session:
// stop requests on their jobs, and claims that have ended. It passes that to the runs.
//
// When its watch breaks, another one resumes after the last event. When a watch
// begins without a last event, it reads what it can have missed: the jobs of all
// runs, and whether a person has drained the conductor. No run depends on it for
// safety: one that hears nothing is stopped by the session and refused by its
// token.
type follower struct {
	board interface {
		jobs.Reader
		jobs.Conductors
	}
	logger  hclog.Logger
	owner   string            // the name of the conductor
	drained func(*jobs.Drain) // called when a drain begins or changes, and with nil when it ends
	watch   jobs.Watch        // only follow touches it

	mu   sync.Mutex
	held map[holding]*run
	// early are events of claims that no run has joined, oldest first: an event
	// may arrive before the answer to the claim.
	early     []jobs.Event
	forgotten uint64      // log index of the last early event that was dropped
	drain     *jobs.Drain // the drain that the conductor is under; nil: none
}

// holding names one claim of one job.
type holding struct {
	job   jobs.JobID
	token jobs.Token
}

func newFollower(s *shift, session jobs.SessionID) *follower {
	return &follower{
		board: s.options.Board, logger: s.logger.With("session", session), owner: s.options.Name, held: make(map[holding]*run),
		drained: func(drain *jobs.Drain) { s.drained(session, drain) },
		watch:   jobs.Watch{Owner: s.options.Name, Begin: true},
	}
}

// follow listens until ctx ends.
func (f *follower) follow(ctx context.Context) {
	wait := newBackoff(boardBackoff)
	for ctx.Err() == nil {
		heard, err := f.listen(ctx)
		if heard {
			wait.Reset()
		}
		if errors.Is(err, jobs.ErrCompacted) {
			f.watch.After, f.watch.Begin = nil, true
		}
		if ctx.Err() == nil {
			f.logger.Debug("the watch of the claims was interrupted", "error", err)
		}
		pause(ctx, wait.NextBackOff())
	}
}

// listen follows one watch to its end.
func (f *follower) listen(ctx context.Context) (heard bool, err error) {
	for event, err := range f.board.Watch(ctx, f.watch) {
		if err != nil {
			return heard, err
		}
		heard = true
		switch event.Kind {
		case jobs.EventBegun:
			if err := f.review(ctx); err != nil {
				return heard, err
			}
			f.watch.Begin = false
		case jobs.EventDrained, jobs.EventUndrained:
			if err := f.readDrain(ctx); err != nil {
				return heard, err
			}
		default:
			f.hear(event)
		}
		f.watch.After = &event.Position
	}
	return heard, nil
}

// hear passes an event to the run of its claim.
func (f *follower) hear(event jobs.Event) {
	switch event.Kind {
	case jobs.EventStopRequested, jobs.EventResumed, jobs.EventAbandoned, jobs.EventExpired, jobs.EventCompleted, jobs.EventTrashed,
		jobs.EventRetried, jobs.EventParked:
	default:
		return
	}
	f.mu.Lock()
	r := f.held[holding{event.Job, event.Token}]
	if r == nil {
		f.early = append(f.early, event)
		if len(f.early) > maxEarly {
			f.forgotten = f.early[0].Position.Index
			f.early = f.early[1:]
		}
	}
	f.mu.Unlock()
	if r != nil {
		r.hear(&event)
	}
}

// join adds a run, and passes it the early events of its claim. Call leave when
// the run is over.
func (f *follower) join(r *run) {
	own := holding{r.claimed.Job.ID, r.token}
	var early []jobs.Event
	f.mu.Lock()
	f.held[own] = r
	for _, event := range f.early {
		if own == (holding{event.Job, event.Token}) {
			early = append(early, event)
		}
	}
	missed := f.forgotten >= r.token.Index // what was dropped may have been of this claim
	drain := f.drain
	f.mu.Unlock()
	if handsOver(drain) {
		r.handOver()
	}
	for i := range early {
		r.hear(&early[i])
	}
	if missed {
		_ = f.look(r.alive, r) // it fails only when the run is over
	}
}

func (f *follower) leave(r *run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, holding{r.claimed.Job.ID, r.token})
}

// review reads the drain, and the jobs of all runs.
func (f *follower) review(ctx context.Context) error {
	if err := f.readDrain(ctx); err != nil {
		return err
	}
	for _, r := range f.runs() {
		if err := f.look(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) runs() []*run {
	f.mu.Lock()
	defer f.mu.Unlock()
	var runs []*run
	for _, r := range f.held {
		runs = append(runs, r)
	}
	return runs
}

// readDrain finds out whether a person has drained the conductor, and acts on it.
// The board itself gives a drained conductor no jobs.
func (f *follower) readDrain(ctx context.Context) error {
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

// look reads the job of a run, and passes on a stop request or the end of its claim.
func (f *follower) look(ctx context.Context, r *run) error {
	var job jobs.Job
	err := repeat(ctx, func(ctx context.Context) (err error) {
		job, err = f.board.Job(ctx, r.claimed.Job.ID)
		return err
	})
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		r.over("the job is gone")
		return nil
	case err != nil:
		return err
	case job.Claim == nil || job.Claim.Token != r.token:
		r.over(fmt.Sprintf("the job is %s", job.State))
	default:
		r.steer(job.StopRequest)
	}
	return nil
}

// steering passes stop requests from outside to a run.
type steering struct {
	suspend context.CancelFunc      // no more steps start
	turn    context.CancelFunc      // the flow reverts
	cut     context.CancelCauseFunc // steps are stopped, and the job is given back
	lose    context.CancelCauseFunc

	// The same, as the run sees it. Working ends with alive.
	suspended, turned, working, alive context.Context

	mu          sync.Mutex
	stopRequest *jobs.OperatorRequest // the latest; nil: none, or it was lifted
	limit       *time.Timer           // of a hand-over: stops steps that still run then; nil: none was asked for
	ended       bool                  // the run is over
}

// newSteering makes the steering of a run whose claim ends with alive. The run is
// suspended when claiming ends, if not before.
func newSteering(alive, claiming context.Context) *steering {
	s := &steering{}
	s.alive, s.lose = context.WithCancelCause(alive)
	s.working, s.cut = context.WithCancelCause(s.alive)
	s.suspended, s.suspend = context.WithCancel(claiming)
	s.turned, s.turn = context.WithCancel(context.WithoutCancel(claiming))
	return s
}

// end frees what the steering holds.
func (s *steering) end() {
	s.mu.Lock()
	if s.ended = true; s.limit != nil {
		s.limit.Stop()
	}
	s.mu.Unlock()
	s.lose(errRunEnded)
	s.suspend()
	s.turn()
}

// giveUp suspends the run, and after a grace stops the steps that still run.
func (s *steering) giveUp(grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.limit != nil {
		return
	}
	s.suspend()
	s.limit = time.AfterFunc(grace, func() { s.cut(errDrained) }) // ends with the run
}

// givenUp reports whether giveUp was called.
func (s *steering) givenUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit != nil
}

// take follows a stop request; nil lifts the one before. A flow that was suspended by it
// still stops then: its job is given back, and goes on at once under another
// claim. It reports whether the order is new.
func (s *steering) take(request *jobs.OperatorRequest) bool {
	s.mu.Lock()
	last := s.stopRequest
	s.stopRequest = request
	s.mu.Unlock()
	switch {
	case request == nil:
		return last != nil
	case request.Kind == jobs.RequestCancel && request.Revert:
		s.turn()
	default:
		s.suspend()
	}
	return last == nil || *last != *request
}

// standing is the latest stop request.
func (s *steering) standing() *jobs.OperatorRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopRequest
}

// over stops the run, which may write nothing any more. It is harmless after the
// run itself has ended its job, as nothing is left to write.
func (s *steering) over(why string) { s.lose(fmt.Errorf("%w: %s", errClaimEnded, why)) }
