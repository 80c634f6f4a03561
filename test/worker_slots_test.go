package test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
)

// TestAbsentWorkersBlockNobody: jobs that wait for missing workers do not keep a conductor from
// other jobs, and are still explained. Each continues once when a worker arrives.
func TestAbsentWorkersBlockNobody(t *testing.T) {
	t.Parallel()
	f := openFieldWith(t, func(c *config.Config) { c.Conductor.MaxJobs, c.Conductor.Steps = 1, 1 })
	f.worker("--types", "quick")
	var waiting []string
	for range 4 {
		waiting = append(waiting, f.run("name = \"a\"\nhandler = \"slow\""))
	}
	f.ends(f.run("name = \"b\"\nhandler = \"quick\""), jobs.OutcomeSuccess)
	for _, job := range waiting {
		eventually(t, "the wait is explained", func() bool {
			return strings.Contains(ran(t, "job", "explain", job, f.all), `for a worker of the type "slow", and no live worker runs it`)
		})
	}
	f.release()
	f.worker("--types", "slow")
	for _, job := range waiting {
		f.ends(job, jobs.OutcomeSuccess)
	}
	if got, want := f.started(), "b execute 1"+strings.Repeat(", a execute 1", 4); got != want {
		t.Errorf("started: %s; want %s", got, want)
	}
}
