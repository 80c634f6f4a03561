package fsm

import (
	"encoding/binary"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// flowRecord is the small, changing part of a flow: without what was planned
// and Cause, which are its body, without Definition and Atoms, and with nothing
// but the token of its last intervention, which is what an update is judged by.
// As stored it is the sequence of its last job, with the highest bit set if
// that is finished, the number of its atoms, and then the message.
type flowRecord struct {
	logbook.FlowDetail
	job   uint64 // sequence of the unfinished job that refers to the flow; 0: none
	last  uint64 // sequence of the last job that referred to it; 0: none ever did
	atoms uint32
}

const (
	flowPrefixSize = 8 + 4
	jobIsFinished  = 1 << 63
)

func (t *txn) saveFlow(f *flowRecord) {
	small := f.FlowDetail
	small.Factory.Args, small.Store, small.Meta, small.Targets, small.OnChange = nil, nil, nil, nil, ""
	small.Cause, small.Definition, small.Atoms = nil, nil, nil
	if n := len(small.Interventions); n > 0 {
		small.Interventions = []logbook.Intervention{{Token: small.Interventions[n-1].Token}}
	}
	job := f.job
	if job == 0 && f.last != 0 {
		job = f.last | jobIsFinished
	}
	prefix := binary.BigEndian.AppendUint32(sequenceKey(job), f.atoms)
	t.putMessage(tableFlow, f.ID.UUID[:], prefix, command.FlowDetailToProto(&small))
}

func decodeFlow(value []byte) (*flowRecord, error) {
	if len(value) < flowPrefixSize {
		return nil, corrupt("a stored flow has %d bytes", len(value))
	}
	detail, err := decode(value[flowPrefixSize:], &v1.FlowDetail{}, command.FlowDetailFromProto)
	if err != nil {
		return nil, err
	}
	record := &flowRecord{FlowDetail: detail, atoms: binary.BigEndian.Uint32(value[8:])}
	record.last = binary.BigEndian.Uint64(value)
	if record.last&jobIsFinished == 0 {
		record.job = record.last
	}
	record.last &^= jobIsFinished
	return record, nil
}

// flow reads a flow; nil if there is none.
func (v *view) flow(id logbook.FlowID) (*flowRecord, error) {
	value := v.get(tableFlow, id.UUID[:])
	if value == nil {
		return nil, nil
	}
	return decodeFlow(value)
}

// existingFlow reads a flow that something stored refers to.
func (v *view) existingFlow(id logbook.FlowID) (*flowRecord, error) {
	record, err := v.flow(id)
	if err == nil && record == nil {
		err = corrupt("flow %s is referred to, and does not exist", id)
	}
	return record, err
}

// flowBody adds to a flow what was planned, and why it reverts or has failed.
func (v *view) flowBody(f *flowRecord) (*logbook.FlowDetail, error) {
	whole := f.FlowDetail
	whole.Definition, whole.Interventions = nil, nil
	value := v.get(tableFlowBody, f.ID.UUID[:])
	if value == nil {
		return &whole, nil
	}
	body, err := decode(value, &v1.FlowDetail{}, command.FlowDetailFromProto)
	if err != nil {
		return nil, err
	}
	whole.Factory.Args, whole.Store, whole.Meta, whole.Cause = body.Factory.Args, body.Store, body.Meta, body.Cause
	whole.Targets, whole.OnChange = body.Targets, body.OnChange
	return &whole, nil
}

// saveFlowBody writes the body of a flow; an empty one is not kept.
func (t *txn) saveFlowBody(id logbook.FlowID, body *logbook.FlowDetail) {
	empty := len(body.Factory.Args) == 0 && len(body.Store) == 0 && len(body.Meta) == 0 && body.Cause == nil
	if empty && len(body.Targets) == 0 && body.OnChange == "" {
		t.delete(tableFlowBody, id.UUID[:])
		return
	}
	t.putMessage(tableFlowBody, id.UUID[:], nil, command.FlowDetailToProto(body))
}

// hasBegun tells whether something of a flow may have been done that could be
// undone.
func (f *flowRecord) hasBegun() bool { return f.atoms > 0 || !f.Begun.IsZero() }

// mayHaveBegun tells whether something of a flow may have been done that is not
// recorded: under a claim that has ended, or under the present one.
func (f *flowRecord) mayHaveBegun(claim *jobs.Claim, recorded bool) bool {
	return !f.Begun.IsZero() || claim.Begins && !recorded && f.Sequence == 0
}

// noteBegun notes of the flow of a job, whose claim is about to end, that it
// may have begun under that. So it is where the owner begins flows at once and
// nothing of this one is recorded: with the first update all that it begins
// before is. It is asked wherever a claim ends:
//
//	the session expires, or the claim does   as above, also where the job is trashed for it
//	the session is closed                    as above: whoever closes it has said nothing of the job
//	consumed, abandoned, trashed             as above, unless the ending says that it is Recorded;
//	                                         so it is too where somebody else ends it, by its token
//
// That there was such a claim before is remembered until something is recorded:
// of several, the first one's token is kept, since whoever comes after it begins
// nothing without a mark. The error is a fault.
func (t *txn) noteBegun(j *jobRecord) error {
	if !j.Claim.Begins || j.Flow.IsZero() {
		return nil
	}
	record, err := t.existingFlow(j.Flow)
	if err != nil || !record.Begun.IsZero() || !record.mayHaveBegun(j.Claim, false) {
		return err
	}
	record.Begun = j.Claim.Token
	t.saveFlow(record)
	return nil
}

// detach frees the flow of a job that is finished. The error is a fault.
func (t *txn) detach(j *jobRecord) error {
	if j.Flow.IsZero() {
		return nil
	}
	record, err := t.existingFlow(j.Flow)
	if err != nil {
		return err
	}
	record.job = 0
	t.saveFlow(record)
	return nil
}

// updateFlow applies an update under the claim on the flow's job.
func (t *txn) updateFlow(c *v1.Update) error {
	update, err := command.UpdateFromProto(c)
	if err != nil {
		return err
	}
	record, err := t.flow(update.Flow)
	switch {
	case err != nil:
		return err
	case record == nil:
		return fmt.Errorf("cannot update flow %s: %w", update.Flow, logbook.ErrNotFound)
	case applied(record, &update):
		return nil
	}
	j, err := t.fence(record, update.Token)
	if err != nil {
		return fmt.Errorf("cannot update flow %s: %w", update.Flow, err)
	}
	plan, err := t.planUpdate(record, &update)
	if err != nil {
		return err
	}
	return t.writeUpdate(plan, j)
}

// applied tells whether an update took place under the flow's latest token.
// That stays true when the claim is over, so whoever repeats it is told so,
// and not that it is fenced: packed calls repeat an update together with the
// ending that followed it.
func applied(record *flowRecord, u *logbook.Update) bool {
	if record.Fence != u.Token {
		return false
	}
	verdict, err := record.Judge(u)
	return err == nil && verdict == logbook.Repeat
}

// fence checks the token of an update. It answers with the flow's unfinished
// job; nil if there is none.
func (t *txn) fence(record *flowRecord, token logbook.Token) (*jobRecord, error) {
	if record.job == 0 {
		if !token.IsZero() {
			return nil, fmt.Errorf("%w: the flow has no unfinished job", logbook.ErrFenced)
		}
		return nil, nil
	}
	j, err := t.job(record.job)
	if err != nil {
		return nil, err
	}
	return j, checkToken(j, token)
}

// checkToken refuses every token but that of the present claim.
func checkToken(j *jobRecord, token logbook.Token) error {
	switch {
	case j.Claim == nil:
		return fmt.Errorf("%w: job %s is %s, and its last token is %s", logbook.ErrFenced, j.ID, j.State, j.Token)
	case j.Claim.Token != token:
		return fmt.Errorf("%w: %s holds job %s under token %s", logbook.ErrFenced, j.Claim.Owner, j.ID, j.Claim.Token)
	}
	return nil
}

// flowUpdate is an update worked out before anything is written.
type flowUpdate struct {
	flow       *flowRecord
	moved      bool // the flow's state changes
	recaused   bool // the cause changes
	definition *logbook.Definition
	atoms      []*atomRecord
}

// planUpdate works out an update whose token has been checked. The plan is nil
// if the update is a repeat.
func (t *txn) planUpdate(record *flowRecord, u *logbook.Update) (*flowUpdate, error) {
	verdict, err := record.Judge(u)
	if err != nil || verdict == logbook.Repeat {
		return nil, err
	}
	changed := *record
	// The cause is not read, since most updates leave it: something stands for
	// it, so that it is seen to be replaced or taken away.
	kept := &logbook.Failure{}
	changed.Cause = kept
	if err := changed.Advance(u, t.now); err != nil {
		return nil, err
	}
	plan := &flowUpdate{flow: &changed, moved: changed.State != record.State, recaused: changed.Cause != kept, definition: u.Definition}
	known := make(map[string]*atomRecord, len(u.Atoms))
	for i := range u.Atoms {
		change := &u.Atoms[i]
		atom, found := known[change.Name]
		if !found {
			if atom, err = t.planAtom(&changed, change); err != nil {
				return nil, fmt.Errorf("cannot update flow %s: %w", u.Flow, err)
			}
			known[change.Name] = atom
			plan.atoms = append(plan.atoms, atom)
		}
		if err := t.advanceAtom(u.Flow, atom, change); err != nil {
			return nil, fmt.Errorf("cannot update flow %s: %w", u.Flow, err)
		}
	}
	if steps := logbook.MaxLimits.Steps; int(changed.atoms) > steps {
		return nil, &logbook.LimitError{Field: "flow atoms", Limit: int64(steps), Size: int64(changed.atoms), Unit: "steps"}
	}
	return plan, nil
}

// writeUpdate writes what a plan says, and tells those who watch the job.
func (t *txn) writeUpdate(plan *flowUpdate, j *jobRecord) error {
	if plan == nil {
		return nil
	}
	t.saveFlow(plan.flow)
	if plan.recaused {
		body, err := t.flowBody(plan.flow)
		if err != nil {
			return err
		}
		body.Cause = plan.flow.Cause
		t.saveFlowBody(plan.flow.ID, bodyOf(body))
	}
	if plan.definition != nil {
		t.saveDefinition(plan.flow.ID, plan.definition)
	}
	for _, atom := range plan.atoms {
		if err := t.saveAtom(plan.flow.ID, atom); err != nil {
			return err
		}
	}
	if j != nil {
		t.flowEvent(plan, j)
	}
	return nil
}

// bodyOf leaves out of a flow what its record holds.
func bodyOf(f *logbook.FlowDetail) *logbook.FlowDetail {
	return &logbook.FlowDetail{
		Factory: logbook.Factory{Args: f.Factory.Args}, Store: f.Store, Meta: f.Meta, Cause: f.Cause,
		Targets: f.Targets, OnChange: f.OnChange,
	}
}

// saveDefinition writes what a flow was built as. It has a row of its own: it
// is long, and hardly ever changes.
func (t *txn) saveDefinition(id logbook.FlowID, definition *logbook.Definition) {
	t.putMessage(tableDefinition, id.UUID[:], nil, command.FlowDetailToProto(&logbook.FlowDetail{Definition: definition}))
}

// definition reads what a flow was built as, and how many bytes that takes; nil
// if it has not begun.
func (v *view) definition(id logbook.FlowID) (definition *logbook.Definition, size int, err error) {
	value := v.get(tableDefinition, id.UUID[:])
	if value == nil {
		return nil, 0, nil
	}
	detail, err := decode(value, &v1.FlowDetail{}, command.FlowDetailFromProto)
	return detail.Definition, len(value), err
}

// flowEvent tells which states changed; an update that changes none is silent.
func (t *txn) flowEvent(plan *flowUpdate, j *jobRecord) {
	var extra jobs.Event
	if plan.moved {
		extra.FlowState = string(plan.flow.State)
	}
	for _, atom := range plan.atoms {
		if atom.detail.State != atom.before {
			extra.Steps = append(extra.Steps, jobs.StepEvent{Name: atom.detail.Name, State: string(atom.detail.State)})
		}
	}
	if plan.moved || len(extra.Steps) > 0 {
		extra.Token = j.Token
		t.event(jobs.EventFlow, j, extra)
	}
}
