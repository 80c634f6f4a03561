package logbook

import "fmt"

// Renamed returns the new name of an atom after a rename; false if the rename does not concern the atom.
func (i *Intervention) Renamed(atom string) (name string, ok bool) {
	if at, ok := partOf(atom, i.Step); ok {
		return i.To + at, true
	}
	return "", false
}

// partOf returns the indexes in the name of an atom that is a step or an instance of it; false for other atoms.
func partOf(atom, step string) (at string, ok bool) {
	for base, more := atom, true; more; base, more = CutInstance(base) {
		if base == step {
			return atom[len(base):], true
		}
	}
	return "", false
}

// FormerNames are the names that steps had before a rename, with the next name of each. Another step must not get such a
// name, because its idempotency keys would repeat the keys of the renamed step.
func (f *FlowDetail) FormerNames() map[string]string {
	former := make(map[string]string)
	for n := range f.Interventions {
		if i := &f.Interventions[n]; i.Kind == InterveneRename {
			former[i.Step] = i.To
			delete(former, i.To) // the step has its name again
		}
	}
	return former
}

// latestName follows the renames of a former name.
func latestName(former map[string]string, name string) string {
	for range len(former) {
		next, renamed := former[name]
		if !renamed {
			break
		}
		name = next
	}
	return name
}

// admitRename checks that a step can have another name. ErrLimit if the name of an instance would be too long.
func (f *FlowDetail) admitRename(i *Intervention) error {
	former := f.FormerNames()
	latest := latestName(former, i.To)
	switch {
	case f.OnChange == ChangePin || f.OnChange == ChangeRefuse:
		return fmt.Errorf("%w: on_change of the flow is %s, so the flow cannot adopt a definition with other names", ErrConflict, f.OnChange)
	case len(f.Pending()) > 0:
		return fmt.Errorf("%w: the flow has pending interventions; withdraw them first", ErrConflict)
	case former[i.To] != "" && latest != i.Step:
		return fmt.Errorf("%w: %q is a former name of step %q, whose idempotency keys would be repeated; choose another name", ErrConflict, i.To, latest)
	}
	found := false
	for n := range f.Atoms {
		atom := &f.Atoms[n]
		if _, taken := partOf(atom.Name, i.To); taken {
			return fmt.Errorf("%w: step %q has started too; two steps cannot have one name", ErrConflict, i.To)
		}
		name, concerned := i.Renamed(atom.Name)
		found = found || concerned
		switch {
		case !concerned:
		case len(name) > MaxLimits.Name:
			return &LimitError{Field: "intervention to, with the indexes of a loop", Limit: int64(MaxLimits.Name), Size: int64(len(name)), Unit: "bytes"}
		case atom.isUnderWay():
			return fmt.Errorf("%w: step %q is %s, and its next attempt must have the idempotency key of its current name; rename the step when it has ended", ErrConflict, atom.Name, atom.State)
		}
	}
	if !found {
		return fmt.Errorf("%w: the flow has no started step %q; a step that has not started needs no other name", ErrNotFound, i.Step)
	}
	return nil
}

// isUnderWay reports whether the next call of the step can have the key of an earlier call: see flow.Call.Key.
func (a *AtomDetail) isUnderWay() bool {
	switch {
	case a.Kind != KindTask:
		return false // it has no calls
	case a.State == AtomPending:
		last := len(a.Attempts) - 1
		return last >= 0 && a.Attempts[last].Action != ActionReset
	}
	return a.State == AtomRunning || a.State == AtomRetrying || a.State == AtomReverting || a.State == AtomRevertFailure
}
