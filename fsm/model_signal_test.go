package fsm_test

import (
	"cmp"
	"slices"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// modelSignal is an unread signal of a job.
type modelSignal struct{ id, name string }

// hears applies a signal, a publication, or a decision about an approval.
func (m *model) hears(c *v1.Command) (string, error) {
	switch kind := c.Kind.(type) {
	case *v1.Command_Decide:
		return "", m.decide(command.DecideCommandFromProto(kind.Decide))
	case *v1.Command_Override:
		return "", m.decide(command.OverrideCommandFromProto(kind.Override))
	case *v1.Command_Publish:
		return m.publish(kind.Publish)
	}
	return m.signal(c.GetSignal())
}

// signal gives a signal to a job, or to the oldest wait for it.
func (m *model) signal(c *v1.SignalCommand) (string, error) {
	j, board := m.jobs[c.Job], ""
	if c.Key != "" {
		board = boardNamed(c.Board)
		j = m.keyHolder(board, c.Key, &logbook.Signal{ID: c.Id})
	}
	return m.receive(j, board, modelSignal{c.Id, c.Name})
}

// receive gives a signal to a job. board is the board of a signal by key.
func (m *model) receive(j *modelJob, board string, signal modelSignal) (string, error) {
	switch {
	case j == nil:
		return "", jobs.ErrNotFound
	case j.signals[signal.id]:
		return string(jobs.SignalRepeated), nil
	case j.State.Finished():
		return "", jobs.ErrJobOver
	}
	answer := m.accept(j, board, signal)
	if answer == jobs.SignalTaken {
		m.hurry(j)
	}
	return string(answer), nil
}

func (m *model) accept(j *modelJob, board string, signal modelSignal) jobs.SignalAnswer {
	if j.signals == nil {
		j.signals = map[string]bool{}
	}
	j.signals[signal.id] = true
	if board != "" {
		m.keyed[[3]string{board, j.Key, signal.id}] = j.ID.String()
	}
	flow := m.flowOf(j)
	var oldest *logbook.AtomDetail
	for i := 0; flow != nil && i < len(flow.Atoms); i++ {
		if atom := &flow.Atoms[i]; atom.OpenWait().Takes(signal.name) && (oldest == nil || atom.OpenWait().Number < oldest.OpenWait().Number) {
			oldest = atom
		}
	}
	if oldest != nil {
		give(flow, oldest, signal)
		return jobs.SignalTaken
	}
	j.unread = append(j.unread, signal)
	j.UnreadSignals++
	return jobs.SignalKept
}

// give ends the open wait of an atom with a signal.
func give(flow *modelFlow, atom *logbook.AtomDetail, signal modelSignal) {
	latest := &atom.Attempts[len(atom.Attempts)-1]
	wait := *latest.Wait
	wait.Signal = &logbook.Signal{Name: signal.name, ID: signal.id}
	latest.Wait, atom.RetryAt = &wait, time.Time{}
	delete(flow.waited, atom.Name)
}

// hurry lets a job whose step has taken a signal continue.
func (m *model) hurry(j *modelJob) {
	if j.State == jobs.StateClaimed {
		j.hurried = true
		return
	}
	if j.ended != "lost" {
		j.cooled = time.Time{}
	}
	m.touch(j)
}

// joinWaits lets an open attempt keep its stored wait, and refuses the end of a wait without the signal that it took.
func joinWaits(atom *logbook.AtomDetail, change *logbook.AtomChange) error {
	for i := range change.Attempts {
		attempt := &change.Attempts[i]
		at := slices.IndexFunc(atom.Attempts, func(a logbook.Attempt) bool { return a.Action == attempt.Action && a.Number == attempt.Number })
		if at < 0 || atom.Attempts[at].Wait == nil {
			continue
		}
		stored := atom.Attempts[at].Wait
		if attempt.Ended() && stored.Signal != nil && (attempt.Wait == nil || attempt.Wait.Signal == nil) {
			return logbook.ErrSignalled
		}
		if attempt.Wait != nil {
			kept := *attempt.Wait
			kept.Approval = stored.Approval
			attempt.Wait = &kept
		}
		switch {
		case attempt.Ended():
			continue
		case attempt.Wait == nil:
			attempt.Wait = stored
		default:
			joined := *attempt.Wait
			joined.Signals, joined.Topic, joined.Key = stored.Signals, stored.Topic, stored.Key
			if joined.Number = stored.Number; joined.Signal == nil {
				joined.Signal = stored.Signal
			}
			attempt.Wait = &joined
		}
		if attempt.Wait.Signal != nil {
			change.RetryAt = time.Time{}
		}
	}
	return nil
}

// adopt replaces a flow after an update. Waits that begin take the oldest unread signal of the flow's job.
func (m *model) adopt(flow, after *modelFlow) {
	*flow = *after
	if flow.waited == nil {
		flow.waited, flow.boards, flow.reminded = map[string]uint64{}, map[string]string{}, map[string]time.Time{}
	}
	for _, name := range flow.changed {
		atom, _ := flow.Atom(name)
		wait := atom.OpenWait()
		if !wait.Open() {
			delete(flow.waited, name)
			continue
		}
		if wait.Number == 0 {
			begun := *wait
			begun.Number = m.index
			wait = &begun
			atom.Attempts[len(atom.Attempts)-1].Wait = wait
		}
		if flow.waited[name] == wait.Number {
			continue
		}
		flow.waited[name] = wait.Number
		delete(flow.reminded, name)
		if j := flow.busy; j != nil {
			if at := slices.IndexFunc(j.unread, func(s modelSignal) bool { return wait.Takes(s.name) }); at >= 0 {
				give(flow, atom, j.unread[at])
				j.unread = slices.Delete(j.unread, at, at+1)
				j.UnreadSignals--
				m.hurry(j)
			} else {
				m.subscribe(flow, atom, j)
			}
		}
	}
	flow.changed = nil
}

// keyHolder is the job that a signal by key reaches: the job that has received the signal, or the unfinished job.
func (m *model) keyHolder(board, key string, signal *logbook.Signal) *modelJob {
	if signal != nil {
		if j := m.jobs[m.keyed[[3]string{board, key, signal.ID}]]; j != nil {
			return j
		}
	}
	return m.holder(board, key)
}

// postSignal posts one job, or gives the signal of the posting to the job with the posting's key.
func (m *model) postSignal(p *v1.Posting) (job string, existed bool, signalled string, err error) {
	if p.Signal == nil {
		job, existed, err = m.postOne(p)
		return job, existed, "", err
	}
	board, id := boardNamed(p.Board), cmp.Or(p.Signal.Id, p.Id)
	if known := m.jobs[p.Id]; known == nil {
		if j := m.keyHolder(board, p.Key, &logbook.Signal{ID: id}); j != nil {
			if signalled, err = m.receive(j, board, modelSignal{id, p.Signal.Name}); err != nil || j.State.Finished() {
				return j.ID.String(), true, signalled, err
			}
			posting, err := command.PostingFromProto(p)
			if err != nil {
				panic(err)
			}
			m.raise(j, &posting) // also after the job has moved to another board
			return j.ID.String(), true, signalled, nil
		}
	}
	if job, existed, err = m.postOne(p); err == nil {
		signalled = string(jobs.SignalRepeated)
		if !existed {
			signalled = string(m.accept(m.jobs[p.Id], board, modelSignal{id, p.Signal.Name}))
		}
	}
	return job, existed, signalled, err
}

// holder is the unfinished job that has a key.
func (m *model) holder(board, key string) *modelJob {
	for _, j := range m.jobs {
		if key != "" && j.Key == key && j.Board == board && !j.State.Finished() {
			return j
		}
	}
	return nil
}

// forgetSignals forgets the signals by key of a removed job, because another job can get its id.
func (m *model) forgetSignals(j *modelJob) {
	for key, id := range m.keyed {
		if id == j.ID.String() {
			delete(m.keyed, key)
		}
	}
}
