package engine

import (
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// maxUnmarked limits the steps that may start unmarked. After a crash the next owner marks all
// steps that could have started. Without a limit, the next owner could mark, and perhaps revert,
// many steps that never ran.
const maxUnmarked = DefaultWorkers

// unmarked are the steps that may start before their marks are durable. They depend only on the plan and the
// record, so the next owner gets the same steps if nothing was recorded in between.
type unmarked struct {
	steps []int
	// wait is the step whose wait the board has ended, and before which no step in steps was ready; -1: the flow
	// starts. ended is the end of its execution.
	wait  int
	ended logbook.Attempt
}

// unmarkedSteps returns the first steps of a flow that has no record, or the steps that the board has made ready: the
// steps after a signal, a publication or an approval.
//
// It leaves out steps that need a mark after a crash: at-most-once steps, steps of workers, and
// steps with a version. It returns none
//   - if the flow is pinned or refuses changes, and starts: the first update records how the flow was built;
//   - if there are more than maxUnmarked steps, or more marks than one update holds.
func unmarkedSteps(o *Options, now time.Time) unmarked {
	found := unmarked{wait: -1}
	if len(o.Detail.Atoms) > 0 {
		var ok bool
		if found, ok = afterWait(o, now); !ok {
			return unmarked{}
		}
	} else if o.Detail.OnChange != "" && o.Detail.OnChange != logbook.ChangeAdopt {
		return unmarked{}
	} else {
		for number := range o.Plan.Len() {
			if len(o.Plan.Previous(number)) == 0 && maySkipMark(o.Plan.Step(number)) {
				found.steps = append(found.steps, number)
			}
		}
	}
	size, changes := changeOverhead, len(found.steps)
	if found.wait >= 0 {
		size += attemptOverhead + len(found.ended.Result)
		changes++
	}
	for _, number := range found.steps {
		size += changeOverhead + attemptOverhead + len(o.Plan.Step(number).Name()) + o.Limits.Name // of the owner
	}
	if len(found.steps) > maxUnmarked || changes > o.Limits.Steps || size > maxBytesOf(&o.Limits) {
		return unmarked{}
	}
	return found
}

// maySkipMark reports whether a step may run again after an execution without a mark.
func maySkipMark(step *flow.Step) bool {
	_, offered := step.WorkerStep() // its mark says that no worker has it yet
	return step.Task() != nil && step.Wait() == nil && !step.Continues() && !step.IsRetry() && !step.IsEach() &&
		!step.AtMostOnce() && step.Version() == "" && !offered
}

// afterWait returns the steps that only wait for one step, whose wait the board has ended. It reports false if the
// flow has a record of anything but finished and skipped steps and this wait: a second wait, a failure, or an undo. A wait
// that has ended by its limit does not count, because clocks differ.
func afterWait(o *Options, now time.Time) (unmarked, bool) {
	detail := &o.Detail
	if detail.State.Finished() || detail.State == logbook.FlowReverting || detail.Cause != nil || len(detail.Pending()) > 0 {
		return unmarked{}, false
	}
	found, done := unmarked{wait: -1}, make([]bool, o.Plan.Len())
	recorded := make([]bool, o.Plan.Len())
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		number, known := o.Plan.Find(atom.Name)
		switch {
		case !known:
			return unmarked{}, false
		case atom.State == logbook.AtomIgnored && atom.Intention == logbook.IntendIgnore:
		case atom.Intention != logbook.IntendExecute:
			return unmarked{}, false
		case atom.State == logbook.AtomSuccess:
			done[number] = true
		case found.wait >= 0 || !found.end(o.Plan, number, atom, now):
			return unmarked{}, false
		}
		recorded[number] = true
	}
	if found.wait < 0 {
		return unmarked{}, false
	}
	done[found.wait] = true
	for _, next := range o.Plan.Next(found.wait) {
		if number := int(next); number < o.Plan.Len() && !recorded[number] && maySkipMark(o.Plan.Step(number)) && isReadyAfter(o.Plan, number, done) {
			found.steps = append(found.steps, number)
		}
	}
	return found, true
}

// end ends the execution of a step with the signal that its wait has. It reports false if the step does not wait, the
// wait is open, or the signal is no success.
func (u *unmarked) end(plan *flow.Plan, number int, atom *logbook.AtomDetail, now time.Time) bool {
	open, wait := atom.OpenWait(), plan.Step(number).Wait()
	if open == nil || open.Signal == nil || wait == nil {
		return false
	}
	result, failure := wait.Result(open.Signal)
	if failure != nil || missingField(plan, number, result) != nil {
		return false
	}
	u.wait, u.ended = number, atom.Attempts[len(atom.Attempts)-1]
	u.ended.EndedAt, u.ended.Result, u.ended.Wait = now, result, withoutData(open)
	return true
}

