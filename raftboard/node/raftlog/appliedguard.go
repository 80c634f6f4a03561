package raftlog

import (
	"fmt"
	"math"
	"sync/atomic"
)

// appliedGuard keeps raft from removing entries that this node has applied. raft truncates its log
// when a leader of a newer term requests it, and installs any snapshot that a leader sends, even an
// older one. No leader of this cluster requests that: applied entries are committed, and every
// leader has them. So such a request means a fault, and the process ends. It implements
// logstore.Truncations.
type appliedGuard struct {
	applied func() uint64 // the last entry that this node has applied or committed
	sender  func() string // names the node that raft follows as the leader

	// restored is the last entry of the snapshot that was just restored. It
	// replaces the log before it, which raft clears next. 0: none.
	restored atomic.Uint64
	// noted is the last entry of the snapshot of the own state that this node is writing;
	// math.MaxUint64: no snapshot is being written.
	noted atomic.Uint64
}

func newAppliedGuard(applied func() uint64, sender func() string) *appliedGuard {
	a := &appliedGuard{applied: applied, sender: sender}
	a.noted.Store(math.MaxUint64)
	return a
}

// MayCut refuses to remove the log's entries from an index if one of them is applied. all means
// that these are all entries of the log.
func (a *appliedGuard) MayCut(from uint64, all bool) error {
	applied := a.applied()
	if from > applied || (all && a.restored.Load() >= applied) {
		return nil
	}
	return a.refuse(fmt.Sprintf("remove all entries from %d on", from), applied)
}

// Appending records that raft has cleared the log after a snapshot, or had nothing to clear.
func (a *appliedGuard) Appending() { a.restored.Store(0) }

// mayReplace refuses a snapshot of a leader that is older than this node's state.
func (a *appliedGuard) mayReplace(index uint64) error {
	applied := a.applied()
	if index >= applied || index >= a.noted.Load() {
		return nil
	}
	return a.refuse(fmt.Sprintf("go back to a snapshot of entry %d", index), applied)
}

func (a *appliedGuard) refuse(asked string, applied uint64) error {
	return fmt.Errorf("%s told this node to %s, but entries up to %d are committed and applied here: nothing was removed; "+
		"that node is not a leader of this cluster, or has lost data: stop that node before you start this node again", a.sender(), asked, applied)
}
