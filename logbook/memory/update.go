package memory

import (
	"context"
	"fmt"
	"maps"

	"github.com/conductord/conductord/logbook"
)

// Update applies updates in order, each independently of the others.
func (c *Connection) Update(ctx context.Context, updates ...logbook.Update) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	results := make([]error, len(updates))
	for i := range updates {
		results[i] = c.update(&updates[i])
	}
	return results, nil
}

func (c *Connection) update(u *logbook.Update) error {
	if err := c.limits.CheckUpdate(u); err != nil {
		return err
	}
	if err := c.checkSize(u); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.flows[u.Flow]
	if !ok {
		return fmt.Errorf("cannot update flow %s: %w", u.Flow, logbook.ErrNotFound)
	}
	if !u.Token.IsZero() {
		return fmt.Errorf("cannot update flow %s: %w: it has no unfinished job", u.Flow, logbook.ErrFenced)
	}
	verdict, err := kept.head.Judge(u)
	if err != nil || verdict == logbook.Repeat {
		return err
	}
	head := kept.head
	if err := head.Advance(u, now()); err != nil {
		return err
	}
	changed, err := c.advance(kept, u)
	if err != nil {
		return fmt.Errorf("cannot update flow %s: %w", u.Flow, err)
	}
	if u.Cause != nil {
		head.Cause = clone(u.Cause)
	}
	if u.Definition != nil {
		head.Definition = clone(u.Definition)
	}
	kept.head = head
	kept.put(changed)
	return nil
}

// ChangeWait changes a step with an open wait, as a cluster does at a signal or a decision: change gets a copy of the
// step, which is stored unless change fails. ErrNotFound for an unknown flow, and for a step that does not wait.
func (c *Connection) ChangeWait(id logbook.FlowID, step string, change func(*logbook.AtomDetail) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.flows[id]
	if !ok {
		return fmt.Errorf("cannot change a wait of flow %s: %w", id, logbook.ErrNotFound)
	}
	at, ok := found.names[step]
	if !ok || !found.atoms[at].OpenWait().Open() {
		return fmt.Errorf("cannot change the wait of step %q: %w: the step does not wait", step, logbook.ErrNotFound)
	}
	changed := clone(found.atoms[at].AtomDetail)
	if err := change(&changed); err != nil {
		return err
	}
	found.atoms[at].AtomDetail = changed
	return nil
}

// advance returns copies of the atoms with the changes of the update, applied in order. The flow's
// own atoms stay unchanged, because a later change may be refused.
func (c *Connection) advance(kept *flow, u *logbook.Update) ([]*atom, error) {
	var changed []*atom
	indexes := make(map[string]int, len(u.Atoms))
	added := 0
	for i := range u.Atoms {
		change := clone(u.Atoms[i])
		at, ok := indexes[change.Name]
		if !ok {
			found, isNew, err := kept.atom(&change)
			if err != nil {
				return nil, err
			}
			if isNew {
				added++
			}
			at = len(changed)
			indexes[change.Name] = at
			changed = append(changed, found)
		}
		if err := changed[at].advance(&change); err != nil {
			return nil, err
		}
		if err := change.CheckNumbers(changed[at].Holds); err != nil {
			return nil, err
		}
	}
	if size := len(kept.atoms) + added; size > c.limits.Steps {
		return nil, &logbook.LimitError{Field: "flow atoms", Limit: int64(c.limits.Steps), Size: int64(size), Unit: "steps"}
	}
	return changed, nil
}

// atom copies the atom of a change, or makes a new one for a first change.
func (f *flow) atom(change *logbook.AtomChange) (copied *atom, isNew bool, err error) {
	if at, ok := f.names[change.Name]; ok {
		return &atom{AtomDetail: clone(f.atoms[at].AtomDetail), checkpoints: maps.Clone(f.atoms[at].checkpoints)}, false, nil
	}
	if !change.Kind.Known() {
		return nil, false, &logbook.InvalidError{
			Field:  "atom kind",
			Reason: fmt.Sprintf("%.64q of the new atom %q is not known", change.Kind, change.Name),
		}
	}
	return &atom{AtomDetail: logbook.NewAtom(change.Name, change.Kind)}, true, nil
}

// advance applies a change to an atom, and to its checkpoints.
func (a *atom) advance(change *logbook.AtomChange) error {
	if err := a.Advance(change); err != nil {
		return err
	}
	if a.Checkpoints == nil {
		a.checkpoints = nil
	}
	for i := range change.Checkpoints {
		c, replaced := &change.Checkpoints[i], -1
		if earlier, ok := a.checkpoints[c.Name]; ok {
			replaced = len(c.Name) + len(earlier)
		}
		if err := a.CountCheckpoint(c, replaced); err != nil {
			return err
		}
		if a.checkpoints == nil {
			a.checkpoints = make(logbook.Values)
		}
		a.checkpoints[c.Name] = c.Value
	}
	return nil
}

func (f *flow) put(changed []*atom) {
	for _, a := range changed {
		a.Fold(logbook.KeptAttempts)
		at, ok := f.names[a.Name]
		if !ok {
			at = len(f.atoms)
			f.names[a.Name] = at
			f.atoms = append(f.atoms, nil)
		}
		f.atoms[at] = a
	}
}
