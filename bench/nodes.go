package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/measure"
)

const (
	// settling is the time in which freed memory returns to the system after the work.
	settling = 3 * time.Second
	// restartPatience is the maximum time until a restarted node is ready.
	restartPatience = 5 * time.Minute
	// The parts of a data directory other than the state.
	boltLog     = "raft.db"
	walLog      = "raft-wal"
	snapshotDir = "snapshots"
)

// idle measures idle nodes.
func (b *bench) idle(ctx context.Context, c *cluster, what string) {
	err := wait(ctx, b.o.settle)
	if err == nil {
		err = b.idleFor(ctx, c, what)
	}
	if err != nil {
		b.report.fail("idle, %s: %v", what, err)
	}
}

func (b *bench) idleFor(ctx context.Context, c *cluster, what string) error {
	index, err := c.index(ctx)
	if err != nil {
		return err
	}
	began, before := time.Now(), []time.Duration{}
	for _, node := range c.processes.Nodes {
		used, ok := measure.ReadCPU(node.PID())
		if !ok {
			return errors.New("this system does not tell what a process uses")
		}
		before = append(before, used)
	}
	if err := wait(ctx, b.o.Idle); err != nil {
		return err
	}
	var shares []float64
	for i, node := range c.processes.Nodes {
		used, _ := measure.ReadCPU(node.PID())
		const percent = 100
		shares = append(shares, percent*measure.Share((used-before[i]).Seconds(), time.Since(began).Seconds()))
	}
	after, err := c.index(ctx)
	if err != nil {
		return err
	}
	little, none := atMost("", 1, nil), atMost("", 0, nil)
	b.report.figure("idle processor time "+what, "% of one", &little, shares...)
	b.report.figure(fmt.Sprintf("log entries in %s idle, %s", b.o.Idle, what), "", &none, float64(after-index))
	return nil
}

// index is the cluster's commit index.
func (c *cluster) index(ctx context.Context) (uint64, error) {
	leader, err := c.leader(ctx)
	if err != nil {
		return 0, err
	}
	status, err := c.client.Status(ctx, leader.API)
	return status.CommitIndex, err
}

// memory measures the resources of nodes that hold the jobs.
func (b *bench) memory(ctx context.Context, c *cluster) {
	if err := wait(ctx, b.o.settle); err != nil {
		return
	}
	var anonymous, resident, state, log, perJob []float64
	for _, node := range c.processes.Nodes {
		memory := measure.ReadMemory(node.PID())
		anonymous, resident = append(anonymous, mebibytes(memory.Anonymous)), append(resident, mebibytes(memory.Resident))
		sizes, err := sizesOf(node.DataDir)
		if err != nil {
			b.report.fail("cannot see what %s takes up: %v", node.Name, err)
			return
		}
		const kibi = 1 << 10
		state, log = append(state, mebibytes(sizes.state)), append(log, mebibytes(sizes.log))
		perJob = append(perJob, sizes.state/kibi/float64(b.o.Fill))
	}
	with := fmt.Sprintf(" with %d jobs", b.o.Fill)
	small, lean := atMost("", 400, nil), atMost("", 3, nil)
	b.report.figure("memory of a node beyond mapped files"+with, "MiB", &small, anonymous...)
	b.report.figure("memory of a node in all"+with, "MiB", nil, resident...)
	b.report.figure("file of the state"+with, "MiB", nil, state...)
	b.report.figure("the same for each job", "KiB", &lean, perJob...)
	b.report.figure("file of raft's log"+with, "MiB", nil, log...)
}

// sizes are the sizes of a data directory's parts, in bytes.
type sizes struct{ state, log, snapshots float64 }

// sizesOf adds the sizes of the files: the state is everything except raft's log and snapshots.
func sizesOf(dataDir string) (sizes, error) {
	var s sizes
	err := filepath.WalkDir(dataDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the file was replaced meanwhile
		}
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dataDir, path)
		if err != nil {
			return err
		}
		size := float64(info.Size())
		switch first, _, _ := strings.Cut(filepath.ToSlash(below), "/"); first {
		case snapshotDir:
			s.snapshots += size
		case boltLog, walLog:
			s.log += size
		default:
			s.state += size
		}
		return nil
	})
	return s, err
}

// restart restarts a node that does not lead, and measures the time until it is ready again.
func (b *bench) restart(ctx context.Context, c *cluster) {
	var took, anonymous []float64
	for range b.o.Restarts {
		one, memory, err := b.restartFollower(ctx, c)
		if err != nil {
			b.report.fail("cannot restart a node: %v", err)
			break
		}
		took, anonymous = append(took, one.Seconds()), append(anonymous, mebibytes(memory.Anonymous))
	}
	if len(took) > 0 {
		soon, small := atMost("", 20, nil), atMost("", 400, nil)
		b.report.figure(fmt.Sprintf("start of a node with %d jobs, to ready, from a snapshot", b.o.Fill), "s", &soon, took...)
		b.report.figure("its memory beyond mapped files then", "MiB", &small, anonymous...)
	}
}

// restartFollower returns the start time of the node, and its memory after settling.
func (b *bench) restartFollower(ctx context.Context, c *cluster) (time.Duration, measure.Memory, error) {
	ctx, cancel := context.WithTimeout(ctx, restartPatience)
	defer cancel()
	leader, err := c.leader(ctx)
	if err != nil {
		return 0, measure.Memory{}, err
	}
	var followers []*local.Node
	for _, node := range c.processes.Nodes {
		if node != leader {
			followers = append(followers, node)
		}
	}
	node := followers[rand.IntN(len(followers))]
	took, err := restartNode(ctx, node)
	if err == nil {
		err = wait(ctx, b.o.settle)
	}
	return took, measure.ReadMemory(node.PID()), err
}

// restartNode ends a node as an operator would, and starts it again.
func restartNode(ctx context.Context, node *local.Node) (time.Duration, error) {
	if _, err := node.Terminate(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := node.Start(); err != nil {
		return 0, err
	}
	err := node.WaitReady(ctx)
	return time.Since(began), err
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newestSnapshot returns the index of the last snapshot in a data directory (0: none), and
// whether a snapshot is being written. raft names snapshots by term, index and time, and marks
// incomplete ones by a suffix.
func newestSnapshot(dataDir string) (index uint64, writing bool, err error) {
	entries, err := os.ReadDir(filepath.Join(dataDir, snapshotDir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	for _, entry := range entries {
		var term, at, milliseconds uint64
		if _, err := fmt.Sscanf(entry.Name(), "%d-%d-%d", &term, &at, &milliseconds); err != nil {
			continue
		}
		if strings.HasSuffix(entry.Name(), ".tmp") {
			writing = true
		} else {
			index = max(index, at)
		}
	}
	return index, writing, err
}
