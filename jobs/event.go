package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conductord/conductord/logbook"
)

// EventKind is the kind of a change.
type EventKind string

// The kinds of event.
const (
	EventPosted        EventKind = "posted"
	EventDue           EventKind = "due"    // a delayed job became claimable
	EventCooled        EventKind = "cooled" // a cooling or waiting job became claimable
	EventClaimed       EventKind = "claimed"
	EventAbandoned     EventKind = "abandoned"
	EventExpired       EventKind = "expired" // the owner was lost, or the claim's own TTL passed
	EventCompleted     EventKind = "completed"
	EventTrashed       EventKind = "trashed"
	EventSuspended     EventKind = "suspended"      // an unclaimed job was suspended
	EventResumed       EventKind = "resumed"        // a suspension was withdrawn
	EventStopRequested EventKind = "stop_requested" // the job's owner, or its next one, must stop the flow: suspend, undo or hand over
	EventReserved      EventKind = "reserved"       // only the conductors of a name can claim the job, for a time
	EventUnreserved    EventKind = "unreserved"     // the reservation has ended
	EventRetryNow      EventKind = "retry_now"      // an operator ended the wait of the job's steps for their next attempts
	EventDecided       EventKind = "decided"        // a person decided the approval of the step in Steps; Reason is the decision
	// EventApprovalRequested and EventApprovalReminder: the step in Steps has started to wait for an approval, or still
	// waits. Reason has the text of the approval, and its needs.
	EventApprovalRequested EventKind = "approval_requested"
	EventApprovalReminder  EventKind = "approval_reminder"
	EventSignalled         EventKind = "signalled"  // the job received a signal; with Steps: the waiting step took it
	EventUnsent            EventKind = "unsent"     // a step's Signal did not reach a job; Reason has the cause
	EventChanged           EventKind = "changed"    // a Change took effect, or a posting with the job's key raised it
	EventMovedAway         EventKind = "moved_away" // the job leaves the event's board; EventMoved follows
	EventMoved             EventKind = "moved"      // the job has moved to the event's board
	// EventIntervened: an operator intervened in the job's flow, and the job keeps its state:
	// the intervention has Hold or takes others back, or the job was neither finished nor
	// parked.
	EventIntervened EventKind = "intervened"
	EventReopened   EventKind = "reopened"  // an intervention made a finished or parked job claimable
	EventRestored   EventKind = "restored"  // a retry put a finished job back on its board
	EventPurged     EventKind = "purged"    // an operator removed a finished job; it has no later events
	EventRetried    EventKind = "retried"   // an attempt failed, and the job waits for the next attempt
	EventContinued  EventKind = "continued" // the flow succeeded, and the job waits for the next iteration
	EventParked     EventKind = "parked"    // the last attempt failed, and the job is held until an operator decides
	EventBegun      EventKind = "begun"     // the start of a watch with Begin; no change
	EventFlow       EventKind = "flow"      // the job's flow, or some of its steps, changed state

	// Events of sessions and entities. They belong to no job, and are sent on request: see
	// Watch.Sessions.

	EventSessionOpened  EventKind = "session_opened"
	EventSessionClosed  EventKind = "session_closed"  // by its owner
	EventSessionExpired EventKind = "session_expired" // the session had no keep-alive
	EventRegistered     EventKind = "registered"      // an entity was registered or replaced
	EventGone           EventKind = "gone"            // an entity ended with its session

	// Events of a board. They belong to no job.

	EventBoardPaused  EventKind = "board_paused"
	EventBoardResumed EventKind = "board_resumed"
	// EventPublicationExpired: no wait took a kept publication in time. Signal is its topic, and Key its key.
	EventPublicationExpired EventKind = "publication_expired"

	// Events of the conductors of a name, which is in Entity and Owner. They belong to no
	// job.

	EventDrained   EventKind = "conductor_drained"   // the conductors get no more jobs
	EventUndrained EventKind = "conductor_undrained" // the conductors can claim again
)

// EventKinds are all kinds that Watch.Kinds accepts.
var EventKinds = []EventKind{
	EventPosted, EventDue, EventCooled, EventClaimed, EventAbandoned, EventExpired, EventCompleted, EventTrashed,
	EventSuspended, EventResumed, EventStopRequested, EventReserved, EventUnreserved, EventRetryNow, EventSignalled, EventApprovalRequested, EventApprovalReminder, EventDecided, EventUnsent, EventChanged, EventMovedAway, EventMoved, EventIntervened, EventReopened, EventRestored, EventPurged,
	EventRetried, EventContinued, EventParked, EventFlow,
	EventSessionOpened, EventSessionClosed, EventSessionExpired, EventRegistered, EventGone,
	EventBoardPaused, EventBoardResumed, EventPublicationExpired, EventDrained, EventUndrained,
}

