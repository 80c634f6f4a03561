package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// event records an event of a job. extra has further fields, such as Owner, Token or Steps.
func (t *txn) event(kind jobs.EventKind, j *jobRecord, extra jobs.Event) {
	extra.Kind = kind
	extra.Board, extra.Job, extra.Name, extra.State = j.Board, j.ID, j.Name, j.State
	extra.JobKind, extra.Key, extra.Tags = j.Kind, j.Key, j.Tags
	if j.State.Finished() {
		extra.UnreadSignals = j.UnreadSignals
	}
	t.record(extra)
}

// record records an event at the current time.
func (t *txn) record(e jobs.Event) {
	t.item++
	position := jobs.Position{Index: t.Index, Item: t.item}
	e.Time, e.By = t.now, t.by
	if text := t.messages.job.GetJob().GetId(); text != "" {
		t.messages.event.Job = text // possibly the flow of this job
	}
	command.FillEvent(&t.messages.event, &e)
	value := t.memory.encode(nil, &t.messages.event)
	t.bufferEvent(position, value)
	t.KeptEvents++
	t.EventBytes += uint64(len(value))
	t.LastEvent = position
	t.changes.Events = true
}

// eventSize bounds the average stored size of the kept events. Most events are far smaller. The event of an update
// with thousands of steps is a thousand times larger, and 100,000 such events would fill a disk.
const eventSize = 1 << 10

// trimEvents drops the oldest events over the bounds, and keeps at least one. It runs once per batch. The kept
// events do not depend on the batches.
func (t *txn) trimEvents() {
	over := func() bool {
		return t.KeptEvents > t.eventsKept || (t.EventBytes > t.eventsKept*eventSize && t.KeptEvents > 1)
	}
	if !over() {
		return
	}
	var drop [][]byte
	t.scan(tableEvent, nil, func(key, value []byte) bool {
		all := eachEvent(key, value, func(position jobs.Position, event []byte) bool {
			switch {
			case !before(t.Compacted, position):
				return true // this event was dropped, but other events of the row were not
			case !over():
				return false
			}
			t.KeptEvents--
			t.EventBytes -= uint64(len(event))
			t.Compacted = position
			return true
		})
		if all {
			drop = append(drop, bytes.Clone(key))
		}
		return all && over()
	})
	for _, key := range drop {
		t.delete(tableEvent, key)
	}
}

// Events reads up to limit events after a position, in order. It reads fewer if they are long, and none only if no
// events follow. A limit of 0 or over logbook.MaxPage means logbook.MaxPage. ErrCompacted if events after the
// position are no longer kept. The zero position is before all events.
func (m *Machine) Events(after jobs.Position, limit int) ([]jobs.Event, error) {
	page, err := m.EventsOf(&jobs.Watch{Flows: true, Sessions: true}, after, limit)
	return page.Events, err
}

// EventPage is the result of one search for events.
type EventPage struct {
	Events  []jobs.Event
	Reached jobs.Position // position of the last read event; the start if no event follows it
	Read    int           // events that the search has read, including skipped ones
	More    bool          // the search has stopped at its limit
}

// EventsOf is Events for a watch. It skips most events that the watch does not select by owner, job, board, kind or
// Others, and checks only their stored bytes. Every conductor watches its own claims among all events, so skipped
// events must be cheap. The caller must still call watch.Selects: an event can contain the owner's name in another
// field.
func (m *Machine) EventsOf(watch *jobs.Watch, after jobs.Position, limit int) (page EventPage, err error) {
	own := func(jobs.Position) bool { return false }
	if watch.Others {
		own = m.own.has
	}
	limit = pageSize(limit)
	err = m.read(func(v *view) error {
		present, err := v.ledgerOf()
		if err != nil {
			return err
		}
		if before(after, present.Compacted) {
			return fmt.Errorf("cannot watch: %w", &jobs.CompactedError{After: after, Since: present.Compacted})
		}
		page = v.eventsAfter(after, limit, watch, own)
		return nil
	})
	return page, err
}

func (v *view) eventsAfter(after jobs.Position, limit int, watch *jobs.Watch, own func(jobs.Position) bool) (page EventPage) {
	page.Reached = after
	size, named := 0, []byte(watch.Owner)
	if !watch.Job.IsZero() {
		named = []byte(watch.Job.String())
	}
	cursor := v.cursor(tableEvent)
	for key, value := eventRowAt(cursor, after); key != nil; key, value = cursor.Next() {
		all := eachEvent(key, value, func(position jobs.Position, value []byte) bool {
			switch {
			case !before(after, position):
				return true
			case len(page.Events) >= limit || size >= maxPageBytes:
				return false
			}
			size += len(value)
			page.Reached = position
			page.Read++
			if !bytes.Contains(value, named) || !watch.SelectsKind(headOfEvent(value)) || own(position) {
				return true
			}
			event := decode(value, &v1.Event{}, command.EventFromProto)
			event.Position = position
			page.Events = append(page.Events, event)
			return true
		})
		if page.More = !all; page.More {
			break
		}
	}
	return page
}

// headOfEvent reads only the kind and the board of a stored event; empty if it has none.
func headOfEvent(event []byte) (kind jobs.EventKind, board string) {
	for len(event) > 0 {
		number, wireType, size := protowire.ConsumeTag(event)
		if size < 0 {
			return kind, board
		}
		event = event[size:]
		if size = protowire.ConsumeFieldValue(number, wireType, event); size < 0 || number > boardField {
			return kind, board
		}
		switch number {
		case kindField:
			text, _ := protowire.ConsumeBytes(event)
			kind = jobs.EventKind(text)
		case boardField:
			text, _ := protowire.ConsumeBytes(event)
			board = string(text)
		}
		event = event[size:]
	}
	return kind, board
}

// Stored events have their fields in the order of these numbers.
var (
	eventFields = (&v1.Event{}).ProtoReflect().Descriptor().Fields()
	kindField   = eventFields.ByName("kind").Number()
	boardField  = eventFields.ByName("board").Number()
)

// maxOwnEndings bounds ownEndings. It is enough for some seconds on a busy board. Watches with Others also get the
// events of older endings.
const maxOwnEndings = 4096

// ownEndings has the positions of the latest endings that the claims' owners made themselves. It is
// not part of the state, because the events do not contain this fact.
type ownEndings struct {
	mu        sync.RWMutex
	positions []jobs.Position // in order
}

func (o *ownEndings) add(positions []jobs.Position) {
	if len(positions) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.positions) >= 2*maxOwnEndings {
		o.positions = append(o.positions[:0], o.positions[len(o.positions)-maxOwnEndings:]...)
	}
	o.positions = append(o.positions, positions...)
}

func (o *ownEndings) has(position jobs.Position) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	_, found := slices.BinarySearchFunc(o.positions, position, jobs.Position.Compare)
	return found
}

// clear removes all positions, before a restored state replaces the current one.
func (o *ownEndings) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.positions = nil
}

func before(a, b jobs.Position) bool { return a.Compare(b) < 0 }
