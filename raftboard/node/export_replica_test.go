package node

import (
	"context"
	"sync/atomic"

	"connectrpc.com/connect"
	"github.com/hashicorp/raft"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/raftboard/wire"
)

// NewReplica is a state machine as raft sees it. due reports whether a snapshot is due,
// which takes so many bytes of log; kept is the last entry of the latest one.
func NewReplica(m *fsm.Machine, atLeast int64) (_ raft.BatchingFSM, due func() bool, kept func() uint64) {
	g := newGrowth(atLeast)
	return newReplica(m, g, new(atomic.Int64)), g.outgrown, g.index.Load
}

// NewAskedReplica is one whose node waits for as many entries as are asked for.
func NewAskedReplica(m *fsm.Machine, asked *atomic.Int64) raft.BatchingFSM {
	return newReplica(m, newGrowth(1<<20), asked)
}

// CheckedReplica is a state machine as raft sees it, with a node's answers about its sums.
type CheckedReplica struct{ *replica }

// NewCheckedReplica is one whose state is m.
func NewCheckedReplica(m *fsm.Machine) CheckedReplica {
	r := newReplica(m, newGrowth(1<<20), new(atomic.Int64))
	r.checks = &stateChecks{machine: m, fatal: r.fatal}
	return CheckedReplica{r}
}

// Hold stops the next batch when it is applied, before its check is met. The result lets it go on.
func (r CheckedReplica) Hold() (release func()) {
	r.growth.mu.Lock()
	return r.growth.mu.Unlock
}

// TableSums asks a node for the sums of its tables at an entry.
func (r CheckedReplica) TableSums(ctx context.Context, index uint64) ([]*conductordv1.TableSum, error) {
	answer, err := (&verifyService{checks: r.checks}).tableSums(ctx, connect.NewRequest(&conductordv1.TableSumsRequest{Index: index}))
	if err != nil {
		return nil, wire.ErrorFromConnect(err)
	}
	return answer.Msg.Sums, nil
}

// CheckAt is an entry of the log that has the state summed up.
func CheckAt(index uint64) (*raft.Log, error) {
	data, err := encodeCheck(&conductordv1.StateCheck{})
	return &raft.Log{Index: index, Term: 1, Data: data}, err
}

func newReplica(m *fsm.Machine, g *growth, asked *atomic.Int64) *replica {
	return &replica{machine: m, asked: asked, growth: g, applied: newAppliedGuard(nil, nil), fatal: func(err error) { panic(err) }}
}
