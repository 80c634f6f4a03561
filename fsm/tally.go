package fsm

import (
	"encoding/binary"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// What is counted of a board: all of it, each kind, and what each session
// holds. The key of a tally is the board, one of these, and the kind or the
// session.
const (
	tallyBoard  = 'b'
	tallyKind   = 'k'
	tallyHolder = 's'
)

func tallyKey(board string, what byte, of []byte) []byte {
	return append(append(boardKey(board), what), of...)
}

// tally is what is counted of a board or of a part of it, as things happen, so
// that to read it is no scan. It is written once at the end of a batch.
type tally struct {
	jobs             [stateCount]uint64 // of a board and of a kind, by state; of a holder, the claimed ones
	bytes            uint64             // of the postings of unfinished jobs; of a board only
	posted, finished rate               // of a board only
	bucket           bucket             // of a board only
	changed          bool
}

func (t *tally) empty() bool {
	return t.jobs == [stateCount]uint64{} && t.bytes == 0 && t.posted == rate{} && t.finished == rate{} && t.bucket == bucket{}
}

// message refers to the tally: it must be encoded before that is changed.
func (t *tally) message() *v1.Tally {
	return &v1.Tally{
		Jobs: t.jobs[:], Bytes: t.bytes, Posted: t.posted.message(), Finished: t.finished.message(),
		Debt: t.bucket.debt, Charged: t.bucket.charged,
	}
}

func tallyFromProto(message *v1.Tally) (*tally, error) {
	t := &tally{bytes: message.GetBytes(), bucket: bucket{debt: message.GetDebt(), charged: message.GetCharged()}}
	if len(message.GetJobs()) > stateCount { // fewer are those of a program that knew fewer states
		return nil, fmt.Errorf("it counts %d states", len(message.GetJobs()))
	}
	copy(t.jobs[:], message.GetJobs())
	var err error
	if t.posted, err = rateFromProto(message.GetPosted()); err != nil {
		return nil, err
	}
	t.finished, err = rateFromProto(message.GetFinished())
	return t, err
}

// byState are the counts that are not zero.
func (t *tally) byState() map[jobs.State]uint64 {
	counts := make(map[jobs.State]uint64)
	for i, n := range t.jobs {
		if n > 0 {
			counts[jobs.States[i]] = n
		}
	}
	return counts
}

// unfinished is how many jobs are not finished.
func (t *tally) unfinished() uint64 {
	var n uint64
	for i, count := range t.jobs {
		if !jobs.States[i].Finished() {
			n += count
		}
	}
	return n
}

// maxKnownTallies bounds the memory for tallies: there is one for each kind on
// each board. If there are more, those that are needed are read again.
const maxKnownTallies = 4_096

// tallies are those that have been looked at, by key, as they are after the last
// command: each batch changes a few of them again, and to read them anew would
// cost more than to change them.
type tallies struct {
	known   map[string]*tally
	changed []string // keys of those that the present batch has changed
}

func newTallies() *tallies { return &tallies{known: make(map[string]*tally)} }

func (v *view) tally(key []byte) (*tally, error) {
	value := v.get(tableTally, key)
	if value == nil {
		return &tally{}, nil
	}
	return decode(value, &v1.Tally{}, tallyFromProto)
}

// tallyOf is a tally that may be changed; changed it must be marked.
func (t *txn) tallyOf(board string, what byte, of []byte) *tally {
	key := tallyKey(board, what, of)
	if known := t.tallies.known[string(key)]; known != nil {
		return known
	}
	found, err := t.tally(key)
	if err != nil {
		if t.fault == nil {
			t.fault = err
		}
		found = &tally{}
	}
	t.tallies.known[string(key)] = found
	return found
}

// tallied is a tally that is going to be changed now.
func (t *txn) tallied(board string, what byte, of []byte) *tally {
	found := t.tallyOf(board, what, of)
	if !found.changed {
		found.changed = true
		t.tallies.changed = append(t.tallies.changed, string(tallyKey(board, what, of)))
	}
	t.writes++
	return found
}

// saveTallies writes what a batch has counted.
func (t *txn) saveTallies() {
	for _, key := range t.tallies.changed {
		counted := t.tallies.known[key]
		counted.changed = false
		if counted.empty() {
			t.delete(tableTally, []byte(key))
		} else {
			t.putMessage(tableTally, []byte(key), nil, counted.message())
		}
	}
	t.tallies.changed = t.tallies.changed[:0]
	if len(t.tallies.known) > maxKnownTallies {
		clear(t.tallies.known)
	}
}

// count and uncount are for the state in which a job is: it has just come there,
// or is about to leave.
func (t *txn) count(j *jobRecord) {
	state := stateNumber(j.State)
	t.Jobs[state]++
	t.tallied(j.Board, tallyKind, []byte(j.Kind)).jobs[state]++
	board := t.tallied(j.Board, tallyBoard, nil)
	board.jobs[state]++
	if !j.State.Finished() {
		board.bytes += j.Size
	}
	if key := waitingKey(j); key != nil {
		t.put(tableWaiting, key, nil)
	}
}

func (t *txn) uncount(j *jobRecord) {
	state := stateNumber(j.State)
	t.Jobs[state]--
	t.tallied(j.Board, tallyKind, []byte(j.Kind)).jobs[state]--
	board := t.tallied(j.Board, tallyBoard, nil)
	board.jobs[state]--
	if !j.State.Finished() {
		board.bytes -= j.Size
	}
	if key := waitingKey(j); key != nil {
		t.delete(tableWaiting, key)
	}
}

// countHolder and uncountHolder are for a job that has its claim.
func (t *txn) countHolder(j *jobRecord) {
	t.tallied(j.Board, tallyHolder, j.Claim.Session.UUID[:]).jobs[stateNumber(jobs.StateClaimed)]++
}

func (t *txn) uncountHolder(j *jobRecord) {
	t.tallied(j.Board, tallyHolder, j.Claim.Session.UUID[:]).jobs[stateNumber(jobs.StateClaimed)]--
}

func (t *txn) notePosting(j *jobRecord) {
	board := t.tallied(j.Board, tallyBoard, nil)
	board.posted.add(t.now)
}

func (t *txn) noteFinish(j *jobRecord) { t.tallied(j.Board, tallyBoard, nil).finished.add(t.now) }

// countParked keeps the number of a board's parked jobs when one of them is
// written.
func (t *txn) countParked(j *jobRecord) {
	if j.counted == j.isParked() {
		return
	}
	count := t.parked(j.Board)
	if j.counted = !j.counted; j.counted {
		count++
	} else {
		count--
	}
	if count == 0 {
		t.delete(tableParked, []byte(j.Board))
		return
	}
	t.put(tableParked, []byte(j.Board), sequenceKey(count))
}

// parked is how many jobs of a board are parked.
func (v *view) parked(board string) uint64 {
	value := v.get(tableParked, []byte(board))
	if len(value) != sequenceSize {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// What a job waits for, in the keys of tableWaiting.
const (
	waitsForClaim = 'c' // with the time since when
	waitsForTime  = 'd' // with that time
)

func waitingPrefix(board string, what byte) []byte { return append(boardKey(board), what) }

// waitingKey is the place of a job among those of its board that wait; nil if
// it waits for neither an owner nor a time.
func waitingKey(j *jobRecord) []byte {
	switch j.State {
	case jobs.StateClaimable:
		return append(waitingPrefix(j.Board, waitsForClaim), dueKey(claimableSince(j), j.Sequence)...)
	case jobs.StateDelayed, jobs.StateCooling:
		return append(waitingPrefix(j.Board, waitsForTime), dueKey(j.DueAt, j.Sequence)...)
	}
	return nil
}

// claimableSince is since when a claimable job is that. Of a job that has become
// so before that was kept, it is as much as is known.
func claimableSince(j *jobRecord) time.Time {
	if j.ClaimableAt.IsZero() {
		return j.PostedAt
	}
	return j.ClaimableAt
}

// noteClaimable keeps since when a job is claimable that has come from another
// state, or from the same.
func (t *txn) noteClaimable(j *jobRecord, before jobs.State) {
	switch {
	case j.State != jobs.StateClaimable:
		j.ClaimableAt = time.Time{}
	case before != jobs.StateClaimable:
		j.ClaimableAt = t.now
	}
}

// firstWaiting is the earliest time of those who wait so; zero if nobody does.
func (v *view) firstWaiting(board string, what byte) (time.Time, error) {
	var first time.Time
	prefix := waitingPrefix(board, what)
	err := v.scan(tableWaiting, prefix, func(key, _ []byte) (more bool, err error) {
		first, err = timeOfKey(key[len(prefix):])
		return false, err
	})
	return first, err
}
