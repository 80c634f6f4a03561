package fsm

import (
	"github.com/conductord/conductord/logbook"
)

// entryUse records the flows that the present log entry has claimed or intervened
// in. Claims and interventions of an entry share one fencing token (the entry's
// index), so of two in one flow nothing would say which came first. Therefore an
// entry may give a flow to one owner, by whichever job of the flow, or keep
// interventions in it, and never both. The second is refused or passed over, and
// may be repeated in a later entry.
//
// It is forgotten with the entry.
type entryUse struct {
	intervened map[logbook.FlowID]bool // an intervention was added
	owned      map[logbook.FlowID]bool // a job was claimed, and has finished since
}

func (u *entryUse) intervene(flow logbook.FlowID) {
	if u.intervened == nil {
		u.intervened = make(map[logbook.FlowID]bool)
	}
	u.intervened[flow] = true
}

// finish notes the end of a job of a flow that was claimed in the present entry.
func (u *entryUse) finish(flow logbook.FlowID) {
	if flow.IsZero() {
		return
	}
	if u.owned == nil {
		u.owned = make(map[logbook.FlowID]bool)
	}
	u.owned[flow] = true
}
