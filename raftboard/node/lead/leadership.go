package lead

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/deadlines"
	"github.com/conductord/conductord/raftboard/node/proposer"
)

// SessionTimings are the leader's policies for sessions and their claims.
type SessionTimings struct {
	Grace      time.Duration // time beyond a session's TTL before its expiry; 0: 1 s
	CoolDown   time.Duration // time before a job whose session expired is claimable; 0: 500 ms
	MaxCrashes int           // lost owners after which a job is trashed; 0: 5, negative: never
}

// Retention limits the time and the number of finished jobs and their books.
type Retention struct {
	MaxAge time.Duration // 0: 7 days
	Keep   uint64        // maximum number; 0: 100,000
}

// Leadership is one node's time as the leader that serves: it starts when the
// node's BeginLeadership command is applied, and ends when raft's leadership does.
// Only the leader holds timers. Each command that they cause carries the epoch, and
// the state machine refuses the commands of an earlier leadership.
type Leadership struct {
	epoch     uint64
	deadlines *deadlines.Deadlines[jobs.SessionID] // of sessions
	claims    *deadlines.Deadlines[heldClaim]      // of claims with their own TTL
	wake      chan struct{}                        // a signal: jobs may be due earlier than known before
	slots     chan struct{}                        // a signal: a schedule may have a slot earlier than known before
	due       <-chan struct{}                      // a signal: the next deadline may have changed
	Over      chan struct{}                        // closed at the end
}

// Tasks are the work of a leader: it keeps the cluster's time, expires
// sessions and claims, makes due jobs claimable, removes finished jobs, and posts the
// slots of schedules.
type Tasks struct {
	Node      string        // name of this node
	Guarded   bool          // access control is on
	Heartbeat time.Duration // a longer pause of the leader gives all sessions their full TTL
	Timings   SessionTimings
	Retention Retention
	Machine   *fsm.Machine
	Proposer  *proposer.Proposer
	Clock     *clock.Clock
	Rounds    *clock.Rounds
	Leader    *State
	Ready     *Readiness
	Disk      *admission.Disk
	Deferred  func() // called when the leader was paused and gives all sessions their full TTL
	Logger    hclog.Logger
	Fatal     func(error)
}

// Follow turns raft's notifications into leaderships, one at a time. It
// ends with ctx.
func (t *Tasks) Follow(ctx context.Context, notices <-chan bool) {
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
				leadingCtx, cancel := context.WithCancel(ctx)
				done := make(chan struct{})
				go func() { // ends with leadingCtx
					defer close(done)
					t.serve(leadingCtx)
				}()
				end = func() { cancel(); <-done }
			}
		}
	}
}

// serve starts a leadership, serves its timers, and ends it with ctx.
func (t *Tasks) serve(ctx context.Context) {
	defer t.Clock.Follow()
	current, err := t.begin(ctx)
	if err != nil {
		t.Logger.Info("cannot start leadership", "error", err)
		return
	}
	t.Logger.Info("leadership started", "epoch", current.epoch, "sessions", current.deadlines.Count())
	defer func() {
		t.Leader.end(current)
		t.Logger.Info("leadership ended", "epoch", current.epoch)
	}()
	var others sync.WaitGroup // end with ctx
	others.Go(func() { t.Rounds.Serve(ctx) })
	others.Go(func() { t.serveSchedules(ctx, current) })
	if t.Guarded {
		others.Go(func() { t.takeClaims(ctx) })
	}
	t.serveTimers(ctx, current)
	others.Wait()
}

// begin sets the cluster's time, proposes the epoch, and arms every session's timer. The node
// serves only afterwards. When the command is applied, the node has all entries of earlier leaders.
func (t *Tasks) begin(ctx context.Context) (*Leadership, error) {
	if err := t.Rounds.Start(ctx, t.Machine.Time()); err != nil {
		return nil, fmt.Errorf("cannot get the time from a majority: %w", err)
	}
	begin := &conductordv1.Command{Kind: &conductordv1.Command_BeginLeadership{
		BeginLeadership: &conductordv1.BeginLeadershipCommand{Node: t.Node},
	}}
	// The loop ends with ctx: raft cancels it with the next notice.
	epoch, err := backoff.Retry(ctx, func() (uint64, error) {
		index, results, err := t.Proposer.Propose(ctx, begin)
		if err == nil {
			err = command.ErrorFromProto(results[0].GetError())
		}
		return index, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(spareTime)), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return nil, err
	}
	current := newLeadership(epoch, t.Timings.Grace)
	// From here on, the leadership receives changes. Sessions that are opened while armAll reads
	// the others are armed twice, which is harmless.
	t.Leader.observe(current)
	t.Clock.Lead(t.Machine.Time())
	if err := t.armAll(current); err != nil {
		// Otherwise the log would keep this node as its leader, and no node would answer.
		t.Fatal(err)
		return nil, errors.Join(err, ctx.Err())
	}
	t.Ready.CaughtUp.Store(true)
	t.Leader.serve(current)
	return current, nil
}

func newLeadership(epoch uint64, grace time.Duration) *Leadership {
	changed := make(chan struct{}, 1)
	return &Leadership{
		epoch:     epoch,
		deadlines: deadlines.New[jobs.SessionID](grace, changed),
		claims:    deadlines.New[heldClaim](grace, changed),
		wake:      make(chan struct{}, 1),
		slots:     make(chan struct{}, 1),
		due:       changed,
		Over:      make(chan struct{}),
	}
}

// armAll gives every session and every claim its full TTL.
func (t *Tasks) armAll(current *Leadership) error {
	sessions, err := t.Machine.Sessions()
	if err != nil {
		return fmt.Errorf("cannot read the sessions: %w", err)
	}
	timers, err := t.Machine.ClaimTimers()
	if err != nil {
		return fmt.Errorf("cannot read the claims: %w", err)
	}
	now := time.Now()
	for _, session := range sessions {
		current.deadlines.Arm(session.ID, session.TTL, 0, now)
	}
	current.timeClaims(timers, now)
	return nil
}

// changed arms and disarms timers, and signals changes that may be due earlier than known before.
func (l *Leadership) changed(changes fsm.Changes, now time.Time) {
	for _, session := range changes.Opened {
		l.deadlines.Arm(session.ID, session.TTL, 0, now)
	}
	for _, id := range changes.Ended {
		l.deadlines.Disarm(id)
	}
	l.timeClaims(changes.Timed, now)
	if !changes.NextSlot.IsZero() {
		signal(l.slots)
	}
	if !changes.NextDue.IsZero() {
		signal(l.wake)
	}
}

// Renew moves the deadline of a session: see deadlines.Deadlines.
func (l *Leadership) Renew(id jobs.SessionID) (wait <-chan struct{}, known bool) {
	return l.deadlines.Renew(id, time.Now())
}

// signal sends a signal through a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // signalled already
	}
}
