package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/conductord/conductord/jobs"
)

const (
	// clockInterval is how often a leader asks the others for their wall clocks.
	clockInterval = 5 * time.Second
	// clockPatience is how long the answers of the last nodes are waited for
	// once there is a majority whose clocks differ by more than clockSpread: with
	// all of them the time is a better one.
	clockPatience = 200 * time.Millisecond
	clockSpread   = 100 * time.Millisecond
	// clockTimeout is how long a majority is waited for.
	clockTimeout = 2 * time.Second
	// clockWarning is how far off this node's clock may be without a warning. NTP
	// holds milliseconds; from a second on people are misled by what they read.
	clockWarning = time.Second
)

// clockRounds ask the nodes for their wall clocks. All of them are votes, this
// node's own like the others'. It belongs to one goroutine at a time.
type clockRounds struct {
	peers    termAskers // of its own: a question here must not replace one of a read
	majority int        // of all nodes, this one among them
	now      func() time.Time
	wall     func() time.Time
}

// ask carries out a round, and gives the correction that a majority supports.
// ErrUnavailable without a majority.
func (r *clockRounds) ask(ctx context.Context) (time.Duration, error) {
	type reading struct {
		offset time.Duration // of a wall clock from this node's idea of the cluster's time
		err    error
	}
	readings := make(chan reading, len(r.peers))
	for _, peer := range r.peers {
		asked := r.now()
		peer.ask(func(stands standing, err error) {
			// The answer is taken to have been given half way between the question and its arrival.
			middle := asked.Add(r.now().Sub(asked) / 2)
			readings <- reading{time.Unix(0, stands.wall).Sub(middle), err}
		})
	}
	offsets := []time.Duration{r.wall().Sub(r.now())}
	var faults []error
	patience := time.NewTimer(clockTimeout)
	defer patience.Stop()
	for len(offsets)+len(faults) <= len(r.peers) {
		if len(offsets) == r.majority {
			// Further answers could only tell a time between these.
			if slices.Max(offsets)-slices.Min(offsets) <= clockSpread {
				break
			}
			patience.Reset(clockPatience)
		}
		select {
		case got := <-readings:
			if got.err != nil {
				faults = append(faults, got.err)
				continue
			}
			offsets = append(offsets, got.offset)
		case <-patience.C:
			return supported(offsets, r.majority, faults)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return supported(offsets, r.majority, faults)
}

// supported is by how much the cluster's time is to be corrected, given how far
// the wall clocks are from it. The time that the clocks of a majority have
// reached is the least that it should be, and the time that those of a majority
// have not passed the most: clocks that are wrong, if they are a minority, have
// both lie among the right ones. With all answers of an odd number of nodes it
// is one time, the median. With fewer answers, a time between is left as it is.
func supported(offsets []time.Duration, majority int, faults []error) (time.Duration, error) {
	if len(offsets) < majority {
		return 0, errors.Join(append([]error{
			fmt.Errorf("%w: %d nodes tell their clocks, and %d are needed", jobs.ErrUnavailable, len(offsets), majority),
		}, faults...)...)
	}
	slices.Sort(offsets)
	least, most := offsets[len(offsets)-majority], offsets[majority-1]
	return max(least, 0) + min(most, 0), nil
}

// startClock sets the cluster's time before this node serves as the leader. It
// asks until a majority answers: one that leads reaches a majority.
func (n *Node) startClock(ctx context.Context) error {
	n.clock.lead(n.machine.Time())
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		off, err := n.clocks.ask(ctx)
		if err == nil {
			n.clock.lead(n.clock.now().Add(off))
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(spareTime)), backoff.WithMaxElapsedTime(0))
	return err
}

// serveClock corrects the cluster's time, and tells it with its questions, until
// ctx ends.
func (n *Node) serveClock(ctx context.Context) {
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	for {
		if off, err := n.clocks.ask(ctx); err == nil { // without a majority the leadership ends soon
			n.clock.correct(off)
			n.watchClock()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// told is the cluster's time, for questions; zero while this node does not
// serve as the leader.
func (n *Node) told() int64 {
	if !n.Leading() {
		return 0
	}
	return n.clock.now().UnixNano()
}

// hear takes note of the time that a question has told.
func (n *Node) hear(told int64) {
	if told != 0 {
		n.clock.hear(time.Unix(0, told).UTC())
		n.watchClock()
	}
}

// now is the cluster's time for answers: also on a node that has heard of no
// leader yet.
func (n *Node) now() time.Time {
	now, least := n.clock.now(), n.machine.Time()
	if now.Before(least) {
		return least
	}
	return now
}

// clockOffset is how far this node's wall clock is ahead of the cluster's time,
// if that is known.
func (n *Node) clockOffset() (ahead time.Duration, known bool) {
	return n.options.WallClock().Sub(n.clock.now()), n.clock.known()
}

// watchClock warns once when this node's wall clock has gone wrong, and again
// only when it is wrong by something else: while the cluster's time is slewed,
// that changes all the time.
func (n *Node) watchClock() {
	ahead, _ := n.clockOffset()
	before := time.Duration(n.clockWarned.Load())
	switch wrong := ahead.Abs() > clockWarning; {
	case wrong && (ahead-before).Abs() > max(clockWarning, before.Abs()/2):
		n.clockWarned.Store(int64(ahead))
		n.logger.Warn("this node's clock is not the cluster's: look after its time service", "ahead", ahead)
	case !wrong && before != 0:
		n.clockWarned.Store(0)
		n.logger.Info("this node's clock is the cluster's again", "ahead", ahead)
	}
}
