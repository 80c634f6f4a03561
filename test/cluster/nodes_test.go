package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/test/cluster"
)

// nodes are a Cluster within the test's process: real nodes with their files, on
// a network and disks that can be faulty.
type nodes struct {
	dir     string
	network *network
	members []node.Member
	place   []*machine
	log     func(place int) hclog.Logger
	ending  sync.WaitGroup // killed nodes that have not ended completely
}

// machine is the place of a node.
type machine struct {
	skew atomic.Int64
	turn chan struct{} // full while a node starts or ends; a mutex would block virtual time

	mu    sync.Mutex
	life  int        // number of nodes that have run here
	node  *node.Node // nil: none runs
	disk  *disk      // of the current node, or of the last one
	dir   string     // of the current node, or of the next one
	ended error
	fault cluster.DiskFault
}

var (
	_ cluster.Cluster     = (*nodes)(nil)
	_ cluster.Pauser      = (*nodes)(nil)
	_ cluster.Cutter      = (*nodes)(nil)
	_ cluster.Skewer      = (*nodes)(nil)
	_ cluster.Disks       = (*nodes)(nil)
	_ cluster.PowerCutter = (*nodes)(nil)
	_ cluster.BadClients  = (*nodes)(nil)
)

func newNodes(dir string, size int, log func(place int) hclog.Logger) *nodes {
	const latency = time.Millisecond
	c := &nodes{dir: dir, network: newNetwork(latency), log: log}
	for i := range size {
		c.members = append(c.members, node.Member{Name: fmt.Sprintf("n%d", i), Raft: fmt.Sprintf("n%d:1", i), API: fmt.Sprintf("n%d:2", i)})
		c.place = append(c.place, &machine{turn: make(chan struct{}, 1)})
	}
	return c
}

func (c *nodes) Size() int { return len(c.place) }

func (c *nodes) Endpoints() []string {
	var endpoints []string
	for _, member := range c.members {
		endpoints = append(endpoints, member.API)
	}
	return endpoints
}

// placeOf is the place with an address.
func (c *nodes) placeOf(where string) int {
	for i, member := range c.members {
		if member.Raft == where || member.API == where {
			return i
		}
	}
	return cluster.Outside
}

func (c *nodes) Dial(place int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, where string) (net.Conn, error) {
		return c.network.dial(ctx, place, c.placeOf(where), where)
	}
}

// options returns the options of the next node at a place.
func (c *nodes) options(i, life int) node.Options {
	m := c.place[i]
	here := func() bool { // a killed node reaches no other
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.life == life
	}
	return node.Options{
		Name: c.members[i].Name, Cluster: "virtual", Members: c.members, DataDir: m.dir, Init: life == 1,
		// Snapshots are so frequent that nodes that were away get one.
		Raft:      node.RaftTimings{SnapshotInterval: 10 * time.Second, SnapshotThreshold: 400, TrailingLogs: 800},
		Sessions:  node.SessionTimings{MaxCrashes: -1},
		Retention: node.Retention{Keep: 5_000}, VerifyInterval: time.Second,
		WallClock: func() time.Time { return time.Now().Add(time.Duration(m.skew.Load())) },
		Logger:    c.log(i),
		System: node.System{
			Listen: func(where string) (net.Listener, error) { return c.network.listen(i, where) },
			Dial: func(ctx context.Context, where string) (net.Conn, error) {
				if !here() {
					return nil, net.ErrClosed
				}
				return c.network.dial(ctx, i, c.placeOf(where), where)
			},
			Log: func(log logstore.Engine) logstore.Engine { return &engine{log, m.disk} },
		},
		// A process would end when Fatal is called; here the caller ends. Only Open can continue:
		// it fails, and closes what it has opened.
		Fatal: func(err error) {
			if opening() {
				return
			}
			c.ending.Go(func() { c.leave(i, life, err, false) })
			runtime.Goexit()
		},
	}
}

// opening returns whether the caller runs within node.Open.
func opening() bool {
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "raftboard/node.Open") || !more {
			return more
		}
	}
}

func (c *nodes) Start(i int) error {
	m := c.place[i]
	life := c.begin(i)
	if life == 0 {
		return nil
	}
	opened, err := node.Open(c.options(i, life))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life != life { // the node has ended itself meanwhile
		if opened != nil {
			c.ending.Go(func() { _ = opened.Close() })
		}
		return m.ended
	}
	m.node = opened
	return err
}

