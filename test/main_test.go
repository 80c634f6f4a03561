package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/raftboard"
)

// patience is the limit for waits on a busy machine.
const patience = 90 * time.Second

// binary is the conductord executable that all tests run.
var binary string

// atOnce is the number of parallel tests. They usually wait for processes, clocks and disks.
const atOnce = 4

func TestMain(m *testing.M) {
	longtest.AtOnce(atOnce)
	dir, err := os.MkdirTemp("", "conductord-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "conductord")
	_ = os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config")) // without the profiles of who runs the tests
	status := 1
	if err := local.Build(context.Background(), binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// startCluster runs three nodes as processes until the end of the test.
func startCluster(t *testing.T, configure func(*config.Config)) (*local.Cluster, *raftboard.Client) {
	t.Helper()
	cluster := newCluster(t, configure)
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	client, err := raftboard.Dial(ctx, cluster.Endpoints()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return cluster, client
}

func newCluster(t *testing.T, configure func(*config.Config)) *local.Cluster {
	t.Helper()
	return newClusterOf(t, 3, configure)
}

func newClusterOf(t *testing.T, nodes int, configure func(*config.Config)) *local.Cluster {
	t.Helper()
	cluster, err := local.New(local.Options{Nodes: nodes, Binary: binary, Dir: t.TempDir(), Configure: configure, Addresses: freeAddresses})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cluster.Close()
		if t.Failed() {
			showLogs(t, cluster)
		}
	})
	return cluster
}

// showLogs writes the end of each node's log to the test's output.
func showLogs(t *testing.T, cluster *local.Cluster) {
	const enough = 4 << 10
	for _, node := range cluster.Nodes {
		data, err := os.ReadFile(node.Log)
		if err != nil {
			continue
		}
		t.Logf("the end of the log of %s:\n%s", node.Name, data[max(0, len(data)-enough):])
	}
}

// within returns a context that ends with the test, or after patience.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// writeHandler makes an executable POSIX shell script.
func writeHandler(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// leaderOf asks the nodes for the leader.
func leaderOf(t *testing.T, cluster *local.Cluster, client *raftboard.Client) *local.Node {
	t.Helper()
	var leader *local.Node
	eventually(t, "a node leads", func() bool {
		for _, node := range cluster.Nodes {
			if !node.Running() {
				continue
			}
			status, err := client.Status(t.Context(), node.API)
			if err != nil {
				continue
			}
			if found, ok := cluster.Node(status.Leader); ok && found.Running() {
				leader = found
				return true
			}
		}
		return false
	})
	return leader
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// startDev runs a cluster of one node with `conductord dev`, and returns its address.
func startDev(t *testing.T) string {
	t.Helper()
	address := freeAddress(t)
	var said bytes.Buffer
	dev := exec.Command(binary, "dev", "--api-listen", address, "--data-dir", t.TempDir())
	dev.Stdout, dev.Stderr = &said, &said
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = dev.Process.Signal(syscall.SIGTERM)
		if err := dev.Wait(); err != nil {
			t.Errorf("dev did not stop well: %v\n%s", err, said.String())
		}
	})
	devReady(t, address)
	return address
}

// devReady waits until the node of dev is ready, and until its conductor, which starts later, has
// called the node. The metrics show this.
func devReady(t *testing.T, address string) {
	t.Helper()
	eventually(t, "dev is ready", func() bool {
		answer, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	eventually(t, "the conductor of dev runs", func() bool {
		text, err := get(t, "http://"+address+"/metrics")
		return err == nil && strings.Contains(text, "\nconductord_conductor_steps ") && strings.Contains(text, "\nconductord_call_duration_seconds_")
	})
}

// freeAddress returns a loopback address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	addresses, err := freeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return addresses[0]
}

// The ports of these tests are below the ports of packages nodetest, node and local, whose tests
// run in parallel.
const (
	firstPort = 7_000
	portCount = 3_000
)

// ports assigns ports to the tests of this process in turn. No port is assigned twice: nodes of a
// test can be down for seconds, and another test must not take their ports.
var (
	ports     atomic.Int64
	portsFrom = rand.Int64N(portCount)
)

// freeAddresses finds loopback addresses without listeners.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range portCount {
		if len(addresses) == n {
			return addresses, nil
		}
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+(portsFrom+ports.Add(1))%portCount)
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue // taken
		}
		addresses = append(addresses, address)
		_ = listener.Close()
	}
	return nil, errors.New("no port is free")
}
