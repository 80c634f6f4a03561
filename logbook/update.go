package logbook

import (
	"fmt"
	"time"
)

// Update is one indivisible write to a flow: everything that follows from one outcome. Its cost
// depends on what it changes, not on the size of the flow.
//
// Token and Sequence make a repeat harmless. Under one token the numbers run 1, 2, 3, …; a number
// that is not above the flow's is a repeat and changes nothing, a number that skips one is an
// ErrConflict.
type Update struct {
	Flow     FlowID    `json:"flow"`
	Token    Token     `json:"token"` // of the claim; zero for a flow that has no unfinished job, and had no claim before
	Sequence uint64    `json:"sequence"`
	State    FlowState `json:"state,omitempty"` // empty: unchanged
	Cause    *Failure  `json:"cause,omitempty"` // nil: unchanged
	// Definition is how the flow is built; nil: unchanged.
	Definition *Definition `json:"definition,omitempty"`
	// Atoms are changed in this order. One atom may occur more than once, as when a step without
	// a revert goes through reverting to reverted.
	Atoms []AtomChange `json:"atoms,omitempty"`
}

// AtomChange is the change of one atom. The first change of an atom creates it.
type AtomChange struct {
	Name      string    `json:"name"`
	Kind      AtomKind  `json:"kind,omitempty"`      // of a new atom; empty: unchanged
	Version   string    `json:"version,omitempty"`   // of a new atom; empty: unchanged
	State     AtomState `json:"state,omitempty"`     // empty: unchanged
	Intention Intention `json:"intention,omitempty"` // empty: unchanged
	RetryAt   time.Time `json:"retry_at,omitzero"`   // replaces the old one, also by nothing
	// Progress replaces the old one; nil: unchanged, unless an attempt begins.
	Progress *Progress `json:"progress,omitempty"`
	// Attempts are begun or ended here, by (Action, Number).
	Attempts []Attempt `json:"attempts,omitempty"`
}

// Verdict says whether an update is new.
type Verdict int

// The verdicts.
const (
	Fresh  Verdict = iota // the next update: apply it
	Repeat                // it has been applied already: answer as before, change nothing
)

// Judge compares an update's token and number with those of the flow. The caller has checked the
// token against the claim. The tokens of a flow only grow: an update under an older one, or outside
// any claim once the flow has run under one, is ErrFenced. Numbers begin at 1 with each token, so a
// late repeat from an earlier token could otherwise pass for a new update.
func (f *FlowDetail) Judge(u *Update) (Verdict, error) {
	next := uint64(1)
	if u.Token == f.Fence {
		next = f.Sequence + 1
	}
	switch {
	case u.Sequence == 0:
		return Fresh, &InvalidError{Field: "update sequence", Reason: "0; updates are numbered from 1"}
	case u.Token.Compare(f.Fence) < 0:
		return Fresh, fmt.Errorf("%w: flow %s has been updated under token %s, and %s is older", ErrFenced, f.ID, f.Fence, u.Token)
	case u.Sequence < next:
		return Repeat, nil
	case u.Sequence > next:
		return Fresh, fmt.Errorf("%w: update %d of flow %s arrived before update %d", ErrConflict, u.Sequence, f.ID, next)
	}
	return Fresh, nil
}

// Advance applies the part of a fresh update that concerns the flow itself; AtomDetail.Advance
// changes the atoms. A flow that runs again after its end loses its Cause. On an error nothing has
// changed.
func (f *FlowDetail) Advance(u *Update, now time.Time) error {
	if u.State != "" {
		if err := f.State.Move(u.State); err != nil {
			return fmt.Errorf("cannot update flow %s: %w", f.ID, err)
		}
		if f.State.Finished() && u.State != f.State && len(f.Pending()) == 0 {
			return fmt.Errorf("cannot update flow %s: %w: it is %s, and nobody has intervened", f.ID, ErrConflict, f.State)
		}
		if f.State.Finished() && u.State == FlowRunning {
			f.Cause = nil // the flow no longer reverts; the attempts record what failed
		}
		f.State = u.State
	}
	if f.State.Finished() {
		f.Ended = u.Token // also if it was finished before: its interventions were refused
	}
	if u.Cause != nil {
		f.Cause = u.Cause
	}
	if u.Definition != nil {
		f.Definition = u.Definition
	}
	f.Fence, f.Sequence, f.UpdatedAt, f.Begun = u.Token, u.Sequence, now, Token{}
	return nil
}

