package command

import (
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func knownRequestKind(k jobs.RequestKind) bool { return slices.Contains(jobs.RequestKinds, k) }

// checkStop checks a command that stops or resumes a job.
func checkStop(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetTo() != "" || c.GetWithin() != nil {
		return &logbook.InvalidError{Field: "command to", Reason: "set; only a transfer has it, and within"}
	}
	return checkJobCommand(limits, c)
}

// checkTransfer checks a command that names a conductor.
func checkTransfer(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetRevert() || c.GetSteps() != "" || c.GetGrace() != nil {
		return &logbook.InvalidError{Field: "command steps", Reason: "revert, steps or grace is set; a transfer has none of them"}
	}
	if err := limits.CheckName("command to", c.GetTo()); err != nil {
		return err
	}
	return checkJobCommand(limits, c)
}

// checkSuspension checks a command that reverts nothing.
func checkSuspension(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetRevert() {
		return &logbook.InvalidError{Field: "command revert", Reason: "set; only a cancellation has it"}
	}
	return checkStop(limits, c)
}

// checkPlainCommand checks a command that neither reverts nor stops.
func checkPlainCommand(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetSteps() != "" || c.GetGrace() != nil {
		return &logbook.InvalidError{Field: "command steps", Reason: "set; only a suspension and a cancellation have them, and a grace"}
	}
	return checkSuspension(limits, c)
}
