package fsm

import (
	"time"

	"github.com/conductord/conductord/jobs"
)

// end is the end of the last claim of a job. A repeat of this ending gets the same answer, and any other ending under
// the claim's token is refused.
type end byte

const (
	endNone      end = iota // no claim has ended, or the job is claimed
	endConsumed             // by its owner
	endAbandoned            // by its owner
	endTrashed              // by its owner
	endLost                 // lost with its session, or after its own TTL
	endAttempted            // by its owner: a consume, after which the job's retry policy continues it
	endContinued            // by its owner: a consume, after which the job continues with the next iteration of its flow
)

// jobFacts has the stored fields of a job, except details, store and failure. Those have their own
// tables, because rows that change often must be short. The state of a job and its index rows follow
// from the facts.
type jobFacts struct {
	jobs.Job
	end     end
	final   jobs.State // completed or trashed; empty: unfinished
	finish  uint64     // number of the finish; 0: unfinished
	cooled  time.Time  // end of cooling; zero: not cooling
	waits   bool       // the job cools because its flow waits
	watched bool       // the deadline has not been handled yet
	lag     *int64     // see rank; nil: not claimable since the board ages jobs
	hurried bool       // an operator or a signal ended waits of its steps during the current claim: see retryNow and signal

	signals     uint64 // signals received
	signalBytes uint64 // size of the unread ones
}

// jobRecord is a job that a command can change. putJob stores it.
//
// The stored form is two bytes, the end and the state's index in jobs.States, and then the message. So
// a list by state needs no decoding.
type jobRecord struct {
	jobFacts
	// was is the job as it is stored and indexed. It is nil before a new job is stored, and
	// points to jobFacts itself after that: a copy would cost a tenth of each posting.
	was *jobFacts
}

// unstored are the facts of a job without any rows.
var unstored jobFacts

// before returns the facts of the job when it was stored last.
func (j *jobRecord) before() *jobFacts {
	switch j.was {
	case nil:
		return &unstored
	case &j.jobFacts:
		panic("internal error: one command puts a new job twice")
	}
	return j.was
}

// maxKnownJobs bounds the cache of decoded jobs, to some megabytes.
const maxKnownJobs = 4_096

// knownJobs caches unfinished jobs by sequence, in their current state: jobs that a command read, or
// posted with a flow. Every update of a flow reads the flow's job. Decoding the job each time was a
// fifth of the cost of the commands of a flow. Only the machine's writer has the cache; it is nil for
// readers. Only putJob changes it.
type knownJobs map[uint64]*jobFacts

func (k knownJobs) keep(facts *jobFacts) {
	switch {
	case k == nil:
		return
	case facts.final != "":
		delete(k, facts.Sequence)
		return
	case len(k) >= maxKnownJobs:
		clear(k)
	}
	k[facts.Sequence] = facts
}
