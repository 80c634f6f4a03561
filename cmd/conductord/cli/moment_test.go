package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

func TestAges(t *testing.T) {
	const day = 24 * time.Hour
	for _, row := range []struct {
		since time.Duration
		want  string
	}{
		{time.Second / 2, "0s ago"}, {90 * time.Second, "90s ago"}, {3*time.Minute + time.Second, "3m ago"}, {119 * time.Minute, "1h ago"}, {99 * time.Minute, "99m ago"},
		{5 * time.Hour, "5h ago"}, {47 * time.Hour, "47h ago"}, {400 * day, "400d ago"},
		{-3*time.Minute - time.Second, "in 3m"}, {-5*day - time.Minute, "in 5d"},
	} {
		if got := cli.Ago(time.Now().Add(-row.since)); got != row.want {
			t.Errorf("%s: %q, want %q", row.since, got, row.want)
		}
	}
	if got := cli.Ago(time.Time{}); got != "" {
		t.Errorf("no moment: %q", got)
	}
}

// TestZones: text shows times in the local zone or in UTC; JSON always in UTC.
func TestZones(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k", "--not-before", "2030-07-01T12:00:00Z").String()
	for _, row := range []struct {
		args, want string
		zone       *time.Location
	}{
		{"job get " + id, "2030-07-01T14:00:00+02:00", time.FixedZone("", 2*60*60)},
		{"job get " + id + " --utc", "2030-07-01T12:00:00Z", time.FixedZone("", 2*60*60)},
		{"job get " + id + " -o json", "2030-07-01T12:00:00Z", time.FixedZone("", 2*60*60)},
		{"job get " + id, "2030-07-01T12:00:00Z", nil},
	} {
		got := clitest.RunWith(t, t.Context(), cluster, func(p *cli.Program) { p.Zone = row.zone }, strings.Fields(row.args)...)
		if got.Code != 0 || !strings.Contains(got.Out, row.want) {
			t.Errorf("%s in %v: no %q in %+v", row.args, row.zone, row.want, got)
		}
	}
}
