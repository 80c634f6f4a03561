package fsm

import (
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// flowRecord is the small, changing part of a flow. It does not have the plan and the Cause (the body), the Definition
// and the Atoms. Of the Interventions it has only the token of the latest intervention that was not taken back, which
// is enough to judge an update.
type flowRecord struct {
	logbook.FlowDetail
	job   uint64 // sequence of the unfinished job that refers to the flow; 0: none
	last  uint64 // sequence of the last job that referred to the flow; 0: none
	atoms uint32
	built command.DefinitionID // zero before the flow starts
	// running caches a stored atom of a known flow, because the next update often changes it; nil:
	// none. An update removes it from the cache first: the update changes the atom, and can be refused
	// afterwards.
	running *atomRecord
}

// atomRecord is an atom for an update. The stored form is the number of the atom within its flow, the
// number of its attempts, and the message with the latest attempt. Earlier attempts have their own keys.
// They are rarely read or changed, and would make every write as long as the atom's history.
type atomRecord struct {
	number   uint32
	attempts uint32            // including folded attempts
	before   logbook.AtomState // before the update
	// detail has the latest attempt, and the attempts that the update changes.
	detail logbook.AtomDetail
	// places are the indexes of detail.Attempts among all attempts of the atom.
	places []uint32
	waited uint64 // number of the stored open wait for a signal; 0: none
	// Of the current update: it drops the stored checkpoints, and records these.
	dropped  bool
	recorded []logbook.Checkpoint
}

// isKept reports whether an atom stays in the cache: it runs, and is short.
func (a *atomRecord) isKept() bool {
	if len(a.detail.Attempts) != 1 || a.detail.Progress != nil {
		return false
	}
	latest := &a.detail.Attempts[0]
	return !latest.Ended() && latest.Result == nil && latest.Failure == nil && latest.Failures == nil && latest.Stderr == ""
}

// maxKnownFlows bounds the cache of decoded flows, to some megabytes.
const maxKnownFlows = 4_096

// knownFlows caches the flows of unfinished jobs, in their current state: flows that a command read or
// saved. Each command of a flow needs its record. Only the machine's writer has the cache; it is nil for
// readers. Callers get copies, which they may change.
type knownFlows map[logbook.FlowID]*flowRecord

func (k knownFlows) keep(f *flowRecord) {
	switch known := k[f.ID]; {
	case k == nil:
	case f.job == 0:
		delete(k, f.ID)
	default:
		if known == nil {
			if len(k) >= maxKnownFlows {
				clear(k)
			}
			known = new(flowRecord)
			k[f.ID] = known
		}
		*known = *f
		known.Cause, known.Definition = nil, nil // updates set them in other rows
	}
}
