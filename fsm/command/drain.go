package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// DrainToProto converts a drain; nil stays nil.
func DrainToProto(d *jobs.Drain) *v1.Drain {
	if d == nil {
		return nil
	}
	return &v1.Drain{Conductor: d.Conductor, Finish: d.Finish, By: d.By, Reason: text(d.Reason), At: TimeToProto(d.At)}
}

// DrainFromProto converts a drain. Nil is the zero drain.
func DrainFromProto(message *v1.Drain) (jobs.Drain, error) {
	var r reader
	d := jobs.Drain{
		Conductor: message.GetConductor(), Finish: message.GetFinish(), By: message.GetBy(), Reason: message.GetReason(),
		At: r.time("drain at", message.GetAt()),
	}
	if r.err != nil {
		return jobs.Drain{}, r.err
	}
	return d, nil
}

// DrainCommandToProto converts a command about conductors; nil stays
// nil.
func DrainCommandToProto(o *jobs.DrainCommand) *v1.DrainCommand {
	if o == nil {
		return nil
	}
	return &v1.DrainCommand{Conductor: o.Conductor, By: o.By, Reason: text(o.Reason), Finish: o.Finish, Absent: o.Absent}
}

// DrainCommandFromProto converts a command about conductors. Nil is the zero command.
func DrainCommandFromProto(message *v1.DrainCommand) jobs.DrainCommand {
	return jobs.DrainCommand{
		Conductor: message.GetConductor(), By: message.GetBy(), Reason: message.GetReason(),
		Finish: message.GetFinish(), Absent: message.GetAbsent(),
	}
}

func checkDrain(limits logbook.Limits, c *v1.DrainCommand) error {
	request := DrainCommandFromProto(c)
	return jobs.CheckDrainCommand(limits, &request)
}

// checkUndrain checks the end of a drain, which is the same for all of them.
func checkUndrain(limits logbook.Limits, c *v1.DrainCommand) error {
	if c.GetFinish() || c.GetAbsent() {
		return &logbook.InvalidError{Field: "drain finish", Reason: "finish or absent is set; only a drain has them"}
	}
	return checkDrain(limits, c)
}
