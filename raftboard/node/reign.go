package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// Bounds of what a leader does by itself in one go. What is left is done in
// the next one, behind whatever clients have proposed meanwhile.
const (
	expiriesAtOnce = 64 // sessions, and claims with a time of their own, expired by one round of the timers
	// claimsAtOnce bounds the claims that the sessions of one round hold, unless
	// it is one session: nothing else is applied meanwhile, and a leader that its
	// own proposal kept for long would take itself for paused and spare the rest.
	claimsAtOnce  = 1_000
	wakesAtOnce   = 1_000 // due jobs made claimable by one command
	sweepsAtOnce  = 500   // finished jobs removed by one command
	sweepInterval = 10 * time.Second
	// longestSleep bounds the timer loop's sleep, so that a pause of the whole
	// process shows as lateness soon after it ends.
	longestSleep = time.Second
	spareTime    = 100 * time.Millisecond // before an expiry that did not happen is tried again
	overduePause = 2 * time.Millisecond
)

// reign is one node's time as the leader that serves: it begins when the
// node's BeginLeadership command is applied, and ends when leadership does.
// Only the leader holds timers; every command that they lead to carries the
// reign's epoch, and the state machine refuses those of a reign that is over.
type reign struct {
	epoch     uint64
	deadlines *deadlines[jobs.SessionID] // of sessions
	claims    *deadlines[heldClaim]      // of claims with a time of their own
	wake      chan struct{}              // holds one signal: jobs may be due earlier than was known
	slots     chan struct{}              // holds one signal: a schedule may have a slot earlier than was known
	over      chan struct{}              // closed at the end
}

// followLeadership turns raft's notifications into reigns, one at a time. It
// ends with ctx.
func (n *Node) followLeadership(ctx context.Context, notices <-chan bool) {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case <-ctx.Done():
			return
		case leading := <-notices:
			end()
			end = func() {}
			if leading {
				reignCtx, cancel := context.WithCancel(ctx)
				done := make(chan struct{})
				go func() { // ends with reignCtx
					defer close(done)
					n.rule(reignCtx)
				}()
				end = func() { cancel(); <-done }
			}
		}
	}
}

// rule begins a reign, serves its timers, and ends it with ctx.
func (n *Node) rule(ctx context.Context) {
	defer n.clock.follow()
	current, err := n.beginReign(ctx)
	if err != nil {
		n.logger.Info("did not begin to lead", "reason", err)
		return
	}
	n.logger.Info("leading", "epoch", current.epoch, "sessions", current.deadlines.count())
	defer func() {
		n.endReign(current)
		n.logger.Info("no longer leading", "epoch", current.epoch)
	}()
	var others sync.WaitGroup // end with ctx
	others.Go(func() { n.serveClock(ctx) })
	others.Go(func() { n.serveSchedules(ctx, current) })
	n.serveTimers(ctx, current)
	others.Wait()
}

// beginReign sets the cluster's time, proposes the epoch, arms every session's
// timer, and only then lets the node serve. The command's being applied is also the proof that the
// node has every entry of the leaders before it.
func (n *Node) beginReign(ctx context.Context) (*reign, error) {
	if err := n.startClock(ctx); err != nil {
		return nil, fmt.Errorf("cannot learn the time from a majority: %w", err)
	}
	begin := &conductordv1.Command{Kind: &conductordv1.Command_BeginLeadership{
		BeginLeadership: &conductordv1.BeginLeadershipCommand{Node: n.options.Name},
	}}
	// The loop ends with ctx: raft cancels it by the next notice.
	epoch, err := backoff.Retry(ctx, func() (uint64, error) {
		index, results, err := n.proposer.propose(ctx, begin)
		if err == nil {
			err = command.ErrorFromProto(results[0].GetError())
		}
		return index, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(spareTime)), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return nil, err
	}
	current := newReign(epoch, n.options.Sessions.Grace)
	// Changes reach the reign from here on; sessions that are opened while the
	// others are being read are armed twice, which is harmless.
	n.observeReign(current)
	n.clock.lead(n.machine.Time())
	if err := n.armAll(current); err != nil {
		// raft would go on leading, and nobody would answer.
		n.fatal(err)
		return nil, errors.Join(err, ctx.Err())
	}
	n.startServing(current)
	return current, nil
}

