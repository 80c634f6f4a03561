package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// ChangeToProto converts a change; nil stays nil.
func ChangeToProto(c *jobs.Change) *v1.Change {
	if c == nil {
		return nil
	}
	message := &v1.Change{
		Job: idText(c.Job.UUID), NotBefore: TimeToProto(c.NotBefore), Release: c.Release, By: c.By, Reason: text(c.Reason),
		Deadline: TimeToProto(c.Deadline), NoDeadline: c.NoDeadline, Id: idText(c.ID), Board: c.Board, Front: c.Front,
	}
	if c.Priority != nil {
		priority := int32(*c.Priority)
		message.Priority = &priority
	}
	return message
}

// ChangeFromProto converts a change. Nil is the zero change.
func ChangeFromProto(message *v1.Change) (jobs.Change, error) {
	var r reader
	c := jobs.Change{
		Job:       jobs.JobID{UUID: r.id("change job", message.GetJob())},
		NotBefore: r.time("change not_before", message.GetNotBefore()),
		Deadline:  r.time("change deadline", message.GetDeadline()), NoDeadline: message.GetNoDeadline(), ID: r.id("change id", message.GetId()),
		Release: message.GetRelease(), By: message.GetBy(), Reason: message.GetReason(),
		Board: message.GetBoard(), Front: message.GetFront(),
	}
	if message != nil && message.Priority != nil {
		priority := jobs.Priority(message.GetPriority())
		c.Priority = &priority
	}
	if r.err != nil {
		return jobs.Change{}, r.err
	}
	return c, nil
}
