package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func checkDrain(limits logbook.Limits, c *v1.DrainCommand) error {
	request := DrainCommandFromProto(c)
	return jobs.CheckDrainCommand(limits, &request)
}

// checkUndrain checks the end of a drain. The end has the same fields for all drains.
func checkUndrain(limits logbook.Limits, c *v1.DrainCommand) error {
	if c.GetFinish() || c.GetAbsent() {
		return &logbook.InvalidError{Field: "drain finish", Reason: "finish or absent is set; only a drain has them"}
	}
	return checkDrain(limits, c)
}