// OfSessions reports whether events of the kind belong to sessions or entities.
func (k EventKind) OfSessions() bool {
	switch k {
	case EventSessionOpened, EventSessionClosed, EventSessionExpired, EventRegistered, EventGone:
		return true
	}
	return false
}

// Event is one change of a job, session, entity, board or drain.
type Event struct {
	// Position is the place in the total order of events. A watch resumes after a position,
	// without gap or repeat.
	Position  Position
	Kind      EventKind
	Time      time.Time
	Board     string
	Job       JobID
	Name      string // name of the job
	State     State  // state of the job after the event
	Owner     string // owner of the claim that started, ended, or has a stop request; name of the session
	Token     Token
	Outcome   Outcome
	Reason    string
	Steps     []StepEvent      // for EventFlow, the changed steps; for EventRetryNow, the step that waited: none means all; for EventSignalled, the step that took the signal; for EventDecided, the step with the approval; for EventUnsent, the sender
	FlowState string           // only for EventFlow: the new state; empty: unchanged
	Request   *OperatorRequest // the operator's request that caused the event

	Signal        string // only for EventSignalled and EventUnsent: the name of the signal; for EventPublicationExpired: the topic
	UnreadSignals int    // only for the end of a job: signals that no wait has taken
	Iteration     int    // only for EventContinued: the number of the iteration that starts

	JobKind string
	Key     string   // key of the job; for EventPublicationExpired: key of the publication
	Tags    []string // tags of the job

	Session    SessionID // only for events of sessions and entities
	EntityKind string    // only for events of entities
	Entity     string    // name of the entity

	By string // the principal whose command caused the event; empty without access control
}

// StepEvent is the change of one step.
type StepEvent struct {
	Name  string
	State string
}

// Position is a place in the order of events: the log index of the entry, and the number of
// the event within the entry.
type Position struct {
	Index uint64
	Item  uint32
}

// Compare orders positions. It returns a negative number if p comes before other, 0 if they
// are equal, and otherwise a positive number.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.Index, other.Index), cmp.Compare(p.Item, other.Item))
}

// String returns the text form INDEX-ITEM, which ParsePosition reads.
func (p Position) String() string { return fmt.Sprintf("%d-%d", p.Index, p.Item) }

// ParsePosition reads the text form of a position. ErrInvalid.
func ParsePosition(text string) (Position, error) {
	index, item, found := strings.Cut(text, "-")
	i, errIndex := strconv.ParseUint(index, 10, 64)
	n, errItem := strconv.ParseUint(item, 10, 32)
	if !found || errIndex != nil || errItem != nil {
		return Position{}, &logbook.InvalidError{Field: "position", Reason: fmt.Sprintf("%.64q is not of the form INDEX-ITEM", text)}
	}
	return Position{Index: i, Item: uint32(n)}, nil
}

// Selects reports whether a watch selects an event. It does not compare After and Others;
// the board does.
func (w *Watch) Selects(e *Event) bool {
	switch {
	case !w.SelectsKind(e.Kind, e.Board):
	case !w.Job.IsZero() && e.Job != w.Job:
	case w.Owner != "" && e.Owner != w.Owner:
	case w.JobKind != "" && e.JobKind != w.JobKind:
	case w.Key != "" && e.Key != w.Key:
	default:
		return !slices.ContainsFunc(w.Tags, func(tag string) bool { return !slices.Contains(e.Tags, tag) })
	}
	return false
}

// SelectsKind reports whether a watch can select events of a kind and a board.
func (w *Watch) SelectsKind(kind EventKind, board string) bool {
	switch {
	case len(w.Kinds) > 0 && !slices.Contains(w.Kinds, kind):
	case len(w.Kinds) == 0 && kind == EventFlow && !w.Flows:
	case len(w.Kinds) == 0 && kind.OfSessions() && !w.Sessions:
	default:
		return w.selectsBoard(board)
	}
	return false
}

func (w *Watch) selectsBoard(board string) bool {
	if w.Board == "" && len(w.Boards) == 0 {
		return true
	}
	return board != "" && (board == w.Board || slices.Contains(w.Boards, board))
}

// CheckWatch checks the filters of a watch.
func CheckWatch(w *Watch) error {
	switch {
	case len(w.Boards) > MaxBoards:
		return &logbook.LimitError{Field: "watch boards", Limit: MaxBoards, Size: int64(len(w.Boards)), Unit: "boards"}
	case len(w.Tags) > MaxTags:
		return &logbook.LimitError{Field: "watch tags", Limit: MaxTags, Size: int64(len(w.Tags)), Unit: "tags"}
	}
	for _, kind := range w.Kinds {
		if !slices.Contains(EventKinds, kind) {
			return &logbook.InvalidError{Field: "watch kinds", Reason: fmt.Sprintf("%.64q is not one of %v", kind, EventKinds)}
		}
	}
	return nil
}
