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
	if c.GetStep() != "" {
		return &logbook.InvalidError{Field: "command step", Reason: "set; only retry_now can set it"}
	}
	if c.GetTo() != "" || c.GetWithin() != nil {
		return &logbook.InvalidError{Field: "command to", Reason: "set; only a transfer can set to and within"}
	}
	return checkJobCommand(limits, c)
}

// checkTransfer checks a command that names a conductor.
func checkTransfer(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetRevert() || c.GetSteps() != "" || c.GetGrace() != nil {
		return &logbook.InvalidError{Field: "command steps", Reason: "revert, steps or grace is set; a transfer has none of them"}
	}
	if c.GetStep() != "" {
		return &logbook.InvalidError{Field: "command step", Reason: "set; only retry_now can set it"}
	}
	if err := limits.CheckName("command to", c.GetTo()); err != nil {
		return err
	}
	return checkJobCommand(limits, c)
}

// checkSuspension checks a command that reverts nothing.
func checkSuspension(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetRevert() {
		return &logbook.InvalidError{Field: "command revert", Reason: "set; only a cancellation can set it"}
	}
	return checkStop(limits, c)
}

// checkPlainCommand checks a command that neither reverts nor stops.
func checkPlainCommand(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetSteps() != "" || c.GetGrace() != nil {
		return &logbook.InvalidError{Field: "command steps", Reason: "set; only a suspension or a cancellation can set steps and grace"}
	}
	return checkSuspension(limits, c)
}

// checkRetryNow checks a command that can name a step.
func checkRetryNow(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetStep() != "" {
		if err := limits.CheckName("command step", c.GetStep()); err != nil {
			return err
		}
	}
	stepless := v1.JobCommand{Job: c.GetJob(), By: c.GetBy(), Reason: c.GetReason(), Revert: c.GetRevert(), Steps: c.GetSteps(), Grace: c.GetGrace(), To: c.GetTo(), Within: c.GetWithin()}
	return checkPlainCommand(limits, &stepless)
}
