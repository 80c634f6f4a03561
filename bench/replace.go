package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/raftboard"
)

// replacePatience is the maximum time to replace a node.
const replacePatience = 10 * time.Minute

// replace measures how long it takes to replace a node whose disk is lost, from the command
// to the node's vote, while callers post.
func (b *bench) replace(ctx context.Context, c *cluster) {
	ctx, cancel := context.WithTimeout(ctx, replacePatience)
	defer cancel()
	var seconds []float64
	for range b.o.FillPairs {
		took, err := b.replaceFollower(ctx, c)
		if err != nil {
			b.report.fail("replace: %v", err)
			return
		}
		seconds = append(seconds, took.Seconds())
	}
	b.report.figure(fmt.Sprintf("a lost disk of %d jobs replaced, while %d callers post", b.o.Fill, backupCallers), "s", nil, seconds...)
}

func (b *bench) replaceFollower(ctx context.Context, c *cluster) (time.Duration, error) {
	leader, err := c.leader(ctx)
	if err != nil {
		return 0, err
	}
	at := slices.IndexFunc(c.processes.Nodes, func(n *local.Node) bool { return n != leader })
	node := c.processes.Nodes[at]
	node.Kill()
	if err := os.RemoveAll(node.DataDir); err != nil {
		return 0, err
	}
	posting, stop := context.WithCancel(ctx)
	posted := make(chan struct{})
	go func() { // ends with stop
		defer close(posted)
		for posting.Err() == nil {
			b.postRate(posting, c)
		}
	}()
	defer func() { stop(); <-posted }()
	began := time.Now()
	command := exec.CommandContext(ctx, b.o.binary, "cluster", "replace", node.Name, node.Name, "--config", node.Config)
	if said, err := command.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, said)
	}
	if err := node.Start(); err != nil {
		return 0, err
	}
	for {
		status, err := c.client.Status(ctx, leader.API)
		if err == nil && slices.ContainsFunc(status.Members, func(m raftboard.Member) bool { return m.Name == node.Name && m.Voter }) {
			return time.Since(began), node.WaitReady(ctx)
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
}
