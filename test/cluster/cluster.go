// Package cluster breaks a cluster on purpose and checks its promises. The nodes run within
// the test's process under testing/synctest, or as real processes.
//
// A Plan makes a list of faults from a seed; the same seed makes the same list.
// A Runner goes through it in rounds: it starts a workload, carries out the
// faults of the round, mends all of them, waits until the jobs have ended, and
// checks. A check that fails ends the run with the seed and the command that
// repeats it.
//
// The checks: the answers to plain clients are linearizable; the ledger, which
// the steps of flows write outside the system, agrees with the logbook; nothing
// acknowledged is missing; every job ends in time; the nodes have equal states.
package cluster

import (
	"context"
	"net"
	"time"
)

// Outside is the place of a program that runs on no node's machine.
const Outside = -1

// Leader means the node that leads when the fault is injected.
const Leader = -2

// Cluster is a number of nodes that can be started and killed. Nodes are counted from
// 0. The runner calls all methods that change the cluster from one goroutine.
type Cluster interface {
	Size() int
	// Endpoints are the API addresses of all nodes.
	Endpoints() []string
	// Dial connects a client at a place, a node's number or Outside, to an
	// address of a node.
	Dial(place int) func(ctx context.Context, network, address string) (net.Conn, error)
	// Start runs a node that does not run. It need not be ready on return.
	Start(i int) error
	// Kill ends a node as SIGKILL does. It does nothing to a stopped node.
	Kill(i int)
	// Running reports whether a node runs. A node that has ended itself does not.
	Running(i int) bool
	// Ended returns the reason why a stopped node has ended itself; nil if it was killed.
	Ended(i int) error
	// Digest returns the digest of a running node's state, and the log index of that state.
	Digest(ctx context.Context, i int) (index uint64, sum [32]byte, err error)
	// Close ends all nodes. The error names their leftovers.
	Close() error
}

// The powers below are optional: a Cluster that has one supports its faults.
type (
	// Pauser stops nodes as SIGSTOP does.
	Pauser interface {
		Pause(i int)
		Resume(i int)
	}
	// Cutter cuts the network in one direction. Bytes in transit wait, and arrive after
	// HealCuts. Both methods may be called concurrently.
	Cutter interface {
		Cut(from, to int)
		HealCuts()
	}
	// Skewer moves the wall clock of one node, at any time, to an offset from
	// the true time.
	Skewer interface {
		Skew(i int, offset time.Duration)
	}
	// Disks make the disk of one node faulty, until DiskNone.
	Disks interface {
		Disk(i int, fault DiskFault)
		DiskFaults() []DiskFault // the possible ones
	}
	// PowerCutter ends a node and drops all its unsynced writes.
	PowerCutter interface {
		PowerCut(i int)
	}
	// Damager damages a file of one node: it kills the node, changes the file, and starts the node
	// again. Repair undoes the damage in the same way. A node that neither starts nor refuses with
	// a message is an error.
	Damager interface {
		Damage(i int, seed uint64) error
		Repair(i int) error
	}
	// BadClients send a node calls that no honest client sends, until ctx ends.
	BadClients interface {
		BadClientKinds() []string
		BadClient(ctx context.Context, i int, kind string)
	}
)

// DiskFault is a fault of a disk.
type DiskFault string

// The faults of a disk. A node that can't trust its disk may end itself.
const (
	DiskNone DiskFault = ""
	DiskSlow DiskFault = "slow" // each sync takes long
	DiskFail DiskFault = "fail" // syncs fail
	DiskHang DiskFault = "hang" // syncs don't return
	DiskFull DiskFault = "full" // there is no space
)
