package conductor

import (
	"context"
	"errors"
	"math"
	"reflect"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
)

const (
	// claimWait limits one long poll for jobs, so that a silently broken connection is noticed.
	claimWait = 30 * time.Second
	// closeTime limits the closing of a session. If that fails, the session expires.
	closeTime = 2 * time.Second
	// handOverTime bounds what follows the grace of a drain: the engine's wait for
	// stopped steps, and the writes that release the jobs. If the board takes longer,
	// the claims end with the session.
	handOverTime = 2 * engine.DefaultGrace
	// announceEvery is the interval of checks of the entity: a newly installed handler is announced
	// soon, for any TTL of the session.
	announceEvery = time.Second
)

// workLoop is one call of Run: it opens sessions and claims jobs until the drain.
type workLoop struct {
	options *Options
	logger  hclog.Logger
	pool    *engine.Pool
	pauses  *pauses
	ready   func() // called after each registration
	slots   *slots
	runs    sync.WaitGroup // of the running jobs
	done    chan struct{}  // closed when Run returns

	// Three contexts, each derived from the previous one: for all calls to the board, for the
	// steps, and for claiming. A drain ends them from the last to the first.
	base     context.Context
	stop     context.CancelCauseFunc
	stepping context.Context
	cut      context.CancelCauseFunc
	claiming context.Context
	drain    func() // ends claiming; running flows are suspended

	over  context.Context // ends with MaxDuration
	until time.Time       // that time; zero: never
	left  int             // remaining number of jobs to take; used only by the loop that claims
}

func newWorkLoop(ctx context.Context, options *Options, pool *engine.Pool, pauses *pauses, ready func()) *workLoop {
	w := &workLoop{
		options: options,
		logger:  options.Logger,
		pool:    pool,
		pauses:  pauses,
		ready:   ready,
		left:    options.MaxDispatches,
		slots:   newSlots(options.MaxJobs),
		done:    make(chan struct{}),
	}
	// Claimed jobs must still be handed over after the end of ctx.
	w.base, w.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	w.stepping, w.cut = context.WithCancelCause(w.base)
	claiming, drain := context.WithCancelCause(w.stepping)
	w.claiming, w.drain = claiming, func() { drain(errHandOver) }
	w.over = w.base
	if w.left == 0 {
		w.left = math.MaxInt
	}
	return w
}

// work opens one session after the other until the drain.
func (w *workLoop) work() error {
	defer w.stop(errHandOver)
	if w.options.MaxDuration > 0 {
		w.until = time.Now().Add(w.options.MaxDuration)
		over, cancel := context.WithDeadline(w.base, w.until)
		defer cancel()
		w.over = over
	}

	var last *liveSession
	for w.claiming.Err() == nil && !w.limitReached() {
		opening, stop := w.untilOver(w.claiming)
		last = w.openSession(opening)
		stop()
		if last == nil {
			break
		}
		w.serve(last)
	}
	w.awaitRuns()
	if last == nil {
		return nil
	}
	return last.close(closeTime)
}

// serve claims jobs in a session until it is lost or the drain starts.
func (w *workLoop) serve(t *liveSession) {
	w.logger.Info("session opened", "session", t.id, "ttl", w.options.TTL)
	w.notify(Notice{Moment: MomentSessionOpened, Session: t.id})

	ctx, cancel := context.WithCancelCause(w.claiming)
	defer cancel(nil)
	defer context.AfterFunc(t.alive, func() { cancel(context.Cause(t.alive)) })()
	if registered, ok := w.register(ctx, t); ok {
		t.keepers.Go(func() { w.announce(t, registered) })
		w.ready()
		w.notify(Notice{Moment: MomentRegistered, Session: t.id})
		w.claim(ctx, t)
		w.finish(ctx, t)
	}
	if t.alive.Err() != nil {
		t.keepers.Wait()
		w.logger.Warn("session lost", "session", t.id, "cause", context.Cause(t.alive))
		w.notify(Notice{Moment: MomentSessionLost, Session: t.id, Err: context.Cause(t.alive)})
	}
}

// untilOver is a context that ends with MaxDuration, at the latest.
func (w *workLoop) untilOver(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(w.over, cancel)
	return ctx, func() {
		forget()
		cancel()
	}
}

// awaitRuns waits for the suspended flows. After Grace it stops their steps, and after another
// handOverTime all calls.
func (w *workLoop) awaitRuns() {
	steps := time.AfterFunc(w.options.Grace, func() { w.cut(errHandOver) })
	defer steps.Stop()
	calls := time.AfterFunc(w.options.Grace+handOverTime, func() { w.stop(errHandOver) })
	defer calls.Stop()
	w.runs.Wait()
}

// drained reports that an operator has drained the conductor; nil: the drain has ended.
func (w *workLoop) drained(session jobs.SessionID, drain *jobs.Drain) {
	if drain == nil {
		w.logger.Info("conductor undrained")
		w.notify(Notice{Moment: MomentUndrained, Session: session})
		return
	}
	w.logger.Info("conductor drained", "by", drain.By, "reason", drain.Reason, "finish", drain.Finish)
	w.notify(Notice{Moment: MomentDrained, Session: session, Drain: drain})
}

