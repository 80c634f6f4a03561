package fsm

import (
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// rename gives the atoms of a step, and of its instances, another name. All atoms change in one entry, so the next owner
// of the job finds either the old or the new names. The numbers of the atoms do not change, and rows under the numbers,
// such as earlier attempts, stay.
func (t *txn) rename(record *flowRecord, j *jobRecord, detail *logbook.FlowDetail, i *logbook.Intervention) (*v1.Result, error) {
	switch j.State {
	case jobs.StateSuspended, jobs.StateHeld, jobs.StateTrashed, jobs.StateCompleted:
	default: // a conductor could continue the flow between two renames
		return nil, fmt.Errorf("cannot rename in flow %s: %w: its job %s is %s; suspend the job first, and resume it after the rename", record.ID, jobs.ErrConflict, j.ID, j.State)
	}
	t.forgetRunning(record.ID)
	for n := range detail.Atoms {
		old := detail.Atoms[n].Name
		name, concerned := i.Renamed(old)
		if !concerned {
			continue
		}
		key := atomKey(record.ID, old)
		a := decodeAtom(t.get(tableAtom, key))
		t.delete(tableAtom, key)
		a.detail.Name = name
		t.saveAtom(record.ID, a)
	}
	i.At, i.Token = t.now, t.token()
	t.keepIntervention(record, detail, i)
	t.saveFlow(record)
	t.event(jobs.EventIntervened, j, jobs.Event{
		Token: i.Token, Reason: saidOf(i), Request: &jobs.OperatorRequest{Kind: jobs.RequestIntervene, By: i.By, Reason: i.Reason, At: i.At},
	})
	return intervened(j), nil
}
