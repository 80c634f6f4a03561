package engine

import (
	"time"

	"github.com/conductord/conductord/logbook"
)

// maxUnmarked limits the steps that may start unmarked. After a crash the next owner marks all
// steps that could have started. Without a limit, the next owner could mark, and perhaps revert,
// many steps that never ran.
const maxUnmarked = DefaultWorkers

// unmarkedSteps returns the steps that may start before their marks are durable: the steps with
// no step or decision before them. The first run of a flow calls it, and so does the next
// owner if nothing was recorded. Both get the same steps for the same flow.
//
// It leaves out steps that need a mark after a crash: at-most-once steps, steps of workers, and
// steps with a version. It returns none
//   - if the flow is pinned or refuses changes: the first update records how the flow was built;
//   - if the flow starts with more than maxUnmarked steps, or with more marks than one update
//     holds.
func unmarkedSteps(o *Options) []int {
	if o.Detail.OnChange != "" && o.Detail.OnChange != logbook.ChangeAdopt {
		return nil
	}
	var steps []int
	size := 0
	for number := range o.Plan.Len() {
		step := o.Plan.Step(number)
		if len(o.Plan.Previous(number)) > 0 || step.Task() == nil || step.AtMostOnce() || step.Version() != "" {
			continue
		}
		if _, offered := step.WorkerStep(); offered {
			continue // its mark says that no worker has it yet
		}
		steps = append(steps, number)
		size += changeOverhead + attemptOverhead + len(step.Name()) + o.Limits.Name // of the owner
	}
	if len(steps) > min(maxUnmarked, o.Limits.Steps) || size > maxBytesOf(&o.Limits) {
		return nil
	}
	return steps
}

// unmarkedNames are the names of the steps that this run may start unmarked.
func unmarkedNames(o *Options) map[string]bool {
	detail := &o.Detail
	if !o.Begins || detail.State != logbook.FlowPending || detail.Sequence > 0 || !detail.Begun.IsZero() {
		return nil
	}
	names := make(map[string]bool)
	for _, number := range unmarkedSteps(o) {
		names[o.Plan.Step(number).Name()] = true
	}
	return names
}

// missingMarks are the marks of steps that an earlier run may have started unmarked. With them in
// the record, the flow resumes like any other: the steps may have been running, and their
// progress is unknown.
type missingMarks struct {
	changes []logbook.AtomChange
	now     time.Time
}

// addMissingMarks adds the missing marks to the detail; nil if none are missing.
func addMissingMarks(o *Options, now time.Time) *missingMarks {
	if o.Detail.Begun.IsZero() || o.Detail.State != logbook.FlowPending || len(o.Detail.Atoms) > 0 {
		return nil
	}
	a := &missingMarks{now: now}
	for _, number := range unmarkedSteps(o) {
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
	if len(a.changes) > 0 {
		o.Detail.State = logbook.FlowRunning
	}
	return a
}

// write adds the marks to the first update.
func (a *missingMarks) write(b *builder) {
	if a == nil || len(a.changes) == 0 {
		return
	}
	b.state = logbook.FlowPending
	b.flow(logbook.FlowRunning, nil, a.now)
	for _, change := range a.changes {
		b.add(change, a.now)
	}
}

// isFirst reports whether all changes so far are in the flow's first update.
func (b *builder) isFirst() bool { return b.sequence == 0 && len(b.full) == 0 }

// maxBytesOf is the largest size of an update.
func maxBytesOf(limits *logbook.Limits) int { return limits.Command - limits.Command/headroomShare }
