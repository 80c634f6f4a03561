package fsm_test

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// The model's approvals. Package logbook knows what decisions lead to. The walks have no principals.

// decide applies a decision about the open approval of a job.
func (m *model) decide(given jobs.DecisionCommand, err error) error {
	j := m.jobs[given.Job.String()]
	switch {
	case err != nil:
		return err
	case j == nil:
		return jobs.ErrNotFound
	}
	var open []*logbook.AtomDetail
	flow := m.flowOf(j)
	for i := 0; flow != nil && i < len(flow.Atoms); i++ {
		if atom := &flow.Atoms[i]; flow.waited[atom.Name] > 0 && atom.OpenWait().Approval != nil {
			open = append(open, atom)
		}
	}
	switch len(open) {
	case 0:
		return jobs.ErrConflict
	case 1:
	default:
		return jobs.ErrInvalid
	}
	atom, d := open[0], given.Decision
	wait := atom.OpenWait()
	switch {
	case slices.ContainsFunc(wait.Approval.Decisions, func(earlier logbook.Decision) bool { return earlier.ID == d.ID }):
		return nil
	case j.State.Finished():
		return jobs.ErrJobOver
	case !wait.Until.After(m.now):
		return jobs.ErrDecided
	case m.by == "":
		d.Roles = wait.Approval.Needed()
	case !d.Override:
		return jobs.ErrNotAllowed
	}
	d.At = m.now
	if atom.Decide(&d).Outcome() != "" {
		delete(flow.waited, atom.Name)
		m.hurry(j)
	}
	return nil
}

// modelReminder is the next reminder of an open approval.
type modelReminder struct {
	at     time.Time
	number uint64
	flow   *modelFlow
	atom   int
}

// remind passes the reminders whose time has come, the earliest first.
func (m *model) remind(most int) (done int, more bool) {
	var due []modelReminder
	for _, flow := range m.flows {
		for i := range flow.Atoms {
			name := flow.Atoms[i].Name
			if flow.waited[name] == 0 || flow.Atoms[i].OpenWait().Approval == nil {
				continue
			}
			remind := flow.Atoms[i].OpenWait().Approval.Remind
			next := slices.IndexFunc(remind, func(r logbook.Reminder) bool { return r.At.After(flow.reminded[name]) })
			if next >= 0 && !remind[next].At.After(m.now) {
				due = append(due, modelReminder{remind[next].At, flow.waited[name], flow, i})
			}
		}
	}
	slices.SortFunc(due, func(a, b modelReminder) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.number, b.number), bytes.Compare(a.flow.ID.UUID[:], b.flow.ID.UUID[:]), cmp.Compare(a.atom, b.atom))
	})
	done = min(len(due), max(0, most))
	for _, r := range due[:done] {
		r.flow.reminded[r.flow.Atoms[r.atom].Name] = r.at
	}
	m.reminders += done
	return done, len(due) > done
}

// approval draws a decision about an open approval, its reminders, or the start of an approval.
func (w *walker) approval() *v1.Command {
	var asking []string
	for _, flow := range w.model.flows {
		if flow.last != nil && slices.ContainsFunc(flow.Atoms, func(a logbook.AtomDetail) bool {
			wait := a.OpenWait()
			return wait.Open() && wait.Approval != nil
		}) {
			asking = append(asking, flow.last.ID.String())
		}
	}
	if slices.Sort(asking); len(asking) == 0 || w.draw("asks", 3) == 0 {
		return w.asks()
	}
	if w.draw("reminds", 2) == 0 {
		return wake(w.machine.TimerEpoch(), 10)
	}
	return w.decision(w.oneOf("asking", asking...))
}

// asks draws the start of an approval in the flow of a claimed job.
func (w *walker) asks() *v1.Command {
	job := w.held()
	flow, _, err := w.machine.Flow(job.Flow, fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil {
		return w.order()
	}
	u := &v1.Update{Flow: job.Flow.String(), Token: command.TokenToProto(job.Token), Sequence: 1, State: "running"}
	if flow.Fence == job.Token {
		u.Sequence = flow.Sequence + 1
	}
	name, number := w.oneOf("atom", "x", "y", "z"), 1
	if atom, ok := flow.Atom(name); ok && len(atom.Attempts) > 0 {
		if number = len(atom.Attempts); atom.Attempts[number-1].Ended() {
			number++
		}
	}
	attempt := executing(uint32(number))
	attempt.Asked = 1
	attempt.Wait = &v1.Wait{Since: timestamppb.New(start), Until: timestamppb.New(start.Add(time.Hour)), Approval: w.need()}
	u.Atoms = append(u.Atoms, task(name, "pending", attempt))
	return updateFlow(u)
}
