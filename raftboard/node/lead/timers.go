package lead

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/deadlines"
)

// Limits of one round of the leader's timers. The next round does the rest. Between the rounds, the
// commands of clients are applied.
const (
	expiriesAtOnce = 64 // sessions, and claims with their own TTL, expired in one round of the timers
	// claimsAtOnce limits the claims of all sessions in one round of expiries. A single session
	// with more claims is a round by itself. While a proposal is applied, nothing else is applied,
	// and after a slow proposal the leader would treat itself as paused and not expire the rest.
	claimsAtOnce  = 1_000
	wakesAtOnce   = 1_000 // due jobs made claimable by one command
	sweepsAtOnce  = 500   // finished jobs removed by one command
	sweepInterval = 10 * time.Second
	// longestSleep limits the timer loop's sleep, so that a pause of the whole process shows as
	// lateness soon after it ends.
	longestSleep = time.Second
	spareTime    = 100 * time.Millisecond // before the retry of an expiry without effect
	overduePause = 2 * time.Millisecond
)

// serveTimers expires sessions, wakes due jobs and sweeps, until ctx ends.
func (t *Tasks) serveTimers(ctx context.Context, current *Leadership) {
	nextSweep := time.Now().Add(sweepInterval)
	var rested time.Time // the loop does nothing before this time
	for {
		planned := t.nextWake(current, nextSweep, rested)
		select {
		case <-ctx.Done():
			return
		case <-current.due:
		case <-current.wake:
		case <-time.After(time.Until(planned)):
		}
		now := time.Now()
		// After a pause, a signal may arrive before the timer and is equally late. A signal must
		// not delay due work, because signals can arrive continuously.
		if t.wasPaused(current, now.Sub(planned)) || now.Before(planned) {
			continue
		}
		t.expire(ctx, current, now)
		t.expireClaims(ctx, current, now)
		t.wakeDue(ctx, current)
		if !now.Before(nextSweep) {
			nextSweep = now.Add(sweepInterval)
			if t.Sweep(ctx, current) {
				nextSweep = now // after the other timers, which must not wait for a long clean-up
			}
		}
		t.wasPaused(current, time.Since(now))
		// A short pause lets one command wake all jobs that become due together.
		rested = time.Now().Add(overduePause)
	}
}

// wasPaused reports whether the timer loop was late, or its own proposals were slow. In this case,
// it gives all sessions and claims their full TTL again, because keep-alives of this time may still
// be unhandled.
func (t *Tasks) wasPaused(current *Leadership, late time.Duration) bool {
	if late <= t.Heartbeat {
		return false
	}
	now := time.Now()
	t.Logger.Warn("expiry deferred after a pause of the leader", "late", late,
		"sessions", current.deadlines.RearmAll(now), "claims", current.claims.RearmAll(now))
	t.Deferred()
	return true
}

// nextWake is the time at which the next timer is due, but not before rested.
func (t *Tasks) nextWake(current *Leadership, nextSweep, rested time.Time) time.Time {
	now, due := time.Now(), t.Machine.NextDue()
	if !due.IsZero() {
		due = now.Add(due.Sub(t.Clock.Now())) // while the clock is slewed, wrong by at most a part of longestSleep
	}
	return wakeAt(now, rested, nextSweep, current.deadlines.Next(), current.claims.Next(), due)
}

// wakeAt is the earliest of the times that are not zero, but not before
// rested and now: a time that has passed is due at once, and does not count as a
// pause.
func wakeAt(now, rested time.Time, times ...time.Time) time.Time {
	planned := now.Add(longestSleep)
	for _, next := range times {
		if !next.IsZero() && next.Before(planned) {
			planned = next
		}
	}
	for _, earliest := range []time.Time{rested, now} {
		if planned.Before(earliest) {
			planned = earliest
		}
	}
	return planned
}