// begin starts the next life of a machine; 0: one is running.
func (c *nodes) begin(i int) (life int) {
	m := c.place[i]
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	c.network.change(func() { c.network.off[i] = false })
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node != nil {
		return 0
	}
	m.life++
	if m.life == 1 {
		m.dir = filepath.Join(c.dir, fmt.Sprintf("n%d", i), "1")
	}
	m.disk, m.ended = newDisk(), nil
	m.disk.set(m.fault)
	return m.life
}

// leave ends a life of a machine: the node reaches no other node, and the next node gets a copy
// of its files.
func (c *nodes) leave(i, life int, why error, powerless bool) {
	m := c.place[i]
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.mu.Lock()
	if m.life != life || m.ended != nil {
		m.mu.Unlock()
		return
	}
	left, files, dir := m.node, m.disk, m.dir
	m.node, m.ended = nil, why
	m.life++
	m.mu.Unlock()
	if powerless {
		c.network.change(func() { c.network.off[i] = true })
	}
	c.network.end(i)
	next := filepath.Join(c.dir, fmt.Sprintf("n%d", i), fmt.Sprint(life+1))
	if err := files.copyTo(dir, next, powerless); err != nil {
		panic("internal error: " + err.Error())
	}
	m.mu.Lock()
	m.dir = next
	m.mu.Unlock()
	c.ending.Go(func() {
		files.set(cluster.DiskNone) // hanging writes continue, in files that are no longer read
		if left != nil {
			_ = left.Close()
		}
		_ = os.RemoveAll(dir)
	})
}

func (c *nodes) kill(i int, powerless bool) {
	m := c.place[i]
	m.mu.Lock()
	life, runs := m.life, m.node != nil
	m.mu.Unlock()
	if runs {
		c.leave(i, life, nil, powerless)
	}
}

func (c *nodes) Kill(i int)     { c.kill(i, false) }
func (c *nodes) PowerCut(i int) { c.kill(i, true) }

func (c *nodes) Running(i int) bool {
	m := c.place[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node != nil
}

func (c *nodes) Ended(i int) error {
	m := c.place[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// Pause stops all traffic of a machine. Unlike in a stopped process, its timers run.
func (c *nodes) Pause(i int)  { c.network.change(func() { c.network.frozen[i] = true }) }
func (c *nodes) Resume(i int) { c.network.change(func() { delete(c.network.frozen, i) }) }

func (c *nodes) Cut(from, to int) {
	c.network.change(func() { c.network.cuts[[2]int{from, to}] = true })
}
func (c *nodes) HealCuts() { c.network.change(func() { clear(c.network.cuts) }) }

func (c *nodes) Skew(i int, offset time.Duration) { c.place[i].skew.Store(int64(offset)) }

func (c *nodes) DiskFaults() []cluster.DiskFault {
	return []cluster.DiskFault{cluster.DiskSlow, cluster.DiskFail, cluster.DiskHang, cluster.DiskFull}
}

func (c *nodes) Disk(i int, fault cluster.DiskFault) {
	m := c.place[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = fault
	if m.disk != nil {
		m.disk.set(fault)
	}
}

func (c *nodes) Digest(_ context.Context, i int) (uint64, [32]byte, error) {
	m := c.place[i]
	m.mu.Lock()
	running := m.node
	m.mu.Unlock()
	if running == nil {
		return 0, [32]byte{}, errors.New("it does not run")
	}
	return running.Digest()
}

// Close ends all nodes. It returns an error if they leave something behind.
func (c *nodes) Close() error {
	var faults []error
	for i, m := range c.place {
		m.mu.Lock()
		left := m.node
		m.node = nil
		m.mu.Unlock()
		if left != nil {
			if err := left.Close(); err != nil {
				faults = append(faults, fmt.Errorf("cannot close node %d: %w", i, err))
			}
		}
		faults = append(faults, leftovers(m.dir))
	}
	c.ending.Wait()
	const idle = 2 * time.Minute // connections of ended calls close within this time
	time.Sleep(idle)
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if open := len(c.network.conns); open > 0 {
		faults = append(faults, fmt.Errorf("%d connections without an owner are open", open))
	}
	return errors.Join(faults...)
}

// leftovers are files that are no longer needed.
func leftovers(dir string) error {
	var left []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".tmp") {
			left = append(left, path)
		}
		return err
	})
	if len(left) > 0 {
		return fmt.Errorf("left behind: %v", left)
	}
	return err
}
