package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxPendingBytes bounds the stored size of the pending interventions in a flow, because the next owner of its job
	// gets all of them in one answer.
	maxPendingBytes = 512 << 10
	// maxAnsweredBytes limits the performed interventions in an answer. Over the limit, the earlier
	// ones are shortened.
	maxAnsweredBytes = 256 << 10
)

// intervene records an operator's decision about a failed flow, and reopens the flow's last job. jobs.Controller has
// the table of its effects.
func (t *txn) intervene(c *v1.Intervention) (*v1.Result, error) {
	intervention, err := command.InterventionFromProto(c)
	if err != nil {
		return nil, err
	}
	record := t.flow(intervention.Flow)
	if record == nil {
		return nil, fmt.Errorf("cannot intervene in flow %s: %w", intervention.Flow, logbook.ErrNotFound)
	}
	if record.Continued {
		return nil, fmt.Errorf("cannot intervene in flow %s: %w", record.ID, errContinued(record))
	}
	detail := t.intervenable(record, &intervention)
	repeated, err := detail.Admit(&intervention)
	if err != nil {
		return nil, err
	}
	j := t.lastJob(record)
	if repeated {
		return intervened(j), nil
	}
	if err := t.checkReopening(record, j); err != nil {
		return nil, fmt.Errorf("cannot intervene in flow %s: %w", record.ID, err)
	}
	if intervention.Kind == logbook.InterveneRename {
		return t.rename(record, j, detail, &intervention)
	}
	intervention.At, intervention.Token = t.now, t.token()
	if err := checkPending(detail, &intervention); err != nil {
		return nil, err
	}
	if err := t.roomToGoOn(j, detail.Pending(), &intervention); err != nil {
		return nil, fmt.Errorf("cannot intervene in flow %s: %w", record.ID, err)
	}
	released := detail.Resumable()
	t.keepIntervention(record, detail, &intervention)
	t.steer(j, &intervention, detail.Pending(), record, released)
	if j.State == jobs.StateClaimable {
		t.becameClaimable(queueOf(&j.jobFacts)) // callers that skipped the job in this entry try again
	}
	return intervened(j), nil
}

// keepIntervention writes an intervention, and adds it to the detail. The record gets the token of the last pending
// intervention, or none.
func (t *txn) keepIntervention(record *flowRecord, detail *logbook.FlowDetail, said *logbook.Intervention) {
	t.addIntervention(record, uint32(len(detail.Interventions)), said)
	detail.Interventions = append(detail.Interventions, *said)
	record.Interventions = []logbook.Intervention{{}}
	if pending := detail.Pending(); len(pending) > 0 {
		record.Interventions[0].Token = pending[len(pending)-1].Token
	}
}

// interventionCount returns the number of interventions in a flow.
func (v *view) interventionCount(id logbook.FlowID) uint32 {
	return uint32(len(v.keys(tableIntervention, id.UUID[:])))
}

// addIntervention writes an intervention, and changes the record of its flow, which the caller writes.
func (t *txn) addIntervention(record *flowRecord, number uint32, i *logbook.Intervention) {
	t.use.intervene(record.ID)
	t.putMessage(tableIntervention, interventionKey(record.ID, number), nil, command.InterventionToProto(i))
	record.Interventions, record.UpdatedAt = []logbook.Intervention{{Token: i.Token}}, t.now
}

// takeBack withdraws the pending interventions in a flow, under the name of the operator that cancels its job.
func (t *txn) takeBack(record *flowRecord, request *jobs.OperatorRequest) {
	if len(record.Pending()) == 0 {
		return
	}
	detail := record.FlowDetail
	detail.Interventions, _ = t.interventions(record)
	token := t.token()
	t.keepIntervention(record, &detail, &logbook.Intervention{
		ID: uuid.NewSHA1(record.ID.UUID, []byte(token.String())), Flow: record.ID, Kind: logbook.InterveneTakeBack,
		By: cmp.Or(request.By, "somebody"), Reason: request.Reason, At: t.now, Token: token,
	})
}

