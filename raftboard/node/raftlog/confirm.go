package raftlog

import (
	"errors"
	"fmt"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// A linearizable answer must show every write that was acknowledged before the call. The leader's
// own state is not enough: another leader may have replaced it without its knowledge. raft's
// VerifyLeader is not enough either: an answer to an older heartbeat counts as a vote.
//
// So the leader notes the commit index, and then asks the other nodes for their current term, in a
// round that starts after the call. If a majority still has the leader's term, no newer leader had
// committed an entry at the start of the round: a newer leader needs a majority with a higher term,
// terms never fall, and two majorities share a node. Majorities of two consecutive raft
// configurations share a node too. A leader changes the configuration only after it has committed
// an entry of its own term. The answer then waits until the noted index is applied. (This is the
// ReadIndex of Ongaro's thesis, 6.4, with questions about the term instead of heartbeats.)
type readRound struct {
	leads  func() bool
	term   func() uint64 // of this node
	commit func() uint64
	voters func() (voters []*transport.Asker, majority int)
}

func (r *readRound) carryOut() (uint64, error) {
	// Read the term first: if the index is of a later term, the round fails. With the index first,
	// the index could be of an earlier term than the checked term.
	term := r.term()
	if !r.leads() {
		return 0, fmt.Errorf("%w: this node does not lead", jobs.ErrUnavailable)
	}
	index := r.commit()
	if err := r.askPeers(term); err != nil {
		return 0, err
	}
	if r.term() != term || !r.leads() {
		return 0, fmt.Errorf("%w: the leadership changed during the read", jobs.ErrUnavailable)
	}
	return index, nil
}

// askPeers succeeds when a majority has the term.
func (r *readRound) askPeers(term uint64) error {
	type reply struct {
		term uint64
		err  error
	}
	peers, majority := r.voters()
	replies := make(chan reply, len(peers))
	for _, peer := range peers {
		peer.Ask(func(stands transport.Standing, err error) { replies <- reply{stands.Term, err} })
	}
	agree, faults := 1, []error(nil)
	for left := len(peers); agree < majority; left-- {
		if left == 0 {
			return fmt.Errorf("%w: this leader reaches %d of %d required nodes: %w", jobs.ErrUnavailable, agree, majority, errors.Join(faults...))
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
