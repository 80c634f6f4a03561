package fsm

import (
	"bytes"
	"cmp"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// drainConductor stops claims by the conductors of a name.
func (t *txn) drainConductor(c *v1.DrainCommand) error {
	request := command.DrainCommandFromProto(c)
	if err := roomForConductor(request.Conductor); err != nil {
		return err
	}
	standing := t.drain(request.Conductor)
	switch {
	case standing != nil && standing.Finish == request.Finish:
		return nil
	case standing == nil && !request.Absent && !t.registered(request.Conductor):
		return fmt.Errorf("cannot drain conductor %q: %w: no live conductor has this name; to drain a name in advance, mark it as absent",
			request.Conductor, jobs.ErrNotFound)
	}
	if standing == nil {
		if standing := len(t.keys(tableDrain, nil)); standing >= jobs.MaxDrains {
			return &logbook.LimitError{Field: "drains", Limit: jobs.MaxDrains, Size: int64(standing) + 1, Unit: "drains"}
		}
	}
	if standing != nil { // without a new reason, the old one stays
		request.Reason = cmp.Or(request.Reason, standing.Reason)
	}
	drain := jobs.Drain{Conductor: request.Conductor, Finish: request.Finish, By: request.By, Reason: request.Reason, At: t.now}
	t.putMessage(tableDrain, []byte(drain.Conductor), nil, command.DrainToProto(&drain))
	t.tellOfDrain(jobs.EventDrained, jobs.RequestSuspend, &request)
	return nil
}

// undrainConductor ends a drain, and wakes the conductors that wait for jobs.
func (t *txn) undrainConductor(c *v1.DrainCommand) error {
	request := command.DrainCommandFromProto(c)
	if err := roomForConductor(request.Conductor); err != nil {
		return err
	}
	if t.get(tableDrain, []byte(request.Conductor)) == nil {
		if t.registered(request.Conductor) {
			return nil
		}
		return fmt.Errorf("cannot undrain conductor %q: %w: no drained or live conductor has this name", request.Conductor, jobs.ErrNotFound)
	}
	t.delete(tableDrain, []byte(request.Conductor))
	t.tellOfDrain(jobs.EventUndrained, jobs.RequestResume, &request)
	t.changes.Undrained = true
	return nil
}

// tellOfDrain records an event that also has the conductors' name as its owner, because conductors
// watch events by owner.
func (t *txn) tellOfDrain(kind jobs.EventKind, said jobs.RequestKind, request *jobs.DrainCommand) {
	t.record(jobs.Event{
		Kind: kind, EntityKind: jobs.EntityConductor, Entity: request.Conductor, Owner: request.Conductor, Reason: request.Reason,
		Request: &jobs.OperatorRequest{Kind: said, By: request.By, Reason: request.Reason, At: t.now},
	})
}

// roomForConductor refuses a name that cannot be a key.
func roomForConductor(name string) error {
	switch {
	case name == "":
		return &logbook.InvalidError{Field: "conductor", Reason: "empty"}
	case len(name) > maxKeyName:
		return &logbook.LimitError{Field: "conductor", Limit: maxKeyName, Size: int64(len(name)), Unit: "bytes"}
	}
	return nil
}

// registered reports whether a conductor with this name is live.
func (v *view) registered(name string) bool {
	prefix := appendName(appendName(nil, jobs.EntityConductor), name)
	key, _ := v.cursor(tableEntity).Seek(prefix)
	return bytes.HasPrefix(key, prefix)
}

// drain reads the drain of a name; nil if there is none.
func (v *view) drain(name string) *jobs.Drain {
	value := v.get(tableDrain, []byte(name))
	if value == nil {
		return nil
	}
	drain := decode(value, &v1.Drain{}, command.DrainFromProto)
	return &drain
}

// drainOf finds the drain that applies to a session; nil if there is none. Without any drain, it reads one row.
func (v *view) drainOf(session jobs.SessionID) (drain *jobs.Drain) {
	if key, _ := v.cursor(tableDrain).First(); key == nil {
		return nil
	}
	v.eachConductor(session, func(name string) bool {
		drain = v.drain(name)
		return drain == nil
	})
	return drain
}
