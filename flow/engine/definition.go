package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// maxNamed bounds the differences that a log, an observer or an error names. With more
// differences it is another flow.
const maxNamed = 100

// revision is the change of the flow's definition since the flow started.
type revision struct {
	definition  *logbook.Definition // to be recorded; nil: recorded already
	differences []flow.Difference
	unknown     bool // something is different, and the record does not hold enough to tell what
}

// revise compares the flow's current definition with the recorded one, and applies the flow's
// policy for changes. load and checkOrder check that each started step is still at the same
// point of the flow.
func revise(o *Options) (*revision, error) {
	current := o.Plan.Definition()
	if len(current.Packed) > o.Limits.Value {
		current.Packed = nil
	}
	old := o.Detail.Definition
	if old == nil {
		return &revision{definition: &current}, nil
	}
	if old.Hash == current.Hash {
		return &revision{}, nil
	}
	found := &revision{definition: &current}
	was, wasErr := old.Steps()
	is, isErr := current.Steps()
	if wasErr != nil || isErr != nil {
		return nil, fmt.Errorf("%w: its definition cannot be read: %w", ErrMismatch, errors.Join(wasErr, isErr))
	}
	if found.unknown = was == nil || is == nil; !found.unknown {
		found.differences = flow.Compare(was, is)
	}
	switch {
	case !found.unknown && len(found.differences) == 0:
		return found, nil // the same steps, listed in another order
	case o.Detail.OnChange == logbook.ChangePin:
		return nil, fmt.Errorf("%w: %s", ErrPinned, found)
	case o.Detail.OnChange == logbook.ChangeRefuse:
		return nil, fmt.Errorf("%w: %s", ErrChanged, found)
	}
	return found, nil
}

// String names the differences.
func (r *revision) String() string {
	if r.unknown {
		return "it has so many steps that its definition was not recorded, so the changed steps are unknown"
	}
	shown := r.differences[:min(len(r.differences), maxNamed)]
	sentences := make([]string, len(shown), len(shown)+1)
	for i, difference := range shown {
		sentences[i] = difference.String()
	}
	if more := len(r.differences) - len(shown); more > 0 {
		sentences = append(sentences, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(sentences, "; ")
}

// known reports whether the definition has changed.
func (r *revision) known() bool { return r.unknown || len(r.differences) > 0 }

// explain adds to an error that the flow has changed.
func (r *revision) explain(err error) error {
	if err == nil || !r.known() {
		return err
	}
	return fmt.Errorf("%w (changes since its start: %s)", err, r)
}

// adopt records the flow's new definition, logs the differences, and reports them to
// the observer.
func (c *core) adopt(o *Options, now time.Time) {
	if c.revision.definition == nil {
		return
	}
	c.out.define(c.revision.definition)
	if !c.revision.known() {
		return
	}
	o.Logger.Info("the definition of the flow differs from the recorded one", "flow", o.Detail.ID.String(), "differences", len(c.revision.differences))
	for i := range c.revision.differences[:min(len(c.revision.differences), maxNamed)] {
		difference := c.revision.differences[i]
		o.Logger.Info("step of the flow has changed", "flow", o.Detail.ID.String(), "step", difference.Step, "change", difference.String())
		if o.Observe != nil {
			o.Observe(Event{Time: now, Step: difference.Step, Flow: c.out.state, Difference: &difference})
		}
	}
}

// forgets reports whether a recorded step that the flow lacks may be ignored: it never
// started, and a change of the flow has removed it. An earlier run may have adopted that
// change, so it need not be among the differences seen now.
func (f *facts) forgets(atom *logbook.AtomDetail) bool {
	_, found := f.plan.Find(atom.Name)
	if _, former := f.plan.Instantiated(atom.Name); former {
		return false // it is there again when a list is longer
	}
	n := len(atom.Attempts)
	begun := n > 0 && atom.Attempts[n-1].Action != logbook.ActionReset
	idle := atom.State == logbook.AtomPending || atom.State == logbook.AtomIgnored
	return !found && idle && !begun
}
