package conductor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/internal/boottime"
	"github.com/conductord/conductord/jobs"
)

// Causes of the end of a run's context, in addition to errClaimLost.
var (
	errHandOver  = errors.New("the conductor stops: the job is handed over")
	errDrained   = errors.New("the conductor is drained: the job is handed over")
	errPaused    = errors.New("the conductor is paused: the job is released")
	errTimeOver  = errors.New("the conductor has reached its MaxDuration: the job is released")
	errDoubt     = errors.New("the session could not be renewed in time: the steps are stopped before it can expire")
	errClaimLost = errors.New("the claim is lost: the session has ended")
	// errClaimEnded: the session lives, but one of its claims has ended.
	errClaimEnded = errors.New("another caller ended the claim")
	errClosed     = errors.New("the session was closed")
)

// standing is the permission of a conductor to use its claims.
type standing int

const (
	sound    standing = iota // everything
	doubtful                 // no new steps
	failing                  // no running steps
	lost                     // nothing: another conductor may have the claims
)

// attendance is the owner's knowledge of its session. It is a function of the clock readings that
// it is given, and reads no clock. The readings are boottime's: they include suspensions of the
// machine, and exclude steps of its wall clock.
//
// The owner counts from the sending of its last acknowledged keep-alive. The board counts from
// the arrival, which is later: the owner gives up first. The owner sends one every 0.2 TTL, and
// twice as often when two answers are missing.
//
//	0                       0.6             0.8            1.0 TTL
//	├───────── sound ────────┼── doubtful ───┼── failing ───┼── lost
//	sent                     no step starts  steps stopped  new session
//
// An owner that was itself stopped (its machine suspended, its process frozen) cannot know what
// happened meanwhile. If its watch is more than 0.2 TTL late, the session is doubtful until a
// keep-alive sent after the pause is acknowledged. Lost is final.
type attendance struct {
	ttl     time.Duration
	renewed time.Time // sending time of the last acknowledged keep-alive
	asked   time.Time // sending time of the last keep-alive
	watch   time.Time // time of the owner's next look
	proof   time.Time // acknowledging a keep-alive sent at this time or later ends the doubt after a pause; zero: no such doubt
	over    bool
}

// newAttendance starts with a session whose opening was sent at that time.
func newAttendance(ttl time.Duration, sent time.Time) attendance {
	return attendance{ttl: ttl, renewed: sent, asked: sent, watch: sent.Add(ttl / 5)}
}

// standing returns the current permission.
func (a *attendance) standing(now time.Time) standing {
	age := now.Sub(a.renewed)
	switch {
	case a.over || age >= a.ttl:
		return lost
	case age >= a.ttl*8/10:
		return failing
	case age >= a.ttl*6/10, !a.proof.IsZero(), a.late(now):
		return doubtful
	}
	return sound
}

// late reports whether the owner should have looked long ago.
func (a *attendance) late(now time.Time) bool { return now.Sub(a.watch) > a.ttl/5 }

// look is the owner's periodic check: it returns the permission, whether to send a keep-alive now,
// and the time of the next look.
func (a *attendance) look(now time.Time) (s standing, ask bool, next time.Time) {
	if a.late(now) {
		a.proof = now
	}
	s = a.standing(now)
	a.over = a.over || s == lost
	interval := a.ttl / 5
	if now.Sub(a.renewed) >= a.ttl*4/10 {
		interval = a.ttl / 10
	}
	ask = s != lost && (a.proof.Equal(now) || now.Sub(a.asked) >= interval)
	if ask {
		a.asked = now
	}
	next = a.asked.Add(interval)
	for _, tenths := range []time.Duration{6, 8, 10} {
		if at := a.renewed.Add(a.ttl * tenths / 10); at.After(now) && at.Before(next) {
			next = at
		}
	}
	a.watch = next
	return s, ask, next
}

// acknowledged records the acknowledgement of a keep-alive that was sent at that time. It has no
// effect on a session that is already lost.
func (a *attendance) acknowledged(sent, now time.Time) {
	if a.standing(now) == lost {
		a.over = true
		return
	}
	if sent.After(a.renewed) {
		a.renewed = sent
	}
	if !sent.Before(a.proof) {
		a.proof = time.Time{}
	}
}

// liveSession keeps one session of the conductor alive, and holds its claims.
type liveSession struct {
	id      jobs.SessionID
	board   jobs.Attendant
	logger  hclog.Logger
	parent  context.Context // of work
	alive   context.Context // ends when the claims are lost, or the session is closed
	finish  context.CancelCauseFunc
	keepers sync.WaitGroup // of attend, its keep-alives, and the claim watcher
	claims  *claimWatcher
	nonce   jobs.Nonce // of the next claims; used only by the goroutine that claims

	mu         sync.Mutex
	attendance attendance
	work       context.Context // for the runs: ends before alive; replaced when the session recovers
	stopWork   context.CancelCauseFunc
	better     chan struct{} // closed and replaced when the standing may have improved
}

// newLiveSession keeps a session alive whose opening was sent at that time. The claims end with
// base, and the runs earlier with work.
func newLiveSession(base, work context.Context, board jobs.Attendant, logger hclog.Logger, id jobs.SessionID, ttl time.Duration, sent time.Time) *liveSession {
	t := &liveSession{
		id: id, board: board, logger: logger, parent: work, nonce: jobs.NewNonce(),
		attendance: newAttendance(ttl, sent), better: make(chan struct{}),
	}
	t.alive, t.finish = context.WithCancelCause(base)
	t.work, t.stopWork = context.WithCancelCause(work)
	t.keepers.Go(t.attend)
	return t
}

