package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/transport"
)

// All nodes hold the same data, so their disks would fill at the same time, and
// all nodes would end. A leader therefore refuses new work while its own disk or
// another node's is short of space. Work that was accepted goes on, ends, and is
// removed by retention.
const (
	defaultDiskReserve = 256 << 20
	diskLook           = time.Second
	// reserveFile is removed by a node that starts on a full disk.
	reserveFile = "reserve"
	// reserveShare of the reserve is in that file: enough for a start, a term and
	// the entries of a clean-up.
	reserveShare = 8
	// lookShare: a node looks at once when one part in so many of the reserve was posted since.
	lookShare = 16
	// earlyShare: a node warns when it has less than so many times what it needs.
	earlyShare = 2
	// snapshotsOnDisk counts the retained snapshots and the one that is being written.
	snapshotsOnDisk = snapshotsRetained + 1
)

// diskSpace is what a node knows of the space on its disk and on the others'. Its
// methods may be called concurrently.
type diskSpace struct {
	free     atomic.Int64  // bytes
	early    atomic.Bool   // less than twice what is needed
	grown    atomic.Int64  // bytes of new work since the last look at the disk
	lookSoon chan struct{} // holds one signal: there is much new work

	mu      sync.Mutex
	crowded map[string]bool // the nodes known to be short of space; under mu
}

func newDiskSpace() *diskSpace {
	return &diskSpace{lookSoon: make(chan struct{}, 1), crowded: map[string]bool{}}
}

// note records whether a node's disk is short of space, and reports whether that is new.
func (d *diskSpace) note(name string, crowded bool) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed = d.crowded[name] != crowded
	d.crowded[name] = crowded
	return changed
}

func (d *diskSpace) isCrowded(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crowded[name]
}

// grow counts new work, and asks for an early look at the disk after a lot of it.
func (d *diskSpace) grow(bytes int, reserve int64) {
	if d.grown.Add(int64(bytes)) > reserve/lookShare {
		select {
		case d.lookSoon <- struct{}{}:
		default: // a look is due already
		}
	}
}

// mayGrow returns an error while a disk is short of space.
func (d *diskSpace) mayGrow() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, crowded := range d.crowded {
		if crowded {
			return fmt.Errorf("%w: the disk of node %q is short of space (see disk_reserve): nothing new is accepted until there is more or finished jobs are removed; "+
				"what is there goes on", jobs.ErrLimit, name)
		}
	}
	return nil
}

// diskNeed is the free space that a node needs to accept new work:
//
//   - half of the reserve for the log, and half for the state, each less what its
//     files can use again;
//   - the snapshots after the state has grown by its half. Without snapshots the
//     log would grow. A snapshot copies the whole file of the state, which never
//     shrinks, so growth counts once for the state and once for each snapshot.
func (n *Node) diskNeed() (int64, error) {
	size, reusable, err := n.machine.Space()
	kept, err2 := filepath.Glob(filepath.Join(n.options.DataDir, "snapshots", "*", "state.bin"))
	half := n.options.DiskReserve / 2
	growth := max(half-reusable, 0)
	snapshots := snapshotsOnDisk * (size + growth)
	for _, path := range kept {
		if file, err := os.Stat(path); err == nil { // else it was removed just now
			snapshots -= file.Size()
		}
	}
	return max(half-n.log.Reusable(), 0) + growth + max(snapshots, 0), errors.Join(err, err2)
}

// giveUpReserve removes the reserve file, so that a node can start on a full disk.
func (n *Node) giveUpReserve() {
	path := filepath.Join(n.options.DataDir, reserveFile)
	held, err := os.Stat(path)
	if err != nil {
		return
	}
	if free, err := freeSpace(n.options.DataDir); err == nil && free < held.Size() {
		n.logger.Warn("disk full: reserve file removed to start", "bytes", held.Size(), "error", os.Remove(path))
	}
}

// watchDisk looks at the free space of all disks until ctx ends.
func (n *Node) watchDisk(ctx context.Context) {
	peers := n.newAskers(n.told) // of its own: a question here must not replace another's
	defer peers.Close()
	look := time.NewTicker(diskLook)
	defer look.Stop()
	for {
		n.lookAtDisk()
		if n.Leading() {
			for i, member := range n.peers() {
				peers[i].Ask(func(stands transport.Standing, err error) { n.noteSpace(member.Name, err == nil && stands.Crowded) })
			}
		}
		select {
		case <-look.C:
		case <-n.disk.lookSoon:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) lookAtDisk() {
	free, err := freeSpace(n.options.DataDir)
	need, err2 := n.diskNeed()
	if err = errors.Join(err, err2); err != nil {
		n.logger.Debug("cannot look at the space on disk", "error", err)
		return
	}
	n.disk.free.Store(free)
	n.disk.grown.Store(0)
	if early := free < earlyShare*need; n.disk.early.Swap(early) != early && early {
		n.logger.Warn("disk space low", "free", free, "needed", need, "directory", n.options.DataDir)
	}
	n.noteSpace(n.options.Name, free < need)
	path, missing := filepath.Join(n.options.DataDir, reserveFile), int64(0) // bytes
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		missing = n.options.DiskReserve / reserveShare
	}
	switch {
	case free < need+missing:
		n.flushState()
	case missing > 0:
		if err := reserveSpace(path, missing); err != nil {
			n.logger.Warn("cannot make the reserve file", "error", errors.Join(err, os.Remove(path)))
		}
	}
}

// flushState flushes the state to its file, so that the space of removed rows
// becomes reusable there.
func (n *Node) flushState() {
	snapshot, err := n.machine.Snapshot()
	if err == nil {
		err = snapshot.Close()
	}
	if err != nil {
		n.logger.Debug("cannot flush the state", "error", err)
	}
}

// noteSpace notes whether a node's disk is short of space.
func (n *Node) noteSpace(name string, crowded bool) {
	if n.disk.note(name, crowded) {
		n.logger.Warn("disk space changed", "node", name, "refuses_new_work", crowded)
	}
}

// mayGrow returns an error while a disk is short of space. bytes is the size of
// the new work.
func (n *Node) mayGrow(bytes int) error {
	n.disk.grow(bytes, n.options.DiskReserve)
	return n.disk.mayGrow()
}

// grows reports whether a command brings new work.
func grows(c *conductordv1.Command) bool {
	switch c.GetKind().(type) {
	case *conductordv1.Command_Post, *conductordv1.Command_SaveBook, *conductordv1.Command_CreateBoard,
		*conductordv1.Command_SaveSchedule, *conductordv1.Command_RunSchedule, *conductordv1.Command_BackfillSchedule:
		return true
	}
	return false
}