// NewAtom is an atom before its first change.
func NewAtom(name string, kind AtomKind) AtomDetail {
	return AtomDetail{Name: name, Kind: kind, State: AtomPending, Intention: IntendExecute}
}

// Advance applies a change to the atom. On an error the atom is unchanged.
func (a *AtomDetail) Advance(c *AtomChange) error {
	if c.Kind != "" && c.Kind != a.Kind {
		return fmt.Errorf("%w: atom %q is a %s, not a %s", ErrConflict, a.Name, a.Kind, c.Kind)
	}
	if c.State != "" {
		if err := a.State.Move(c.State); err != nil {
			return fmt.Errorf("cannot change atom %q: %w", a.Name, err)
		}
	}
	for i := range c.Attempts {
		if err := a.admits(&c.Attempts[i], c.Attempts[:i]); err != nil {
			return err
		}
	}
	a.set(c)
	return nil
}

// CheckNumbers checks, after Advance, that no attempt number is skipped: folded attempts are only
// counted. holds reports whether an attempt exists or existed.
func (c *AtomChange) CheckNumbers(holds func(action Action, number int) bool) error {
	for i := range c.Attempts {
		if attempt := &c.Attempts[i]; attempt.Number > 1 && !holds(attempt.Action, attempt.Number-1) {
			reason := fmt.Sprintf("%s %d of atom %q, and there was no %s %d", attempt.Action, attempt.Number, c.Name, attempt.Action, attempt.Number-1)
			return &InvalidError{Field: "attempt", Reason: reason}
		}
	}
	return nil
}

// admits checks that an attempt is new or ends an open one, given the earlier attempts of the same
// change.
func (a *AtomDetail) admits(attempt *Attempt, earlier []Attempt) error {
	if attempt.Number < 1 || !attempt.Action.Known() {
		return &InvalidError{Field: "attempt", Reason: fmt.Sprintf("%s %d of atom %q", attempt.Action, attempt.Number, a.Name)}
	}
	if folded := a.Folded.Count(attempt.Action); attempt.Number <= folded {
		return fmt.Errorf("%w: %s %d of atom %q is over, and %d of them are folded", ErrConflict, attempt.Action, attempt.Number, a.Name, folded)
	}
	for _, attempts := range [][]Attempt{a.Attempts, earlier} {
		for i := range attempts {
			old := &attempts[i]
			if old.Action == attempt.Action && old.Number == attempt.Number && old.Ended() {
				return fmt.Errorf("%w: %s %d of atom %q has ended already", ErrConflict, old.Action, old.Number, a.Name)
			}
		}
	}
	return nil
}

func (a *AtomDetail) set(c *AtomChange) {
	if c.State == AtomPending && a.State != AtomPending && a.State != AtomRunning {
		a.Progress = nil // it begins again
	}
	if c.Version != "" {
		a.Version = c.Version
	}
	if c.State != "" {
		a.State = c.State
	}
	if c.Intention != "" {
		a.Intention = c.Intention
	}
	a.RetryAt = c.RetryAt
	for _, attempt := range c.Attempts {
		if a.record(attempt) {
			a.Progress = nil // of the attempt before
		}
	}
	if c.Progress != nil {
		a.Progress = c.Progress
	}
}

// record keeps an attempt, and reports whether it is new.
func (a *AtomDetail) record(attempt Attempt) bool {
	for i := range a.Attempts {
		if a.Attempts[i].Action == attempt.Action && a.Attempts[i].Number == attempt.Number {
			a.Attempts[i] = attempt
			return false
		}
	}
	a.Attempts = append(a.Attempts, attempt)
	return true
}
