package logbook

import (
	"fmt"
	"time"
)

// Update is one atomic write to a flow: all consequences of one outcome. Its cost depends on the
// change, not on the size of the flow.
//
// Token and Sequence make a repeat harmless. Under one token, updates are numbered 1, 2, 3, … An update
// whose number is not above the flow's number is a repeat, and changes nothing. An update that skips a
// number is an ErrConflict.
type Update struct {
	Flow     FlowID    `json:"flow"`
	Token    Token     `json:"token"` // token of the claim; zero for a flow without an unfinished job that never ran under a claim
	Sequence uint64    `json:"sequence"`
	State    FlowState `json:"state,omitempty"` // empty: unchanged
	Cause    *Failure  `json:"cause,omitempty"` // nil: unchanged
	// Definition is the new definition of the flow; nil: unchanged.
	Definition *Definition `json:"definition,omitempty"`
	// Atoms are applied in this order. An atom can occur more than once: for example, a step without
	// a revert changes to reverting, and then to reverted.
	Atoms []AtomChange `json:"atoms,omitempty"`
}

// AtomChange is the change of one atom. The first change of an atom creates it.
type AtomChange struct {
	Name      string    `json:"name"`
	Kind      AtomKind  `json:"kind,omitempty"`      // of a new atom; empty: unchanged
	Version   string    `json:"version,omitempty"`   // of a new atom; empty: unchanged
	State     AtomState `json:"state,omitempty"`     // empty: unchanged
	Intention Intention `json:"intention,omitempty"` // empty: unchanged
	RetryAt   time.Time `json:"retry_at,omitzero"`   // always replaces the old value; zero: none
	// Progress replaces the old value; nil: unchanged, or cleared if an attempt starts.
	Progress *Progress `json:"progress,omitempty"`
	// Checkpoints are recorded for the running attempt. ErrConflict if no attempt runs; ErrInvalid together with
	// a State or Attempts.
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
	// Attempts are the attempts that start or end, identified by Action and Number.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// Verdict is the result of Judge.
type Verdict int

// The verdicts.
const (
	Fresh  Verdict = iota // the next update: apply it
	Repeat                // a repeat of an applied update: change nothing
)

// Judge decides whether an update is the next one or a repeat, by token and number. The caller has
// checked the token against the claim. ErrFenced if the token is older than the flow's token: numbers
// start at 1 under each token, so a late repeat under an older token would otherwise look new. An update
// outside any claim has the oldest token. ErrConflict if the number skips one. ErrInvalid for number 0.
func (f *FlowDetail) Judge(u *Update) (Verdict, error) {
	next := uint64(1)
	if u.Token == f.Fence {
		next = f.Sequence + 1
	}
	switch {
	case u.Sequence == 0:
		return Fresh, &InvalidError{Field: "update sequence", Reason: "0; updates are numbered from 1"}
	case u.Token.Compare(f.Fence) < 0:
		return Fresh, fmt.Errorf("%w: flow %s has an update under token %s, and token %s is older", ErrFenced, f.ID, f.Fence, u.Token)
	case u.Sequence < next:
		return Repeat, nil
	case u.Sequence > next:
		return Fresh, fmt.Errorf("%w: update %d of flow %s arrived before update %d", ErrConflict, u.Sequence, f.ID, next)
	}
	return Fresh, nil
}

// Advance applies the flow's part of a fresh update. AtomDetail.Advance applies the atoms' parts. A flow
// that runs again after its end loses its Cause. After an error, the flow is unchanged.
func (f *FlowDetail) Advance(u *Update, now time.Time) error {
	if u.State != "" {
		if err := f.State.Move(u.State); err != nil {
			return fmt.Errorf("cannot update flow %s: %w", f.ID, err)
		}
		if f.State.Finished() && u.State != f.State && len(f.Pending()) == 0 {
			return fmt.Errorf("cannot update flow %s: %w: it is %s, and no intervention is pending", f.ID, ErrConflict, f.State)
		}
		if f.State.Finished() && u.State == FlowRunning {
			f.Cause = nil // the flow no longer reverts; the attempts record what failed
		}
		f.State = u.State
	}
	if f.State.Finished() {
		f.Ended = u.Token // also for a flow that was finished before: its interventions were refused
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

// NewAtom returns an atom before its first change.
func NewAtom(name string, kind AtomKind) AtomDetail {
	return AtomDetail{Name: name, Kind: kind, State: AtomPending, Intention: IntendExecute}
}

// Advance applies a change to the atom, except its checkpoints: the store keeps them, and counts each with
// CountCheckpoint. If Checkpoints is nil afterwards, the store removes the earlier ones. After an error, the atom is
// unchanged.
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
	if err := a.admitsCheckpoints(c); err != nil {
		return err
	}
	a.set(c)
	return nil
}

// CheckNumbers checks, after Advance, that the change skips no attempt number, because folded attempts
// are only counted. holds reports whether an attempt is kept or folded.
func (c *AtomChange) CheckNumbers(holds func(action Action, number int) bool) error {
	for i := range c.Attempts {
		if attempt := &c.Attempts[i]; attempt.Number > 1 && !holds(attempt.Action, attempt.Number-1) {
			reason := fmt.Sprintf("%s %d of atom %q came without %s %d", attempt.Action, attempt.Number, c.Name, attempt.Action, attempt.Number-1)
			return &InvalidError{Field: "attempt", Reason: reason}
		}
	}
	return nil
}

// admits checks that an attempt is new, or ends an open attempt. earlier are the earlier attempts of the
// same change.
func (a *AtomDetail) admits(attempt *Attempt, earlier []Attempt) error {
	if attempt.Number < 1 || !attempt.Action.Known() {
		return &InvalidError{Field: "attempt", Reason: fmt.Sprintf("%s %d of atom %q", attempt.Action, attempt.Number, a.Name)}
	}
	if folded := a.Folded.Count(attempt.Action); attempt.Number <= folded {
		return fmt.Errorf("%w: %s %d of atom %q has ended: the record no longer contains the first %d attempts", ErrConflict, attempt.Action, attempt.Number, a.Name, folded)
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
		a.Progress = nil // the atom starts again
	}
	if c.State != "" && DropsCheckpoints(a.State, c.State) {
		a.Checkpoints = nil
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
			a.Progress = nil // of the previous attempt
		}
		if attempt.Action == ActionReset {
			a.Checkpoints = nil
		}
	}
	if a.Checkpoints != nil && a.Checkpoints.Number > 0 && len(c.Attempts) > 0 {
		kept := *a.Checkpoints
		kept.Number = 0 // each attempt, and each poll of it, counts its own checkpoints
		a.Checkpoints = &kept
	}
	if c.Progress != nil {
		a.Progress = c.Progress
	}
}

// record adds or replaces an attempt, and reports whether it is new.
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