// pending reads the pending interventions in a flow.
func (v *view) pending(record *flowRecord) []logbook.Intervention {
	if len(record.Pending()) == 0 {
		return nil
	}
	detail := record.FlowDetail
	detail.Interventions, _ = v.interventions(record)
	return detail.Pending()
}

func intervened(j *jobRecord) *v1.Result {
	answer := &v1.InterveneResult{}
	if j != nil {
		answer.Job = j.ID.String()
	}
	return &v1.Result{Kind: &v1.Result_Intervene{Intervene: answer}}
}

// intervenable reads the parts of a flow that logbook.FlowDetail.Admit needs: its interventions, its definition, and the
// atoms of the named step and of points of no return; for a rename, all atoms.
func (t *txn) intervenable(record *flowRecord, i *logbook.Intervention) *logbook.FlowDetail {
	detail := record.FlowDetail
	detail.Interventions, _ = t.interventions(record)
	detail.Definition, _ = t.definition(record.built)
	if i.Kind == logbook.InterveneRename || len(detail.Definition.Points()) > 0 {
		t.scan(tableAtom, record.ID.UUID[:], func(_, value []byte) bool {
			detail.Atoms = append(detail.Atoms, decodeAtom(value).detail)
			return true
		})
	} else if value := t.get(tableAtom, atomKey(record.ID, i.Step)); i.Step != "" && value != nil {
		detail.Atoms = []logbook.AtomDetail{decodeAtom(value).detail}
	}
	return &detail
}

// lastJob reads the last job of a flow; nil if there was none, or if it is no longer kept.
func (v *view) lastJob(record *flowRecord) *jobRecord {
	return v.findJob(record.last)
}

// checkReopening refuses an intervention if the flow's last job cannot perform it.
func (t *txn) checkReopening(record *flowRecord, j *jobRecord) error {
	switch {
	case record.last == 0:
		return fmt.Errorf("%w: the flow has never had a job, and an intervention requires a job: post a job with this flow", jobs.ErrConflict)
	case j == nil:
		return fmt.Errorf("its last job, number %d, was removed: %w", record.last, jobs.ErrNotFound)
	case j.State == jobs.StateClaimed:
		return fmt.Errorf("%w: %s holds its job %s under token %s; wait until this claim has ended", jobs.ErrConflict, j.Claim.Owner, j.ID, j.Token)
	case t.owns(j):
		return fmt.Errorf("%w: its job %s was released in the same log entry; try again", jobs.ErrConflict, j.ID)
	}
	return nil
}

// roomToGoOn refuses an intervention that would reopen a finished job on a board without room for it.
func (t *txn) roomToGoOn(j *jobRecord, pending []logbook.Intervention, next *logbook.Intervention) error {
	if !j.State.Finished() || next.Hold || next.Kind == logbook.InterveneTakeBack {
		return nil
	}
	reopened := *j
	lift(&reopened, append(slices.Clone(pending), *next), t.now)
	return t.roomAgain(&reopened)
}

// checkPending enforces maxPendingBytes.
func checkPending(detail *logbook.FlowDetail, next *logbook.Intervention) error {
	if next.Kind == logbook.InterveneTakeBack {
		return nil // fewer interventions are pending then
	}
	size := interventionSize(next)
	pending := detail.Pending()
	for i := range pending {
		size += interventionSize(&pending[i])
	}
	if size > maxPendingBytes {
		return &logbook.LimitError{Field: "interventions to be carried out", Limit: maxPendingBytes, Size: int64(size), Unit: "bytes"}
	}
	return nil
}

// interventionSize returns about the stored size of an intervention.
func interventionSize(i *logbook.Intervention) int {
	const about = 160 // bytes of ids, kind, time and token
	return about + len(i.Step) + len(i.To) + len(i.Result) + len(i.By) + len(i.Reason)
}

