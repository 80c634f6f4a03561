package fsm_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// modelKept is a publication that a board keeps.
type modelKept struct {
	board, topic, key, id string
	until                 time.Time
}

// modelWaiter is a step that waits for a topic.
type modelWaiter struct {
	job  *modelJob
	flow *modelFlow
	atom *logbook.AtomDetail
}

// publish gives a publication to the steps of unfinished jobs that wait for it, or keeps it.
func (m *model) publish(c *v1.PublishCommand) (string, error) {
	board := boardNamed(c.Board)
	if _, err := m.head(board); err != nil {
		return "", err
	}
	id := [4]string{board, c.Topic, c.Key, c.Id}
	if first := m.published[id]; first != "" {
		return "repeated " + first, nil
	}
	waiters := m.waiters(board, c)
	if c.To != string(jobs.PublishToAll) && len(waiters) > 1 {
		waiters = waiters[:1]
	}
	for _, w := range waiters {
		give(w.flow, w.atom, modelSignal{c.Id, c.Topic})
		m.hurry(w.job)
	}
	answer := fmt.Sprint("taken by ", len(waiters))
	if len(waiters) == 0 {
		if c.Keep.AsDuration() == 0 {
			return "", jobs.ErrNobodyWaits
		}
		m.kept = append(m.kept, modelKept{board, c.Topic, c.Key, c.Id, m.now.Add(c.Keep.AsDuration())})
		answer = "kept by 0"
	}
	if m.published == nil {
		m.published = map[[4]string]string{}
	}
	m.published[id] = answer
	return answer, nil
}

// waiters are the steps that wait for a topic and a key, in the order of their starts.
func (m *model) waiters(board string, c *v1.PublishCommand) (all []modelWaiter) {
	for _, j := range m.jobs {
		flow := m.flowOf(j)
		if j.State.Finished() || flow == nil || flow.last != j {
			continue
		}
		for i := range flow.Atoms {
			if atom := &flow.Atoms[i]; atom.OpenWait().TakesFrom(c.Topic, c.Key) && flow.boards[atom.Name] == board {
				all = append(all, modelWaiter{j, flow, atom})
			}
		}
	}
	slices.SortFunc(all, func(a, b modelWaiter) int {
		return cmp.Or(cmp.Compare(a.atom.OpenWait().Number, b.atom.OpenWait().Number), cmp.Compare(a.flow.ID.String(), b.flow.ID.String()))
	})
	return all
}

// subscribe gives a wait that starts the oldest kept publication, or notes its board.
func (m *model) subscribe(flow *modelFlow, atom *logbook.AtomDetail, j *modelJob) {
	wait := atom.OpenWait()
	at := slices.IndexFunc(m.kept, func(k modelKept) bool {
		return k.board == j.Board && wait.TakesFrom(k.topic, k.key) && k.until.After(m.now)
	})
	if at < 0 {
		flow.boards[atom.Name] = j.Board
		return
	}
	give(flow, atom, modelSignal{m.kept[at].id, m.kept[at].topic})
	m.kept = slices.Delete(m.kept, at, at+1)
	m.hurry(j)
}

// moveSubscriptions moves the waits of a job's flow for topics to the board of the job.
func (m *model) moveSubscriptions(j *modelJob, takes bool) {
	flow := m.flowOf(j)
	if flow == nil {
		return
	}
	var waiting []*logbook.AtomDetail
	for i := range flow.Atoms {
		if atom := &flow.Atoms[i]; flow.waited[atom.Name] > 0 && atom.OpenWait().Topic != "" && flow.boards[atom.Name] != j.Board {
			waiting = append(waiting, atom)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *logbook.AtomDetail) int { return cmp.Compare(a.OpenWait().Number, b.OpenWait().Number) })
	for _, atom := range waiting {
		if flow.boards[atom.Name] = j.Board; takes {
			m.subscribe(flow, atom, j)
		}
	}
}

// expireKept removes kept publications whose time has passed, the earliest first.
func (m *model) expireKept(most int) (done int, more bool) {
	order := slices.Clone(m.kept)
	slices.SortStableFunc(order, func(a, b modelKept) int {
		// Keys begin with the lengths of their names.
		return cmp.Or(a.until.Compare(b.until), cmp.Compare(len(a.board), len(b.board)), cmp.Compare(a.board, b.board), cmp.Compare(a.key, b.key))
	})
	for _, kept := range order {
		switch {
		case kept.until.After(m.now):
			return done, false
		case done == most:
			return done, true
		}
		m.kept = slices.DeleteFunc(m.kept, func(k modelKept) bool { return k == kept })
		done++
	}
	return done, false
}

// forgetPublications forgets the publications of a deleted board.
func (m *model) forgetPublications(board string) {
	m.kept = slices.DeleteFunc(m.kept, func(k modelKept) bool { return k.board == board })
	for id := range m.published {
		if id[0] == board {
			delete(m.published, id)
		}
	}
}
