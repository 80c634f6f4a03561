package test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/raftboard"
)

var floodTime = flag.Duration("flood", 8*time.Second, "how long TestFlood floods the cluster")

const (
	flooders = 64
	// floodMemory is the budget of a node, in bytes. floodProgram is the additional memory for
	// its program and system threads.
	floodMemory  = 256 << 20
	floodProgram = 16 << 20
)

// TestFlood: clients post, list, watch, and open sessions, boards and schedules as fast as
// they can. No node exceeds its memory budget, and a session with keep-alives keeps its claim.
// Use -flood 10m for a longer flood.
func TestFlood(t *testing.T) {
	longtest.Skip(t)
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read from /proc")
	}
	cluster, client := startCluster(t, func(c *config.Config) { c.Conductor.Enabled, c.Memory = false, floodMemory })
	session, err := client.OpenSession(within(t), jobs.Opening{ID: jobs.NewSessionID(), Name: "steady", Host: "here", PID: 1, TTL: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobs.PostOne(within(t), client, jobs.Posting{Name: "held", Kind: "none"})
	if err != nil {
		t.Fatal(err)
	}
	held, err := client.Claim(within(t), session.ID, job.ID, jobs.NewNonce())
	if err != nil {
		t.Fatal(err)
	}

	ctx, end := context.WithTimeout(t.Context(), *floodTime)
	defer end()
	var clients sync.WaitGroup
	var counts [len(floods)]floodCount
	for i := range flooders {
		kind := i % len(floods)
		clients.Go(func() { flood(ctx, t, cluster, i, floods[kind].do, &counts[kind]) })
	}
	var slowest time.Duration
	var most int64
	for beat := time.NewTicker(time.Second); ctx.Err() == nil; {
		began := time.Now()
		if err := client.KeepAlive(within(t), session.ID); err != nil {
			t.Fatalf("a session that is kept alive: %v", err)
		}
		slowest = max(slowest, time.Since(began))
		for _, node := range cluster.Nodes {
			most = max(most, residentMemory(t, node))
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			beat.Stop()
		}
	}
	clients.Wait()
	for i := range floods {
		t.Logf("%s: %d done, %d refused", floods[i].name, counts[i].done.Load(), counts[i].refused.Load())
		if counts[i].done.Load() == 0 {
			t.Errorf("nothing was done: %s", floods[i].name)
		}
	}
	t.Logf("the largest node had %d MiB, and the slowest keep-alive took %v", most>>20, slowest)
	if most > floodMemory+floodProgram {
		t.Errorf("a node had %d MiB, and its budget is %d", most>>20, floodMemory>>20)
	}
	if now, err := client.Job(within(t), job.ID); err != nil || now.Token != held.Job.Token || now.State != jobs.StateClaimed {
		t.Errorf("the claim of a session that was kept alive: %v, %v", now.State, err)
	}
}

// floodCount counts the calls of one kind.
type floodCount struct{ done, refused atomic.Int64 }

// flood calls repeatedly. It counts successes and refusals; no other result is allowed.
func flood(ctx context.Context, t *testing.T, cluster *local.Cluster, number int, do func(context.Context, *raftboard.Client, string) error, count *floodCount) {
	client, err := raftboard.Dial(ctx, cluster.Endpoints()...)
	if err != nil {
		return // the flood is too strong to be joined
	}
	defer client.Close()
	for n := 0; ctx.Err() == nil; n++ {
		switch err := do(ctx, client, fmt.Sprintf("%d-%d", number, n)); {
		case err == nil:
			count.done.Add(1)
		case ctx.Err() != nil:
		case errors.Is(err, jobs.ErrLimit), errors.Is(err, jobs.ErrUnavailable), errors.Is(err, jobs.ErrUncertain):
			count.refused.Add(1)
		default:
			t.Errorf("flooding: %v", err)
			return
		}
	}
}

// floods are the kinds of calls.
var floods = [...]struct {
	name string
	do   func(ctx context.Context, client *raftboard.Client, id string) error
}{
	{"post 100 jobs of 1 KiB", func(ctx context.Context, client *raftboard.Client, _ string) error {
		postings := slices.Repeat([]jobs.Posting{{Name: "flood", Kind: "none", Details: json.RawMessage(`"` + strings.Repeat("x", 1<<10) + `"`)}}, 100)
		for i := range postings {
			postings[i].ID = jobs.NewJobID()
		}
		_, err := client.Post(ctx, postings...)
		return err
	}},
	{"post a job of 100 KiB", func(ctx context.Context, client *raftboard.Client, _ string) error {
		_, err := client.Post(ctx, jobs.Posting{ID: jobs.NewJobID(), Name: "large", Kind: "none", Details: json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`)})
		return err
	}},
	{"list jobs", func(ctx context.Context, client *raftboard.Client, _ string) error {
		_, err := client.Jobs(ctx, jobs.Query{})
		return err
	}},
	{"watch", func(ctx context.Context, client *raftboard.Client, _ string) error {
		events := 0
		for _, err := range client.Watch(ctx, jobs.Watch{}) {
			if err != nil {
				return err
			}
			if events++; events == 50 {
				break
			}
		}
		return nil
	}},
	{"open a session and leave it", func(ctx context.Context, client *raftboard.Client, id string) error {
		_, err := client.OpenSession(ctx, jobs.Opening{ID: jobs.NewSessionID(), Name: "flood " + id, Host: "here", PID: 1, TTL: 2 * time.Second})
		return err
	}},
	{"create a board", func(ctx context.Context, client *raftboard.Client, id string) error {
		return client.CreateBoard(ctx, "flood-"+id)
	}},
	{"save a schedule", func(ctx context.Context, client *raftboard.Client, id string) error {
		_, err := client.SaveSchedule(ctx, schedules.Schedule{Board: "default", Name: "flood-" + id, Rule: "@yearly", Posting: jobs.Posting{Name: "s", Kind: "none"}})
		return err
	}},
}

// residentMemory is the memory of a node's process without the pages of its files, in bytes.
func residentMemory(t *testing.T, node *local.Node) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", node.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var kilobytes int64
	_, line, _ := strings.Cut(string(status), "RssAnon:")
	if _, err := fmt.Sscan(line, &kilobytes); err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}