func newReign(epoch uint64, grace time.Duration) *reign {
	changed := make(chan struct{}, 1)
	return &reign{
		epoch:     epoch,
		deadlines: newDeadlines[jobs.SessionID](grace, changed),
		claims:    newDeadlines[heldClaim](grace, changed),
		wake:      make(chan struct{}, 1),
		slots:     make(chan struct{}, 1),
		over:      make(chan struct{}),
	}
}

// armAll gives every session and every claim its full time.
func (n *Node) armAll(current *reign) error {
	sessions, err := n.machine.Sessions()
	if err != nil {
		return fmt.Errorf("cannot read the sessions: %w", err)
	}
	timers, err := n.machine.ClaimTimers()
	if err != nil {
		return fmt.Errorf("cannot read the claims: %w", err)
	}
	now := time.Now()
	for _, session := range sessions {
		current.deadlines.arm(session.ID, session.TTL, 0, now)
	}
	current.timeClaims(timers, now)
	return nil
}

// serveTimers expires sessions, wakes due jobs and sweeps, until ctx ends.
func (n *Node) serveTimers(ctx context.Context, current *reign) {
	nextSweep := time.Now().Add(sweepInterval)
	var rested time.Time // until then nothing is done
	for {
		planned := n.nextWake(current, nextSweep, rested)
		timer := time.NewTimer(time.Until(planned))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-current.deadlines.changed:
		case <-current.wake:
		case <-timer.C:
		}
		timer.Stop()
		now := time.Now()
		// After a pause a signal may come before the timer, and is as late. A
		// signal puts nothing off that is due: they may come without end.
		if n.wasPaused(current, now.Sub(planned)) || now.Before(planned) {
			continue
		}
		n.expire(ctx, current, now)
		n.expireClaims(ctx, current, now)
		n.wakeDue(ctx, current)
		if !now.Before(nextSweep) {
			nextSweep = now.Add(sweepInterval)
			if n.sweep(ctx, current) {
				nextSweep = now // behind the other timers, which must not wait for a long clean-up
			}
		}
		n.wasPaused(current, time.Since(now))
		// The little pause lets what falls due together be woken by one command.
		rested = time.Now().Add(overduePause)
	}
}

// wasPaused judges how late the timer loop is, or how long its own proposals
// took. A leader for which time has stood still cannot know who has been
// silent: the keep-alives may be waiting in front of it.
func (n *Node) wasPaused(current *reign, late time.Duration) bool {
	if late <= n.options.Raft.Heartbeat {
		return false
	}
	now := time.Now()
	n.logger.Warn("this leader was paused: every session and claim gets its full time", "late", late,
		"sessions", current.deadlines.rearmAll(now), "claims", current.claims.rearmAll(now))
	n.metrics.expiriesDeferred.Inc()
	return true
}

// nextWake is when there is something to do, but not before the timers have
// rested.
func (n *Node) nextWake(current *reign, nextSweep, rested time.Time) time.Time {
	now, due := time.Now(), n.machine.NextDue()
	if !due.IsZero() {
		due = now.Add(due.Sub(n.clock.now())) // while the clock is slewed, off by a part of longestSleep at most
	}
	return wakeAt(now, rested, nextSweep, current.deadlines.next(), current.claims.next(), due)
}

// wakeAt is the earliest of times, of which those that are zero do not count.
// What is overdue is done at once, and is not lateness; asked again, it is not
// put off.
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

// expire proposes the expiry of sessions whose time is up. A proposal that
// fails is made again for as long as this node leads: a session that was
// forgotten here would hold its jobs for ever.
func (n *Node) expire(ctx context.Context, current *reign, now time.Time) {
	late := current.deadlines.due(now, expiriesAtOnce)
	if len(late) == 0 {
		return
	}
	fit := n.fitting(late)
	for _, next := range late[fit:] {
		current.deadlines.spare(next.id, now) // for the next round
	}
	late = late[:fit]
	commands := make([]*conductordv1.Command, len(late))
	for i := range late {
		commands[i] = &conductordv1.Command{Kind: &conductordv1.Command_ExpireSession{ExpireSession: &conductordv1.ExpireSessionCommand{
			Session:    late[i].id.String(),
			TimerEpoch: current.epoch,
			CoolDown:   durationpb.New(n.options.Sessions.CoolDown),
			MaxCrashes: uint32(max(n.options.Sessions.MaxCrashes, 0)),
		}}}
	}
	_, results, err := n.proposer.propose(ctx, commands...)
	for i := range late {
		id, verdict := late[i].id, verdictOf(err, results, i)
		switch {
		case verdict == nil || errors.Is(verdict, jobs.ErrSessionExpired):
			n.logger.Info("a session has expired", "session", id)
			current.deadlines.disarm(id)
		default:
			n.logger.Warn("cannot expire a session yet", "session", id, "error", verdict)
			current.deadlines.spare(id, time.Now().Add(spareTime))
		}
	}
}

