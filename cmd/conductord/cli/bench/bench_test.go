package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

// TestBench runs each benchmark briefly: posted jobs can be claimed, and only the announced
// objects are left behind.
func TestBench(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	cluster := clitest.Open(t)
	for _, row := range []struct {
		args string
		left jobs.State // state of the jobs afterwards
	}{
		{"post --clients 2 --batch 5 --size 40", jobs.StateClaimable},
		{"claim --clients 2 --batch 3 --duration 2s", jobs.StateCompleted},
		{"flow --clients 2 --batch 2 --size 40", jobs.StateCompleted},
		{"read --clients 2", jobs.StateCompleted},
	} {
		args := append([]string{"bench"}, strings.Fields(row.args)...)
		if !strings.Contains(row.args, "--duration") {
			args = append(args, "--duration", "2s") // long enough for some operations on a busy machine
		}
		got := clitest.Run(t, cluster, append(args, "-o", "json")...)
		var result struct {
			Bench              string
			Operations, Errors uint64
			PerSecond          float64 `json:"per_second"`
			P50                float64 `json:"p50_ms"`
			Max                float64 `json:"max_ms"`
		}
		if err := json.Unmarshal([]byte(got.Out), &result); err != nil || got.Code != 0 {
			t.Fatalf("%s ends with %d, %v: %s%s", row.args, got.Code, err, got.Out, got.Err)
		}
		if verb, _, _ := strings.Cut(row.args, " "); result.Bench != verb || result.Operations == 0 || result.Errors != 0 ||
			result.PerSecond <= 0 || result.P50 <= 0 || result.Max < result.P50 {
			t.Errorf("%s: %s", row.args, got.Out)
		}
		page, err := cluster.Jobs(t.Context(), jobs.Query{Board: "bench", States: []jobs.State{row.left}, Limit: 1})
		if err != nil || len(page.Items) == 0 {
			t.Errorf("%s leaves no job %s (%v)", row.args, row.left, err)
		}
	}
	if sessions, err := cluster.Sessions(t.Context()); err != nil || len(sessions) != 0 {
		t.Errorf("sessions are left: %v, %v", sessions, err)
	}
	others := slices.DeleteFunc(slices.Clone(jobs.States), func(s jobs.State) bool { return s == jobs.StateClaimable || s == jobs.StateCompleted })
	if page, err := cluster.Jobs(t.Context(), jobs.Query{Board: "bench", States: others}); err != nil || len(page.Items) != 0 {
		t.Errorf("jobs are left: %v, %v", page.Items, err)
	}
	table := clitest.Run(t, cluster, "bench", "post", "--duration", "2s")
	if table.Code != 0 || !strings.Contains(table.Out, "P99.9") || !strings.Contains(table.Out, " ms ") {
		t.Errorf("as a table: %+v", table)
	}
}

// TestBenchOfSoManyCalls: exactly the given number of calls is made.
func TestBenchOfSoManyCalls(t *testing.T) {
	t.Parallel()
	cluster := clitest.Open(t)
	for _, row := range []struct {
		args string
		want uint64
	}{
		{"post --clients 3 --batch 5 --calls 7", 35},
		{"claim --clients 2 --calls 4 --duration 1h", 4},
		{"read --clients 2 --calls 3", 3},
	} {
		got := clitest.Run(t, cluster, append(append([]string{"bench"}, strings.Fields(row.args)...), "-o", "json")...)
		var result struct{ Operations uint64 }
		if err := json.Unmarshal([]byte(got.Out), &result); err != nil || got.Code != 0 || result.Operations != row.want {
			t.Errorf("%s ends with %d after %d operations: %s%s", row.args, got.Code, result.Operations, got.Out, got.Err)
		}
	}
}

// TestBenchClaimNeedsPosts: without claimable jobs, the command returns an error and prints no figures.
func TestBenchClaimNeedsPosts(t *testing.T) {
	t.Parallel()
	cluster := clitest.Open(t)
	const says = "conductord: no job of `conductord bench post` waits on board bench: post some first\n"
	table := clitest.Run(t, cluster, "bench", "claim", "--clients", "1", "--duration", "100ms")
	if table.Code != 0 || strings.Count(table.Out, "\n") != 1 || table.Err != says {
		t.Errorf("as a table: %+v", table)
	}
	document := clitest.Run(t, cluster, "bench", "claim", "--clients", "1", "--duration", "100ms", "-o", "json")
	if document.Code != 0 || !strings.Contains(document.Out, `"operations": 0`) || document.Err != says {
		t.Errorf("as JSON: %+v", document)
	}
}

