package fsm

import (
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// spent is what the token of the present entry has been given to. All that is
// claimed or said in an entry has the entry's index for its token, so that of
// two such things in one flow nobody could tell which came first. Therefore an
// entry gives a flow to one owner, or keeps words about it, and never both, nor
// two owners: not even by way of another job of the flow. Whoever comes second
// is refused, or passed over, and comes again with a later entry.
//
// It is forgotten with the entry.
type spent struct {
	said  map[logbook.FlowID]bool // somebody has said something that is to be carried out, or not to be
	owned map[logbook.FlowID]bool // a job was claimed, and has finished since
}

func (s *spent) say(flow logbook.FlowID) {
	if s.said == nil {
		s.said = make(map[logbook.FlowID]bool)
	}
	s.said[flow] = true
}

// finish notes the end of a job that was claimed in the present entry.
func (s *spent) finish(j *jobRecord, token jobs.Token) {
	if j.Token != token || j.Flow.IsZero() {
		return
	}
	if s.owned == nil {
		s.owned = make(map[logbook.FlowID]bool)
	}
	s.owned[j.Flow] = true
}

// owns tells whether a job, or another of its flow, was claimed in the present
// entry.
func (t *txn) owns(j *jobRecord) bool { return j.Token == t.token() || t.spent.owned[j.Flow] }

// mayGrant tells whether a job can be claimed in the present entry.
func (t *txn) mayGrant(j *jobRecord) bool { return !t.owns(j) && !t.spent.said[j.Flow] }