// isReadyAfter reports whether a step waits only for steps that are done, and gets values only from them and the store.
// No condition, group or turn is before such a step.
func isReadyAfter(plan *flow.Plan, number int, done []bool) bool {
	if _, member := plan.ElementOf(number); member || plan.Step(number).IsLate() {
		return false
	}
	for _, before := range plan.Previous(number) {
		if int(before) >= plan.Len() || !done[before] {
			return false
		}
	}
	for _, wires := range [][]flow.Wire{plan.Arguments(number), plan.RevertArguments(number)} {
		for i := range wires {
			for _, source := range wires[i].Sources() {
				own := source.From == number // the revert gets the step's result
				if source.From == flow.FromEach || source.From >= 0 && !own && !done[source.From] {
					return false
				}
			}
		}
	}
	return true
}

// unmarkedNames are the names of the steps that this run may start unmarked.
func unmarkedNames(o *Options, revision *revision, now time.Time) map[string]bool {
	detail := &o.Detail
	switch {
	case !o.Begins, !detail.Begun.IsZero(), detail.Fence == o.Token:
		return nil
	case detail.State == logbook.FlowPending && detail.Sequence == 0:
	case detail.State == logbook.FlowRunning && revision.definition == nil:
	default:
		return nil
	}
	names := make(map[string]bool)
	for _, number := range unmarkedSteps(o, now).steps {
		names[o.Plan.Step(number).Name()] = true
	}
	return names
}

// missingMarks are the marks of steps that an earlier run may have started unmarked. With them in
// the record, the flow resumes like any other: the steps may have been running, and their
// progress is unknown.
type missingMarks struct {
	changes []logbook.AtomChange
	was     logbook.FlowState // of the flow
	now     time.Time
}

// addMissingMarks adds the missing marks to the detail; nil if none are missing.
func addMissingMarks(o *Options, now time.Time) *missingMarks {
	if o.Detail.Begun.IsZero() || o.Detail.State == logbook.FlowPending && len(o.Detail.Atoms) > 0 {
		return nil
	}
	found := unmarkedSteps(o, now)
	if len(found.steps) == 0 {
		return nil
	}
	a := &missingMarks{was: o.Detail.State, now: now}
	o.Detail.Atoms = slices.Clone(o.Detail.Atoms)
	if found.wait >= 0 {
		a.endWait(&o.Detail, o.Plan.Step(found.wait).Name(), found.ended)
	}
	for _, number := range found.steps {
		step := o.Plan.Step(number)
		change := logbook.AtomChange{
			Name: step.Name(), Kind: step.Kind(), State: logbook.AtomRunning, Intention: logbook.IntendExecute,
			// The claim is known, but not its owner.
			Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, Token: o.Detail.Begun, StartedAt: now}},
		}
		o.Detail.Atoms = append(o.Detail.Atoms, logbook.AtomDetail{
			Name: change.Name, Kind: change.Kind, State: change.State, Intention: change.Intention, Attempts: change.Attempts,
		})
		a.changes = append(a.changes, change)
	}
	o.Detail.State = logbook.FlowRunning
	return a
}

// endWait ends the wait before the unmarked steps.
func (a *missingMarks) endWait(detail *logbook.FlowDetail, name string, ended logbook.Attempt) {
	a.changes = append(a.changes, logbook.AtomChange{Name: name, State: logbook.AtomSuccess, Attempts: []logbook.Attempt{ended}})
	atom, _ := detail.Atom(name)
	atom.State, atom.RetryAt = logbook.AtomSuccess, time.Time{}
	atom.Attempts = append(slices.Clone(atom.Attempts[:len(atom.Attempts)-1]), ended)
}

// write adds the marks to the first update.
func (a *missingMarks) write(b *builder) {
	if a == nil {
		return
	}
	b.state = a.was
	b.flow(logbook.FlowRunning, nil, a.now)
	for _, change := range a.changes {
		b.add(change, a.now)
	}
}

// isFirst reports whether all changes so far are in the flow's first update.
func (b *builder) isFirst() bool { return b.sequence == 0 && len(b.full) == 0 }

// maxBytesOf is the largest size of an update.
func maxBytesOf(limits *logbook.Limits) int { return limits.Command - limits.Command/headroomShare }
