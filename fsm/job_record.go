package fsm

import (
	"time"

	"github.com/conductord/conductord/jobs"
)

// end is how the last claim of a job ended: a repeat of that ending is
// answered as it was, and any other under its token is refused.
type end byte

const (
	endNone      end = iota // no claim has ended, or there is one now
	endConsumed             // by its owner
	endAbandoned            // by its owner
	endTrashed              // by its owner
	endLost                 // with its session
	endAttempted            // by its owner, with an attempt that has not ended the job
)

// jobFacts is all that is stored of a job but its details, store and failure,
// which have tables of their own: what changes often must be short. Where the job
// stands, and what the indexes hold of it, follows from the facts.
type jobFacts struct {
	jobs.Job
	end     end
	final   jobs.State // completed or trashed; empty: the job is not finished
	finish  uint64     // the number of its finish; 0: it is not finished
	cooled  time.Time  // until when it cools; zero: it does not
	watched bool       // its deadline has not been dealt with
	lag     *int64     // see rank; nil: it has not been claimable since its board ages jobs
}

// jobRecord is a job for a command to change. It is stored by putJob.
//
// As stored it is two bytes, the end and the state's number in jobs.States,
// and then the message: a listing by state can tell without decoding.
type jobRecord struct {
	jobFacts
	// was is the job as stored and as the indexes know it: nil before a new job is put,
	// and jobFacts itself after that. A copy would cost a tenth of each posting.
	was *jobFacts
}

// unstored is what a job was that is not stored: no row leads to it.
var unstored jobFacts

// before is what a job was when it was stored last.
func (j *jobRecord) before() *jobFacts {
	switch j.was {
	case nil:
		return &unstored
	case &j.jobFacts:
		panic("internal error: one command puts a new job twice")
	}
	return j.was
}

// maxKnownJobs bounds the memory for jobs that stay decoded, to some megabytes.
const maxKnownJobs = 4_096

// knownJobs are unfinished jobs by their sequences, as they are after the last command: those
// that a command has read, or posted with a flow. A job that is claimed comes by in every update of its flow, and to decode
// it each time was a fifth of what applying the commands of a flow costs. Only the machine's
// writers have them; nil where nobody keeps them. They change by putJob alone.
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
