package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// All nodes hold the same, so their disks would be full at the same time, and
// all would end. A leader takes nothing new before that: neither while its own
// disk is short of space nor while another node says so of its own. What is
// there goes on, ends, and is removed in time.
const (
	defaultDiskReserve = 256 << 20
	diskLook           = time.Second
	// reserveFile is given up by a node that starts on a full disk.
	reserveFile = "reserve"
	// reserveShare of the reserve is in that file: enough for a start, a term and
	// the entries of a clean-up.
	reserveShare = 8
	// lookShare of the reserve may be posted between two looks.
	lookShare = 16
	// earlyShare: a node warns when it has less than so many times what it needs.
	earlyShare = 2
	// snapshotsOnDisk is one more than stays, while it is written.
	snapshotsOnDisk = snapshotsRetained + 1
)

// diskNeed is how much free space a node needs to accept something new: half of
// the reserve for the log and as much for the state, less what their files can use
// again; and what its snapshots take once the state has grown by its share, for
// without them the log would grow. The state's file never shrinks and a snapshot
// copies all of it, so every byte that the state grows while new work is refused
// is lost once for the state and once for each snapshot.
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
	return max(half-n.log.reusable(), 0) + growth + max(snapshots, 0), errors.Join(err, err2)
}

// giveUpReserve makes room for the start on a disk that is full.
func (n *Node) giveUpReserve() {
	path := filepath.Join(n.options.DataDir, reserveFile)
	held, err := os.Stat(path)
	if err != nil {
		return
	}
	if free, err := freeSpace(n.options.DataDir); err == nil && free < held.Size() {
		n.logger.Warn("the disk is full: gives up its reserve file to start", "bytes", held.Size(), "error", os.Remove(path))
	}
}

// watchDisk looks after the space on disk until ctx ends.
func (n *Node) watchDisk(ctx context.Context) {
	peers := n.newAskers(n.told) // of its own: a question here must not replace another's
	defer peers.close()
	look := time.NewTicker(diskLook)
	defer look.Stop()
	for {
		n.lookAtDisk()
		if n.Leading() {
			for i, member := range n.peers() {
				peers[i].ask(func(stands standing, err error) { n.noteSpace(member.Name, err == nil && stands.crowded) })
			}
		}
		select {
		case <-look.C:
		case <-n.lookSoon:
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
	n.diskFree.Store(free)
	n.grown.Store(0)
	if early := free < earlyShare*need; n.diskEarly.Swap(early) != early && early {
		n.logger.Warn("the disk gets short of space", "free", free, "needed", need, "directory", n.options.DataDir)
	}
	if n.noteSpace(n.options.Name, free < need); free < need {
		n.flushState()
	}
	path, reserved := filepath.Join(n.options.DataDir, reserveFile), n.options.DiskReserve/reserveShare
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && free-reserved > need {
		if err := reserveSpace(path, reserved); err != nil {
			n.logger.Warn("cannot make the reserve file", "error", errors.Join(err, os.Remove(path)))
		}
	}
}

// flushState has what was removed be free in the state's file: it may have been
// removed in memory only.
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
	n.mu.Lock()
	_, before := n.crowded[name]
	if delete(n.crowded, name); crowded {
		n.crowded[name] = struct{}{}
	}
	n.mu.Unlock()
	if before != crowded {
		n.logger.Warn("space on disk", "node", name, "new work is refused", crowded)
	}
}

// mayGrow is an error while there is no space for anything new, of some bytes.
func (n *Node) mayGrow(bytes int) error {
	if n.grown.Add(int64(bytes)) > n.options.DiskReserve/lookShare {
		select {
		case n.lookSoon <- struct{}{}:
		default: // it is known already
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.crowded {
		return fmt.Errorf("%w: the disk of node %q is short of space (see disk_reserve): nothing new is accepted until there is more or finished jobs are removed; "+
			"what is there goes on", jobs.ErrLimit, name)
	}
	return nil
}

// grows tells whether a command brings something new.
func grows(c *conductordv1.Command) bool {
	switch c.GetKind().(type) {
	case *conductordv1.Command_Post, *conductordv1.Command_SaveBook, *conductordv1.Command_CreateBoard,
		*conductordv1.Command_SaveSchedule, *conductordv1.Command_RunSchedule, *conductordv1.Command_BackfillSchedule:
		return true
	}
	return false
}
