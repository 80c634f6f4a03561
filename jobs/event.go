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

// EventKind says what has happened.
type EventKind string

// The kinds of event.
const (
	EventPosted        EventKind = "posted"
	EventDue           EventKind = "due"    // a delayed job became claimable
	EventCooled        EventKind = "cooled" // a cooling job became claimable
	EventClaimed       EventKind = "claimed"
	EventAbandoned     EventKind = "abandoned"
	EventExpired       EventKind = "expired" // the owner vanished, or the claim's own time was up
	EventCompleted     EventKind = "completed"
	EventTrashed       EventKind = "trashed"
	EventSuspended     EventKind = "suspended"      // an unclaimed job, by a stop request
	EventResumed       EventKind = "resumed"        // the request to suspend was lifted
	EventStopRequested EventKind = "stop_requested" // the job's owner has to suspend or to undo it
	EventReserved      EventKind = "reserved"       // only the conductors of a name can claim the job, for a time
	EventUnreserved    EventKind = "unreserved"     // that time is over
	EventChanged       EventKind = "changed"        // priority or not-before time are new, or a held job was released
	EventMovedAway     EventKind = "moved_away"     // the job leaves the event's board; EventMoved follows
	EventMoved         EventKind = "moved"          // the job has come to the event's board, from another
	// EventIntervened: a person has intervened in the job's flow, and the job
	// stays where it is: the intervention holds, or nobody has claimed the job
	// since the one before.
	EventIntervened EventKind = "intervened"
	EventReopened   EventKind = "reopened" // a finished or parked job became claimable, by an intervention in its flow
	EventRestored   EventKind = "restored" // a finished job was put back on its board
	EventPurged     EventKind = "purged"   // a finished job was removed by a person; nothing follows about it
	EventRetried    EventKind = "retried"  // an attempt has failed, and the job waits for the next one
	EventParked     EventKind = "parked"   // the last attempt has failed, and the job is held for a person
	EventBegun      EventKind = "begun"    // a watch begins here; nothing has happened to any job
	EventFlow       EventKind = "flow"     // the job's flow, or some of its steps, changed state

	// Of sessions and entities. They are of no job, and told to those who ask.

	EventSessionOpened  EventKind = "session_opened"
	EventSessionClosed  EventKind = "session_closed"  // by its owner
	EventSessionExpired EventKind = "session_expired" // it was not kept alive
	EventRegistered     EventKind = "registered"      // an entity is known, or another than before
	EventGone           EventKind = "gone"            // an entity has ended with its session

	// Of a board, and of no job: nobody can claim from it, or everybody again.

	EventBoardPaused  EventKind = "board_paused"
	EventBoardResumed EventKind = "board_resumed"

	// Of the conductors of a name, which is both Entity and Owner, and of no job.

	EventDrained   EventKind = "conductor_drained"   // they are to claim nothing
	EventUndrained EventKind = "conductor_undrained" // they may claim again
)

// EventKinds are all kinds that a watch can ask for.
var EventKinds = []EventKind{
	EventPosted, EventDue, EventCooled, EventClaimed, EventAbandoned, EventExpired, EventCompleted, EventTrashed,
	EventSuspended, EventResumed, EventStopRequested, EventReserved, EventUnreserved, EventChanged, EventMovedAway, EventMoved, EventIntervened, EventReopened, EventRestored, EventPurged,
	EventRetried, EventParked, EventFlow,
	EventSessionOpened, EventSessionClosed, EventSessionExpired, EventRegistered, EventGone,
	EventBoardPaused, EventBoardResumed, EventDrained, EventUndrained,
}

// OfSessions reports whether events of the kind are of sessions or entities.
func (k EventKind) OfSessions() bool {
	switch k {
	case EventSessionOpened, EventSessionClosed, EventSessionExpired, EventRegistered, EventGone:
		return true
	}
	return false
}

// Event is one change, in the order in which the board made it.
type Event struct {
	// Position is the event's place in the one order of all events. A watch
	// resumes after a position, without gap or repeat.
	Position  Position
	Kind      EventKind
	Time      time.Time
	Board     string
	Job       JobID
	Name      string // of the job
	State     State  // of the job, after the event
	Owner     string // of the claim that began, ended, or is under a stop request; of the session
	Token     Token
	Outcome   Outcome
	Reason    string
	Steps     []StepEvent      // EventFlow: what changed
	FlowState string           // EventFlow: set if it changed
	Request   *OperatorRequest // what a person has asked for: who, why and when

	JobKind string
	Key     string   // of the job
	Tags    []string // of the job

	Session    SessionID // of events of sessions and entities
	EntityKind string    // of events of entities
	Entity     string    // name

	By string // the principal whose command it follows from; empty without access control
}

// StepEvent is the change of one step.
type StepEvent struct {
	Name  string
	State string
}

// Position is a place in the order of events: the log index, and the number
// of the event within it.
type Position struct {
	Index uint64
	Item  uint32
}

// Compare orders positions: it is negative if p comes before the other one.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.Index, other.Index), cmp.Compare(p.Item, other.Item))
}

// String is the position as commands show it and take it.
func (p Position) String() string { return fmt.Sprintf("%d-%d", p.Index, p.Item) }

// ParsePosition reads what String has made. ErrInvalid.
func ParsePosition(text string) (Position, error) {
	index, item, found := strings.Cut(text, "-")
	i, errIndex := strconv.ParseUint(index, 10, 64)
	n, errItem := strconv.ParseUint(item, 10, 32)
	if !found || errIndex != nil || errItem != nil {
		return Position{}, &logbook.InvalidError{Field: "position", Reason: fmt.Sprintf("%.64q is not INDEX-ITEM", text)}
	}
	return Position{Index: i, Item: uint32(n)}, nil
}

// Selects reports whether a watch asks for an event. A position is for the board
// to compare.
func (w *Watch) Selects(e *Event) bool {
	switch {
	case len(w.Kinds) > 0 && !slices.Contains(w.Kinds, e.Kind):
	case len(w.Kinds) == 0 && e.Kind == EventFlow && !w.Flows:
	case len(w.Kinds) == 0 && e.Kind.OfSessions() && !w.Sessions:
	case !w.selectsBoard(e.Board):
	case !w.Job.IsZero() && e.Job != w.Job:
	case w.Owner != "" && e.Owner != w.Owner:
	case w.JobKind != "" && e.JobKind != w.JobKind:
	case w.Key != "" && e.Key != w.Key:
	default:
		return !slices.ContainsFunc(w.Tags, func(tag string) bool { return !slices.Contains(e.Tags, tag) })
	}
	return false
}

func (w *Watch) selectsBoard(board string) bool {
	if w.Board == "" && len(w.Boards) == 0 {
		return true
	}
	return board != "" && (board == w.Board || slices.Contains(w.Boards, board))
}

// CheckWatch checks what a watch asks for.
func CheckWatch(w *Watch) error {
	switch {
	case len(w.Boards) > MaxBoards:
		return &logbook.LimitError{Field: "watch boards", Limit: MaxBoards, Size: int64(len(w.Boards)), Unit: "boards"}
	case len(w.Tags) > MaxTags:
		return &logbook.LimitError{Field: "watch tags", Limit: MaxTags, Size: int64(len(w.Tags)), Unit: "tags"}
	}
	for _, kind := range w.Kinds {
		if !slices.Contains(EventKinds, kind) {
			return &logbook.InvalidError{Field: "watch kinds", Reason: fmt.Sprintf("%.64q is none of %v", kind, EventKinds)}
		}
	}
	return nil
}
