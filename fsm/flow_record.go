package fsm

import (
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// flowRecord is the small, changing part of a flow: without what was planned
// and Cause, which are its body, without Definition and Atoms, and with nothing
// but the token of its last intervention, which is what an update is judged by.
type flowRecord struct {
	logbook.FlowDetail
	job   uint64 // sequence of the unfinished job that refers to the flow; 0: none
	last  uint64 // sequence of the last job that referred to it; 0: none ever did
	atoms uint32
	built command.DefinitionID // zero before it begins
	// running is an atom as it is stored, of a known flow: the next update is often about it. nil
	// where none is kept. An update takes it, since it changes it before it may be refused.
	running *atomRecord
}

// atomRecord is an atom as an update sees it. As stored it is the number of
// the atom within its flow, the number of its attempts, and the message with
// the latest attempt. Earlier attempts are under keys of their own: they are
// hardly ever read or changed, and would make every write as long as the
// atom's history.
type atomRecord struct {
	number   uint32
	attempts uint32            // those that are folded included
	before   logbook.AtomState // before the update
	// detail holds the latest attempt and those that the update is about.
	detail logbook.AtomDetail
	// places are the numbers of detail.Attempts among all attempts of the atom.
	places []uint32
}

// isKept reports whether an atom stays decoded: one that runs, and is short.
func (a *atomRecord) isKept() bool {
	if len(a.detail.Attempts) != 1 || a.detail.Progress != nil {
		return false
	}
	latest := &a.detail.Attempts[0]
	return !latest.Ended() && latest.Result == nil && latest.Failure == nil && latest.Failures == nil && latest.Stderr == ""
}

// maxKnownFlows bounds the memory for flows that stay decoded, to some megabytes.
const maxKnownFlows = 4_096

// knownFlows are the flows of unfinished jobs, as they are after the last command: those that a
// command has read or saved. Each command of a flow needs its record. Only the machine's writers
// have them; nil where nobody keeps them. Readers get copies, which they may change.
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
		known.Cause, known.Definition = nil, nil // an update sets them; their rows are others
	}
}
