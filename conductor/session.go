package conductor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/boottime"
	"github.com/conductord/conductord/jobs"
)

// How a run's context ends, besides errClaimLost.
var (
	errHandOver  = errors.New("the conductor stops: the job is handed over")
	errDrained   = errors.New("the conductor is drained: the job is handed over")
	errPaused    = errors.New("the conductor is paused: the job is given back")
	errSpent     = errors.New("the conductor ends, for its time is over: the job is given back")
	errDoubt     = errors.New("the session could not be renewed in time: the steps are stopped before it can expire")
	errClaimLost = errors.New("the claim is lost: the session is over")
	// errClaimEnded: the session lives, and one of its claims does not.
	errClaimEnded = errors.New("the claim was ended by another")
	errClosed     = errors.New("the session was closed")
)

// standing is what a conductor may do with its claims.
type standing int

const (
	sound    standing = iota // everything
	doubtful                 // start no step
	failing                  // have no step running
	lost                     // nothing: the claims may be another's
)

// attendance is what the owner of a session knows about it. It is a function
// of the clock readings that it is given, and reads no clock. They are
// boottime's: suspension of the machine counts, steps of its wall clock do not.
//
// The owner counts from the sending of its last acknowledged keep-alive,
// the board from its arrival, which is later: so the owner gives up first.
// It asks every 0.2 TTL, and twice as often when two answers are missing.
//
//	0                       0.6             0.8            1.0 TTL
//	├───────── sound ────────┼── doubtful ───┼── failing ───┼── lost
//	sent                     no step starts  steps stopped  new session
//
// An owner that was itself stopped (its machine suspended, its process
// frozen) cannot know what has happened meanwhile: when its watch is more
// than 0.2 TTL late it is doubtful until a keep-alive is acknowledged that
// was sent after the pause. Lost is for ever.
type attendance struct {
	ttl     time.Duration
	renewed time.Time // when the last acknowledged keep-alive was sent
	asked   time.Time // when the last keep-alive was sent
	watch   time.Time // when the owner looks next
	proof   time.Time // a keep-alive sent no earlier ends the doubt after a pause; zero: no such doubt
	over    bool
}

// newAttendance begins with a session whose opening was sent at that time.
func newAttendance(ttl time.Duration, sent time.Time) attendance {
	return attendance{ttl: ttl, renewed: sent, asked: sent, watch: sent.Add(ttl / 5)}
}

// standing tells what is allowed now.
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

// look is the owner's watch: it returns what is allowed, whether to send a
// keep-alive now, and when to look again.
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

// acknowledged takes note of a keep-alive that was sent at that time. It
// comes too late for a session that had to be taken for lost.
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

// tenure is one session's life in a conductor.
type tenure struct {
	id      jobs.SessionID
	board   jobs.Attendant
	logger  hclog.Logger
	parent  context.Context // of work
	alive   context.Context // ends when the claims are lost, or the session is closed
	finish  context.CancelCauseFunc
	watcher sync.WaitGroup // of attend, the keep-alives it sends, and the follower
	claims  *follower
	nonce   jobs.Nonce // of the next claims; of the shift's goroutine that claims

	mu         sync.Mutex
	attendance attendance
	work       context.Context // of the runs: ends before alive does; replaced when the session recovers
	stopWork   context.CancelCauseFunc
	better     chan struct{} // closed and replaced when the standing may have improved
}

// newTenure begins to attend a session that was opened at that time. The
// claims end with base, runs already with work.
func newTenure(base, work context.Context, board jobs.Attendant, logger hclog.Logger, id jobs.SessionID, ttl time.Duration, sent time.Time) *tenure {
	t := &tenure{
		id: id, board: board, logger: logger, parent: work, nonce: jobs.NewNonce(),
		attendance: newAttendance(ttl, sent), better: make(chan struct{}),
	}
	t.alive, t.finish = context.WithCancelCause(base)
	t.work, t.stopWork = context.WithCancelCause(work)
	t.watcher.Go(t.attend)
	return t
}

