package fsm

import (
	"encoding/binary"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// A board has one row of counters for all its jobs, one for each kind, and one for each session with claims. The key
// of a row is the board, one of these constants, and the kind or the session.
//
// Each principal has a row, and all boards of a quota share a row. The keys of these rows start with the empty name,
// which no board has.
const (
	countersOfBoard     = 'b'
	countersOfKind      = 'k'
	countersOfHolder    = 's'
	countersOfPrincipal = 'p'
	countersOfQuota     = 'q'
)

func countersKey(board string, what byte, of []byte) []byte {
	return append(append(boardKey(board), what), of...)
}

// counters are the counters of a board or a part of it, of a principal, or of a quota. Every change of a job updates
// them, so reading them needs no scan. They are written once, at the end of a batch.
type counters struct {
	jobs             [stateCount]uint64 // of a board and of a kind, by state; of a holder: only the claimed jobs
	bytes            uint64             // of the postings of unfinished jobs; not for a kind or a holder
	posted, finished rate               // only for a board
	bucket           bucket             // not for a kind or a holder
	active           uint64             // unfinished jobs; only for a principal and a quota
	sessions         uint64             // open sessions; only for a principal
	boards           uint64             // boards that it has created; only for a principal
	changed          bool
}

func (t *counters) empty() bool {
	return t.jobs == [stateCount]uint64{} && t.bytes == 0 && t.posted == rate{} && t.finished == rate{} && t.bucket == bucket{} &&
		t.active == 0 && t.sessions == 0 && t.boards == 0
}

// message returns the stored form. It shares memory with the counters: encode it before they change.
func (t *counters) message() *v1.Counters {
	return &v1.Counters{
		Jobs: t.jobs[:], Bytes: t.bytes, Posted: t.posted.message(), Finished: t.finished.message(),
		Debt: t.bucket.debt, Charged: t.bucket.charged, Active: t.active, Sessions: t.sessions, Boards: t.boards,
	}
}

func countersFromProto(message *v1.Counters) (*counters, error) {
	t := &counters{
		bytes: message.GetBytes(), bucket: bucket{debt: message.GetDebt(), charged: message.GetCharged()},
		active: message.GetActive(), sessions: message.GetSessions(), boards: message.GetBoards(),
	}
	if len(message.GetJobs()) != stateCount {
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

// byState returns the counts by state, without zeros.
func (t *counters) byState() map[jobs.State]uint64 {
	counts := make(map[jobs.State]uint64)
	for i, n := range t.jobs {
		if n > 0 {
			counts[jobs.States[i]] = n
		}
	}
	return counts
}

// unfinished returns the number of unfinished jobs.
func (t *counters) unfinished() uint64 {
	var n uint64
	for i, count := range t.jobs {
		if !jobs.States[i].Finished() {
			n += count
		}
	}
	return n
}

// maxKnownCounters bounds the memory of counterCache. With more boards and kinds, counters are read again.
const maxKnownCounters = 4_096

// counterCache caches counters by key, in their current state. Each batch changes the same few counters, and reading
// them would cost more than changing them.
type counterCache struct {
	known   map[string]*counters
	changed []string // keys of the counters that the current batch has changed
}

func newCounterCache() *counterCache { return &counterCache{known: make(map[string]*counters)} }

func (v *view) counters(key []byte) *counters {
	value := v.get(tableCounters, key)
	if value == nil {
		return &counters{}
	}
	return decode(value, &v1.Counters{}, countersFromProto)
}

// countersOf returns counters from the cache, or reads them. To change counters, use changedCounters.
func (t *txn) countersOf(board string, what byte, of []byte) *counters {
	key := countersKey(board, what, of)
	if known := t.counterCache.known[string(key)]; known != nil {
		return known
	}
	found := t.counters(key)
	t.counterCache.known[string(key)] = found
	return found
}

// changedCounters returns counters that the caller may change, and marks them as changed.
func (t *txn) changedCounters(board string, what byte, of []byte) *counters {
	found := t.countersOf(board, what, of)
	if !found.changed {
		found.changed = true
		t.counterCache.changed = append(t.counterCache.changed, string(countersKey(board, what, of)))
	}
	t.writes++
	return found
}

// saveCounters writes the changed counters of a batch.
func (t *txn) saveCounters() {
	for _, key := range t.counterCache.changed {
		counted := t.counterCache.known[key]
		counted.changed = false
		if counted.empty() {
			t.delete(tableCounters, []byte(key))
		} else {
			t.putMessage(tableCounters, []byte(key), nil, counted.message())
		}
	}
	t.counterCache.changed = t.counterCache.changed[:0]
	for i := range t.waiting {
		if by := t.waiting[i].by; by != 0 {
			t.addCount(tableWaiting, t.waiting[i].key(), by)
		}
	}
	if len(t.counterCache.known) > maxKnownCounters {
		clear(t.counterCache.known)
	}
}

func (t *txn) notePosting(board string) {
	t.changedCounters(board, countersOfBoard, nil).posted.add(t.now)
}

// storedCount returns the number in a counting row; 0 without a row.
func (v *view) storedCount(tab table, key []byte) uint64 {
	value := v.get(tab, key)
	switch len(value) {
	case 0:
		return 0
	case sequenceSize:
		return binary.BigEndian.Uint64(value)
	}
	panic(corrupt("a row of table %s counts in %d bytes", tableNames[tab], len(value)))
}

// addCount adds to the number in a counting row, and returns the sum. A sum of 0 removes the row.
func (t *txn) addCount(tab table, key []byte, by int) uint64 {
	count := int64(t.storedCount(tab, key)) + int64(by)
	if count < 0 {
		panic(corrupt("internal error: a row of table %s would count %d", tableNames[tab], count))
	}
	if count == 0 {
		t.delete(tab, key)
	} else {
		t.put(tab, key, sequenceKey(uint64(count)))
	}
	return uint64(count)
}

// waitGroup identifies the jobs of a board that wait since, or until, the same time. Usually one entry posted them. A
// row of tableWaiting counts them.
type waitGroup struct {
	board string
	what  byte // waitsForClaim or waitsForTime
	at    time.Time
}

const (
	waitsForClaim = 'c' // since a time
	waitsForTime  = 'd' // until a time
)

// countWaiting adds by to the number of jobs in a waiting job's group.
func (t *txn) countWaiting(j *jobFacts, by int) {
	group := waitGroup{board: j.Board}
	switch {
	case j.Sequence == 0: // not stored
		return
	case j.State == jobs.StateClaimable:
		group.what, group.at = waitsForClaim, j.ClaimableAt
	case j.State == jobs.StateDelayed, j.State.Pauses():
		group.what, group.at = waitsForTime, j.DueAt
	default:
		return
	}
	last := len(t.waiting) - 1 // postings of one entry follow each other
	if last < 0 || t.waiting[last].waitGroup != group {
		t.waiting, last = append(t.waiting, waitChange{waitGroup: group}), last+1
	}
	t.waiting[last].by += by
}

// waitChange is a change of the number of jobs in a group.
type waitChange struct {
	waitGroup
	by int
}

func (g *waitGroup) key() []byte { return appendTime(waitingPrefix(g.board, g.what), g.at) }

func waitingPrefix(board string, what byte) []byte { return append(boardKey(board), what) }

// firstWaiting returns the earliest time of a board's waiting jobs of one sort; zero if there are none.
func (v *view) firstWaiting(board string, what byte) time.Time {
	var first time.Time
	prefix := waitingPrefix(board, what)
	v.scan(tableWaiting, prefix, func(key, _ []byte) bool {
		first = timeOfKey(key[len(prefix):])
		return false
	})
	return first
}
