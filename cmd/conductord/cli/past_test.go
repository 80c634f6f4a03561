package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestFlagsAboutThePast: in each of these flags a duration means "ago", with or without a minus. A
// future time is refused with the flag's name and value.
func TestFlagsAboutThePast(t *testing.T) {
	cluster := clitest.Open(t)
	if got := clitest.Run(t, cluster, "schedule", "set", "s", "--rule", "@hourly", "--kind", "k", "--overlap", "allow"); got.Code != 0 {
		t.Fatal(got)
	}
	for _, command := range []string{
		"job errors --since", "job errors --until", "job list --posted-since", "job list --posted-until", "job list --finished-since",
		"job list --finished-until", "bulk cancel --dry-run --posted-since", "audit search --since", "audit search --until",
		"schedule backfill s --since", "schedule backfill s --since 48h --until",
	} {
		words := strings.Fields(command)
		flag := words[len(words)-1]
		future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		for value, want := range map[string]string{
			"90m": "", "-90m": "", time.Now().Add(-5 * time.Hour).Format(time.RFC3339): "",
			future: flag + " is in the future: " + future, "+1h": flag + " is in the future: +1h", "9999-01-01T00:00:00Z": flag + " is in the future",
			"0001-01-01T00:00:00Z": flag + " must be", "yesterday": flag + " must be",
		} {
			got := clitest.Run(t, cluster, append(words, value)...)
			if want == "" && (got.Code != 0 || strings.Contains(got.Err, flag)) || want != "" && (got.Code != cli.ExitUsage || !strings.Contains(got.Err, want)) {
				t.Errorf("%s %s: %+v, want %q", command, value, got, want)
			}
		}
	}
}

// TestSpansMeanThePast: a job posted a moment ago is found, and an earlier one is not.
func TestSpansMeanThePast(t *testing.T) {
	cluster := clitest.Open(t)
	if got := clitest.Run(t, cluster, "job", "post", "--kind", "k", "--name", "dig"); got.Code != 0 {
		t.Fatal(got)
	}
	for args, want := range map[string]bool{
		"--posted-since 1h": true, "--posted-since -1h": true, "--posted-until 1h": false, "--posted-since 2h --posted-until 1h": false,
	} {
		if got := clitest.Run(t, cluster, append([]string{"job", "list"}, strings.Fields(args)...)...); got.Code != 0 || strings.Contains(got.Out, "dig") != want {
			t.Errorf("job list %s: %+v", args, got)
		}
	}
	for _, flag := range []string{"--deadline", "--not-before"} {
		if got := clitest.Run(t, cluster, "job", "post", "--kind", "k", flag, "0001-01-01T00:00:00Z"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, flag+" must be") {
			t.Errorf("%s in the year 1: %+v", flag, got)
		}
	}
}