// expire proposes the expiry of sessions whose time has passed. It repeats a failed proposal while
// this node leads: otherwise, the session would never lose its jobs.
func (t *Tasks) expire(ctx context.Context, current *Leadership, now time.Time) {
	late := current.deadlines.TakeDue(now, expiriesAtOnce)
	if len(late) == 0 {
		return
	}
	fit := t.fitting(late)
	for _, next := range late[fit:] {
		current.deadlines.Spare(next.ID, now) // for the next round
	}
	late = late[:fit]
	commands := make([]*conductordv1.Command, len(late))
	for i := range late {
		commands[i] = &conductordv1.Command{Kind: &conductordv1.Command_ExpireSession{ExpireSession: &conductordv1.ExpireSessionCommand{
			Session:    late[i].ID.String(),
			TimerEpoch: current.epoch,
			CoolDown:   durationpb.New(t.Timings.CoolDown),
			MaxCrashes: uint32(max(t.Timings.MaxCrashes, 0)),
		}}}
	}
	_, results, err := t.Proposer.Propose(ctx, commands...)
	for i := range late {
		id, verdict := late[i].ID, verdictOf(err, results, i)
		switch {
		case verdict == nil || errors.Is(verdict, jobs.ErrSessionExpired):
			t.Logger.Info("session expired", "session", id)
			current.deadlines.Disarm(id)
		default:
			t.Logger.Warn("cannot expire a session", "session", id, "error", verdict)
			current.deadlines.Spare(id, time.Now().Add(spareTime))
		}
	}
}

// fitting returns the number of sessions that one proposal may expire.
func (t *Tasks) fitting(late []deadlines.Due[jobs.SessionID]) int {
	claims := make([]int, len(late))
	for i := range late {
		session, _ := t.Machine.Session(late[i].ID) // an unreadable session fails in its expiry
		claims[i] = session.Claims
	}
	return within(claims, claimsAtOnce)
}

// within returns the length of the longest prefix of numbers whose sum is at most bound, but at
// least 1 if there are numbers.
func within(numbers []int, bound int) int {
	sum := 0
	for i, n := range numbers {
		if sum += n; sum > bound && i > 0 {
			return i
		}
	}
	return len(numbers)
}

// verdictOf is the error of one command of a proposal.
func verdictOf(err error, results []*conductordv1.Result, i int) error {
	if err != nil {
		return err
	}
	return command.ErrorFromProto(results[i].GetError())
}

// wakeDue makes due jobs claimable.
func (t *Tasks) wakeDue(ctx context.Context, current *Leadership) {
	due := t.Machine.NextDue()
	if due.IsZero() || due.After(t.Clock.Now()) {
		return
	}
	t.housekeep(ctx, "cannot wake due jobs", &conductordv1.Command{Kind: &conductordv1.Command_WakeDue{
		WakeDue: &conductordv1.WakeDueCommand{TimerEpoch: current.epoch, Max: wakesAtOnce},
	}})
}

// Sweep removes some of the finished jobs that the retention policy no longer keeps,
// and reports whether there are more.
func (t *Tasks) Sweep(ctx context.Context, current *Leadership) (more bool) {
	retention := t.Retention
	sweepable, err := t.Machine.Sweepable(t.Clock.Now(), retention.MaxAge, retention.Keep)
	if err != nil {
		t.Logger.Error("cannot find finished jobs to remove", "error", err)
		return false
	}
	return sweepable && t.housekeep(ctx, "cannot remove finished jobs", &conductordv1.Command{Kind: &conductordv1.Command_Sweep{
		Sweep: &conductordv1.SweepCommand{
			TimerEpoch: current.epoch, MaxAge: durationpb.New(retention.MaxAge), Keep: retention.Keep, Max: sweepsAtOnce,
		},
	}})
}

// housekeep proposes one of the leader's own commands, and reports whether more work of the same
// kind remains. A failure is logged as failed, and the command is due again at the next wake.
func (t *Tasks) housekeep(ctx context.Context, failed string, c *conductordv1.Command) (more bool) {
	_, results, err := t.Proposer.Propose(ctx, c)
	if err == nil {
		err = command.ErrorFromProto(results[0].GetError())
	}
	if err != nil {
		if ctx.Err() == nil {
			t.Logger.Warn(failed, "error", err)
		}
		return false
	}
	return results[0].GetCount().GetMore()
}
