package lead

import (
	"context"
	"fmt"
	"sync"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/replication"
)

// Reads make answers linearizable: an answer shows every write that was acknowledged before the
// call. The leader's own state is not enough, because a leader can be deposed without
// knowing. So the log confirms that this node still leads, and the answer waits
// until the confirmed index is applied.
//
// One round serves all calls that waited at the start of the round: reads and keep-alives.
type Reads struct {
	Log       replication.Log
	Leader    *State
	Applied   func(ctx context.Context, index uint64) error
	RoundDone func()       // called after each round
	shared    sharedRounds // for carryOut
}

// Close waits for the round in progress. No call may wait then.
func (r *Reads) Close() { r.shared.close() }

// Wait returns an index that this node has applied, and that includes every
// write that any leader acknowledged before the call.
func (r *Reads) Wait(ctx context.Context) (uint64, error) {
	index, err := r.Confirm(ctx)
	if err != nil {
		return 0, err
	}
	return index, r.Applied(ctx, index)
}

// Confirm returns an index that includes every write acknowledged before the
// call. Its success also means that this node led during the call.
func (r *Reads) Confirm(ctx context.Context) (uint64, error) {
	if _, err := r.Leader.Serving(); err != nil {
		return 0, err
	}
	return r.shared.join(ctx, r.carryOut)
}

func (r *Reads) carryOut() (uint64, error) {
	defer r.RoundDone()
	before, err := r.Leader.Serving()
	if err != nil {
		return 0, err
	}
	index, err := r.Log.Confirm()
	if err != nil {
		return 0, err
	}
	after, err := r.Leader.Serving()
	if err != nil {
		return 0, err
	}
	if after != before {
		return 0, fmt.Errorf("%w: the leadership changed during the read", jobs.ErrUnavailable)
	}
	return index, nil
}

// sharedRounds perform one round at a time. A round serves all callers that waited when it started.
// The zero value is ready.
type sharedRounds struct {
	mu      sync.Mutex
	next    *round // collects the callers for the next round; guarded by mu
	running bool   // a goroutine performs rounds; guarded by mu
	ended   sync.WaitGroup
}

// round is the result of one round for all callers that wait for it.
type round struct {
	done  chan struct{}
	index uint64 // set before done is closed
	err   error  // set before done is closed
}

// join waits for the result of a round that starts after the call. All callers pass the same
// function.
func (s *sharedRounds) join(ctx context.Context, carryOut func() (uint64, error)) (uint64, error) {
	s.mu.Lock()
	if s.next == nil {
		s.next = &round{done: make(chan struct{})}
	}
	joined := s.next
	if !s.running {
		s.running = true
		s.ended.Go(func() { s.run(carryOut) }) // ends when no caller waits
	}
	s.mu.Unlock()
	select {
	case <-joined.done:
		return joined.index, joined.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *sharedRounds) run(carryOut func() (uint64, error)) {
	for {
		s.mu.Lock()
		current := s.next
		s.next = nil
		if current == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		current.index, current.err = carryOut()
		close(current.done)
	}
}

// close waits for the round in progress. No caller may wait then.
func (s *sharedRounds) close() { s.ended.Wait() }
