package node

import (
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/fsm"
)

// NewReplica is a state machine as raft sees it. It tells whether a snapshot is
// due once the log has so many bytes, and up to where the latest one reaches.
func NewReplica(m *fsm.Machine, atLeast int64) (_ raft.BatchingFSM, due func() bool, kept func() uint64) {
	g := newGrowth(atLeast)
	return &replica{machine: m, growth: g, fatal: func(err error) { panic(err) }}, g.outgrown, g.index.Load
}
