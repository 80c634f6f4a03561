package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// EventToProto converts an event; nil stays nil.
func EventToProto(e *jobs.Event) *v1.Event {
	if e == nil {
		return nil
	}
	message := &v1.Event{
		Position:  PositionToProto(e.Position),
		Kind:      string(e.Kind),
		Time:      TimeToProto(e.Time),
		Board:     e.Board,
		Job:       idText(e.Job.UUID),
		Name:      e.Name,
		State:     string(e.State),
		Owner:     e.Owner,
		Token:     TokenToProto(e.Token),
		Outcome:   string(e.Outcome),
		Reason:    text(e.Reason),
		FlowState: e.FlowState,
		Order:     StandingOrderToProto(e.Order),
	}
	for _, step := range e.Steps {
		message.Steps = append(message.Steps, &v1.StepEvent{Name: step.Name, State: step.State})
	}
	return message
}

// EventFromProto converts an event. Nil is the zero event. The states of flows
// and steps are not checked: they are shown to people and nobody acts on them.
func EventFromProto(message *v1.Event) (jobs.Event, error) {
	var r reader
	order, err := StandingOrderFromProto(message.GetOrder())
	e := jobs.Event{
		Position:  PositionFromProto(message.GetPosition()),
		Kind:      word(&r, "event kind", message.GetKind(), knownEventKind),
		Time:      r.time("event time", message.GetTime()),
		Board:     message.GetBoard(),
		Job:       jobs.JobID{UUID: r.id("event job", message.GetJob())},
		Name:      message.GetName(),
		State:     word(&r, "event state", message.GetState(), knownJobState),
		Owner:     message.GetOwner(),
		Token:     TokenFromProto(message.GetToken()),
		Outcome:   word(&r, "event outcome", message.GetOutcome(), knownOutcome),
		Reason:    message.GetReason(),
		FlowState: message.GetFlowState(),
		Order:     keep(&r, order, err),
	}
	for _, step := range message.GetSteps() {
		e.Steps = append(e.Steps, jobs.StepEvent{Name: step.GetName(), State: step.GetState()})
	}
	if r.err != nil {
		return jobs.Event{}, r.err
	}
	return e, nil
}

// PositionToProto converts a position. Also the zero position is set, since a
// request without one asks for something else: the events from now on.
func PositionToProto(p jobs.Position) *v1.Position {
	return &v1.Position{Index: p.Index, Item: p.Item}
}

// PositionFromProto converts a position. Nil is the zero position.
func PositionFromProto(message *v1.Position) jobs.Position {
	return jobs.Position{Index: message.GetIndex(), Item: message.GetItem()}
}

func knownEventKind(k jobs.EventKind) bool {
	switch k {
	case jobs.EventPosted, jobs.EventDue, jobs.EventClaimed, jobs.EventAbandoned, jobs.EventExpired,
		jobs.EventCompleted, jobs.EventTrashed, jobs.EventFlow, jobs.EventSuspended, jobs.EventResumed, jobs.EventOrdered,
		jobs.EventChanged, jobs.EventIntervened, jobs.EventReopened,
		jobs.EventRestored, jobs.EventPurged:
		return true
	}
	return false
}
