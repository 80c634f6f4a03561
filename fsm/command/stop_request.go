package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// JobCommandToProto converts a command about a job; nil stays nil.
func JobCommandToProto(o *jobs.JobCommand) *v1.JobCommand {
	if o == nil {
		return nil
	}
	return &v1.JobCommand{Job: idText(o.Job.UUID), By: o.By, Reason: text(o.Reason), Revert: o.Revert,
		Steps: string(o.Steps), Grace: DurationToProto(o.Grace), To: o.To, Within: DurationToProto(o.Within)}
}

// JobCommandFromProto converts a command about a job. Nil is the zero command.
func JobCommandFromProto(message *v1.JobCommand) (jobs.JobCommand, error) {
	var r reader
	o := jobs.JobCommand{
		Job: jobs.JobID{UUID: r.id("command job", message.GetJob())},
		By:  message.GetBy(), Reason: message.GetReason(), Revert: message.GetRevert(),
		Steps: jobs.StepsPolicy(message.GetSteps()), Grace: r.duration("command grace", message.GetGrace()),
		To: message.GetTo(), Within: r.duration("command within", message.GetWithin()),
	}
	if r.err != nil {
		return jobs.JobCommand{}, r.err
	}
	return o, nil
}

// OperatorRequestToProto converts what a person has asked for; nil stays nil.
func OperatorRequestToProto(o *jobs.OperatorRequest) *v1.OperatorRequest {
	if o == nil {
		return nil
	}
	return &v1.OperatorRequest{Kind: string(o.Kind), Revert: o.Revert, By: o.By, Reason: text(o.Reason), At: TimeToProto(o.At),
		Steps: string(o.Steps), Grace: DurationToProto(o.Grace), To: o.To, Within: DurationToProto(o.Within)}
}

// OperatorRequestFromProto converts what a person has asked for; nil stays nil.
func OperatorRequestFromProto(message *v1.OperatorRequest) (*jobs.OperatorRequest, error) {
	if message == nil {
		return nil, nil
	}
	var r reader
	o := &jobs.OperatorRequest{
		Kind:   word(&r, "request kind", message.GetKind(), knownRequestKind),
		Revert: message.GetRevert(), By: message.GetBy(), Reason: message.GetReason(),
		At:    r.time("request at", message.GetAt()),
		Steps: jobs.StepsPolicy(message.GetSteps()), Grace: r.duration("request grace", message.GetGrace()),
		To: message.GetTo(), Within: r.duration("request within", message.GetWithin()),
	}
	if r.err != nil {
		return nil, r.err
	}
	return o, nil
}

func knownRequestKind(k jobs.RequestKind) bool {
	return k == jobs.RequestTransfer || k == jobs.RequestSuspend || k == jobs.RequestResume || k == jobs.RequestCancel || k == jobs.RequestChange ||
		k == jobs.RequestIntervene || k == jobs.RequestRetry || k == jobs.RequestPurge
}

// checkStop checks a command that stops a job, or makes it go on.
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

// checkSuspension checks a command that undoes nothing.
func checkSuspension(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetRevert() {
		return &logbook.InvalidError{Field: "command revert", Reason: "set; only a cancellation has it"}
	}
	return checkStop(limits, c)
}

// checkPlainCommand checks a command that stops nothing either.
func checkPlainCommand(limits logbook.Limits, c *v1.JobCommand) error {
	if c.GetSteps() != "" || c.GetGrace() != nil {
		return &logbook.InvalidError{Field: "command steps", Reason: "set; only a suspension and a cancellation have them, and a grace"}
	}
	return checkSuspension(limits, c)
}
