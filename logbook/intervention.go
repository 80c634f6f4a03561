package logbook

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// InterventionKind is the kind of an operator's decision about a failed flow.
type InterventionKind string

// The kinds of intervention.
const (
	// InterveneRetryRevert continues the revert: every failed revert is tried again, with all
	// attempts of its policy.
	InterveneRetryRevert InterventionKind = "retry-revert"
	// InterveneRevert reverts a held flow. In a flow whose revert has failed, it is InterveneRetryRevert.
	InterveneRevert InterventionKind = "revert"
	// InterveneSkip treats a step as reverted. The step's revert must have failed, or must have been
	// running when another revert failed. The flow continues to revert.
	InterveneSkip InterventionKind = "skip"
	// InterveneComplete treats a step as succeeded, with the given result. The flow then runs every
	// step that has not succeeded.
	InterveneComplete InterventionKind = "complete"
	// InterveneRerun runs a step again, with all steps that wait for it, and every step that has not
	// succeeded. Without a step, the whole flow runs again. Nothing is reverted first.
	InterveneRerun InterventionKind = "rerun"
	// InterveneTakeBack withdraws the pending interventions in a step. Without a step, it withdraws
	// all pending interventions.
	InterveneTakeBack InterventionKind = "take-back"
	// InterveneRename gives a started step the name To, with all its instances. The flow can then adopt a definition
	// in which the step has this name. The store renames the step at once, so the intervention is never pending.
	InterveneRename InterventionKind = "rename"
)

// interventionKinds are all kinds.
var interventionKinds = []InterventionKind{InterveneRetryRevert, InterveneRevert, InterveneSkip, InterveneComplete, InterveneRerun, InterveneTakeBack, InterveneRename}

// check checks that an intervention has the fields that its kind needs, and no others.
func (k InterventionKind) check(i *Intervention) error {
	fault := ""
	switch {
	case !slices.Contains(interventionKinds, k):
		return &InvalidError{Field: "intervention kind", Reason: fmt.Sprintf("%.64q is not one of %v", string(k), interventionKinds)}
	case (k == InterveneSkip || k == InterveneComplete || k == InterveneRename) && i.Step == "":
		return &InvalidError{Field: "intervention step", Reason: fmt.Sprintf("not set; %s requires it", k)}
	case (k == InterveneRetryRevert || k == InterveneRevert) && i.Step != "":
		fault = "step"
	case k != InterveneComplete && len(i.Result) > 0:
		fault = "result"
	case i.Hold && k != InterveneSkip && k != InterveneComplete:
		fault = "hold"
	case k == InterveneRename:
		return i.checkNames()
	case i.To != "":
		fault = "to"
	default:
		return nil
	}
	return &InvalidError{Field: "intervention " + fault, Reason: fmt.Sprintf("must not be set for %s", k)}
}

// checkNames checks the old and the new name of a step.
func (i *Intervention) checkNames() error {
	old, isInstance := CutInstance(i.Step)
	_, becomesInstance := CutInstance(i.To)
	switch {
	case isInstance:
		return &InvalidError{Field: "intervention step", Reason: fmt.Sprintf("%q is an instance of a loop; rename step %q, with all its instances", i.Step, old)}
	case becomesInstance:
		return &InvalidError{Field: "intervention to", Reason: fmt.Sprintf("%q is the name of an instance of a loop; give the name without an index", i.To)}
	case i.To == "":
		return &InvalidError{Field: "intervention to", Reason: "not set; rename requires it"}
	case i.To == i.Step:
		return &InvalidError{Field: "intervention to", Reason: fmt.Sprintf("%q is the current name of the step", i.To)}
	}
	return nil
}

