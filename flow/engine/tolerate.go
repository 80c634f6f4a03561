package engine

import (
	"encoding/json"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// A step with flow.IgnoreFailure that has failed is *tolerated*: it is recorded as a failure with the intention
// ignore, and later steps treat it as done. The decision is recorded with the failure.
//
// Without a default result, steps that require its value are ignored, as after a decider's no. The core decides
// this when such a step is ready, because a retry around the failed step may still run it again.

// tolerates reports whether the permanent failure of a step is ignored. In a flow that is undone, or in a
// part that a retry undoes, it is not: the step is undone with the others.
func (c *core) tolerates(step int) bool {
	s := c.plan.Step(step)
	return s.IsLate() || s.IgnoresFailure() && !c.reverting && !c.vertices[step].isToUndo() && c.restartingScope(step) < 0
}

// tolerate records an ignored failure, with the default result of the step. attempt is nil if it is already
// recorded. If the step itself has no IgnoreFailure, its element of an each has failed, and the later steps of
// the element are skipped.
func (c *core) tolerate(step int, attempt *logbook.Attempt, now time.Time) {
	change := logbook.AtomChange{Intention: logbook.IntendIgnore}
	if attempt != nil {
		attempt.Result = c.plan.Step(step).DefaultResult()
		change.Attempts = []logbook.Attempt{*attempt}
		c.vertices[step].result, c.vertices[step].fields = attempt.Result, nil
	}
	c.dropFailure(step)
	c.advance(step, onTolerate, change, now)
	c.leaveOutBehind(step, now)
	switch {
	case c.plan.Step(step).IsLate() && c.isBeingUndone(step):
		c.lateEnded(step, now)
	case !c.broken:
		c.release(step, now)
	}
}

// undoIntention is the intention of a step whose ignored failure no longer matters, because the step is
// undone; empty: unchanged.
func (v *vertex) undoIntention() logbook.Intention {
	if v.phase == tolerated {
		return logbook.IntendRevert
	}
	return ""
}

// wasTolerated reports whether the failure of a step is or was ignored. Retries ignore it, and it is
// not the cause of an undo.
func (f *facts) wasTolerated(step int) bool {
	v := &f.vertices[step]
	return v.phase == tolerated || v.isDropped() || f.plan.Step(step).IgnoresFailure() && !f.mayBeUndecided(step)
}

// ignoredFailure is the failure of a step as later steps and deciders get it; null: there is none.
func (f *facts) ignoredFailure(step int) json.RawMessage {
	v := &f.vertices[step]
	if v.phase != tolerated {
		return null
	}
	return toldValue(v.failure)
}

func toldValue(failure *logbook.Failure) json.RawMessage {
	value, err := json.Marshal(toldOf(failure))
	if err != nil {
		panic("internal error: cannot encode a recorded failure: " + err.Error())
	}
	return value
}

// toldFailure is a failure as later steps get it.
type toldFailure struct {
	Kind    string         `json:"kind"`
	Message string         `json:"message"`
	Code    int            `json:"code,omitempty"`
	Details logbook.Values `json:"details,omitempty"`
}

func toldOf(failure *logbook.Failure) toldFailure {
	return toldFailure{failure.Kind, failure.Message, failure.Code, failure.Details}
}

// leaveOut leaves out a step that is ready and lacks a value, and reports whether it did. The flow of a retry, and the
// instances of an each, are skipped with it.
func (c *core) leaveOut(step int, now time.Time) bool {
	if c.vertices[step].phase != unbegun || !c.lacksValue(step) && !c.isUnneeded(step) {
		return false
	}
	c.ignore(c.governed(step), now)
	return true
}

// isUnneeded reports whether a step is the final step of a flow without a started step, or the on_error step of a flow
// that has not failed.
func (f *facts) isUnneeded(step int) bool {
	final, ok := f.plan.FinalOf(step)
	return ok && (!f.hasStarted(final) || f.plan.Step(step).IsOnError() && !f.fails(final))
}

// governed are a step, and the steps that cannot run without it.
func (f *facts) governed(step int) []int {
	steps := []int{step}
	if s, ok := f.plan.ScopeOf(step); ok {
		for inner := step + 1; inner < f.plan.Scopes()[s].End; inner++ {
			steps = append(steps, inner)
		}
	}
	for element := range f.plan.Elements()[f.plan.Step(step).Name()] { // of an earlier round
		for _, name := range f.plan.Instance(step, element) {
			if inner, ok := f.plan.Find(name); ok {
				steps = append(steps, f.governed(inner)...)
			}
		}
	}
	return steps
}

// lacksValue reports whether a step requires a value that is absent because a failure is ignored, or because an
// on_error or final step has not run. All steps before it must be done.
func (f *facts) lacksValue(step int) bool {
	if lacks, known := f.lacking[step]; known {
		return lacks
	}
	lacks := false
	for _, wires := range [][]flow.Wire{f.plan.Arguments(step), f.plan.RevertArguments(step)} {
		for i := range wires {
			source := f.source(&wires[i])
			from := source.From
			if from < 0 || source.Optional || source.Part == flow.PartFailure {
				continue
			}
			v := &f.vertices[from]
			lacks = lacks || v.hasNoDefault() || v.phase == ignored && (f.plan.Step(from).IsLate() || f.lacksValue(from))
		}
	}
	if f.lacking == nil {
		f.lacking = make(map[int]bool)
	}
	f.lacking[step] = lacks
	return lacks
}
