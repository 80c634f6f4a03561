package conductor

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
)

const (
	// claimWait bounds one long poll for jobs, so that a connection that died
	// silently is noticed.
	claimWait = 30 * time.Second
	// closeTime bounds the closing of a session. If that fails, the session
	// expires.
	closeTime = 2 * time.Second
	// handOverTime bounds what follows the grace of a drain: the last seconds
	// of stopped steps, which an engine waits for, and the writes that give
	// the jobs back. A board that does not take them in that time is not
	// waited for any longer: the claims end with the session.
	handOverTime = 2 * engine.DefaultGrace
)

// shift is one call of Run.
type shift struct {
	options *Options
	logger  hclog.Logger
	pool    *engine.Pool
	pauses  *pauses
	slots   chan struct{}  // the free worker slots
	runs    sync.WaitGroup // of the jobs that are being run
	done    chan struct{}  // closed when Run returns

	// Three contexts, each within the one before: of all calls to the board,
	// of the steps, and of claiming. A drain ends them from the last to the
	// first.
	base     context.Context
	stop     context.CancelCauseFunc
	stepping context.Context
	cut      context.CancelCauseFunc
	claiming context.Context
	drain    func() // ends claiming; running flows are suspended

	over  context.Context // ends with MaxDuration
	until time.Time       // when that is; zero: never
	left  int             // how many jobs may yet be taken; only the loop that claims touches it
}

func newShift(ctx context.Context, options *Options, pool *engine.Pool, pauses *pauses) *shift {
	s := &shift{
		options: options,
		logger:  options.Logger,
		pool:    pool,
		pauses:  pauses,
		left:    options.MaxDispatches,
		slots:   make(chan struct{}, options.MaxJobs),
		done:    make(chan struct{}),
	}
	for range options.MaxJobs {
		s.slots <- struct{}{}
	}
	// What is held when ctx ends must still be handed over.
	s.base, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	s.stepping, s.cut = context.WithCancelCause(s.base)
	claiming, drain := context.WithCancelCause(s.stepping)
	s.claiming, s.drain = claiming, func() { drain(errHandOver) }
	s.over = s.base
	if s.left == 0 {
		s.left = math.MaxInt
	}
	return s
}

// work lives through one session after the other until the drain.
func (s *shift) work() error {
	defer s.stop(errHandOver)
	if s.options.MaxDuration > 0 {
		s.until = time.Now().Add(s.options.MaxDuration)
		over, cancel := context.WithDeadline(s.base, s.until)
		defer cancel()
		s.over = over
	}

	var last *tenure
	for s.claiming.Err() == nil && !s.spent() {
		opening, stop := s.untilOver(s.claiming)
		last = s.openSession(opening)
		stop()
		if last == nil {
			break
		}
		s.serve(last)
	}
	s.awaitRuns()
	if last == nil {
		return nil
	}
	return last.close(closeTime)
}

// serve claims jobs under a session until it is lost or the drain begins.
func (s *shift) serve(t *tenure) {
	s.logger.Info("session opened", "session", t.id, "ttl", s.options.TTL)
	s.notify(Notice{Moment: MomentSessionOpened, Session: t.id})

	ctx, cancel := context.WithCancelCause(s.claiming)
	defer cancel(nil)
	defer context.AfterFunc(t.alive, func() { cancel(context.Cause(t.alive)) })()
	if s.register(ctx, t) {
		s.notify(Notice{Moment: MomentRegistered, Session: t.id})
		s.claim(ctx, t)
		s.finish(ctx, t)
	}
	if t.alive.Err() != nil {
		t.watcher.Wait()
		s.logger.Warn("session lost", "session", t.id, "cause", context.Cause(t.alive))
		s.notify(Notice{Moment: MomentSessionLost, Session: t.id, Err: context.Cause(t.alive)})
	}
}

// untilOver is a context that ends with MaxDuration, at the latest.
func (s *shift) untilOver(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(s.over, cancel)
	return ctx, func() {
		forget()
		cancel()
	}
}

// awaitRuns waits for the suspended flows, stops the steps that take longer
// than the grace, and all calls that take longer still.
func (s *shift) awaitRuns() {
	steps := time.AfterFunc(s.options.Grace, func() { s.cut(errHandOver) })
	defer steps.Stop()
	calls := time.AfterFunc(s.options.Grace+handOverTime, func() { s.stop(errHandOver) })
	defer calls.Stop()
	s.runs.Wait()
}

// drained reports that a person has drained the conductor, or with nil that the
// drain is over.
func (s *shift) drained(session jobs.SessionID, drain *jobs.Drain) {
	if drain == nil {
		s.logger.Info("undrained")
		s.notify(Notice{Moment: MomentUndrained, Session: session})
		return
	}
	s.logger.Info("drained: no job is claimed", "by", drain.By, "reason", drain.Reason, "finish", drain.Finish)
	s.notify(Notice{Moment: MomentDrained, Session: session, Drain: drain})
}

