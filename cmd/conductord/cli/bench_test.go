package cli_test

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
	"github.com/conductord/conductord/jobs"
)

// TestBench does each benchmark for a moment: what is posted can be claimed,
// and nothing is left behind but what is said to be.
func TestBench(t *testing.T) {
	t.Parallel()
	cluster := openCluster(t)
	for _, row := range []struct {
		args string
		left jobs.State // in which jobs are, after it
	}{
		{"post --clients 2 --batch 5 --size 40", jobs.StateClaimable},
		{"claim --clients 2 --batch 3 --duration 2s", jobs.StateCompleted},
		{"flow --clients 2 --batch 2 --size 40", jobs.StateCompleted},
		{"read --clients 2", jobs.StateCompleted},
	} {
		args := append([]string{"bench"}, strings.Fields(row.args)...)
		if !strings.Contains(row.args, "--duration") {
			args = append(args, "--duration", "2s") // so long that something is done on a busy machine
		}
		got := run(t, cluster, append(args, "-o", "json")...)
		var result struct {
			Bench              string
			Operations, Errors uint64
			PerSecond          float64 `json:"per_second"`
			P50                float64 `json:"p50_ms"`
			Max                float64 `json:"max_ms"`
		}
		if err := json.Unmarshal([]byte(got.out), &result); err != nil || got.code != 0 {
			t.Fatalf("%s ends with %d, %v: %s%s", row.args, got.code, err, got.out, got.err)
		}
		if verb, _, _ := strings.Cut(row.args, " "); result.Bench != verb || result.Operations == 0 || result.Errors != 0 ||
			result.PerSecond <= 0 || result.P50 <= 0 || result.Max < result.P50 {
			t.Errorf("%s: %s", row.args, got.out)
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
	table := run(t, cluster, "bench", "post", "--duration", "2s")
	if table.code != 0 || !strings.Contains(table.out, "P99.9") || !strings.Contains(table.out, " ms ") {
		t.Errorf("as a table: %+v", table)
	}
}

// TestBenchOfSoManyCalls: exactly so many are made.
func TestBenchOfSoManyCalls(t *testing.T) {
	t.Parallel()
	cluster := openCluster(t)
	for _, row := range []struct {
		args string
		want uint64
	}{
		{"post --clients 3 --batch 5 --calls 7", 35},
		{"claim --clients 2 --calls 4 --duration 1h", 4},
		{"read --clients 2 --calls 3", 3},
	} {
		got := run(t, cluster, append(append([]string{"bench"}, strings.Fields(row.args)...), "-o", "json")...)
		var result struct{ Operations uint64 }
		if err := json.Unmarshal([]byte(got.out), &result); err != nil || got.code != 0 || result.Operations != row.want {
			t.Errorf("%s ends with %d after %d operations: %s%s", row.args, got.code, result.Operations, got.out, got.err)
		}
	}
}

// TestBenchClaimNeedsPosts: where there is nothing to claim, that is said, and
// no figures are made of it.
func TestBenchClaimNeedsPosts(t *testing.T) {
	t.Parallel()
	cluster := openCluster(t)
	const says = "conductord: no job of `conductord bench post` waits on board bench: post some first\n"
	table := run(t, cluster, "bench", "claim", "--clients", "1", "--duration", "100ms")
	if table.code != 0 || strings.Count(table.out, "\n") != 1 || table.err != says {
		t.Errorf("as a table: %+v", table)
	}
	document := run(t, cluster, "bench", "claim", "--clients", "1", "--duration", "100ms", "-o", "json")
	if document.code != 0 || !strings.Contains(document.out, `"operations": 0`) || document.err != says {
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
	some := run(t, &fitful{Cluster: openCluster(t), every: 2}, "bench", "post", "--clients", "1", "--duration", "2s", "-o", "json")
	if some.code != 0 || !strings.Contains(some.out, `"first_error": "no: `) || !strings.Contains(some.err, "calls failed") {
		t.Errorf("some calls fail: %+v", some)
	}
	all := run(t, &fitful{Cluster: openCluster(t), every: 1}, "bench", "post", "--clients", "1", "--duration", "2s")
	if all.code != cli.ExitUnavailable || all.out != "" {
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
		if got := run(t, nil, append([]string{"bench"}, strings.Fields(line)...)...); got.code != cli.ExitUsage {
			t.Errorf("bench %s ends with %d: %s", line, got.code, got.err)
		}
	}
}

// timed is a cluster that expires a session the given time after it was last
// heard, as a leader does.
type timed struct {
	*testCluster
	after time.Duration
}

func (c *timed) KeepAlive(ctx context.Context, id jobs.SessionID) error {
	time.AfterFunc(c.after, func() { _ = c.Expire(id) })
	return c.testCluster.KeepAlive(ctx, id)
}

// unclaimable is a cluster in which no claim is ever answered with a job.
type unclaimable struct{ cli.Cluster }

func (unclaimable) ClaimNext(context.Context, jobs.ClaimRequest) ([]jobs.Claimed, error) {
	return nil, nil
}

// TestBenchTakeover holds that a takeover is not quicker than the time that an
// owner has, and that one which does not come about leaves nothing behind.
func TestBenchTakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := openCluster(t)
		got := run(t, &timed{cluster, 600 * time.Millisecond}, "bench", "takeover", "--clients", "3", "--rounds", "3", "--ttl", "600ms", "-o", "json")
		var result struct {
			Operations, Errors uint64
			TTL                float64 `json:"ttl_ms"`
			P50                float64 `json:"p50_ms"`
		}
		if err := json.Unmarshal([]byte(got.out), &result); err != nil || result.Operations != 3 || result.Errors != 0 || result.TTL != 600 || result.P50 < 600 {
			t.Errorf("three takeovers: %v, %s%s", err, got.out, got.err)
		}
		none := run(t, unclaimable{cluster}, "bench", "takeover", "--clients", "1", "--rounds", "1")
		if none.code != cli.ExitUnavailable || !strings.Contains(none.err, "not given to another") {
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
