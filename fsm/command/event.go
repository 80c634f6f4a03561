package command

import (
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// EventToProto converts an event; nil stays nil.
func EventToProto(e *jobs.Event) *v1.Event {
	if e == nil {
		return nil
	}
	message := new(v1.Event)
	FillEvent(message, e)
	return message
}

// FillEvent fills a reused message, with all its parts, with an event. It reuses the text of the
// job's id if the id is the same.
func FillEvent(message *v1.Event, e *jobs.Event) {
	steps := message.Steps[:min(len(message.Steps), len(e.Steps))]
	*message = v1.Event{
		Kind:      string(e.Kind),
		Time:      timeLike(e.Time, message.Time),
		Board:     e.Board,
		Job:       idLike(message.Job, e.Job.UUID),
		Name:      e.Name,
		State:     string(e.State),
		Owner:     e.Owner,
		Token:     TokenInto(message.Token, e.Token),
		Outcome:   string(e.Outcome),
		Reason:    text(e.Reason),
		FlowState: e.FlowState,
		Request:   OperatorRequestToProto(e.Request),

		Signal: e.Signal, UnreadSignals: countOf(e.UnreadSignals), Iteration: countOf(e.Iteration),
		JobKind: e.JobKind, Key: e.Key, Tags: slices.Clone(e.Tags),
		Session: idText(e.Session.UUID), EntityKind: e.EntityKind, Entity: e.Entity, By: e.By,
	}
	if e.Position != (jobs.Position{}) { // a stored event has no position: its key has it
		message.Position = PositionToProto(e.Position)
	}
	for i, step := range e.Steps {
		if i == len(steps) {
			steps = append(steps, new(v1.StepEvent))
		}
		steps[i].Name, steps[i].State = step.Name, step.State
	}
	message.Steps = steps
}

// PositionToProto converts a position. It also sets the zero position, because a request without a
// position means the events from now on.
func PositionToProto(p jobs.Position) *v1.Position {
	return &v1.Position{Index: p.Index, Item: p.Item}
}

// PositionFromProto converts a position. Nil is the zero position.
func PositionFromProto(message *v1.Position) jobs.Position {
	return jobs.Position{Index: message.GetIndex(), Item: message.GetItem()}
}

func knownEventKind(k jobs.EventKind) bool { return slices.Contains(jobs.EventKinds, k) }

// WatchToProto converts the selection of a watch. Begin stays in the client.
func WatchToProto(w *jobs.Watch) *v1.WatchRequest {
	message := &v1.WatchRequest{
		Board: w.Board, Job: idText(w.Job.UUID), Flows: w.Flows, Owner: w.Owner, Boards: slices.Clone(w.Boards),
		JobKind: w.JobKind, Key: w.Key, Tags: slices.Clone(w.Tags), Sessions: w.Sessions, Others: w.Others,
	}
	if w.After != nil {
		message.After = PositionToProto(*w.After)
	}
	for _, kind := range w.Kinds {
		message.Kinds = append(message.Kinds, string(kind))
	}
	return message
}

// WatchFromProto converts the selection of a watch.
func WatchFromProto(message *v1.WatchRequest) (jobs.Watch, error) {
	var r reader
	w := jobs.Watch{
		Board: message.GetBoard(), Job: jobs.JobID{UUID: r.id("watch job", message.GetJob())}, Flows: message.GetFlows(),
		Owner: message.GetOwner(), Boards: slices.Clone(message.GetBoards()), JobKind: message.GetJobKind(),
		Key: message.GetKey(), Tags: slices.Clone(message.GetTags()), Sessions: message.GetSessions(), Others: message.GetOthers(),
	}
	if message.GetAfter() != nil {
		after := PositionFromProto(message.GetAfter())
		w.After = &after
	}
	for _, kind := range message.GetKinds() {
		w.Kinds = append(w.Kinds, word(&r, "watch kind", kind, knownEventKind))
	}
	if r.err != nil {
		return jobs.Watch{}, r.err
	}
	return w, jobs.CheckWatch(&w)
}