// fitful is a cluster that fails every nth post.
type fitful struct {
	cli.Cluster
	every int64
	calls atomic.Int64
}

func (f *fitful) Post(ctx context.Context, postings ...jobs.Posting) ([]jobs.Posted, error) {
	if f.calls.Add(1)%f.every == 0 {
		return nil, fmt.Errorf("no: %w", jobs.ErrUnavailable)
	}
	return f.Cluster.Post(ctx, postings...)
}

func TestBenchCountsErrors(t *testing.T) {
	t.Parallel()
	some := clitest.Run(t, &fitful{Cluster: clitest.Open(t), every: 2}, "bench", "post", "--clients", "1", "--duration", "2s", "-o", "json")
	if some.Code != 0 || !strings.Contains(some.Out, `"first_error": "no: `) || !strings.Contains(some.Err, "calls failed") {
		t.Errorf("some calls fail: %+v", some)
	}
	all := clitest.Run(t, &fitful{Cluster: clitest.Open(t), every: 1}, "bench", "post", "--clients", "1", "--duration", "2s")
	if all.Code != cli.ExitUnavailable || all.Out != "" {
		t.Errorf("all calls fail: %+v", all)
	}
}

func TestBenchRefusals(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"post --clients 0", "post --clients 4097", "claim --clients 257", "post --batch 0", "post --batch 1001", "post --size 1",
		"read --duration 99ms", "read --batch 2", "claim --clients 64 --batch 5", "claim --size 2", "flow extra", "everything", "post --calls -1", "post --calls 5 --duration 0s", "takeover --calls 5",
		"takeover --clients 257", "takeover --rounds 0", "takeover --rounds 10001", "takeover --ttl 499ms", "takeover --ttl 61m", "takeover --duration 1s",
	} {
		if got := clitest.Run(t, nil, append([]string{"bench"}, strings.Fields(line)...)...); got.Code != cli.ExitUsage {
			t.Errorf("bench %s ends with %d: %s", line, got.Code, got.Err)
		}
	}
}

// timed is a cluster that expires a session some time after its last call, like a leader.
type timed struct {
	*clitest.Cluster
	after time.Duration
}

func (c *timed) KeepAlive(ctx context.Context, id jobs.SessionID) error {
	time.AfterFunc(c.after, func() { _ = c.Expire(id) })
	return c.Cluster.KeepAlive(ctx, id)
}

// unclaimable is a cluster whose claims never return a job.
type unclaimable struct{ cli.Cluster }

func (unclaimable) ClaimNext(context.Context, jobs.ClaimRequest) ([]jobs.Claimed, error) {
	return nil, nil
}

// TestBenchTakeover: a takeover is not quicker than the owner's TTL, and a failed takeover
// leaves nothing behind.
func TestBenchTakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := clitest.Open(t)
		got := clitest.Run(t, &timed{cluster, 600 * time.Millisecond}, "bench", "takeover", "--clients", "3", "--rounds", "3", "--ttl", "600ms", "-o", "json")
		var result struct {
			Operations, Errors uint64
			TTL                float64 `json:"ttl_ms"`
			P50                float64 `json:"p50_ms"`
		}
		if err := json.Unmarshal([]byte(got.Out), &result); err != nil || result.Operations != 3 || result.Errors != 0 || result.TTL != 600 || result.P50 < 600 {
			t.Errorf("three takeovers: %v, %s%s", err, got.Out, got.Err)
		}
		none := clitest.Run(t, unclaimable{cluster}, "bench", "takeover", "--clients", "1", "--rounds", "1")
		if none.Code != cli.ExitUnavailable || !strings.Contains(none.Err, "no other owner claimed") {
			t.Errorf("no takeover: %+v", none)
		}
		open := slices.DeleteFunc(slices.Clone(jobs.States), jobs.State.Finished)
		if page, err := cluster.Jobs(t.Context(), jobs.Query{Board: "bench", States: open}); err != nil || len(page.Items) != 0 {
			t.Errorf("jobs are left: %v, %v", page.Items, err)
		}
		if sessions, err := cluster.Sessions(t.Context()); err != nil || len(sessions) != 0 {
			t.Errorf("sessions are left: %v, %v", sessions, err)
		}
	})
}
