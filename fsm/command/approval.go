package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// DecideCommandToProto converts a decision and its step. The cluster sets the roles and the time, and the kind of the
// command distinguishes decisions from overrides.
func DecideCommandToProto(c *jobs.DecisionCommand) *v1.DecideCommand {
	d := &c.Decision
	return &v1.DecideCommand{
		Job: idText(c.Job.UUID), Step: c.Step, Wait: c.Wait,
		Kind: string(d.Kind), Id: d.ID, By: d.By, Reason: text(d.Reason), Answers: ValueToProto(d.Answers),
	}
}

// DecideCommandFromProto converts a decision and its step.
func DecideCommandFromProto(m *v1.DecideCommand) (jobs.DecisionCommand, error) {
	var r reader
	job := jobs.JobID{UUID: r.id("decision job", m.GetJob())}
	return jobs.DecisionCommand{Job: job, Step: m.GetStep(), Wait: m.GetWait(), Decision: logbook.Decision{
		Kind: logbook.DecisionKind(m.GetKind()), ID: m.GetId(), By: m.GetBy(), Reason: m.GetReason(), Answers: ValueFromProto(m.GetAnswers()),
	}}, r.err
}

// OverrideCommandFromProto converts an override and its step.
func OverrideCommandFromProto(m *v1.DecideCommand) (jobs.DecisionCommand, error) {
	c, err := DecideCommandFromProto(m)
	c.Decision.Override = true
	return c, err
}