// attend keeps the session alive until it is lost or closed.
func (t *liveSession) attend() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-t.alive.Done():
			t.halt(context.Cause(t.alive))
			return
		case <-timer.C:
		}
		t.mu.Lock()
		now := boottime.Now()
		s, ask, next := t.attendance.look(now)
		if s == failing {
			t.stopWork(errDoubt)
		}
		t.mu.Unlock()
		if s == lost {
			t.finish(errClaimLost)
		}
		if ask {
			t.keepers.Go(func() { t.keepAlive(now) })
		}
		timer.Reset(boottime.Until(next))
	}
}

// keepAlive sends one keep-alive. It gives up after 0.6 TTL, when the answer would no longer
// help. A slow answer does not delay the next keep-alive. At most one is sent every 0.1 TTL, so
// at most seven are in flight.
func (t *liveSession) keepAlive(sent time.Time) {
	ctx, cancel := context.WithTimeout(t.alive, t.attendance.ttl*6/10)
	defer cancel()
	err := t.board.KeepAlive(ctx, t.id)
	switch {
	case err == nil:
		t.acknowledge(sent)
	case errors.Is(err, jobs.ErrSessionExpired):
		t.finish(fmt.Errorf("%w: %w", errClaimLost, err))
	case t.alive.Err() == nil:
		t.logger.Warn("cannot keep the session alive", "session", t.id, "error", err)
	}
}

func (t *liveSession) acknowledge(sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := boottime.Now()
	t.attendance.acknowledged(sent, now)
	if t.attendance.standing(now) != sound {
		return
	}
	if t.work.Err() != nil && t.alive.Err() == nil && t.parent.Err() == nil {
		t.work, t.stopWork = context.WithCancelCause(t.parent)
	}
	close(t.better)
	t.better = make(chan struct{})
}

// halt stops the runs of the session.
func (t *liveSession) halt(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopWork(cause)
}

// working is the context of a run that starts now.
func (t *liveSession) working() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.work
}

// admit is the gate before each step. It returns nil when the session is known to live, and waits
// while the session is in doubt. It reads the clock itself, because after a pause of the process
// a step can reach this code before attend wakes.
func (t *liveSession) admit(ctx context.Context) error {
	for {
		t.mu.Lock()
		s, better := t.attendance.standing(boottime.Now()), t.better
		t.mu.Unlock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s == sound {
			return nil
		}
		select {
		case <-better:
		case <-ctx.Done():
		}
	}
}

// lose ends the session, because the board has reported its end.
func (t *liveSession) lose(err error) { t.finish(fmt.Errorf("%w: %w", errClaimLost, err)) }

// close closes the session, which ends its claims, and returns when its goroutines
// have ended.
func (t *liveSession) close(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(t.alive, timeout)
	defer cancel()
	err := repeat(ctx, func(ctx context.Context) error { return t.board.CloseSession(ctx, t.id) })
	t.finish(errClosed)
	t.keepers.Wait()
	if err == nil || errors.Is(err, jobs.ErrSessionExpired) || errors.Is(err, errClaimLost) {
		return nil
	}
	return fmt.Errorf("cannot close session %s: %w", t.id, err)
}

// openSession opens a session. It repeats the call until ctx ends; then it returns nil.
func (w *workLoop) openSession(ctx context.Context) *liveSession {
	wait := newBackoff(boardBackoff)
	opening := w.opening()
	var first time.Time // sending time of the first attempt of this opening
	var told openingLog
	for ctx.Err() == nil {
		if first.IsZero() {
			first = boottime.Now()
		}
		sent, err := w.tryOpen(ctx, opening, first)
		if err == nil {
			t := newLiveSession(w.base, w.stepping, w.options.Client, w.logger, opening.ID, opening.TTL, sent)
			t.claims = newClaimWatcher(w, t.id)
			t.keepers.Go(func() { t.claims.watchClaims(t.alive) })
			return t
		}
		if ctx.Err() != nil {
			break
		}
		told.failed(w.logger, err)
		if !repeatable(err) {
			// The board has another opening with this id, or an ended session.
			opening, first = w.opening(), time.Time{}
		}
		sleep(ctx, wait.NextBackOff())
	}
	return nil
}

// openingLog logs once that no session can be opened, because a new cluster can wait for days. It
// logs again when repeats become useless, or useful again.
type openingLog struct{ warned, repeatable bool }

func (l *openingLog) failed(logger hclog.Logger, err error) {
	if again := repeatable(err); !l.warned || again != l.repeatable {
		l.warned, l.repeatable = true, again
		logger.Warn("cannot open a session", "error", err)
	}
}

func (w *workLoop) opening() jobs.Opening {
	return jobs.Opening{ID: jobs.NewSessionID(), Name: w.options.Name, Host: hostname(), PID: os.Getpid(), TTL: w.options.TTL}
}

// tryOpen opens the session and returns the time from which its TTL counts. An opening whose
// answer is late may have happened at the first sending, with much of the TTL gone: then a
// keep-alive renews it.
func (w *workLoop) tryOpen(ctx context.Context, opening jobs.Opening, first time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if _, err := w.options.Client.OpenSession(ctx, opening); err != nil {
		return first, err
	}
	now := boottime.Now()
	if now.Sub(first) < opening.TTL/5 {
		return first, nil
	}
	return now, w.options.Client.KeepAlive(ctx, opening.ID)
}
