package raftlog

import (
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/node/replication"
)

// Internals that the tests of this package use.

// NewReplica is a state machine as raft sees it. due reports whether a snapshot is due, which
// requires a number of bytes of log; kept is the last entry of the latest snapshot.
func NewReplica(m replication.Machine, atLeast int64) (_ raft.BatchingFSM, due func() bool, kept func() uint64) {
	g := newGrowth(atLeast)
	return newReplica(m, g, new(atomic.Int64)), g.outgrown, g.index.Load
}

// NewAskedReplica is a replica whose node waits for the requested number of entries.
func NewAskedReplica(m replication.Machine, asked *atomic.Int64) raft.BatchingFSM {
	return newReplica(m, newGrowth(1<<20), asked)
}

func newReplica(m replication.Machine, g *growth, asked *atomic.Int64) *replica {
	return &replica{machine: m, asked: asked, growth: g, applied: newAppliedGuard(nil, nil), fatal: func(err error) { panic(err) }}
}

// ConfirmAmong performs the read round of a leader whose state is given by the test.
func ConfirmAmong(term, commit func() uint64, voters func() ([]*transport.Asker, int)) (uint64, error) {
	return (&readRound{func() bool { return true }, term, commit, voters}).carryOut()
}
