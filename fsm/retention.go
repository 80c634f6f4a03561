package fsm

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// sweep removes finished jobs by the retention policy, books without jobs, and garbage of removed
// flows. It stops at the limits of one entry.
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

// retention is the policy for finished jobs. A zero age or number is no limit, because an unset value must not delete
// jobs.
type retention struct {
	age  time.Duration
	keep uint64
	now  time.Time
}

// givesUp reports whether the oldest of the given number of finished jobs must be removed.
func (r *retention) givesUp(finished uint64, finishedAt time.Time) bool {
	return (r.keep > 0 && finished > r.keep) || (r.age > 0 && r.now.Sub(finishedAt) > r.age)
}

// givesUpOwn is givesUp for jobs with their own retention. key is the key of the first of them in tableOwn.
func (r *retention) givesUpOwn(finished uint64, key []byte) bool {
	return (r.keep > 0 && finished > r.keep) || bytes.Compare(key[:dueTimeSize], timeKey(r.now)) < 0
}

// finishedRow is one row of the finished jobs.
type finishedRow struct {
	sequence uint64
	at       time.Time
}

// givenUp reads the finished jobs to remove, oldest first: jobs without special rules, then jobs that need an operator,
// then jobs with their own retention. The policy applies to each of these kinds separately.
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

// givenUpIn reads the jobs to remove in one table. finished is the number of its rows.
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

// Sweepable reports whether a sweep with this policy would remove anything now. A zero age or number is no limit.
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

// purge removes a finished job before its retention ends.
func (t *txn) purge(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestPurge)
	if err != nil {
		return err
	}
	if !j.State.Finished() {
		return fmt.Errorf("cannot purge job %s: %w: the job is %s", j.ID, jobs.ErrConflict, j.State)
	}
	t.event(jobs.EventPurged, j, jobs.Event{Request: request, Outcome: j.Outcome, Reason: cmp.Or(request.Reason, j.Reason)})
	t.sweepJob(j)
	return nil
}

// sweepJob removes a finished job, and also its book if no other job uses it.
func (t *txn) sweepJob(j *jobRecord) {
	t.removeJob(j)
	if j.Book.IsZero() || t.addCount(tableBookJobs, j.Book.UUID[:], -1) > 0 {
		return
	}
	book, found := t.book(j.Book)
	// A book that was destroyed and saved again with the same id is another book.
	if found && !book.CreatedAt.After(j.PostedAt) {
		t.removeBook(j.Book, t.flowIDs(j.Book))
	}
}