// Intervention is an operator's decision about a flow in failure, or about a reverted flow. The store
// records it, and the next owner of the flow's job carries it out. An intervention is *pending* until an
// update of the flow under a newer token, or until another intervention takes it back. InterveneRename is for
// unfinished flows too.
type Intervention struct {
	// ID is made by the caller. A repeat with the same ID changes nothing.
	ID   uuid.UUID        `json:"id"`
	Flow FlowID           `json:"-"`
	Kind InterventionKind `json:"kind"`
	Step string           `json:"step,omitempty"`
	To   string           `json:"to,omitempty"` // new name of a renamed step
	// Result is the result of a completed step; empty: null.
	Result json.RawMessage `json:"result,omitempty"`
	By     string          `json:"by"` // the operator, for display
	Reason string          `json:"reason,omitempty"`
	// Hold delays the intervention until another one without Hold follows.
	Hold bool `json:"hold,omitempty"`
	// The store sets At and Token: the time of the record, and a token that is newer than the tokens
	// of all earlier claims, and older than the tokens of all later claims.
	At    time.Time `json:"at"`
	Token Token     `json:"token"`
}

// Pending returns the pending interventions, oldest first.
func (f *FlowDetail) Pending() []Intervention {
	for i := range f.Interventions {
		if f.Interventions[i].Token.Compare(f.Fence) > 0 {
			return Standing(f.Interventions[i:])
		}
	}
	return nil
}

// Standing returns the interventions of a list that an owner carries out: no renames, and no interventions that a later
// one of the list withdraws.
func Standing(interventions []Intervention) []Intervention {
	isDone := func(i Intervention) bool { return i.Kind == InterveneTakeBack || i.Kind == InterveneRename }
	if !slices.ContainsFunc(interventions, isDone) {
		return interventions
	}
	var standing []Intervention
	for _, i := range interventions {
		switch i.Kind {
		case InterveneTakeBack:
			standing = slices.DeleteFunc(standing, i.takesBack)
		case InterveneRename:
		default:
			standing = append(standing, i)
		}
	}
	return standing
}

// takesBack reports whether the intervention takes back a pending one.
func (i Intervention) takesBack(pending Intervention) bool {
	return i.Step == "" || i.Step == pending.Step
}

// Forwards reports whether the interventions let a flow execute steps instead of reverting them.
func Forwards(interventions []Intervention) bool {
	return slices.ContainsFunc(interventions, func(i Intervention) bool { return i.Kind == InterveneComplete || i.Kind == InterveneRerun })
}

// Resumable reports whether a flow that has ended must continue, because a pending intervention has no
// Hold.
func (f *FlowDetail) Resumable() bool { return Released(f.Pending()) }

// Released reports whether interventions must be performed, because one of them has no Hold.
func Released(interventions []Intervention) bool {
	return slices.ContainsFunc(interventions, func(i Intervention) bool { return !i.Hold })
}

// Admit checks that an intervention can be carried out in the flow. The flow must have the atom of the intervention,
// the atoms of points of no return, its interventions, and its definition; for a rename, all its atoms. If an intervention with the same ID was
// admitted before, repeated is true. ErrConflict if the flow or the step is in the wrong state, ErrNotFound for an
// unknown step, ErrLimit at MaxInterventions.
func (f *FlowDetail) Admit(i *Intervention) (repeated bool, err error) {
	for n := range f.Interventions {
		if f.Interventions[n].ID == i.ID {
			return true, nil
		}
	}
	if err := f.admit(i); err != nil {
		return false, fmt.Errorf("cannot %s in flow %s: %w", i.Kind, f.ID, err)
	}
	return false, nil
}