// steer changes a job so that an owner carries out the interventions in its flow. A finished or parked job becomes
// claimable, unless the last intervention has Hold. If a withdrawal leaves no intervention to perform, a job that was
// reopened for them is completed again.
func (t *txn) steer(j *jobRecord, last *logbook.Intervention, pending []logbook.Intervention, record *flowRecord, released bool) {
	evidence := jobs.Event{
		Token: last.Token, Reason: saidOf(last),
		Request: &jobs.OperatorRequest{Kind: jobs.RequestIntervene, By: last.By, Reason: last.Reason, At: last.At},
	}
	switch back := last.Kind == logbook.InterveneTakeBack; {
	case back && released && !j.State.Finished() && !logbook.Released(pending):
		t.closeAgain(j, record, evidence)
		return
	case back, last.Hold:
		t.saveFlow(record)
		t.event(jobs.EventIntervened, j, evidence)
		return
	}
	lift(j, pending, t.now)
	parked := j.Parked && j.State == jobs.StateHeld
	if j.Parked {
		j.unpark()
		j.end = endNone
	}
	if !j.State.Finished() && !parked {
		t.saveFlow(record)
		j.ModifiedAt = t.now
		t.putJob(j)
		t.event(jobs.EventIntervened, j, evidence)
		return
	}
	record.job = j.Sequence
	t.saveFlow(record)
	j.end = endNone
	t.reopenJob(j)
	if j.NotBefore.After(t.now) {
		j.NotBefore = time.Time{} // the operator wants it to run now
	}
	j.cooled = time.Time{}
	t.placeJob(j)
	t.event(jobs.EventReopened, j, evidence)
}

// closeAgain completes a reopened job that has nothing left to do, with the end of its flow.
func (t *txn) closeAgain(j *jobRecord, record *flowRecord, evidence jobs.Event) {
	record.job = 0
	t.saveFlow(record)
	j.Outcome, j.Reason = jobs.OutcomeFailed, evidence.Reason
	if record.State == logbook.FlowReverted {
		j.Outcome = jobs.OutcomeReverted
	}
	t.closeJob(j, jobs.StateCompleted)
	evidence.Outcome = j.Outcome
	t.event(jobs.EventCompleted, j, evidence)
}

// saidOf returns an intervention as one line of text.
func saidOf(i *logbook.Intervention) string {
	said := string(i.Kind)
	if i.Step != "" {
		said += " " + i.Step
	}
	if i.To != "" {
		said += " to " + i.To
	}
	if i.Reason != "" {
		said += ": " + i.Reason
	}
	return said
}

// lift withdraws a stop request that contradicts the pending interventions. A request to cancel and undo stays if the
// interventions continue the undo. The suspension of a suspended job stays. A job that was being cancelled no longer
// waits for its not-before time.
func lift(j *jobRecord, pending []logbook.Intervention, now time.Time) {
	switch {
	case j.State == jobs.StateSuspended:
	case j.isUnder(jobs.RequestCancel) && j.StopRequest.Revert && !logbook.Forwards(pending):
	default:
		if j.isUnder(jobs.RequestCancel) && j.NotBefore.After(now) {
			j.NotBefore = time.Time{}
		}
		j.StopRequest = nil
	}
}

// interventions reads all interventions in a flow, oldest first, with their stored sizes.
func (v *view) interventions(record *flowRecord) (all []logbook.Intervention, sizes []int) {
	if len(record.Interventions) == 0 {
		return nil, nil
	}
	v.scan(tableIntervention, record.ID.UUID[:], func(_, value []byte) bool {
		all, sizes = append(all, decode(value, &v1.Intervention{}, command.InterventionFromProto)), append(sizes, len(value))
		return true
	})
	return all, sizes
}

// answeredInterventions reads the interventions for an answer, with their total size. If the
// performed ones exceed maxAnsweredBytes, it shortens the earlier ones, so that a flow with many
// interventions fits into an answer.
func (v *view) answeredInterventions(record *flowRecord) (all []logbook.Intervention, size int) {
	all, sizes := v.interventions(record)
	told := 0
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Token.Compare(record.Fence) <= 0 {
			if told += sizes[i]; told > maxAnsweredBytes {
				all[i].Result, all[i].Reason = nil, "" // the resulting attempt has the result
				sizes[i] = interventionSize(&all[i])
			}
		}
		size += sizes[i]
	}
	return all, size
}
