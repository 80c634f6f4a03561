package command_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var drains = rapid.Custom(func(t *rapid.T) jobs.Drain {
	return jobs.Drain{
		Conductor: rapid.String().Draw(t, "conductor"), Finish: rapid.Bool().Draw(t, "finish"),
		By: rapid.String().Draw(t, "by"), Reason: rapid.String().Draw(t, "reason"), At: times.Draw(t, "at"),
	}
})

var drainOrders = rapid.Custom(func(t *rapid.T) jobs.DrainCommand {
	return jobs.DrainCommand{
		Conductor: rapid.String().Draw(t, "conductor"), Finish: rapid.Bool().Draw(t, "finish"), Absent: rapid.Bool().Draw(t, "absent"),
		By: rapid.String().Draw(t, "by"), Reason: rapid.String().Draw(t, "reason"),
	}
})

// TestDrainCommandsAreChecked invalidates each sample in one place.
func TestDrainCommandsAreChecked(t *testing.T) {
	long := strings.Repeat("x", logbook.MaxLimits.Name+1)
	for _, row := range []struct {
		name  string
		spoil func(*v1.DrainCommand)
		want  error
	}{
		{"drain_conductor", func(c *v1.DrainCommand) { c.Conductor = "" }, logbook.ErrInvalid},
		{"drain_conductor", func(c *v1.DrainCommand) { c.Conductor = long }, logbook.ErrLimit},
		{"drain_conductor", func(c *v1.DrainCommand) { c.By = long }, logbook.ErrLimit},
		{"drain_conductor", func(c *v1.DrainCommand) { c.Reason = strings.Repeat("x", jobs.MaxReason+1) }, logbook.ErrLimit},
		{"undrain_conductor", func(c *v1.DrainCommand) { c.Conductor = "" }, logbook.ErrInvalid},
		{"undrain_conductor", func(c *v1.DrainCommand) { c.Finish = true }, logbook.ErrInvalid},
		{"undrain_conductor", func(c *v1.DrainCommand) { c.Absent = true }, logbook.ErrInvalid},
	} {
		for _, c := range samples() {
			if command.Name(c) != row.name {
				continue
			}
			message := c.GetDrainConductor()
			if message == nil {
				message = c.GetUndrainConductor()
			}
			row.spoil(message)
			if err := command.Check(logbook.MaxLimits, c); !errors.Is(err, row.want) {
				t.Errorf("%s: got %v, want %v", c, err, row.want)
			}
		}
	}
}
