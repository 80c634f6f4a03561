package engine

import (
	"fmt"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// A flow does not revert past a point of no return (flow.PointOfNoReturn) that has succeeded, runs, or has an unknown
// outcome. A failure, or a request to revert, then holds the flow: see hold. A retry around such a step does not
// decide. A retry in parallel with the step, or after it, still starts its own flow again.
//
// The decision follows from the record alone: each relevant state is recorded before the failure.

// passed returns a point of no return within bounds over which the flow does not go back; -1: none.
func (f *facts) passed(bounds *flow.Scope) int {
	if !f.plan.PassesPoints() {
		return -1
	}
	for step := bounds.Retry; step < bounds.End; step++ {
		if f.plan.Step(step).PointOfNoReturn() && f.vertices[step].mayHaveSucceeded() {
			return step
		}
	}
	return -1
}

// mayHaveSucceeded reports whether the last execution of a step has succeeded, may still succeed, or has an unknown
// outcome. A flow that is reverting makes no decision, so reverts are ignored.
func (v *vertex) mayHaveSucceeded() bool {
	switch v.phase {
	case succeeded, left, executing:
		return true
	case waiting, failed:
		return v.attempt != nil || v.touched && v.failure != nil && unknownOutcomes[v.failure.Kind]
	}
	return false
}

// unknownOutcomes are the kinds of failures after which an execution may have done its work.
var unknownOutcomes = map[string]bool{
	logbook.FailureAtMostOnce: true, logbook.FailureCrash: true, logbook.FailureWorkerLost: true, logbook.FailureTimeout: true,
	logbook.FailureSignal: true, logbook.FailurePanic: true, logbook.FailureResult: true, logbook.FailureInterrupted: true,
}

// objectionOfPoint refuses an intervention that would undo a point of no return that has succeeded, or run
// it again without naming it.
func (w *correction) objectionOfPoint(detail *logbook.FlowDetail, i *logbook.Intervention) string {
	if !w.plan.PassesPoints() || i.Kind == logbook.InterveneComplete || i.Kind == logbook.InterveneTakeBack {
		return ""
	}
	again := make([]bool, w.plan.Vertices())
	if i.Kind == logbook.InterveneRerun {
		w.markRerun(again, i.Step)
	}
	for n := range detail.Atoms {
		atom := &detail.Atoms[n]
		step, found := w.plan.Find(atom.Name)
		switch {
		case !found || !w.plan.Step(step).PointOfNoReturn() || !atom.Stands():
		case i.Kind != logbook.InterveneRerun:
			return fmt.Sprintf("step %q is a point of no return and has succeeded; complete a step, or rerun from a later step", atom.Name)
		case again[step] && i.Step != atom.Name:
			return fmt.Sprintf("step %q is a point of no return, has succeeded, and would run again; complete a step, or rerun from a later step", atom.Name)
		}
	}
	return ""
}
