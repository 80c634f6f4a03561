package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// All nodes hold the same data, so their disks would fill together, and all nodes would end. A
// leader therefore refuses new work while its own disk or another node's disk is short of space.
// Accepted work continues to its end, and retention removes it.
const (
	diskLook = time.Second
	// reserveFile is removed when a node starts on a full disk.
	reserveFile = "reserve"
	// reserveShare is the part of the reserve in that file: enough for a start, a term and the
	// entries of a clean-up.
	reserveShare = 8
	// lookShare: a node checks its disk at once after new work of this fraction of the reserve
	// (1/lookShare).
	lookShare = 16
	// earlyShare: a node warns when it has less than earlyShare times the needed space.
	earlyShare = 2
)

// Disk tracks the free space of this node's disk, and the nodes whose disks are short of space. Its
// methods may be called concurrently.
type Disk struct {
	node      string // name of this node
	dir       string // the data directory
	reserve   int64  // bytes
	snapshots int64  // on the disk: the retained snapshots and the one that is being written
	logger    hclog.Logger
	Machine   *fsm.Machine  // set before watch
	Log       *logstore.Log // set before watch

	free     atomic.Int64  // bytes
	early    atomic.Bool   // less than twice the needed space
	grown    atomic.Int64  // bytes of new work since the last look at the disk
	lookSoon chan struct{} // a signal that there is much new work

	mu      sync.Mutex
	crowded map[string]bool // the nodes known to be short of space; guarded by mu
}

// NewDisk makes the Disk of a node that retains the given number of snapshots in its data
// directory.
func NewDisk(node, dir string, reserve int64, retained int, logger hclog.Logger) *Disk {
	return &Disk{
		node: node, dir: dir, reserve: reserve, snapshots: int64(retained) + 1, logger: logger,
		lookSoon: make(chan struct{}, 1), crowded: map[string]bool{},
	}
}

// note records whether a node's disk is short of space.
func (d *Disk) note(name string, crowded bool) {
	d.mu.Lock()
	changed := d.crowded[name] != crowded
	d.crowded[name] = crowded
	d.mu.Unlock()
	if changed {
		d.logger.Warn("disk space changed", "node", name, "refuses_new_work", crowded)
	}
}

// forget removes the records of nodes that are no longer members.
func (d *Disk) forget(others []transport.Peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.crowded, func(name string, _ bool) bool {
		return name != d.node && !slices.ContainsFunc(others, func(peer transport.Peer) bool { return peer.Name == name })
	})
}

// Free is the free space at the last look.
func (d *Disk) Free() int64 { return d.free.Load() }

// Crowded reports whether this node's disk is short of space.
func (d *Disk) Crowded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crowded[d.node]
}

// MayGrow returns an error while a disk is short of space. bytes is the size of the new work. Much
// new work makes the next check of the disk earlier.
func (d *Disk) MayGrow(bytes int) error {
	if d.grown.Add(int64(bytes)) > d.reserve/lookShare {
		select {
		case d.lookSoon <- struct{}{}:
		default: // signalled already
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, crowded := range d.crowded {
		if crowded {
			return fmt.Errorf("%w: the disk of node %q has too little free space (see disk_reserve): the cluster rejects new work until the disk has more space or finished jobs are removed; "+
				"existing jobs continue", jobs.ErrLimit, name)
		}
	}
	return nil
}

// need is the free space that a node needs to accept new work:
//
//   - half of the reserve for the log, and half for the state, each minus the reusable space
//     in its files;
//   - the snapshots after the state has grown by its half. Without snapshots the
//     log would grow. A snapshot copies the whole file of the state, which never
//     shrinks, so growth counts once for the state and once for each snapshot.
func (d *Disk) need() (int64, error) {
	size, reusable, err := d.Machine.Space()
	kept, err2 := filepath.Glob(filepath.Join(d.dir, "snapshots", "*", "state.bin"))
	half := d.reserve / 2
	growth := max(half-reusable, 0)
	snapshots := d.snapshots * (size + growth)
	for _, path := range kept {
		if file, err := os.Stat(path); err == nil { // otherwise it was just removed
			snapshots -= file.Size()
		}
	}
	return max(half-d.Log.Reusable(), 0) + growth + max(snapshots, 0), errors.Join(err, err2)
}

// GiveUpReserve removes the reserve file, so that a node can start on a full disk.
func (d *Disk) GiveUpReserve() {
	path := filepath.Join(d.dir, reserveFile)
	held, err := os.Stat(path)
	if err != nil {
		return
	}
	if free, err := freeSpace(d.dir); err == nil && free < held.Size() {
		d.logger.Warn("disk full: reserve file removed to start", "bytes", held.Size(), "error", os.Remove(path))
	}
}

// Watch measures the free space of this disk and, while this node leads, asks the peers for theirs.
// It has its own askers, so that its questions do not replace questions of other users. It ends
// with ctx.
func (d *Disk) Watch(ctx context.Context, leads func() bool, peers func() []transport.Peer) {
	look := time.NewTicker(diskLook)
	defer look.Stop()
	for {
		d.look()
		if leads() {
			others := peers()
			d.forget(others)
			for _, peer := range others {
				peer.Ask(func(stands transport.Standing, err error) { d.note(peer.Name, err == nil && stands.Crowded) })
			}
		}
		select {
		case <-look.C:
		case <-d.lookSoon:
		case <-ctx.Done():
			return
		}
	}
}

func (d *Disk) look() {
	free, err := freeSpace(d.dir)
	need, err2 := d.need()
	if err = errors.Join(err, err2); err != nil {
		d.logger.Debug("cannot read the free disk space", "error", err)
		return
	}
	d.free.Store(free)
	d.grown.Store(0)
	if early := free < earlyShare*need; d.early.Swap(early) != early && early {
		d.logger.Warn("disk space low", "free", free, "needed", need, "directory", d.dir)
	}
	d.note(d.node, free < need)
	path, missing := filepath.Join(d.dir, reserveFile), int64(0) // bytes
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		missing = d.reserve / reserveShare
	}
	switch {
	case free < need+missing:
		d.flushState()
	case missing > 0:
		if err := reserveSpace(path, missing); err != nil {
			d.logger.Warn("cannot make the reserve file", "error", errors.Join(err, os.Remove(path)))
		}
	}
}

// flushState flushes the state to its file, so that the space of removed rows
// becomes reusable there.
func (d *Disk) flushState() {
	snapshot, err := d.Machine.Snapshot()
	if err == nil {
		err = snapshot.Close()
	}
	if err != nil {
		d.logger.Debug("cannot flush the state", "error", err)
	}
}
