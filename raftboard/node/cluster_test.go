package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/valuekeys"
)

// patience is the limit for waits on a busy machine.
const patience = 60 * time.Second

// cluster is several nodes in the test's process, with real sockets and disks.
type cluster struct {
	t       *testing.T
	options []node.Options
	nodes   []*node.Node // nil: stopped
}

// newCluster describes a cluster of size nodes; start runs them.
func newCluster(t *testing.T, size int, adjust ...func(*node.Options)) *cluster {
	t.Helper()
	c := &cluster{t: t, nodes: make([]*node.Node, size)}
	var members []node.Member
	addresses := freeAddresses(t, 2*size)
	for i := range size {
		members = append(members, node.Member{Name: fmt.Sprintf("n%d", i+1), Raft: addresses[2*i], API: addresses[2*i+1]})
	}
	dir := t.TempDir()
	for _, member := range members {
		options := node.Options{
			Name: member.Name, Cluster: "test", Members: members, DataDir: filepath.Join(dir, member.Name), Init: true,
			Memory: 8 << 30, // this process has the nodes of many tests
			Logger: hclog.New(&hclog.LoggerOptions{Name: member.Name, Level: hclog.Error, Output: testWriter{t}}),
			Fatal:  func(err error) { t.Errorf("%s cannot continue: %v", member.Name, err) },
		}
		for _, change := range adjust {
			change(&options)
		}
		c.options = append(c.options, options)
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.stop(i)
		}
	})
	return c
}

// The ports of test clusters are below the ephemeral ports of the system, and below the ports
// of package local, whose tests run in parallel. Another process could take such a port while
// a node is down.
const (
	firstPort = 12_000
	portCount = 10_000
)

// ports assigns ports to the tests of this process in turn. No port is assigned twice: nodes of a
// test can be down for seconds, and another test must not take their ports.
var (
	ports     atomic.Int64
	portsFrom = rand.Int64N(portCount)
)

// freeAddresses finds addresses without listeners.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	var addresses []string
	for len(addresses) < n {
		port := firstPort + (portsFrom+ports.Add(1))%portCount
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // taken
		}
		addresses = append(addresses, listener.Addr().String())
		_ = listener.Close()
	}
	return addresses
}

func (c *cluster) start(which ...int) {
	c.t.Helper()
	for _, i := range which {
		opened, err := node.Open(c.options[i])
		if err != nil {
			c.t.Fatalf("cannot open %s: %v", c.options[i].Name, err)
		}
		c.nodes[i] = opened
	}
}

func (c *cluster) startAll() *cluster {
	c.t.Helper()
	for i := range c.nodes {
		c.start(i)
	}
	c.ready()
	return c
}

func (c *cluster) ready() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, running := range c.nodes {
		if running == nil {
			continue
		}
		if err := running.WaitReady(ctx); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) stop(i int) {
	if c.nodes[i] == nil {
		return
	}
	if err := c.nodes[i].Close(); err != nil {
		c.t.Errorf("cannot close %s: %v", c.options[i].Name, err)
	}
	c.nodes[i] = nil
}

// leader is the number of the leading node.
func (c *cluster) leader() int {
	c.t.Helper()
	var leader int
	eventually(c.t, "a node leads", func() bool {
		leader = slices.IndexFunc(c.nodes, func(n *node.Node) bool { return n != nil && n.Leading() })
		return leader >= 0
	})
	return leader
}

func (c *cluster) endpoints() []string {
	var endpoints []string
	for _, member := range c.options[0].Members {
		endpoints = append(endpoints, member.API)
	}
	return endpoints
}

// client dials the given nodes, or all of them.
func (c *cluster) client(which ...int) *raftboard.Client { return c.clientWith(nil, which...) }

// clientWith is a client that encrypts values.
func (c *cluster) clientWith(keys *valuekeys.Keys, which ...int) *raftboard.Client {
	c.t.Helper()
	endpoints := c.endpoints()
	if len(which) > 0 {
		endpoints = nil
		for _, i := range which {
			endpoints = append(endpoints, c.options[i].Members[i].API)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := raftboard.Open(ctx, raftboard.Options{Endpoints: endpoints, ValueKeys: keys})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// lapse returns a function that waits until a session without keep-alives has expired.
func lapse(t *testing.T, client *raftboard.Client) func(jobs.SessionID) {
	return func(id jobs.SessionID) {
		eventually(t, "session "+id.String()+" expires", func() bool {
			sessions, err := client.Sessions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(sessions, func(s jobs.Session) bool { return s.ID == id })
		})
	}
}

// testWriter writes log lines to the test's output.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(line []byte) (int, error) {
	if w.t.Context().Err() == nil { // after its end, the test must not be written to
		w.t.Logf("%s", line)
	}
	return len(line), nil
}

// copyDir copies a data directory.
func copyDir(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		return copyFile(filepath.Join(to, name), path)
	})
}

// Seek constants for the data and the holes of a file on Linux.
const seekData, seekHole = 3, 4

// copyFile copies a file without its holes: the files of raft-wal have 64 MiB and are almost empty.
// Reading all of that is slow under the race detector.
func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	size, err := source.Seek(0, io.SeekEnd)
	if err == nil {
		err = target.Truncate(size)
	}
	for at := int64(0); err == nil && at < size; {
		begin, end := at, size
		if runtime.GOOS == "linux" {
			if begin, err = source.Seek(at, seekData); errors.Is(err, syscall.ENXIO) {
				err = nil // a hole up to the end
				break
			} else if err == nil {
				end, err = source.Seek(begin, seekHole)
			}
		}
		if err == nil {
			_, err = io.Copy(io.NewOffsetWriter(target, begin), io.NewSectionReader(source, begin, end-begin))
		}
		at = end
	}
	return errors.Join(err, target.Close())
}
