package fsm

import (
	"errors"
	"fmt"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/google/uuid"
)

func (t *txn) saveFlow(f *flowRecord) {
	row := &t.messages.flow
	*row = v1.FlowRow{
		Book: f.Book.UUID[:], Name: f.Name, Factory: f.Factory.Name, State: string(f.State),
		CreatedAt: command.TimeInto(row.CreatedAt, f.CreatedAt), UpdatedAt: command.TimeInto(row.UpdatedAt, f.UpdatedAt),
		Fence: command.TokenInto(row.Fence, f.Fence), EndedToken: command.TokenInto(row.EndedToken, f.Ended), BegunToken: command.TokenInto(row.BegunToken, f.Begun),
		Sequence: f.Sequence, Job: f.job, LastJob: f.last, Atoms: f.atoms, Iteration: uint32(f.Iteration), Continued: f.Continued,
	}
	if f.Iteration > 0 {
		row.Origin = f.Origin.UUID[:]
	}
	if !f.Previous.IsZero() {
		row.Previous = f.Previous.UUID[:]
	}
	if n := len(f.Interventions); n > 0 {
		row.Intervened, row.Intervention = true, command.TokenToProto(f.Interventions[n-1].Token)
	}
	if !f.built.IsZero() {
		row.Definition = f.built[:]
	}
	t.putMessage(tableFlow, f.ID.UUID[:], nil, row)
	t.flows.keep(f)
}

func flowFromProto(row *v1.FlowRow) (*flowRecord, error) {
	book, badBook := uuid.FromBytes(row.GetBook())
	created, badCreation := command.TimeFromProto("flow created_at", row.GetCreatedAt())
	updated, badUpdate := command.TimeFromProto("flow updated_at", row.GetUpdatedAt())
	f := &flowRecord{FlowDetail: logbook.FlowDetail{
		Book: logbook.BookID{UUID: book}, Name: row.GetName(), Factory: logbook.Factory{Name: row.GetFactory()}, State: logbook.FlowState(row.GetState()),
		CreatedAt: created, UpdatedAt: updated, Sequence: row.GetSequence(), Fence: command.TokenFromProto(row.GetFence()),
		Ended: command.TokenFromProto(row.GetEndedToken()), Begun: command.TokenFromProto(row.GetBegunToken()),
	}, job: row.GetJob(), last: row.GetLastJob(), atoms: row.GetAtoms()}
	if row.GetIntervened() {
		f.Interventions = []logbook.Intervention{{Token: command.TokenFromProto(row.GetIntervention())}}
	}
	built, badDefinition := command.ParseDefinitionID(row.GetDefinition())
	f.built, f.Iteration, f.Continued = built, int(row.GetIteration()), row.GetContinued()
	previous, badPrevious := flowIDFromRow(row.GetPrevious())
	origin, badOrigin := flowIDFromRow(row.GetOrigin())
	f.Previous, f.Origin = previous, origin
	return f, errors.Join(badBook, badCreation, badUpdate, badDefinition, badPrevious, badOrigin)
}

// errContinued refuses work in a flow of an earlier iteration.
func errContinued(record *flowRecord) error {
	return fmt.Errorf("%w: flow %s is iteration %d of its job, and the job has continued with a later one", logbook.ErrConflict, record.ID, max(record.Iteration, 1))
}

// flowIDFromRow reads the id of another flow; zero if the row has none.
func flowIDFromRow(id []byte) (logbook.FlowID, error) {
	if len(id) == 0 {
		return logbook.FlowID{}, nil
	}
	parsed, err := uuid.FromBytes(id)
	return logbook.FlowID{UUID: parsed}, err
}

// flow reads a flow; nil if there is none.
func (v *view) flow(id logbook.FlowID) *flowRecord {
	if known := v.flows[id]; known != nil {
		record := *known
		return &record
	}
	value := v.get(tableFlow, id.UUID[:])
	if value == nil {
		return nil
	}
	record := decode(value, &v1.FlowRow{}, flowFromProto)
	record.ID = id
	v.flows.keep(record)
	return record
}

// existingFlow reads a flow to which a stored row refers.
func (v *view) existingFlow(id logbook.FlowID) *flowRecord {
	record := v.flow(id)
	if record == nil {
		panic(corrupt("a row refers to flow %s, which does not exist", id))
	}
	return record
}

// flowBody adds a flow's body to its record: the plan, and the cause.
func (v *view) flowBody(f *flowRecord) *logbook.FlowDetail {
	whole := f.FlowDetail
	whole.Definition, whole.Interventions = nil, nil
	value := v.get(tableFlowBody, f.ID.UUID[:])
	if value == nil {
		return &whole
	}
	body := &v1.FlowBodyRow{}
	if err := command.DecodeMessage(value, body); err != nil {
		panic(corrupt("cannot decode the body of flow %s: %w", f.ID, err))
	}
	whole.Factory.Args, whole.Targets, whole.OnChange = command.ValueFromProto(body.GetArgs()), body.GetTargets(), logbook.ChangePolicy(body.GetOnChange())
	whole.OnFailure = logbook.FailurePolicy(body.GetOnFailure())
	whole.Store, whole.Meta = command.ValuesFromProto(body.GetStore()), command.ValuesFromProto(body.GetMeta())
	whole.Cause = command.FailureFromProto(body.GetCause())
	return &whole
}

