package logbook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// InterventionKind is what a person does to a flow that has failed.
type InterventionKind string

// The kinds of intervention.
const (
	// InterveneRetryRevert has the flow reverted further: every revert that
	// has failed is tried again, with its policy as if for the first time.
	InterveneRetryRevert InterventionKind = "retry-revert"
	// InterveneSkip says of a step whose revert has failed, or had not come to
	// its end when that of another failed, that there is nothing of it left to
	// undo: it counts as reverted. The flow is reverted further.
	InterveneSkip InterventionKind = "skip"
	// InterveneComplete says of a step that its work is done, with the result
	// given: it counts as succeeded. The flow goes on forwards, with every
	// step that has not succeeded.
	InterveneComplete InterventionKind = "complete"
	// InterveneRerun has a step run again, and all that wait for it, whatever
	// became of them, and besides every step that has not succeeded. Without a
	// step, the whole flow runs again. Nothing is undone before.
	InterveneRerun InterventionKind = "rerun"
	// InterveneTakeBack says of what is pending in a step, or without a step
	// of all that is pending, that it is not to be carried out.
	InterveneTakeBack InterventionKind = "take-back"
)

// interventionKinds are all of them.
var interventionKinds = []InterventionKind{InterveneRetryRevert, InterveneSkip, InterveneComplete, InterveneRerun, InterveneTakeBack}

// check holds what an intervention of the kind says against what it must say.
func (k InterventionKind) check(i *Intervention) error {
	fault := ""
	switch {
	case !slices.Contains(interventionKinds, k):
		return &InvalidError{Field: "intervention kind", Reason: fmt.Sprintf("%.64q is none of %v", string(k), interventionKinds)}
	case (k == InterveneSkip || k == InterveneComplete) && i.Step == "":
		return &InvalidError{Field: "intervention step", Reason: fmt.Sprintf("unset; %s needs one", k)}
	case k == InterveneRetryRevert && i.Step != "":
		fault = "step"
	case k != InterveneComplete && len(i.Result) > 0:
		fault = "result"
	case i.Hold && k != InterveneSkip && k != InterveneComplete:
		fault = "hold"
	default:
		return nil
	}
	return &InvalidError{Field: "intervention " + fault, Reason: fmt.Sprintf("%s takes none", k)}
}

// Intervention is what a person has done to a flow after it had ended. It is
// recorded first, and then carried out by whoever claims the flow's job: it is
// *pending* until the flow has been updated under a token that is newer, or
// another has taken it back.
type Intervention struct {
	// ID makes a repeat harmless: the caller makes it.
	ID   uuid.UUID        `json:"id"`
	Flow FlowID           `json:"-"`
	Kind InterventionKind `json:"kind"`
	Step string           `json:"step,omitempty"`
	// Result is what a completed step provides; empty: null.
	Result json.RawMessage `json:"result,omitempty"`
	By     string          `json:"by"` // who, for people
	Reason string          `json:"reason,omitempty"`
	// Hold records it, and leaves the flow as it is until another
	// intervention follows that does not hold.
	Hold bool `json:"hold,omitempty"`
	// At and Token are set by the store: when it was recorded, and a token
	// newer than those of all claims before it and older than those after.
	At    time.Time `json:"at"`
	Token Token     `json:"token"`
}

// Pending are the interventions that nobody has carried out or taken back yet.
func (f *FlowDetail) Pending() []Intervention {
	for i := range f.Interventions {
		if f.Interventions[i].Token.Compare(f.Fence) > 0 {
			return Standing(f.Interventions[i:])
		}
	}
	return nil
}

// Standing are those of a list of interventions that none after them has taken
// back.
func Standing(said []Intervention) []Intervention {
	isBack := func(i Intervention) bool { return i.Kind == InterveneTakeBack }
	if !slices.ContainsFunc(said, isBack) {
		return said
	}
	var standing []Intervention
	for _, i := range said {
		if isBack(i) {
			standing = slices.DeleteFunc(standing, i.takesBack)
		} else {
			standing = append(standing, i)
		}
	}
	return standing
}

// takesBack reports whether an intervention takes back another that is pending.
func (i Intervention) takesBack(pending Intervention) bool {
	return i.Step == "" || i.Step == pending.Step
}

// Forwards reports whether a flow goes on forwards with any of the interventions.
func Forwards(said []Intervention) bool {
	return slices.ContainsFunc(said, func(i Intervention) bool { return i.Kind == InterveneComplete || i.Kind == InterveneRerun })
}

// Resumable reports whether a flow that has come to an end is to go on: among
// the pending interventions is one that does not hold.
func (f *FlowDetail) Resumable() bool { return Released(f.Pending()) }

// Released reports whether interventions are to be carried out: one of them does
// not hold.
func Released(said []Intervention) bool {
	return slices.ContainsFunc(said, func(i Intervention) bool { return !i.Hold })
}

// Admit decides whether an intervention can be carried out in the flow as it
// stands, which must be given with its atoms. ErrConflict says why not. One
// that has been admitted is told by its ID: repeated is true then.
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
	case i.Kind == InterveneRerun && f.State == FlowReverted:
	case f.State != FlowFailure:
		takes := "a flow in FAILURE takes this"
		if i.Kind == InterveneRerun {
			takes = "a flow in FAILURE or REVERTED takes this"
		}
		return fmt.Errorf("%w: it is %s, and only %s", ErrConflict, f.State, takes)
	}
	if i.Step == "" {
		return nil
	}
	atom, recorded := f.Atom(i.Step)
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
		return fmt.Errorf("%w: step %q is %s, and only a revert that has failed or was cut off can be skipped", ErrConflict, i.Step, state)
	}
	switch {
	case !recorded || i.Kind != InterveneComplete:
	case atom.Kind != KindTask:
		return fmt.Errorf("%w: %q is of the kind %s, which cannot be completed by hand", ErrConflict, i.Step, atom.Kind)
	case atom.State == AtomSuccess:
		return fmt.Errorf("%w: step %q is %s already", ErrConflict, i.Step, atom.State)
	}
	return nil
}

func (f *FlowDetail) admitTakeBack(i *Intervention) error {
	switch pending := f.Pending(); {
	case slices.ContainsFunc(pending, i.takesBack):
		return nil
	case i.Step != "":
		return fmt.Errorf("%w: nothing that was said of step %q waits to be carried out", ErrConflict, i.Step)
	}
	return fmt.Errorf("%w: nothing waits to be carried out", ErrConflict)
}

// knows looks for a step that has not begun among those that the flow began
// with. Which instances of an each there are, these do not tell: who carries
// it out does.
func (f *FlowDetail) knows(i *Intervention) error {
	if f.Definition == nil {
		return fmt.Errorf("%w: it has no step %q that has begun", ErrNotFound, i.Step)
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
	for base, ok := cutInstance(i.Step); grows && !known && ok; base, ok = cutInstance(base) {
		kind, known = kinds[base]
	}
	switch {
	case !known:
		return fmt.Errorf("%w: it has no step %q", ErrNotFound, i.Step)
	case i.Kind == InterveneComplete && kind != KindTask:
		return fmt.Errorf("%w: %q is of the kind %s, which cannot be completed by hand", ErrConflict, i.Step, kind)
	}
	return nil
}

// cutInstance takes the last number of an instance from a step's name, as in
// step[3].
func cutInstance(name string) (string, bool) {
	open := strings.LastIndexByte(name, '[')
	if open < 1 || !strings.HasSuffix(name, "]") || strings.Trim(name[open+1:len(name)-1], "0123456789") != "" {
		return name, false
	}
	return name[:open], true
}
