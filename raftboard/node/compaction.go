package node

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// defaultSnapshotBytes is how many bytes of new log make a snapshot due, on a
// small state: a node applies that much in a second or two when it starts.
const defaultSnapshotBytes = 64 << 20

// minTrailingLogs stay behind every snapshot, so that a node which was away
// for a moment needs none.
const minTrailingLogs = 1_024

// growth counts how much log there is behind the latest snapshot. raft itself
// counts entries only, and one entry can hold a thousand jobs: by its own
// measure a node could have gigabytes of log to read when it starts.
type growth struct {
	atLeast int64         // bytes of log that make no snapshot due on the smallest state
	due     chan struct{} // a snapshot is due; holds one

	state atomic.Int64  // bytes of the latest snapshot
	log   atomic.Int64  // bytes applied since it was taken
	index atomic.Uint64 // of its last entry
}

func newGrowth(atLeast int64) *growth {
	return &growth{atLeast: atLeast, due: make(chan struct{}, 1)}
}

// applied counts entries. A snapshot is due once the log has outgrown the state:
// so all snapshots together write no more than twice what the log does, and a
// node that starts applies no more than it loads.
func (g *growth) applied(logs []*raft.Log) {
	size := int64(0)
	for _, log := range logs {
		size += int64(len(log.Data))
	}
	if g.log.Add(size) > max(g.atLeast, g.state.Load()) {
		select {
		case g.due <- struct{}{}:
		default: // it is known already
		}
	}
}

// snapshot notes that the state is in a snapshot, of some size, up to an index.
func (g *growth) snapshot(index uint64, size int64) {
	g.index.Store(index)
	g.state.Store(size)
	g.log.Store(0)
}

// sized counts what is read.
type sized struct {
	io.ReadCloser
	read int64
}

func (s *sized) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.read += int64(n)
	return n, err
}

// compact takes a snapshot whenever the log has grown by so much. It ends with ctx.
func (n *Node) compact(ctx context.Context) {
	for {
		select {
		case <-n.growth.due:
		case <-ctx.Done():
			return
		}
		if err := n.compactNow(); err != nil && ctx.Err() == nil {
			n.logger.Warn("cannot take a snapshot though the log has grown; trying again later", "error", err)
		}
		pause := time.NewTimer(n.options.Raft.SnapshotInterval)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// compactNow takes a snapshot, and leaves as many entries behind it as reach
// back to the one before, which is kept in case this one is damaged, and no more
// than raft would leave. How many those are is set for this snapshot alone.
func (n *Node) compactNow() error {
	usual := n.raft.ReloadableConfig()
	fewer := usual
	since := n.machine.AppliedIndex() - min(n.machine.AppliedIndex(), n.growth.index.Load())
	fewer.TrailingLogs = min(usual.TrailingLogs, max(2*since, minTrailingLogs))
	if err := n.raft.ReloadConfig(fewer); err != nil {
		return err
	}
	err := n.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) || errors.Is(err, raft.ErrRaftShutdown) {
		err = nil
	}
	return errors.Join(err, n.raft.ReloadConfig(usual))
}