// register makes the conductor known on the board. It returns false when ctx
// ends first.
func (s *shift) register(ctx context.Context, t *tenure) bool {
	wait := newBackoff(boardBackoff)
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, callTime)
		err := s.options.Board.Register(callCtx, t.id, s.entity())
		cancel()
		if err == nil {
			return true
		}
		if errors.Is(err, jobs.ErrSessionExpired) {
			t.lose(err)
			return false
		}
		if ctx.Err() == nil {
			s.logger.Warn("cannot register the conductor now", "session", t.id, "error", err)
		}
		pause(ctx, wait.NextBackOff())
	}
	return false
}

func (s *shift) entity() jobs.Entity {
	opening := s.opening()
	return jobs.Entity{
		Kind: jobs.EntityConductor, Name: s.options.Name, Boards: s.options.Boards, Labels: s.options.Labels,
		JobKinds: s.options.Registry.Kinds(), MaxJobs: s.options.MaxJobs,
		Host: opening.Host, PID: opening.PID, Metadata: s.options.Metadata,
	}
}

// claim takes jobs while there are free worker slots, until ctx ends or a limit
// is reached.
func (s *shift) claim(ctx context.Context, t *tenure) {
	taking, stop := s.untilOver(ctx)
	defer stop()
	wait := newBackoff(boardBackoff)
	for s.left > 0 {
		// A job claimed while the session is doubtful could only be given back.
		if t.admit(taking) != nil || !s.pauses.wait(taking) {
			return
		}
		slots := s.takeSlots(taking)
		if slots == 0 {
			return
		}
		claimed := s.claimNext(ctx, t, min(slots, s.left), wait)
		for range slots - len(claimed) {
			s.slots <- struct{}{}
		}
		unwanted := s.unwanted()
		if unwanted == nil {
			s.left -= len(claimed)
		}
		for _, c := range claimed {
			s.runs.Go(func() {
				defer func() { s.slots <- struct{}{} }()
				s.seeThrough(t, c, unwanted)
			})
		}
	}
}

// unwanted is why a claimed job is given back at once; nil: it is run. A claim
// that was sent before a pause or the end of the time cannot be taken back, as it
// may have been granted; and after a lost answer it must be repeated until it is
// known what was claimed.
func (s *shift) unwanted() error {
	switch {
	case s.pauses.paused():
		return errPaused
	case s.over.Err() != nil:
		return errSpent
	}
	return nil
}

// spent reports whether a limit is reached.
func (s *shift) spent() bool { return s.left == 0 || s.over.Err() != nil }

// finish waits, if a limit was reached, until all that was taken is done, or ctx
// ends.
func (s *shift) finish(ctx context.Context, t *tenure) {
	if !s.spent() || ctx.Err() != nil {
		return
	}
	s.logger.Info("no more jobs are claimed: a limit of the conductor is reached", "session", t.id)
	s.notify(Notice{Moment: MomentSpent, Session: t.id})
	for range s.options.MaxJobs {
		select {
		case <-s.slots:
		case <-ctx.Done():
			return
		}
	}
}

// claimWait is how long one long poll waits for jobs: not beyond MaxDuration.
func (s *shift) claimWait() time.Duration {
	if s.until.IsZero() {
		return claimWait
	}
	return min(claimWait, max(0, time.Until(s.until)))
}

// takeSlots waits for a free worker slot and takes all that there are. It
// returns 0 when ctx ends.
func (s *shift) takeSlots(ctx context.Context) int {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case <-s.slots:
	case <-ctx.Done():
		return 0
	}
	for slots := 1; ; slots++ {
		select {
		case <-s.slots:
		default:
			return slots
		}
	}
}

// claimNext asks for jobs until it has an answer. Its time allows for a call whose
// node stops at the last moment, and for another that settles it. The
// nonce stays the same until something is claimed, also after an empty answer:
// an earlier try may still arrive and claim, and the next call returns its claims.
func (s *shift) claimNext(ctx context.Context, t *tenure, slots int, wait backoffs) []jobs.Claimed {
	request := jobs.ClaimRequest{
		Session: t.id, Nonce: t.nonce, Boards: s.options.Boards, Labels: s.options.Labels,
		Kinds: s.options.Registry.Kinds(), Max: slots, Begins: true,
	}
	for ctx.Err() == nil {
		request.Wait = s.claimWait()
		callCtx, cancel := context.WithTimeout(ctx, request.Wait+2*callTime)
		claimed, err := s.options.Board.ClaimNext(callCtx, request)
		cancel()
		for i := range claimed {
			err = errors.Join(err, claimed[i].CheckOwner(t.id))
		}
		if err == nil {
			wait.Reset()
			if len(claimed) > 0 {
				t.nonce = jobs.NewNonce()
			}
			return claimed
		}
		if errors.Is(err, jobs.ErrSessionExpired) {
			t.lose(err)
			return nil
		}
		if errors.Is(err, jobs.ErrUnclaimable) { // the claims of the nonce have ended before they were heard of
			t.nonce = jobs.NewNonce()
			return nil
		}
		if ctx.Err() == nil {
			s.logger.Warn("cannot claim jobs now", "session", t.id, "error", err)
		}
		pause(ctx, wait.NextBackOff())
	}
	return nil
}
