package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

// A follower that was away longer than the log reaches back gets a snapshot. A node with any old
// state never contradicts what a client has seen.
func TestSnapshotBringsUp(t *testing.T) {
	t.Parallel()
	onEachStore(t, snapshotBringsUp)
}

func snapshotBringsUp(t *testing.T, kind logstore.Kind) {
	c := newCluster(t, 3, onStore(kind), func(o *node.Options) {
		o.Raft.SnapshotThreshold, o.Raft.TrailingLogs, o.Raft.SnapshotInterval = 16, 32, 20*time.Millisecond
	}).startAll()
	client := c.client()
	first := posted(t, client)
	away := c.others(c.leader())[0]
	had := node.Raft(c.nodes[away]).LastIndex()
	c.stop(away)
	var last jobs.JobID
	for range 150 {
		last = posted(t, client)
	}
	leader := c.nodes[c.leader()]
	eventually(t, "the leader's log no longer reaches back", func() bool { return node.FirstIndex(leader) > had+1 })
	c.start(away)
	// The client has seen the last job. The node must not answer before it has this job.
	for _, id := range []jobs.JobID{last, first} {
		if got, err := client.Stale().Job(t.Context(), id); err != nil || got.ID != id {
			t.Errorf("stale: %v", err)
		}
	}
	direct := c.client(away)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, err := direct.Stale().Job(ctx, last); err != nil || got.ID != last {
		t.Errorf("a node that has just started returns an old state: %v", err)
	}
	c.ready()
	same(t, c)
	// raft clears the log when it has installed and restored a snapshot.
	eventually(t, "a snapshot was installed", func() bool {
		begins := node.FirstIndex(c.nodes[away])
		return begins == 0 || begins > had
	})
	for i := range c.nodes {
		c.stop(i)
	}
	c.startAll() // from snapshots and later entries
	same(t, c)
	page, err := client.Jobs(t.Context(), jobs.Query{})
	if err != nil || fmt.Sprint(len(page.Items), page.Items[0].ID) != fmt.Sprint(151, first) {
		t.Errorf("%d jobs after the restart, %v", len(page.Items), err)
	}
}

// A restarted follower is ready only when it has all committed entries, long after it knows a
// leader.
func TestRestartedNodeIsNotReadyTooSoon(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	client := c.client()
	for range 5 {
		away := c.others(c.leader())[0]
		c.stop(away)
		for range 20 {
			posted(t, client)
		}
		leader := c.nodes[c.leader()]
		committed := node.AppliedIndex(leader)
		c.start(away)
		eventually(t, "the node is ready", func() bool { return c.nodes[away].Ready() == nil })
		if applied := node.AppliedIndex(c.nodes[away]); applied < committed {
			t.Fatalf("ready with %d of %d entries", applied, committed)
		}
	}
}

// A log of few large entries also causes snapshots: a starting node must not apply them all again.
func TestLogOfLargeEntriesMakesSnapshots(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(o *node.Options) {
		o.Raft.SnapshotBytes, o.Raft.SnapshotInterval = 256<<10, 20*time.Millisecond
	}).startAll()
	client := c.client()
	details := fmt.Appendf(nil, "%q", strings.Repeat("x", 100<<10))
	post := func(postings int) {
		for range postings {
			if _, err := client.Post(t.Context(), jobs.Posting{ID: jobs.NewJobID(), Name: "large", Kind: "k", Details: details}); err != nil {
				t.Fatal(err)
			}
		}
	}
	post(2)
	if taken := node.LastSnapshot(c.nodes[0]); taken != 0 {
		t.Fatalf("a snapshot up to entry %d was taken of a small log", taken)
	}
	post(2)
	eventually(t, "there is a snapshot", func() bool { return node.LastSnapshot(c.nodes[0]) > 0 })
	first := node.LastSnapshot(c.nodes[0])
	eventually(t, "as many entries as usual stay behind the next", func() bool {
		return node.Raft(c.nodes[0]).ReloadableConfig().TrailingLogs == 2*16_384
	})
	post(1) // the state has half a megabyte now, more than the log has grown
	if taken := node.LastSnapshot(c.nodes[0]); taken != first {
		t.Errorf("a snapshot up to entry %d was taken before the log has outgrown the state", taken)
	}
	c.stop(0)
	c.startAll()
	if page, err := client.Jobs(t.Context(), jobs.Query{}); err != nil || len(page.Items) != 5 {
		t.Errorf("%d jobs after the restart, %v", len(page.Items), err)
	}
	post(8)
	eventually(t, "there is another snapshot", func() bool { return node.LastSnapshot(c.nodes[0]) > first })
}
