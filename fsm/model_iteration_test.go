package fsm_test

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// iterationID is the flow of an iteration of a job.
func iterationID(job jobs.JobID, number int) logbook.FlowID {
	name := binary.BigEndian.AppendUint64([]byte("iteration "), uint64(number))
	return logbook.FlowID{UUID: uuid.NewSHA1(job.UUID, binary.BigEndian.AppendUint64(name, 0))}
}

// beginIteration ends an iteration of a job's flow, and begins the next.
func (m *model) beginIteration(j *modelJob, flow, after *modelFlow, c *v1.Ending) error {
	if flow == nil {
		return jobs.ErrInvalid
	}
	m.adopt(flow, after)
	m.letGo(j, "continued")
	flow.busy, flow.Continued = nil, true
	next := &modelFlow{busy: j, last: j, plan: proto.Clone(flow.plan).(*v1.FlowDetail), FlowDetail: logbook.FlowDetail{
		Book: flow.Book, Name: flow.Name, Factory: flow.Factory, Meta: flow.Meta, State: logbook.FlowPending,
		Iteration: max(flow.Iteration, 1) + 1, Previous: flow.ID,
	}}
	next.ID = iterationID(j.ID, next.Iteration)
	store := logbook.Values{}
	maps.Copy(store, flow.Store)
	maps.Copy(store, command.ValuesFromProto(c.Again.Store))
	if len(store) > 0 {
		next.Store = store
	}
	next.plan.Id, next.plan.Store = next.ID.String(), command.ValuesToProto(next.Store)
	m.flows[next.ID.String()] = next
	flows := m.books[flow.Book.String()].flows
	flows[slices.Index(flows, flow)] = next
	kept := next
	for range jobs.KeptIterations - 1 {
		if kept.Previous.IsZero() {
			break
		}
		kept = m.flows[kept.Previous.String()]
	}
	delete(m.flows, kept.Previous.String())
	kept.Previous = logbook.FlowID{}
	j.Flow, j.Iteration, j.Reason, j.Failure = next.ID, next.Iteration, c.Reason, command.FailureFromProto(c.Failure)
	j.StartedAt, j.Crashes, j.Failures, j.Attempts, j.Attempted = time.Time{}, 0, 0, 0, ""
	if c.Again.Delay.AsDuration() > 0 && j.Reason == "" {
		j.Reason = "waits for the next iteration"
	}
	j.waits = true
	m.settle(j, c.Again.Delay.AsDuration())
	return nil
}