func (f *FlowDetail) admit(i *Intervention) error {
	switch {
	case len(f.Interventions) >= MaxInterventions:
		return &LimitError{Field: "interventions", Limit: MaxInterventions, Size: int64(len(f.Interventions)) + 1, Unit: "interventions"}
	case i.Kind == InterveneTakeBack:
		return f.admitTakeBack(i)
	case i.Kind == InterveneRename:
		return f.admitRename(i)
	case i.Kind == InterveneRerun && f.State == FlowReverted:
	case f.State != FlowFailure:
		takes := "failure"
		if i.Kind == InterveneRerun {
			takes = "failure or reverted"
		}
		return fmt.Errorf("%w: the flow is in the state %s, and must be in %s", ErrConflict, f.State, takes)
	}
	if point := f.Passed(); point != "" && (i.Kind != InterveneRerun && i.Kind != InterveneComplete || i.Kind == InterveneRerun && i.Step == "") {
		return fmt.Errorf("%w: step %q is a point of no return and has succeeded; complete a step, or rerun from a later step", ErrConflict, point)
	}
	if i.Step == "" {
		return nil
	}
	atom, recorded := f.Atom(i.Step)
	if i.Kind == InterveneComplete && f.approves(i.Step) {
		return fmt.Errorf("%w: step %q is an approval, and cannot be completed by hand; rerun the step, and then approve or override it", ErrConflict, i.Step)
	}
	if !recorded {
		if err := f.knows(i); err != nil {
			return err
		}
	}
	if i.Kind == InterveneSkip && (!recorded || atom.State != AtomRevertFailure && atom.State != AtomReverting) {
		state := AtomPending
		if recorded {
			state = atom.State
		}
		return fmt.Errorf("%w: step %q is %s, and only a failed or interrupted revert can be skipped", ErrConflict, i.Step, state)
	}
	switch {
	case !recorded || i.Kind != InterveneComplete:
	case atom.Kind != KindTask:
		return fmt.Errorf("%w: step %q has the kind %s; only a task can be completed by hand", ErrConflict, i.Step, atom.Kind)
	case atom.State == AtomSuccess:
		return fmt.Errorf("%w: step %q is already %s", ErrConflict, i.Step, atom.State)
	}
	return nil
}

// approves reports whether a step waits for an approval, by its definition or its record: an operator must
// not bypass the approval.
func (f *FlowDetail) approves(step string) bool {
	approvals := f.Definition.names(func(step *DefinedStep) bool { return step.Approves })
	for base, ok := step, true; ok; base, ok = CutInstance(base) {
		if approvals[base] {
			return true
		}
	}
	atom, recorded := f.Atom(step)
	if !recorded || len(atom.Attempts) == 0 {
		return false
	}
	wait := atom.Attempts[len(atom.Attempts)-1].Wait
	return wait != nil && wait.Approval != nil
}

func (f *FlowDetail) admitTakeBack(i *Intervention) error {
	switch pending := f.Pending(); {
	case slices.ContainsFunc(pending, i.takesBack):
		return nil
	case i.Step != "":
		return fmt.Errorf("%w: step %q has no pending intervention", ErrConflict, i.Step)
	}
	return fmt.Errorf("%w: the flow has no pending intervention", ErrConflict)
}

// knows checks that the flow's definition has a step that has not started. The number of instances
// of an each is unknown here; the next owner checks instances.
func (f *FlowDetail) knows(i *Intervention) error {
	if f.Definition == nil {
		return fmt.Errorf("%w: the flow has no started step %q", ErrNotFound, i.Step)
	}
	steps, err := f.Definition.Steps()
	if err != nil {
		return err
	}
	kinds, grows := make(map[string]AtomKind, len(steps)), false
	for n := range steps {
		kinds[steps[n].Name], grows = steps[n].Kind, grows || steps[n].Kind == KindEach
	}
	kind, known := kinds[i.Step]
	for base, ok := CutInstance(i.Step); grows && !known && ok; base, ok = CutInstance(base) {
		kind, known = kinds[base]
	}
	switch {
	case !known:
		return fmt.Errorf("%w: the flow has no step %q", ErrNotFound, i.Step)
	case i.Kind == InterveneComplete && kind != KindTask:
		return fmt.Errorf("%w: step %q has the kind %s; only a task can be completed by hand", ErrConflict, i.Step, kind)
	}
	return nil
}