// saveFlowBody writes the fields that a flow's record does not have. An empty body has no row.
func (t *txn) saveFlowBody(f *logbook.FlowDetail) {
	body := &v1.FlowBodyRow{
		Args: command.ValueToProto(f.Factory.Args), Store: command.ValuesToProto(f.Store), Meta: command.ValuesToProto(f.Meta),
		Cause: command.FailureToProto(f.Cause), Targets: f.Targets, OnChange: string(f.OnChange), OnFailure: string(f.OnFailure),
	}
	if command.SizeOf(body) == 0 {
		t.delete(tableFlowBody, f.ID.UUID[:])
		return
	}
	t.putMessage(tableFlowBody, f.ID.UUID[:], nil, body)
}

// hasBegun reports whether the flow has, or may have, work to undo.
func (f *flowRecord) hasBegun() bool { return f.atoms > 0 || !f.Begun.IsZero() }

// mayHaveBegun reports whether the flow may have unrecorded work, under an earlier claim or under the
// current one. An engine starts unrecorded work only in a flow that is pending or running: see engine.Options.Begins.
func (f *flowRecord) mayHaveBegun(claim *jobs.Claim, recorded bool) bool {
	unrecorded := claim.Begins && !recorded && f.Fence != claim.Token
	return !f.Begun.IsZero() || unrecorded && (f.State == logbook.FlowPending || f.State == logbook.FlowRunning)
}

// noteBegun records that steps of a flow may have started under the claim that is about to end. This is
// the case if the claim has Begins and nothing is recorded under it. The first update under a claim records all
// work before it. Every end of a claim calls noteBegun:
//
//	the session or the claim expires   as above, also if the job is trashed
//	the session is closed              as above: closing reports nothing about the job
//	consumed, abandoned, trashed       as above, unless the ending has Recorded
//
// The token of the claim is kept until the next record. Of several claims, the first token is kept,
// because later owners start nothing without a record.
func (t *txn) noteBegun(j *jobRecord) {
	if !j.Claim.Begins || j.Flow.IsZero() {
		return
	}
	record := t.existingFlow(j.Flow)
	if !record.Begun.IsZero() || !record.mayHaveBegun(j.Claim, false) {
		return
	}
	record.Begun = j.Claim.Token
	t.saveFlow(record)
}

// detach frees the flow of a finished job for another job.
func (t *txn) detach(j *jobRecord) {
	if j.Flow.IsZero() {
		return
	}
	record := t.existingFlow(j.Flow)
	record.job = 0
	t.saveFlow(record)
}

// updateFlow applies an update under the claim on the flow's job.
func (t *txn) updateFlow(c *v1.Update) error {
	update, err := command.UpdateFromProto(c)
	if err != nil {
		return err
	}
	record := t.flow(update.Flow)
	switch {
	case record == nil:
		return fmt.Errorf("cannot update flow %s: %w", update.Flow, logbook.ErrNotFound)
	case applied(record, &update):
		return nil
	}
	j, err := t.fence(record, update.Token)
	if err != nil {
		return fmt.Errorf("cannot update flow %s: %w", update.Flow, err)
	}
	plan, err := t.planUpdate(record, &update, c.GetDefinitionId())
	if err != nil {
		return err
	}
	t.writeUpdate(plan, j)
	return nil
}

// applied reports whether an update was applied under the flow's latest token. A repeat after the end of
// the claim is then answered as done, and not as fenced. This happens when a batch repeats an update
// together with the ending after it.
func applied(record *flowRecord, u *logbook.Update) bool {
	if record.Fence != u.Token {
		return false
	}
	verdict, err := record.Judge(u)
	return err == nil && verdict == logbook.Repeat
}

// fence checks the token of an update. It returns the flow's unfinished job, which is valid until
// the next call; nil if there is none.
func (t *txn) fence(record *flowRecord, token logbook.Token) (*jobRecord, error) {
	if record.job == 0 {
		if !token.IsZero() {
			return nil, fmt.Errorf("%w: the flow has no unfinished job", logbook.ErrFenced)
		}
		return nil, nil
	}
	j := &t.memory.fenced
	if known := t.known[record.job]; known != nil {
		*j = jobRecord{jobFacts: *known, was: known}
	} else {
		j = t.job(record.job)
	}
	return j, t.checkToken(j, token)
}

