package clock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

const (
	// clockInterval is the interval at which a leader reads the wall clocks of the other nodes.
	clockInterval = 5 * time.Second
	// clockPatience limits the wait for the last nodes, after a majority has answered with clocks
	// that differ by more than clockSpread. With all answers, the time is better.
	clockPatience = 200 * time.Millisecond
	clockSpread   = 100 * time.Millisecond
	// clockTimeout limits the wait of a round for a majority.
	clockTimeout = 2 * time.Second
	// clockPause is the pause before a new leader asks again.
	clockPause = 100 * time.Millisecond
)

// Rounds asks the voters for their wall clocks. Each clock is one vote, this node's own included.
// One goroutine at a time may use it.
type Rounds struct {
	// voters returns the askers of the other voters, and the number of voters in a majority. Only
	// Rounds may use these askers: a question of Rounds must not replace a question of a read.
	voters func() (voters []*transport.Asker, majority int)
	clock  *Clock
}

// NewRounds makes the rounds that correct a clock. See Rounds.voters for the first argument.
func NewRounds(voters func() ([]*transport.Asker, int), c *Clock) *Rounds {
	return &Rounds{voters: voters, clock: c}
}

// ask performs a round and returns the correction that a majority supports, or ErrUnavailable
// without a majority.
func (r *Rounds) ask(ctx context.Context) (time.Duration, error) {
	type reading struct {
		offset time.Duration // of a wall clock from this node's view of the cluster's time
		err    error
	}
	peers, majority := r.voters()
	readings := make(chan reading, len(peers))
	for _, peer := range peers {
		asked := r.clock.Now()
		peer.Ask(func(stands transport.Standing, err error) {
			// Assume that the peer answered half way between the question and the answer's arrival.
			middle := asked.Add(r.clock.Now().Sub(asked) / 2)
			readings <- reading{time.Unix(0, stands.Wall).Sub(middle), err}
		})
	}
	offsets := []time.Duration{r.clock.wall().Sub(r.clock.Now())}
	var faults []error
	patience := time.NewTimer(clockTimeout)
	defer patience.Stop()
	for len(offsets)+len(faults) <= len(peers) {
		if len(offsets) == majority {
			// Further answers could only give a time between these.
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
			return supported(offsets, majority, faults)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return supported(offsets, majority, faults)
}

// supported is the correction of the cluster's time, from the offsets of the wall clocks. The
// cluster's time should be at least the time that a majority of the clocks has reached, and at
// most the time that a majority has not passed. If a minority is wrong, both bounds lie among the
// right clocks. With all answers of an odd number of nodes, both are the median. With fewer
// answers, a time between the bounds is not corrected.
func supported(offsets []time.Duration, majority int, faults []error) (time.Duration, error) {
	if len(offsets) < majority {
		return 0, errors.Join(append([]error{
			fmt.Errorf("%w: %d nodes returned their time, and %d are required", jobs.ErrUnavailable, len(offsets), majority),
		}, faults...)...)
	}
	slices.Sort(offsets)
	least, most := offsets[len(offsets)-majority], offsets[majority-1]
	return max(least, 0) + min(most, 0), nil
}

// Start sets the cluster's time before this node serves as the leader. It repeats rounds until a
// majority answers, which every leader can reach.
func (r *Rounds) Start(ctx context.Context, least time.Time) error {
	r.clock.Lead(least)
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		off, err := r.ask(ctx)
		if err == nil {
			r.clock.Lead(r.clock.Now().Add(off))
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(clockPause)), backoff.WithMaxElapsedTime(0))
	return err
}

// Serve corrects the cluster's time until ctx ends. Its questions carry that time to the other
// nodes.
func (r *Rounds) Serve(ctx context.Context) {
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if off, err := r.ask(ctx); err == nil { // without a majority the leadership ends soon
			r.clock.correct(off)
			r.clock.checkWall()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}
