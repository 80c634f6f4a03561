package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/transport"
)

// A linearizable answer must show every write that was acknowledged before the
// call. The leader's own state is not enough: it may have been
// deposed without knowing. raft's VerifyLeader is not enough either: an answer
// to an older heartbeat counts as a vote.
//
// So the leader notes the commit index, then asks the others for their current
// term, in a round that begins after the question. If a majority is still at
// its own term, no newer leader had committed anything when the round began: a
// newer one needs a majority at a higher term, terms never fall, and two
// majorities share a node. (So do majorities of two configurations of raft that follow
// each other, and a leader changes the configuration only after it has committed an
// entry of its own term.) The answer then waits until the noted index has
// been applied. (This is the ReadIndex of Ongaro's thesis, 6.4, with term
// questions instead of heartbeats.)
//
// One round serves all calls that waited when it began: reads and keep-alives.
type readRounds struct {
	term      func() uint64 // of this node
	commit    func() uint64
	serving   func() (*leadership, error) // errors while this node does not serve as leader
	applied   func(ctx context.Context, index uint64) error
	peers     *peerAskers
	roundDone func()
	shared    sharedRounds // of carryOut
}

// close waits for the round under way. No call may wait then.
func (r *readRounds) close() {
	r.peers.close()
	r.shared.close()
}

// wait returns an index that this node has applied, and that includes every
// write that any leader acknowledged before the call.
func (r *readRounds) wait(ctx context.Context) (uint64, error) {
	index, err := r.confirm(ctx)
	if err != nil {
		return 0, err
	}
	return index, r.applied(ctx, index)
}

// confirm returns an index that includes every write acknowledged before the
// call. Its success also means that this node led during the call.
func (r *readRounds) confirm(ctx context.Context) (uint64, error) {
	if _, err := r.serving(); err != nil {
		return 0, err
	}
	return r.shared.join(ctx, r.carryOut)
}

func (r *readRounds) carryOut() (uint64, error) {
	defer r.roundDone()
	before, err := r.serving()
	if err != nil {
		return 0, err
	}
	// The term first: an index read in a later term then fails the round. Read
	// first, the index could be of an earlier term than the one that is checked.
	term := r.term()
	index := r.commit()
	if err := r.askPeers(term); err != nil {
		return 0, err
	}
	after, err := r.serving()
	if err != nil {
		return 0, err
	}
	if after != before || r.term() != term {
		return 0, fmt.Errorf("%w: the leadership changed during the read", jobs.ErrUnavailable)
	}
	return index, nil
}

// askPeers succeeds when a majority is at the term.
func (r *readRounds) askPeers(term uint64) error {
	type reply struct {
		term uint64
		err  error
	}
	peers, majority := r.peers.quorum()
	replies := make(chan reply, len(peers))
	for _, peer := range peers {
		peer.Ask(func(stands transport.Standing, err error) { replies <- reply{stands.Term, err} })
	}
	agree, faults := 1, []error(nil)
	for left := len(peers); agree < majority; left-- {
		if left == 0 {
			return fmt.Errorf("%w: this leader reaches %d of the %d nodes that it needs: %w", jobs.ErrUnavailable, agree, majority, errors.Join(faults...))
		}
		switch got := <-replies; {
		case got.err != nil:
			faults = append(faults, got.err)
		case got.term == term:
			agree++
		case got.term > term:
			return fmt.Errorf("%w: another node is at term %d, and this leader at %d", jobs.ErrUnavailable, got.term, term)
		}
	}
	return nil
}

// sharedRounds carry out one round at a time. A round serves all callers that waited when
// it began. The zero value is ready.
type sharedRounds struct {
	mu      sync.Mutex
	next    *round // collects the callers for the next round; under mu
	running bool   // a goroutine carries out rounds; under mu
	ended   sync.WaitGroup
}

// round is the result of one round for all callers that wait for it.
type round struct {
	done  chan struct{}
	index uint64 // set before done is closed
	err   error  // set before done is closed
}

// join waits for the result of a round that begins after the call. All callers give the
// same function.
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

// close waits for the round under way. No caller may wait then.
func (s *sharedRounds) close() { s.ended.Wait() }
