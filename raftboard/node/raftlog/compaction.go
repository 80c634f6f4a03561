package raftlog

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// minTrailingLogs is the number of entries that stay in the log after every snapshot, so that a
// node that was away briefly does not need the snapshot.
const minTrailingLogs = 1_024

// growth counts the bytes of log since the latest retained snapshot. raft itself counts only
// entries, and one entry can contain a thousand jobs: with this count, a node could have gigabytes
// of log to read at its start.
type growth struct {
	atLeast int64         // maximum bytes of log without a due snapshot, for the smallest state
	due     chan struct{} // a snapshot may be due; with a buffer of one

	index atomic.Uint64 // the last entry of the latest snapshot; written under mu
	mu    sync.Mutex
	state int64 // bytes of that snapshot; guarded by mu
	log   int64 // bytes applied after it; guarded by mu
}

func newGrowth(atLeast int64) *growth {
	return &growth{atLeast: atLeast, due: make(chan struct{}, 1)}
}

// applied counts entries.
func (g *growth) applied(logs []*raft.Log) {
	size := int64(0)
	for _, log := range logs {
		size += int64(len(log.Data))
	}
	g.mu.Lock()
	g.log += size
	g.mu.Unlock()
	g.remind()
}

// outgrown reports whether a snapshot is due: when the log is more than half as long as the state.
// So the snapshots of a state of constant size write twice as many bytes as the log. A starting
// node spends about the same time on applying the log as on loading the snapshot, which takes at
// most half as long per byte.
func (g *growth) outgrown() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log > max(g.atLeast, g.state/2)
}

// remind signals due if a snapshot is due.
func (g *growth) remind() {
	if !g.outgrown() {
		return
	}
	signal(g.due)
}

// snapshot is the last entry of the latest snapshot, and its size; 0 if there is none.
func (g *growth) snapshot() (index, size uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.index.Load(), uint64(g.state)
}

// passed returns the bytes of log up to now.
func (g *growth) passed() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log
}

// keep records that a snapshot of some size has the state up to an index, and replaces the log up
// to it. A snapshot older than the latest changes nothing.
func (g *growth) keep(index uint64, size, passed int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if index >= g.index.Load() {
		g.index.Store(index)
		g.state, g.log = size, max(g.log-passed, 0)
	}
}

// restored records that the state comes from a snapshot of the given size.
func (g *growth) restored(index uint64, size int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.index.Store(index)
	g.state, g.log = size, 0
}

// sized counts the bytes that are read.
type sized struct {
	io.ReadCloser
	read int64
}

func (s *sized) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.read += int64(n)
	return n, err
}

// Compact takes a snapshot whenever the log has outgrown the last one. It ends with ctx.
func (g *Group) Compact(ctx context.Context) {
	for {
		select {
		case <-g.growth.due:
		case <-ctx.Done():
			return
		}
		if !g.growth.outgrown() { // signalled while the last one was written
			continue
		}
		if err := g.takeSnapshot(); err != nil && ctx.Err() == nil {
			g.logger.Warn("cannot take a snapshot", "error", err)
		}
		pause := time.NewTimer(g.interval)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		g.growth.remind() // tries again after a failure
	}
}

// takeSnapshot takes a snapshot. It keeps at least the entries since the previous one, in case the
// new one is damaged, but no more than raft would keep. This number applies only to this snapshot.
func (g *Group) takeSnapshot() error {
	running := g.running.Load()
	usual := running.ReloadableConfig()
	fewer := usual
	since := g.machine.AppliedIndex() - min(g.machine.AppliedIndex(), g.growth.index.Load())
	fewer.TrailingLogs = min(usual.TrailingLogs, max(2*since, minTrailingLogs))
	if err := running.ReloadConfig(fewer); err != nil {
		return err
	}
	err := running.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) || errors.Is(err, raft.ErrRaftShutdown) {
		err = nil
	}
	return errors.Join(err, running.ReloadConfig(usual))
}