// attend watches over the session until it is lost or closed.
func (t *tenure) attend() {
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
			t.watcher.Go(func() { t.keepAlive(now) })
		}
		timer.Reset(boottime.Until(next))
	}
}

// keepAlive asks once. It is given up after 0.6 TTL, when its answer would no
// longer help; a slow answer never delays the next question, and since one is
// sent every 0.1 TTL at most, there are never more than seven at a time.
func (t *tenure) keepAlive(sent time.Time) {
	ctx, cancel := context.WithTimeout(t.alive, t.attendance.ttl*6/10)
	defer cancel()
	err := t.board.KeepAlive(ctx, t.id)
	switch {
	case err == nil:
		t.acknowledge(sent)
	case errors.Is(err, jobs.ErrSessionExpired):
		t.finish(fmt.Errorf("%w: %w", errClaimLost, err))
	case t.alive.Err() == nil:
		t.logger.Warn("cannot keep the session alive now", "session", t.id, "error", err)
	}
}

func (t *tenure) acknowledge(sent time.Time) {
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
func (t *tenure) halt(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopWork(cause)
}

// working is the context for a run that begins now.
func (t *tenure) working() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.work
}

// admit is the gate before each step: it returns nil when the session is
// known to live, and waits while that is in doubt. It looks at the clock
// itself, since after a pause the step may come here before the watch wakes.
func (t *tenure) admit(ctx context.Context) error {
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

// lose ends the session at once: the board says that it is over.
func (t *tenure) lose(err error) { t.finish(fmt.Errorf("%w: %w", errClaimLost, err)) }

// close ends the session, with every claim that it still has, and returns when its
// goroutines have ended.
func (t *tenure) close(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(t.alive, timeout)
	defer cancel()
	err := repeat(ctx, func(ctx context.Context) error { return t.board.CloseSession(ctx, t.id) })
	t.finish(errClosed)
	t.watcher.Wait()
	if err == nil || errors.Is(err, jobs.ErrSessionExpired) || errors.Is(err, errClaimLost) {
		return nil
	}
	return fmt.Errorf("cannot close session %s: %w", t.id, err)
}

// openSession opens a session, however long that takes; nil when ctx ends.
func (s *shift) openSession(ctx context.Context) *tenure {
	wait := newBackoff(boardBackoff)
	opening := s.opening()
	var first time.Time // when this opening was first sent
	for ctx.Err() == nil {
		if first.IsZero() {
			first = boottime.Now()
		}
		sent, err := s.tryOpen(ctx, opening, first)
		if err == nil {
			t := newTenure(s.base, s.stepping, s.options.Board, s.logger, opening.ID, opening.TTL, sent)
			t.claims = newFollower(s, t.id)
			t.watcher.Go(func() { t.claims.follow(t.alive) })
			return t
		}
		if ctx.Err() != nil {
			break
		}
		s.logger.Warn("cannot open a session now", "session", opening.ID, "error", err)
		if !repeatable(err) {
			// The board knows this id as something else, or as over.
			opening, first = s.opening(), time.Time{}
		}
		pause(ctx, wait.NextBackOff())
	}
	return nil
}

func (s *shift) opening() jobs.Opening {
	return jobs.Opening{ID: jobs.NewSessionID(), Name: s.options.Name, Host: hostname(), PID: os.Getpid(), TTL: s.options.TTL}
}

// tryOpen opens the session and returns the time from which its life counts. An
// opening that is answered late may have happened when it was first sent, with much
// of the time to live over: then a keep-alive renews it.
func (s *shift) tryOpen(ctx context.Context, opening jobs.Opening, first time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if _, err := s.options.Board.OpenSession(ctx, opening); err != nil {
		return first, err
	}
	now := boottime.Now()
	if now.Sub(first) < opening.TTL/5 {
		return first, nil
	}
	return now, s.options.Board.KeepAlive(ctx, opening.ID)
}
