//go:build linux

package processes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/test/cluster"
)

// InTheLab is a cluster of processes with its own network and disks. In addition to Processes,
// it can cut the network and the power, and fill the disks.
type InTheLab struct {
	*Processes
	disks []*disk
}

// NewInLab makes the network and disks of a cluster; EnterLab first. Close it.
func NewInLab(o Options) (*InTheLab, error) {
	const raftPort, apiPort = 7000, 7070
	if err := furnish(); err != nil {
		return nil, err
	}
	var members []config.Member
	for i := range max(o.Size, 3) {
		members = append(members, config.Member{
			Name: fmt.Sprintf("node%d", i+1), Raft: fmt.Sprintf("%s:%d", addressOf(i), raftPort), API: fmt.Sprintf("%s:%d", addressOf(i), apiPort),
		})
	}
	configure := o.Configure
	o.Configure = func(c *config.Config) {
		c.DiskReserve = 128 << 20 // an empty node needs 2.5 times that, and 64 MiB with wal, of diskBytes
		c.Cluster.Members = members
		c.Insecure = true // only the lab reaches its network
		if configure != nil {
			configure(c)
		}
	}
	p, err := New(o)
	if err != nil {
		return nil, err
	}
	l := &InTheLab{Processes: p}
	for i, node := range p.nodes.Nodes {
		node.Raft, node.API = members[i].Raft, members[i].API
		at, err := newPlace(i)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		p.places = append(p.places, at)
		p.say(i, "enter", at.enter())
		d, err := newDisk(filepath.Join(o.Dir, node.Name+".image"), node.DataDir)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.disks = append(l.disks, d)
	}
	return l, nil
}

// Cut drops what one node, or a program outside, sends to another.
func (l *InTheLab) Cut(from, to int) {
	address := bridge
	if from != cluster.Outside {
		address = addressOf(from)
	}
	if to == cluster.Outside {
		panic("the harness does not work: a cut towards the outside")
	}
	must(l.places[to].deafTo(address))
}

// HealCuts mends all cuts.
func (l *InTheLab) HealCuts() {
	for _, at := range l.places {
		must(at.hear())
	}
}

// Disk makes a node's disk faulty; a full one has no block free.
func (l *InTheLab) Disk(i int, fault cluster.DiskFault) {
	if fault == cluster.DiskFull {
		must(l.disks[i].fill())
		return
	}
	must(l.disks[i].free())
	l.Processes.Disk(i, fault)
}

// DiskFaults are all.
func (l *InTheLab) DiskFaults() []cluster.DiskFault {
	return append(l.Processes.DiskFaults(), cluster.DiskFull)
}

// PowerCut ends a node and its steps, and drops its unsynced writes.
func (l *InTheLab) PowerCut(i int) {
	l.Pause(i)
	l.awaitPause(i)
	must(l.disks[i].lose())
	l.Kill(i)
	for _, pid := range l.places[i].inhabitants() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	const enough = 10 * time.Second // for the last of them to be gone from the disk
	for tries := time.Now().Add(enough); ; time.Sleep(20 * time.Millisecond) {
		err := l.disks[i].renew()
		if err == nil {
			return
		}
		if time.Now().After(tries) {
			must(err)
		}
	}
}

// awaitPause waits until no thread of a node runs. A signal to stop takes a
// moment, in which a thread would see that its disk is gone, and report it.
func (l *InTheLab) awaitPause(i int) {
	const enough = time.Second
	for began := time.Now(); time.Since(began) < enough; time.Sleep(time.Millisecond) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", l.nodes.Nodes[i].PID()))
		if !slices.ContainsFunc(threads, runs) {
			return
		}
	}
}

// runs reports whether a thread may still run code of its program. A thread that waits for a
// disk (D) stops before it runs again.
func runs(stat string) bool {
	text, err := os.ReadFile(stat)
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && (strings.HasPrefix(state, "R") || strings.HasPrefix(state, "S"))
}

// Close ends all nodes and takes the lab down.
func (l *InTheLab) Close() error {
	err := l.Processes.Close()
	for _, at := range l.places {
		at.leave()
	}
	for _, d := range l.disks {
		// The data stay readable in the image.
		if detached := d.detach(); detached != nil {
			err = errors.Join(err, detached)
		}
	}
	return err
}

// join moves the calling goroutine's thread into the namespace. The thread ends
// with the goroutine.
func (p *place) join() error {
	runtime.LockOSThread()
	file, err := os.Open(p.namespace())
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
}
