package job_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestJobPostRetry checks the policies that the retry flags make, and the refused flags.
func TestJobPostRetry(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		name, flags string
		code        int
		says        string // part of the shown job, or of the refusal
	}{
		{"all of it", "--attempts 5 --retry-delay 10s --retry-backoff-percent 200 --retry-max-delay 5m --retry-jitter-percent 20 --priority-step -10 --retry-only 75,timeout --retry-never spoilt --retry-never 65 --on-failure park", 0,
			"retry: 5 attempts, after TOOK, each delay 200 % of the previous delay, at most 5m, 20 % of it random, priority -10 each time, only after 75 or timeout, never after spoilt or 65, then park\n"},
		{"a backoff by a quarter", "--attempts 3 --retry-backoff-percent 125", 0, "retry: 3 attempts, after TOOK, each delay 125 % of the previous delay\n"},
		{"a retention", "--retention 30m", 0, "retention: 30m\n"},
		{"too long a retention", "--retention 9000h", cli.ExitUsage, "posting retention is invalid"},
		{"one attempt", "--on-failure park", 0, "retry: 1 attempt, after TOOK, then park\nattempt: 1 of 1\n"},
		{"a factor where percent belong", "--attempts 3 --retry-backoff-percent 2", cli.ExitUsage, "retry backoff_percent is invalid: 2 is below 100"},
		{"no number", "--attempts 3 --retry-jitter-percent NaN", cli.ExitUsage, "--retry-jitter-percent must be a whole number"},
		{"too much chance", "--attempts 3 --retry-jitter-percent 200", cli.ExitUsage, "retry jitter_percent is invalid: 200 is not between 0 and 100"},
		{"too many attempts", "--attempts 101", cli.ExitLimit, "retry attempts"},
		{"a pattern of kinds", "--attempts 3 --retry-only card.*", cli.ExitUsage, `retry only is invalid: "card.*" is neither a kind nor an exit status`},
		{"no exit status", "--attempts 3 --retry-never 0", cli.ExitUsage, "retry never is invalid: 0 is not an exit status"},
		{"no such end", "--on-failure hope", cli.ExitUsage, `"hope" is not one of [complete retry park]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := append([]string{"job", "post", "--kind", "k"}, strings.Fields(row.flags)...)
			got := clitest.Run(t, cluster, args...)
			if got.Code != row.code {
				t.Fatalf("got %+v", got)
			}
			told := got.Err
			if row.code == 0 {
				told = clitest.Steady(clitest.Run(t, cluster, "job", "get", strings.TrimSpace(got.Out)).Out)
			}
			if !strings.Contains(told, row.says) {
				t.Errorf("it says\n%s\nand not\n%s", told, row.says)
			}
		})
	}
}

// TestJobPostRetryFrom: a line of a file accepts the same policy.
func TestJobPostRetryFrom(t *testing.T) {
	cluster := clitest.Open(t)
	path, line := filepath.Join(t.TempDir(), "postings.jsonl"), `{"name": "a", "kind": "k", "retry": {"attempts": 3, "delay": "2s", "backoff_percent": 150, "on_failure": "retry"}}`
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t, cluster, "job", "post", "--from", path)
	shown := clitest.Run(t, cluster, "job", "get", strings.TrimSpace(got.Out))
	if !strings.Contains(shown.Out, "3 attempts, after 2s, each delay 150 % of the previous delay, then retry") {
		t.Errorf("got %+v, shown as %+v", got, shown)
	}
}
