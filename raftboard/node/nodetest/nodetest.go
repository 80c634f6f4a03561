// Package nodetest runs a whole cluster in the process of a test: nodes with raft, real sockets and
// disks, in a temporary directory and on free addresses. Use it for tests of programs that must see
// elections, expiries and the loss of nodes. Other tests are faster with package boardtest, which
// has one node, without raft and without a network.
package nodetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

const (
	// memory is a budget above the heap of a test's process, because the whole heap counts for each
	// node.
	memory = 4 << 30
	// startTime limits the time until a cluster is ready: about a second, and far more on a busy
	// machine.
	startTime = time.Minute
	maxNodes  = 9
	// The ports are below the ephemeral ports of the system, and differ from the ports of other
	// packages' tests.
	firstPort, lastPort = 10_000, 12_000
	portTries           = 1_000
)

// Cluster is a cluster of nodes in this process. Its methods are not for concurrent use.
type Cluster struct {
	Client    *raftboard.Client // connected to all nodes
	Endpoints []string          // API address of each node

	dir     string
	options []node.Options
	nodes   []*node.Node // nil: stopped
}

// New starts a cluster with a number of nodes, and closes it when the test ends.
func New(t testing.TB, nodes int) *Cluster {
	t.Helper()
	c, err := open(nodes, func(err error) { t.Errorf("a node cannot continue: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Open starts a cluster of 1 to 9 nodes, and returns when all are ready. Close it.
func Open(nodes int) (*Cluster, error) { return open(nodes, nil) }

func open(nodes int, fatal func(error)) (*Cluster, error) {
	c := &Cluster{}
	if err := c.open(nodes, fatal); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start a cluster of %d nodes: %w", nodes, err), c.Close())
	}
	return c, nil
}

func (c *Cluster) open(nodes int, fatal func(error)) (err error) {
	if nodes < 1 || nodes > maxNodes {
		return fmt.Errorf("there must be 1 to %d", maxNodes)
	}
	if c.dir, err = os.MkdirTemp("", "nodetest"); err != nil {
		return err
	}
	addresses, err := freeAddresses(2 * nodes)
	if err != nil {
		return err
	}
	var members []node.Member
	for i := range nodes {
		members = append(members, node.Member{Name: fmt.Sprintf("n%d", i+1), Raft: addresses[2*i], API: addresses[2*i+1]})
		c.Endpoints = append(c.Endpoints, members[i].API)
	}
	var timings node.RaftTimings
	if nodes == 1 {
		timings.Heartbeat = 100 * time.Millisecond // a single node waits for no other
	}
	c.nodes = make([]*node.Node, nodes)
	for i, member := range members {
		c.options = append(c.options, node.Options{
			Name: member.Name, Cluster: "test", Members: members, DataDir: filepath.Join(c.dir, member.Name), Init: true,
			Raft: timings, Fatal: fatal,
			Memory: memory,
		})
		if err := c.Start(i); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for _, n := range c.nodes {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	c.Client, err = raftboard.Dial(ctx, c.Endpoints...)
	return err
}

// Stop stops a node, counted from 0. Its data is kept.
func (c *Cluster) Stop(i int) error {
	stopped := c.nodes[i]
	if stopped == nil {
		return nil
	}
	c.nodes[i] = nil
	return stopped.Close()
}

// Start starts a node that was stopped. It does not wait until the node is ready.
func (c *Cluster) Start(i int) (err error) {
	if c.nodes[i] == nil {
		c.nodes[i], err = node.Open(c.options[i])
		c.options[i].Init = false
	}
	return err
}

// Close ends the client and all nodes, and removes their data. Closing twice is harmless.
func (c *Cluster) Close() error {
	if c.Client != nil {
		c.Client.Close()
	}
	var errs []error
	for i := range c.nodes {
		errs = append(errs, c.Stop(i))
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// freeAddresses finds addresses without a listener. It holds each address until all are found, so
// that they differ.
func freeAddresses(n int) (addresses []string, err error) {
	for tries := 0; len(addresses) < n; tries++ {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort)))
		if err != nil {
			if tries >= portTries {
				return nil, fmt.Errorf("cannot find %d free ports: %w", n, err)
			}
			continue // taken
		}
		defer func() { _ = listener.Close() }()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
