package node

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

// leadership is one node's time as the leader that serves: it begins when the
// node's BeginLeadership command is applied, and ends when raft's leadership does.
// Only the leader holds timers. Each command that they cause carries the epoch, and
// the state machine refuses the commands of an earlier leadership.
type leadership struct {
	epoch     uint64
	deadlines *deadlines.Deadlines[jobs.SessionID] // of sessions
	claims    *deadlines.Deadlines[heldClaim]      // of claims with a time of their own
	wake      chan struct{}                        // holds one signal: jobs may be due earlier than was known
	slots     chan struct{}                        // holds one signal: a schedule may have a slot earlier than was known
	due       <-chan struct{}                      // holds one signal: the next deadline may be another one
	over      chan struct{}                        // closed at the end
}

// leaderTasks are what only a leader does: it keeps the cluster's time, expires
// sessions and claims, makes due jobs claimable, removes finished jobs, and posts the
// slots of schedules.
type leaderTasks struct {
	node      string        // this one's name
	guarded   bool          // access control is on
	heartbeat time.Duration // RaftTimings.Heartbeat
	timings   SessionTimings
	retention Retention
	machine   *fsm.Machine
	proposer  *proposer.Proposer
	clock     *clock.Clock
	rounds    *clock.Rounds
	leader    *leaderState
	ready     *readiness
	disk      *admission.Disk
	metrics   *nodeMetrics
	logger    hclog.Logger
	fatal     func(error)
}

// follow turns raft's notifications into leaderships, one at a time. It
// ends with ctx.
func (t *leaderTasks) follow(ctx context.Context, notices <-chan bool) {
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

// serve begins a leadership, serves its timers, and ends it with ctx.
func (t *leaderTasks) serve(ctx context.Context) {
	defer t.clock.Follow()
	current, err := t.begin(ctx)
	if err != nil {
		t.logger.Info("cannot start leadership", "error", err)
		return
	}
	t.logger.Info("leadership started", "epoch", current.epoch, "sessions", current.deadlines.Count())
	defer func() {
		t.leader.end(current)
		t.logger.Info("leadership ended", "epoch", current.epoch)
	}()
	var others sync.WaitGroup // end with ctx
	others.Go(func() { t.rounds.Serve(ctx) })
	others.Go(func() { t.serveSchedules(ctx, current) })
	if t.guarded {
		others.Go(func() { t.takeClaims(ctx) })
	}
	t.serveTimers(ctx, current)
	others.Wait()
}

// begin sets the cluster's time, proposes the epoch, arms every session's
// timer, and only then lets the node serve. Once the command is applied, the node has
// every entry of the leaders before it.
func (t *leaderTasks) begin(ctx context.Context) (*leadership, error) {
	if err := t.rounds.Start(ctx, t.machine.Time()); err != nil {
		return nil, fmt.Errorf("cannot learn the time from a majority: %w", err)
	}
	begin := &conductordv1.Command{Kind: &conductordv1.Command_BeginLeadership{
		BeginLeadership: &conductordv1.BeginLeadershipCommand{Node: t.node},
	}}
	// The loop ends with ctx: raft cancels it by the next notice.
	epoch, err := backoff.Retry(ctx, func() (uint64, error) {
		index, results, err := t.proposer.Propose(ctx, begin)
		if err == nil {
			err = command.ErrorFromProto(results[0].GetError())
		}
		return index, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(spareTime)), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return nil, err
	}
	current := newLeadership(epoch, t.timings.Grace)
	// Changes reach the leadership from here on; sessions that are opened while the
	// others are being read are armed twice, which is harmless.
	t.leader.observe(current)
	t.clock.Lead(t.machine.Time())
	if err := t.armAll(current); err != nil {
		// raft would go on leading, and no node would answer.
		t.fatal(err)
		return nil, errors.Join(err, ctx.Err())
	}
	t.ready.caughtUp.Store(true)
	t.leader.serve(current)
	return current, nil
}

func newLeadership(epoch uint64, grace time.Duration) *leadership {
	changed := make(chan struct{}, 1)
	return &leadership{
		epoch:     epoch,
		deadlines: deadlines.New[jobs.SessionID](grace, changed),
		claims:    deadlines.New[heldClaim](grace, changed),
		wake:      make(chan struct{}, 1),
		slots:     make(chan struct{}, 1),
		due:       changed,
		over:      make(chan struct{}),
	}
}

// armAll gives every session and every claim its full time.
func (t *leaderTasks) armAll(current *leadership) error {
	sessions, err := t.machine.Sessions()
	if err != nil {
		return fmt.Errorf("cannot read the sessions: %w", err)
	}
	timers, err := t.machine.ClaimTimers()
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

// changed arms and disarms timers, and signals what may be due earlier than was known.
func (l *leadership) changed(changes fsm.Changes, now time.Time) {
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

// signal sends a signal through a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // signalled already
	}
}
