package jobs

import (
	"time"
)

// EventKind says what has happened.
type EventKind string

// The kinds of event.
const (
	EventPosted    EventKind = "posted"
	EventDue       EventKind = "due" // a delayed or cooling job became claimable
	EventClaimed   EventKind = "claimed"
	EventAbandoned EventKind = "abandoned"
	EventExpired   EventKind = "expired" // the owner vanished
	EventCompleted EventKind = "completed"
	EventTrashed   EventKind = "trashed"
	EventSuspended EventKind = "suspended" // an unclaimed job, by an order
	EventResumed   EventKind = "resumed"   // the order to suspend was lifted
	EventOrdered   EventKind = "ordered"   // an order was given that an owner is to carry out
	EventChanged   EventKind = "changed"   // priority or not-before time are new, or a held job was released
	// EventIntervened: a person has intervened in the job's flow, and the job
	// stays where it is: the intervention holds, or nobody has claimed the job
	// since the one before.
	EventIntervened EventKind = "intervened"
	EventReopened   EventKind = "reopened" // a finished job became claimable, by an intervention in its flow
	EventRestored   EventKind = "restored" // a finished job was put back on its board
	EventPurged     EventKind = "purged"   // a finished job was removed by a person; nothing follows about it
	EventBegun      EventKind = "begun"    // a watch begins here; nothing has happened to any job
	EventFlow       EventKind = "flow"     // the job's flow, or some of its steps, changed state
)

// Event is one change, in the order in which the board made it.
type Event struct {
	// Position is the event's place in the one order of all events. A watch
	// resumes after a position, without gap or repeat.
	Position  Position       `json:"position"`
	Kind      EventKind      `json:"kind"`
	Time      time.Time      `json:"time"`
	Board     string         `json:"board"`
	Job       JobID          `json:"job"`
	Name      string         `json:"name,omitempty"`  // of the job
	State     State          `json:"state"`           // of the job, after the event
	Owner     string         `json:"owner,omitempty"` // of the claim that began, ended, or is under an order
	Token     Token          `json:"token,omitzero"`
	Outcome   Outcome        `json:"outcome,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	Steps     []StepEvent    `json:"steps,omitempty"`      // EventFlow: what changed
	FlowState string         `json:"flow_state,omitempty"` // EventFlow: set if it changed
	Order     *StandingOrder `json:"order,omitempty"`      // of what a person has said: who, why and when
}

// StepEvent is the change of one step.
type StepEvent struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// Position is a place in the order of events: the log index, and the number
// of the event within it.
type Position struct {
	Index uint64 `json:"index"`
	Item  uint32 `json:"item"`
}
