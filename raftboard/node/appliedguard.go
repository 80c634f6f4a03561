package node

import (
	"fmt"
	"math"
	"sync/atomic"
)

// appliedGuard keeps raft from removing what this node has applied. raft cuts
// its log wherever a leader of a newer term says so, and goes back to any
// snapshot that one sends. No leader of this cluster asks for either: what is
// applied is committed, and every leader has it. So the process ends instead.
type appliedGuard struct {
	applied func() uint64 // up to which entry this node has applied or committed
	sender  func() string // the node that raft takes for the leader

	// restored is the last entry of the snapshot that was just restored, which
	// stands for the log before it: raft clears that next. 0: there is none.
	restored atomic.Uint64
	// noted is the last entry of the state that is being written to a snapshot of
	// this node's own; nothing is: MaxUint64.
	noted atomic.Uint64
}

func newAppliedGuard(applied func() uint64, sender func() string) *appliedGuard {
	a := &appliedGuard{applied: applied, sender: sender}
	a.noted.Store(math.MaxUint64)
	return a
}

// mayCut refuses to remove the end of the log from an entry on. whole: that is all of it.
func (a *appliedGuard) mayCut(from uint64, whole bool) error {
	applied := a.applied()
	if from > applied || (whole && a.restored.Load() >= applied) {
		return nil
	}
	return a.refuse(fmt.Sprintf("remove all entries from %d on", from), applied)
}

// mayReplace refuses a snapshot, sent by a leader, in the place of a newer state.
func (a *appliedGuard) mayReplace(index uint64) error {
	applied := a.applied()
	if index >= applied || index >= a.noted.Load() {
		return nil
	}
	return a.refuse(fmt.Sprintf("go back to a snapshot of entry %d", index), applied)
}

func (a *appliedGuard) refuse(asked string, applied uint64) error {
	err := fmt.Errorf("%s told this node to %s, but entries up to %d are committed and applied here: nothing was removed; "+
		"it is no leader of this cluster, or it has lost data: stop it before you start this node again", a.sender(), asked, applied)
	return err
}