// checkToken refuses all tokens but the token of the current claim. It also refuses that token from a
// principal that does not own the claim, and reveals nothing about the claim.
func (t *txn) checkToken(j *jobRecord, token logbook.Token) error {
	if t.by != "" && j.Claim != nil {
		if session, found := t.findSession(j.Claim.Session); !found || !t.mayUse(session) {
			return fmt.Errorf("%w: job %s is not held under token %s", logbook.ErrFenced, j.ID, token)
		}
	}
	switch {
	case j.Token.IsZero():
		return fmt.Errorf("%w: job %s is %s, and was never claimed", logbook.ErrFenced, j.ID, j.State)
	case j.Claim == nil:
		return fmt.Errorf("%w: job %s is %s, and its last token is %s", logbook.ErrFenced, j.ID, j.State, j.Token)
	case j.Claim.Token != token:
		return fmt.Errorf("%w: %s holds job %s under token %s", logbook.ErrFenced, j.Claim.Owner, j.ID, j.Claim.Token)
	}
	return nil
}

// flowUpdate is a planned update. Nothing of it is written yet.
type flowUpdate struct {
	flow       *flowRecord
	moved      bool                 // the flow's state changes
	recaused   bool                 // the cause changes
	built      command.DefinitionID // zero: the definition does not change
	definition *logbook.Definition  // nil: unchanged, or already in the state
	atoms      []*atomRecord
}

// planUpdate plans an update whose token has been checked. The plan is nil if the update is a repeat.
// planUpdate changes the record. definition is the definition id of the update, if it has one.
func (t *txn) planUpdate(record *flowRecord, u *logbook.Update, definition []byte) (*flowUpdate, error) {
	verdict, err := record.Judge(u)
	if err != nil || verdict == logbook.Repeat {
		return nil, err
	}
	built, err := t.planDefinition(u, definition)
	if err != nil {
		return nil, fmt.Errorf("cannot update flow %s: %w", u.Flow, err)
	}
	// Most updates do not change the cause, so it is not read. A placeholder shows whether the
	// update replaces or removes it.
	before := record.State
	record.Cause = &t.memory.cause
	if err := record.Advance(u, t.now); err != nil {
		return nil, err
	}
	plan := &flowUpdate{flow: record, moved: record.State != before, recaused: record.Cause != &t.memory.cause, built: built, definition: u.Definition, atoms: make([]*atomRecord, 0, len(u.Atoms))}
	known := make(map[string]*atomRecord) // without a size, a small map stays on the stack
	for i := range u.Atoms {
		change := &u.Atoms[i]
		atom, found := known[change.Name]
		if !found {
			if atom, err = t.planAtom(record, change); err != nil {
				return nil, fmt.Errorf("cannot update flow %s: %w", u.Flow, err)
			}
			known[change.Name] = atom
			plan.atoms = append(plan.atoms, atom)
		}
		if err := t.advanceAtom(u.Flow, atom, change); err != nil {
			return nil, fmt.Errorf("cannot update flow %s: %w", u.Flow, err)
		}
	}
	if steps := logbook.MaxLimits.Steps; int(record.atoms) > steps {
		return nil, &logbook.LimitError{Field: "flow atoms", Limit: int64(steps), Size: int64(record.atoms), Unit: "steps"}
	}
	return plan, nil
}

// writeUpdate writes a plan, and records its event.
func (t *txn) writeUpdate(plan *flowUpdate, j *jobRecord) {
	if plan == nil {
		return
	}
	t.setDefinition(plan)
	if plan.recaused {
		body := t.flowBody(plan.flow)
		body.Cause = plan.flow.Cause
		t.saveFlowBody(body)
	}
	sends := takeSends(plan.atoms)
	worked := false
	for _, atom := range plan.atoms {
		t.putWait(plan.flow.ID, atom, j)
		t.putCheckpoints(plan.flow.ID, atom)
		t.saveAtom(plan.flow.ID, atom)
		worked = worked || slices.ContainsFunc(atom.detail.Attempts, func(a logbook.Attempt) bool { return a.Worker != "" })
		if atom.isKept() {
			plan.flow.running = atom
		}
	}
	t.saveFlow(plan.flow)
	t.sendAll(plan.flow.ID, sends, j)
	if worked {
		t.changes.Worked = append(t.changes.Worked, plan.flow.ID)
	}
	if j != nil {
		t.flowEvent(plan, j)
	}
}

// flowEvent records an event with the changed states; none if no state changed.
func (t *txn) flowEvent(plan *flowUpdate, j *jobRecord) {
	extra := jobs.Event{Steps: t.memory.steps[:0]}
	if plan.moved {
		extra.FlowState = string(plan.flow.State)
		t.changes.Steps = append(t.changes.Steps, StepChange{Flow: plan.flow.ID})
	}
	for _, atom := range plan.atoms {
		if atom.detail.State != atom.before {
			extra.Steps = append(extra.Steps, jobs.StepEvent{Name: atom.detail.Name, State: string(atom.detail.State)})
			t.changes.Steps = append(t.changes.Steps, StepChange{Flow: plan.flow.ID, Step: atom.detail.Name})
		}
	}
	if plan.moved || len(extra.Steps) > 0 {
		extra.Token = j.Token
		t.event(jobs.EventFlow, j, extra)
	}
	t.memory.steps = extra.Steps
}
