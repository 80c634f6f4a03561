package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// leadership is one node's time as the leader that serves: it begins when the
// node's BeginLeadership command is applied, and ends when raft's leadership does.
// Only the leader holds timers. Each command that they cause carries the epoch, and
// the state machine refuses the commands of an earlier leadership.
type leadership struct {
	epoch     uint64
	deadlines *deadlines[jobs.SessionID] // of sessions
	claims    *deadlines[heldClaim]      // of claims with a time of their own
	wake      chan struct{}              // holds one signal: jobs may be due earlier than was known
	slots     chan struct{}              // holds one signal: a schedule may have a slot earlier than was known
	over      chan struct{}              // closed at the end
}

// followLeadership turns raft's notifications into leaderships, one at a time. It
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
				leadingCtx, cancel := context.WithCancel(ctx)
				done := make(chan struct{})
				go func() { // ends with leadingCtx
					defer close(done)
					n.serveLeadership(leadingCtx)
				}()
				end = func() { cancel(); <-done }
			}
		}
	}
}

// serveLeadership begins a leadership, serves its timers, and ends it with ctx.
func (n *Node) serveLeadership(ctx context.Context) {
	defer n.clock.follow()
	current, err := n.beginLeadership(ctx)
	if err != nil {
		n.logger.Info("did not begin to lead", "reason", err)
		return
	}
	n.logger.Info("leading", "epoch", current.epoch, "sessions", current.deadlines.count())
	defer func() {
		n.leader.end(current)
		n.logger.Info("no longer leading", "epoch", current.epoch)
	}()
	var others sync.WaitGroup // end with ctx
	others.Go(func() { n.clocks.serve(ctx) })
	others.Go(func() { n.serveSchedules(ctx, current) })
	n.serveTimers(ctx, current)
	others.Wait()
}

// beginLeadership sets the cluster's time, proposes the epoch, arms every session's
// timer, and only then lets the node serve. Once the command is applied, the node has
// every entry of the leaders before it.
func (n *Node) beginLeadership(ctx context.Context) (*leadership, error) {
	if err := n.clocks.start(ctx, n.machine.Time()); err != nil {
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
	current := newLeadership(epoch, n.options.Sessions.Grace)
	// Changes reach the leadership from here on; sessions that are opened while the
	// others are being read are armed twice, which is harmless.
	n.leader.observe(current)
	n.clock.lead(n.machine.Time())
	if err := n.armAll(current); err != nil {
		// raft would go on leading, and nobody would answer.
		n.fatal(err)
		return nil, errors.Join(err, ctx.Err())
	}
	n.ready.caughtUp.Store(true)
	n.leader.serve(current)
	return current, nil
}

func newLeadership(epoch uint64, grace time.Duration) *leadership {
	changed := make(chan struct{}, 1)
	return &leadership{
		epoch:     epoch,
		deadlines: newDeadlines[jobs.SessionID](grace, changed),
		claims:    newDeadlines[heldClaim](grace, changed),
		wake:      make(chan struct{}, 1),
		slots:     make(chan struct{}, 1),
		over:      make(chan struct{}),
	}
}

// armAll gives every session and every claim its full time.
func (n *Node) armAll(current *leadership) error {
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