// register registers the conductor's entity on the board, and returns it. It returns
// false when ctx ends first.
func (w *workLoop) register(ctx context.Context, t *liveSession) (jobs.Entity, bool) {
	wait := newBackoff(boardBackoff)
	for ctx.Err() == nil {
		entity := w.entity()
		callCtx, cancel := context.WithTimeout(ctx, callTime)
		err := w.options.Client.Register(callCtx, t.id, entity)
		cancel()
		if err == nil {
			return entity, true
		}
		if errors.Is(err, jobs.ErrSessionExpired) {
			t.lose(err)
			break
		}
		if ctx.Err() == nil {
			w.logger.Warn("cannot register the conductor", "session", t.id, "error", err)
		}
		sleep(ctx, wait.NextBackOff())
	}
	return jobs.Entity{}, false
}

// announce registers the entity again when its metadata, or its maximum number of jobs, has
// changed. It ends with the session.
func (w *workLoop) announce(t *liveSession, registered jobs.Entity) {
	for t.alive.Err() == nil {
		sleep(t.alive, announceEvery)
		if !reflect.DeepEqual(w.entity(), registered) {
			if entity, ok := w.register(t.alive, t); ok {
				registered = entity
			}
		}
	}
}

func (w *workLoop) entity() jobs.Entity {
	opening := w.opening()
	return jobs.Entity{
		Kind: jobs.EntityConductor, Name: w.options.Name, Boards: w.options.Boards, Labels: w.options.Labels,
		JobKinds: w.options.kinds(), MaxJobs: w.options.MaxJobs + w.slots.beyond(),
		Host: opening.Host, PID: opening.PID, Metadata: w.options.metadata(),
	}
}

// claim claims jobs while there are free worker slots, until ctx ends or a limit is reached.
func (w *workLoop) claim(ctx context.Context, t *liveSession) {
	taking, stop := w.untilOver(ctx)
	defer stop()
	wait := newBackoff(boardBackoff)
	for w.left > 0 {
		// A job claimed while the session is in doubt could only be released again.
		if t.admit(taking) != nil || !w.pauses.wait(taking) {
			return
		}
		slots := w.takeSlots(taking)
		if slots == 0 {
			return
		}
		claimed := w.claimNext(ctx, t, min(slots, w.left), wait)
		for range slots - len(claimed) {
			w.slots.put()
		}
		unwanted := w.unwanted()
		if unwanted == nil {
			w.left -= len(claimed)
		}
		for _, c := range claimed {
			w.runs.Go(func() {
				slot := &runSlot{slots: w.slots}
				defer slot.end()
				w.runJob(t, c, slot, unwanted)
			})
		}
	}
}

// unwanted is the reason to release a claimed job at once; nil: the job is run. A claim that was
// sent before a pause or the end of MaxDuration cannot be withdrawn, because it may have been
// granted. After a lost answer, the claim must be repeated until its result is known.
func (w *workLoop) unwanted() error {
	switch {
	case w.pauses.paused():
		return errPaused
	case w.over.Err() != nil:
		return errTimeOver
	}
	return nil
}

// limitReached reports whether a limit is reached.
func (w *workLoop) limitReached() bool { return w.left == 0 || w.over.Err() != nil }

// finish waits after a limit was reached, until all claimed jobs have ended or ctx ends.
func (w *workLoop) finish(ctx context.Context, t *liveSession) {
	if !w.limitReached() || ctx.Err() != nil {
		return
	}
	w.logger.Info("conductor reached its limit", "session", t.id)
	w.notify(Notice{Moment: MomentLimitReached, Session: t.id})
	ended := make(chan struct{})
	go func() { // until work's awaitRuns returns, at the latest
		w.runs.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// claimWait is the duration of the next long poll for jobs, which ends at MaxDuration.
func (w *workLoop) claimWait() time.Duration {
	if w.until.IsZero() {
		return claimWait
	}
	return min(claimWait, max(0, time.Until(w.until)))
}

// takeSlots waits for a free worker slot and takes all free ones. It returns 0 when ctx ends.
func (w *workLoop) takeSlots(ctx context.Context) int {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case <-w.slots.free:
	case <-ctx.Done():
		return 0
	}
	for slots := 1; ; slots++ {
		select {
		case <-w.slots.free:
		default:
			return slots
		}
	}
}

// claimNext requests jobs until it gets an answer. Each attempt has enough time for a node that
// stops at the last moment, and for a second call. The nonce does not change until a job is
// claimed, even after an empty answer: an earlier attempt may still arrive and claim, and the next
// call returns its claims.
func (w *workLoop) claimNext(ctx context.Context, t *liveSession, slots int, wait backoffs) []jobs.Claimed {
	request := jobs.ClaimRequest{
		Session: t.id, Nonce: t.nonce, Boards: w.options.Boards, Labels: w.options.Labels,
		Kinds: w.options.kinds(), Max: slots, Begins: true,
	}
	for ctx.Err() == nil {
		request.Wait = w.claimWait()
		callCtx, cancel := context.WithTimeout(ctx, request.Wait+2*callTime)
		claimed, err := w.options.Client.ClaimNext(callCtx, request)
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
		if errors.Is(err, jobs.ErrUnclaimable) { // the claims of the nonce ended before their answer arrived
			t.nonce = jobs.NewNonce()
			return nil
		}
		if ctx.Err() == nil {
			w.logger.Warn("cannot claim jobs", "session", t.id, "error", err)
		}
		sleep(ctx, wait.NextBackOff())
	}
	return nil
}
