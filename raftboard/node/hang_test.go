package node_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
)

// A leader with a hanging disk loses the leadership long before its watchdog ends the process. It
// rejoins when the disk responds again.
func TestHangingDiskCostsTheLeadership(t *testing.T) {
	t.Parallel()
	disks := make([]sync.RWMutex, 3)
	next := 0
	c := newCluster(t, 3, func(o *node.Options) { node.HangWrites(o, &disks[next]); next++ }).startAll()
	leader := c.leader()
	client := c.client(c.others(leader)...)
	posted(t, client)
	disks[leader].Lock()
	release := sync.OnceFunc(disks[leader].Unlock)
	t.Cleanup(release)
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var stuck sync.WaitGroup
	stuck.Go(func() { _, _ = jobs.PostOne(ctx, client, jobs.Posting{Name: "stuck", Kind: "plain"}) })
	defer stuck.Wait()
	defer cancel()
	after := c.leaderAmong(t, c.others(leader))
	took := time.Since(began)
	t.Logf("%v until node %d leads", took, after+1)
	if took > 10*time.Second { // allows for a busy machine: usually 2.7 s, and the watchdog has 20 s
		t.Errorf("another node leads after %v", took)
	}
	posted(t, c.client(after))
	if c.nodes[leader].Leading() {
		t.Error("the node whose disk hangs still answers as the leader")
	}
	if err := alive(t, c.nodes[leader], time.Second); err == nil {
		t.Error("a node whose raft waits for its disk says that it is alive")
	}
	release()
	same(t, c)
	posted(t, c.client(leader))
	for _, running := range c.nodes {
		if err := alive(t, running, patience); err != nil {
			t.Error(err)
		}
	}
}

func alive(t *testing.T, n *node.Node, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return n.Alive(ctx)
}
