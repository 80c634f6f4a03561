package fsm

import (
	"cmp"
	"encoding/binary"

	"github.com/conductord/conductord/jobs"
)

// holderOf finds the unfinished job of a board with a key; nil if there is none, or if the key is empty.
func (v *view) holderOf(board, key string) *jobRecord {
	board = cmp.Or(board, jobs.DefaultBoard)
	if key == "" || len(board) > maxKeyName {
		return nil
	}
	value := v.get(tableKey, keyKey(board, key))
	switch len(value) {
	case 0:
		return nil
	case sequenceSize:
		return v.job(binary.BigEndian.Uint64(value))
	}
	panic(corrupt("the holder of key %q is stored in %d bytes", key, len(value)))
}

// checkKey refuses a finished or moved job on a board where another unfinished job has its key.
func (v *view) checkKey(j *jobRecord, board string) error {
	if holder := v.holderOf(board, j.Key); holder != nil && holder.ID != j.ID {
		return jobs.KeyTaken(board, j.Key, holder.ID)
	}
	return nil
}

// raise moves a job to the place of a new posting with its key, if that place is earlier in claim order. A job moves to
// the front only once, so a repeat changes nothing.
func (t *txn) raise(j *jobRecord, p *jobs.Posting) {
	higher, front := p.Priority > j.Priority, p.Front && j.Front == 0
	if !higher && !front {
		return
	}
	j.Priority = max(j.Priority, p.Priority)
	if front {
		j.Front = t.Index
	}
	t.placeJob(j)
	t.event(jobs.EventChanged, j, jobs.Event{Reason: "posted again under its key"})
}
