package fsm

import (
	"github.com/conductord/conductord/logbook"
)

// entryUse records the flows that the current log entry has claimed or intervened in. All claims and
// interventions of an entry share one fencing token, which is the entry's index. Two of them in one flow
// would have no order. So an entry may grant one claim for a flow, by any of its jobs, or add
// interventions to the flow, and never both. The second is refused or skipped, and succeeds in a later
// entry.
//
// Each entry starts with an empty entryUse.
type entryUse struct {
	intervened map[logbook.FlowID]bool // an intervention was added
	owned      map[logbook.FlowID]bool // a job was claimed and then finished
}

func (u *entryUse) intervene(flow logbook.FlowID) {
	if u.intervened == nil {
		u.intervened = make(map[logbook.FlowID]bool)
	}
	u.intervened[flow] = true
}

// finish records that a job of the flow was claimed and finished in the current entry.
func (u *entryUse) finish(flow logbook.FlowID) {
	if flow.IsZero() {
		return
	}
	if u.owned == nil {
		u.owned = make(map[logbook.FlowID]bool)
	}
	u.owned[flow] = true
}