// fitting is how many of the sessions one proposal may expire.
func (n *Node) fitting(late []due[jobs.SessionID]) int {
	claims := make([]int, len(late))
	for i := range late {
		// Of a session that cannot be read the expiry tells more.
		session, _ := n.machine.Session(late[i].id)
		claims[i] = session.Claims
	}
	return within(claims, claimsAtOnce)
}

// within is how many numbers from the first on sum up to no more than a bound,
// but one if there is any.
func within(numbers []int, bound int) int {
	sum := 0
	for i, n := range numbers {
		if sum += n; sum > bound && i > 0 {
			return i
		}
	}
	return len(numbers)
}

// verdictOf is what became of one command of a proposal.
func verdictOf(err error, results []*conductordv1.Result, i int) error {
	if err != nil {
		return err
	}
	return command.ErrorFromProto(results[i].GetError())
}

// wakeDue makes claimable what is due.
func (n *Node) wakeDue(ctx context.Context, current *reign) {
	due := n.machine.NextDue()
	if due.IsZero() || due.After(n.clock.now()) {
		return
	}
	n.housekeep(ctx, "wake due jobs", &conductordv1.Command{Kind: &conductordv1.Command_WakeDue{
		WakeDue: &conductordv1.WakeDueCommand{TimerEpoch: current.epoch, Max: wakesAtOnce},
	}})
}

// sweep removes a part of what the retention policy no longer keeps, and tells
// whether there is more.
func (n *Node) sweep(ctx context.Context, current *reign) (more bool) {
	retention := n.options.Retention
	sweepable, err := n.machine.Sweepable(n.clock.now(), retention.MaxAge, retention.Keep)
	if err != nil {
		n.logger.Error("cannot tell whether finished jobs are to be removed", "error", err)
		return false
	}
	return sweepable && n.housekeep(ctx, "remove finished jobs", &conductordv1.Command{Kind: &conductordv1.Command_Sweep{
		Sweep: &conductordv1.SweepCommand{
			TimerEpoch: current.epoch, MaxAge: durationpb.New(retention.MaxAge), Keep: retention.Keep, Max: sweepsAtOnce,
		},
	}})
}

// housekeep proposes a command of the leader's own, and tells whether there is
// more of the same to do. What fails is due again at the next wake.
func (n *Node) housekeep(ctx context.Context, what string, c *conductordv1.Command) (more bool) {
	_, results, err := n.proposer.propose(ctx, c)
	if err == nil {
		err = command.ErrorFromProto(results[0].GetError())
	}
	if err != nil {
		if ctx.Err() == nil {
			n.logger.Warn("cannot "+what, "error", err)
		}
		return false
	}
	return results[0].GetCount().GetMore()
}

// keepAlive renews a session once a round has shown that this node still leads.
// It needs the round, which shows that this node leads, and not the apply: a
// session whose opening was acknowledged is known already, and must not be lost
// because an entry takes long. Only a session that is not known has to wait.
func (n *Node) keepAlive(ctx context.Context, id jobs.SessionID) error {
	index, err := n.reads.confirm(ctx)
	if err != nil {
		return err
	}
	for applied := false; ; {
		current, err := n.serving()
		if err != nil {
			return err
		}
		wait, known := current.deadlines.renew(id, time.Now())
		if !known && !applied {
			if err := n.reads.applied(ctx, index); err != nil {
				return err
			}
			applied = true
			continue
		}
		if !known {
			return fmt.Errorf("session %s: %w", id, jobs.ErrSessionExpired)
		}
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-current.over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
