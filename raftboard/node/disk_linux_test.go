package node_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

// smallDisks gives each node its own small file system.
func smallDisks(t *testing.T, c *cluster, bytes int) {
	t.Helper()
	for i := range c.options {
		dir := filepath.Join(t.TempDir(), "disk")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
			t.Skipf("needs the right to mount a file system: %v", err)
		}
		t.Cleanup(func() { c.stop(i); _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		c.options[i].DataDir = dir
	}
}

// fillUp posts until a post is refused, and returns the refusal.
func fillUp(t *testing.T, client *raftboard.Client) (posted []jobs.JobID, refusal error) {
	t.Helper()
	details, _ := json.Marshal(strings.Repeat("x", 250_000))
	for range 2_000 {
		job, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "large", Kind: "large", Details: details})
		if err != nil {
			return posted, err
		}
		posted = append(posted, job.ID)
	}
	t.Fatal("nothing is refused")
	return nil, nil
}

// Before the disks are full, new work is refused with the reason. Existing work continues to
// its end, and its removal frees space. A node with a completely full disk starts.
func TestDisksFillUp(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		t.Parallel()
		disksFillUp(t, kind)
	})
}

func disksFillUp(t *testing.T, kind logstore.Kind) {
	size := 128 << 20
	if kind == logstore.WAL {
		size += 2 * 64 << 20 // the segment and the next one
	}
	c := newCluster(t, 3, onStore(kind), func(o *node.Options) {
		o.DiskReserve = 24 << 20
		o.Raft.SnapshotThreshold, o.Raft.TrailingLogs, o.Raft.SnapshotInterval = 12, 24, 100*time.Millisecond
		o.Retention.Keep = 1
	})
	smallDisks(t, c, size)
	c.startAll()
	client := c.client()
	session := opened(t, client, 10*time.Minute)
	posted, refusal := fillUp(t, client)
	if !errors.Is(refusal, jobs.ErrLimit) || !strings.Contains(refusal.Error(), "disk_reserve") {
		t.Fatalf("after %d postings: %v", len(posted), refusal)
	}
	if err := client.SaveBook(t.Context(), logbook.Book{ID: logbook.NewBookID(), Name: "book"}); !errors.Is(err, jobs.ErrLimit) {
		t.Errorf("a book: %v", err)
	}
	t.Logf("%d postings; then node 1 %s", len(posted), node.DiskSpace(c.nodes[0]))
	for _, id := range posted { // existing jobs are read, claimed and ended
		claimed, err := client.Claim(t.Context(), session, id, jobs.NewNonce())
		if err != nil {
			t.Fatalf("claim: %v", err)
		}
		if err := client.Consume(t.Context(), jobs.Ending{Job: id, Token: claimed.Job.Token, Outcome: jobs.OutcomeSuccess}); err != nil {
			t.Fatalf("the end of a job: %v", err)
		}
	}
	need := func(when string) {
		for i, running := range c.nodes {
			t.Logf("%s: node %d %s", when, i+1, node.DiskSpace(running))
		}
	}
	need("when all jobs have ended")
	defer func() {
		if t.Failed() {
			need("in the end")
		}
	}()
	eventually(t, "postings are accepted again", func() bool {
		_, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "again", Kind: "plain"})
		if err != nil && !errors.Is(err, jobs.ErrLimit) {
			t.Fatal(err)
		}
		return err == nil
	})
	same(t, c)
	c.stop(0)
	rest := filepath.Join(c.options[0].DataDir, "somebody-else")
	file, err := os.Create(rest)
	for chunk := bytes.Repeat([]byte{1}, 4096); err == nil; {
		_, err = file.Write(chunk)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	c.start(0)
	c.ready()
	if err := errors.Join(file.Close(), os.Remove(rest)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reserve exists again", func() bool {
		_, err := os.Stat(filepath.Join(c.options[0].DataDir, "reserve"))
		return err == nil
	})
}
