package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// beginLeadership begins the time of a leader. Commands by the timers of earlier leaders
// are refused from here on.
func (t *txn) beginLeadership(*v1.BeginLeadershipCommand) error {
	t.TimerEpoch = t.Index
	t.writes++
	return nil
}

// checkEpoch refuses the timers of a leader that has been deposed.
func (t *txn) checkEpoch(epoch uint64) error {
	if epoch != t.TimerEpoch {
		return fmt.Errorf("%w: the timer epoch is %d, and %d is over", jobs.ErrConflict, t.TimerEpoch, epoch)
	}
	return nil
}

// wakeDue makes jobs claimable whose time has come, ends reservations, and cancels those whose
// deadline has passed. These come first: one that is due only now is too late.
func (t *txn) wakeDue(c *v1.WakeDueCommand) (*v1.Result, error) {
	if err := t.checkEpoch(c.GetTimerEpoch()); err != nil {
		return nil, fmt.Errorf("cannot wake jobs: %w", err)
	}
	most := int(c.GetMax())
	late, moreLate := t.lateJobs(most)
	for _, j := range late {
		t.expireJob(j)
	}
	due, more := t.dueJobs(most - len(late))
	for _, j := range due {
		kind := jobs.EventDue
		switch j.State {
		case jobs.StateCooling:
			kind = jobs.EventCooled
		case jobs.StateClaimable:
			kind = jobs.EventUnreserved
		}
		t.placeJob(j)
		t.event(kind, j, jobs.Event{})
	}
	return counted(len(late)+len(due), moreLate || more), nil
}

// lateJobs and dueJobs read the jobs whose deadline has passed, and those that
// are due, earliest first.
func (t *txn) lateJobs(most int) ([]*jobRecord, bool) { return t.passed(tableDeadline, most) }
func (t *txn) dueJobs(most int) ([]*jobRecord, bool)  { return t.passed(tableDue, most) }

// passed reads the jobs of a table whose times have come.
func (t *txn) passed(tab table, most int) (due []*jobRecord, more bool) {
	cursor := t.cursor(tab)
	for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
		at := timeOfKey(key)
		if at.After(t.now) {
			return due, false
		}
		if len(due) >= most {
			return due, true
		}
		sequence := sequenceAtEnd(key)
		j := t.job(sequence)
		due = append(due, j)
	}
	return due, false
}

// sweep removes finished jobs that the retention policy gives up, the books to
// which no job refers any more, and what was left of those that were removed
// before. It ends early where that is much.
func (t *txn) sweep(c *v1.SweepCommand) (*v1.Result, error) {
	age, err := command.DurationFromProto("sweep max_age", c.GetMaxAge())
	if err != nil {
		return nil, err
	}
	if err := t.checkEpoch(c.GetTimerEpoch()); err != nil {
		return nil, fmt.Errorf("cannot sweep: %w", err)
	}
	policy := retention{age: age, keep: c.GetKeep(), now: t.now}
	rows, more := t.givenUp(policy, t.ledger, int(c.GetMax()))
	for i, row := range rows {
		if i > 0 && t.removable() <= 0 {
			return counted(i, true), nil
		}
		t.sweepJob(t.job(row.sequence))
	}
	return counted(len(rows), t.clearGarbage() || more), nil
}

// retention is the policy for finished jobs. A zero age or number is no bound,
// since what is unset must not delete anything.
type retention struct {
	age  time.Duration
	keep uint64
	now  time.Time
}

// givesUp reports whether the oldest of so many finished jobs has to be removed.
func (r *retention) givesUp(finished uint64, finishedAt time.Time) bool {
	return (r.keep > 0 && finished > r.keep) || (r.age > 0 && r.now.Sub(finishedAt) > r.age)
}

// givesUpOwn tells the same of a job with a retention of its own, by its place
// among those, where it is the first.
func (r *retention) givesUpOwn(finished uint64, key []byte) bool {
	return (r.keep > 0 && finished > r.keep) || bytes.Compare(key[:dueTimeSize], timeKey(r.now)) < 0
}

// finishedRow is one row of the finished jobs.
type finishedRow struct {
	sequence uint64
	at       time.Time
}

// givenUp reads the finished jobs that the policy gives up, oldest first. Those
// that wait for a person come after the others, and then those with a retention
// of their own: the policy looks at each kind by itself.
func (v *view) givenUp(policy retention, l ledger, most int) (rows []finishedRow, more bool) {
	for _, kind := range []struct {
		table    table
		finished uint64
	}{{tableFinished, l.finished() - l.Stuck - l.Own}, {tableStuck, l.Stuck}, {tableOwn, l.Own}} {
		found, more := v.givenUpIn(kind.table, policy, kind.finished, most-len(rows))
		if rows = append(rows, found...); more {
			return rows, true
		}
	}
	return rows, false
}

// givenUpIn reads the jobs to remove in one table that has so many rows.
func (v *view) givenUpIn(where table, policy retention, finished uint64, most int) (rows []finishedRow, more bool) {
	cursor := v.cursor(where)
	for key, value := cursor.First(); key != nil; key, value = cursor.Next() {
		row := decodeFinished(value)
		left := finished - uint64(len(rows))
		over := policy.givesUp(left, row.at)
		if where == tableOwn {
			over = policy.givesUpOwn(left, key)
		}
		if !over {
			return rows, false
		}
		if len(rows) >= most {
			return rows, true
		}
		rows = append(rows, row)
	}
	return rows, false
}

func decodeFinished(value []byte) finishedRow {
	if len(value) != sequenceSize+dueTimeSize {
		panic(corrupt("a finished job is stored in %d bytes", len(value)))
	}
	at := timeOfKey(value[sequenceSize:])
	return finishedRow{sequence: binary.BigEndian.Uint64(value), at: at}
}

// Sweepable reports whether a sweep with this policy would remove anything if it
// were proposed now. A zero age or number is no bound.
func (m *Machine) Sweepable(now time.Time, maxAge time.Duration, keep uint64) (bool, error) {
	found := false
	err := m.read(func(v *view) error {
		present, err := v.ledgerOf()
		if err != nil {
			return err
		}
		if now.Before(present.time()) {
			now = present.time() // as the sweep itself would be
		}
		policy := retention{age: maxAge, keep: keep, now: now}
		_, found = v.givenUp(policy, present, 0)
		found = found || v.hasGarbage()
		return nil
	})
	return found, err
}

// sweepJob removes a finished job, and its book with the last job of it.
func (t *txn) sweepJob(j *jobRecord) {
	t.removeJob(j)
	if j.Book.IsZero() || t.addCount(tableBookJobs, j.Book.UUID[:], -1) > 0 {
		return
	}
	book, found := t.book(j.Book)
	// A book that was destroyed and saved anew under its id is not the job's.
	if found && !book.CreatedAt.After(j.PostedAt) {
		t.removeBook(j.Book, t.flowIDs(j.Book))
	}
}

func counted(done int, more bool) *v1.Result {
	return &v1.Result{Kind: &v1.Result_Count{Count: &v1.CountResult{Done: uint32(done), More: more}}}
}
