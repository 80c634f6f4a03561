package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/jobs"
)

// wallClock shows the time that a majority of the cluster agrees on. Slots of
// schedules are posted by it: a leader whose own clock is ahead would otherwise
// post slots before their time, or take a year of them for missed, and no later
// leader could take that back. A slot has come when the clocks of a majority
// say so, so one wrong clock of three neither hastens nor delays any.
type wallClock struct {
	peers    []*termAsker // of its own: a question here must not take the place of a read's
	majority int          // of all nodes, this one among them
	turn     chan struct{}
}

const (
	// clockPatience is how long the answers of the last nodes are waited for
	// once there is a majority: with all of them the time is a better one.
	clockPatience = 200 * time.Millisecond
	// clockTimeout is how long a majority is waited for.
	clockTimeout = 2 * time.Second
)

func newWallClock(peers []*termAsker, majority int) *wallClock {
	return &wallClock{peers: peers, majority: majority, turn: make(chan struct{}, 1)}
}

func (w *wallClock) close() {
	for _, peer := range w.peers {
		peer.close()
	}
}

// offset asks the others, and says how far the agreed time is ahead of this
// node's clock. ErrUnavailable without a majority.
func (w *wallClock) offset(ctx context.Context) (time.Duration, error) {
	select {
	case w.turn <- struct{}{}: // a second question would take the place of the first
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	readings := make(chan reading, len(w.peers))
	for _, peer := range w.peers {
		asked := time.Now()
		peer.ask(func(stands standing, err error) { readings <- readClock(stands, err, asked, time.Now()) })
	}
	offsets := []time.Duration{0}
	var faults []error
	patience := time.NewTimer(clockTimeout)
	defer patience.Stop()
	if len(offsets) >= w.majority {
		patience.Reset(clockPatience)
	}
	for range w.peers {
		select {
		case got := <-readings:
			if got.err != nil {
				faults = append(faults, got.err)
				continue
			}
			if offsets = append(offsets, got.offset); len(offsets) == w.majority {
				patience.Reset(clockPatience)
			}
		case <-patience.C:
			return agreed(offsets, w.majority, faults)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return agreed(offsets, w.majority, faults)
}

// reading is what one node's clock showed, against this node's.
type reading struct {
	offset time.Duration
	err    error
}

// readClock takes the answer to have been given half way between the question
// and its arrival.
func readClock(stands standing, err error, asked, answered time.Time) reading {
	if err == nil && stands.wall == 0 {
		err = errors.New("the node is starting")
	}
	middle := asked.UnixNano() + int64(answered.Sub(asked)/2)
	return reading{time.Duration(stands.wall - middle), err}
}

// agreed is the latest time that a majority of all clocks has reached.
func agreed(offsets []time.Duration, majority int, faults []error) (time.Duration, error) {
	if len(offsets) < majority {
		return 0, errors.Join(append([]error{
			fmt.Errorf("%w: %d nodes tell the time, and %d are needed", jobs.ErrUnavailable, len(offsets), majority),
		}, faults...)...)
	}
	slices.Sort(offsets)
	return offsets[len(offsets)-majority], nil
}

// now is the time that a majority agrees on.
func (w *wallClock) now(ctx context.Context) (time.Time, error) {
	offset, err := w.offset(ctx)
	return time.Now().Add(offset).Round(0).UTC(), err
}
