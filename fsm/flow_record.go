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
