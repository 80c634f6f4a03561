package fsm

import (
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// Changes are the changes of a commit, for waiting calls.
type Changes struct {
	Index     uint64           // last applied index
	Opened    []jobs.Session   // sessions that were opened, in order
	Ended     []jobs.SessionID // sessions that were closed or have expired, in order
	Timed     []ClaimTimer     // claims with their own TTL that were made, extended or ended, in order
	Claimable []Queue          // queues in which jobs became claimable, each once
	Finished  []jobs.JobID     // jobs that were completed or trashed, in order
	Stopped   []jobs.JobID     // jobs that became held or suspended, in order
	Posted    int              // number of posted jobs
	Failed    int              // number of Finished jobs that were trashed, failed or reverted
	Retried   int              // number of failed attempts after which the job continues by its policy
	Skipped   uint64           // number of skipped slots of schedules
	Expired   int              // number of kept publications that no wait took in time
	Steps     []StepChange     // changes of state of jobs' steps, flows and jobs that can end a wait for a step, in order
	Worked    []logbook.FlowID // flows whose attempts of step workers have changed, in order
	Undrained bool             // some conductors can claim again after a drain
	NextDue   time.Time        // current result of Machine.NextDue
	NextSlot  time.Time        // current result of Machine.NextSlot
	Events    bool             // there are new events
	Restored  bool             // everything may have changed
}

// StepChange names a step whose state changed.
type StepChange struct {
	Flow logbook.FlowID
	Step string // empty: the state of the flow changed, or its job ended or needs an operator
}

// ClaimTimer is a claim with its own TTL.
type ClaimTimer struct {
	Job        jobs.JobID
	Token      jobs.Token
	Expiry     time.Duration // 0: the claim has ended
	Extensions int
}

// Queue is a group of waiting jobs that the same conductors can take.
type Queue struct {
	Board, Kind string
	Labels      string // the required labels of the jobs, as labelText formats them
	Reserved    bool   // the job is for one conductor: wake all conductors that could take such jobs
}

// slotJob names the slot that a job is posted for.
type slotJob struct {
	schedule string
	slot     time.Time
}

// txn is the write transaction of a batch.
type txn struct {
	view
	ledger
	writer     *tables.Writer // of the view's reader
	eventsKept uint64

	memory   *memory   // for values
	messages *messages // to encode
	digest   []byte    // memory for the next digest

	now      time.Time // of the current entry
	answered bool      // a caller reads the results of the current entry
	item     uint32    // number of the last event of the current entry
	use      entryUse  // of the current entry

	records   uint32    // number of the last audit record of the current entry
	auditedAt time.Time // time of the batch's last audit record; zero: none

	by   string  // principal of the current command; empty: the leader, or a cluster without access control
	from slotJob // slot that postJob is posting; zero: postings of callers

	changes Changes
	queues  map[Queue]bool  // those in changes.Claimable
	waiting []waitChange    // of rows of tableWaiting, by the batch
	own     []jobs.Position // see ownEndings
	vacated []schedules.ID  // schedules whose last unfinished job the current command has finished

	writes int // number of writes so far
	begun  int // number of writes before the current entry
}

// put writes a value.
func (t *txn) put(tab table, key, value []byte) {
	t.writes++
	if err := t.writer.Put(tab, key, value); err != nil {
		panic(corrupt("cannot write to table %s: %w", tableNames[tab], err))
	}
}

// putMessage writes a prefix of fixed length, followed by a message.
func (t *txn) putMessage(tab table, key, prefix []byte, message proto.Message) {
	t.put(tab, key, t.memory.encode(prefix, message))
}

// delete removes a key, if it exists.
func (t *txn) delete(tab table, key []byte) {
	t.writes++
	t.writer.Delete(tab, key)
}

// deletePrefix removes every key that has the prefix.
func (t *txn) deletePrefix(tab table, prefix []byte) {
	for _, key := range t.keys(tab, prefix) {
		t.delete(tab, key)
	}
}

// token returns the token of claims that the current entry grants.
func (t *txn) token() jobs.Token { return jobs.Token{Generation: t.Generation, Index: t.Index} }

func (t *txn) becameClaimable(queue Queue) {
	if !t.queues[queue] {
		t.queues[queue] = true
		t.changes.Claimable = append(t.changes.Claimable, queue)
	}
}

// after returns the current time plus a delay. It limits the time to the range that package command
// accepts: a later time would be stored, and then be reported as corruption.
func (t *txn) after(delay time.Duration) time.Time {
	due := t.now.Add(delay)
	if latest := time.Unix(0, math.MaxInt64).UTC(); due.After(latest) {
		due = latest
	}
	return due
}
