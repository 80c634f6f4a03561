package engine

import (
	"runtime"
	"time"

	"github.com/conductord/conductord/logbook"
)

// maxBeginning bounds the steps with which a flow may begin before they are
// marked. Whoever takes up a flow that has begun so marks all that could have:
// in one that begins with many, most would be marked, and be undone if it comes
// to that, without ever having run.
const maxBeginning = DefaultWorkers

// beginning are the steps that may begin before their marks are durable: those
// that wait for nothing, whatever anybody decides. It is asked by whoever begins
// a flow, and by whoever takes it up when nothing is recorded of that, so that
// the two do not differ as long as they build the same flow.
//
// It leaves out what a crash must not leave to be found out: steps that are at
// most once, steps that have a version, and all of a flow that says what is to
// be done when it is built otherwise, since how it was built is recorded with
// the first mark. A flow that begins with too many steps, or with more marks
// than one update holds, waits for them.
func beginning(o *Options) []int {
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
		steps = append(steps, number)
		size += changeOverhead + attemptOverhead + len(step.Name()) + o.Limits.Name // of whoever makes the attempt
	}
	if len(steps) > min(maxBeginning, o.Limits.Steps) || size > maxBytesOf(&o.Limits) {
		return nil
	}
	return steps
}

// beginsUnmarked are the names of the steps that this run may begin so.
func beginsUnmarked(o *Options) map[string]bool {
	detail := &o.Detail
	if !o.Begins || detail.State != logbook.FlowPending || detail.Sequence > 0 || !detail.Begun.IsZero() {
		return nil
	}
	names := make(map[string]bool)
	for _, number := range beginning(o) {
		names[o.Plan.Step(number).Name()] = true
	}
	return names
}

// amends are the marks that are missing in the record of a flow which may have
// begun. With them it is taken up as from any other record: the steps may have
// been running, and nobody knows how far they came.
type amends struct {
	changes []logbook.AtomChange
	now     time.Time
}

// makeUp puts the missing marks into the detail; nil if there are none.
func makeUp(o *Options, now time.Time) *amends {
	if o.Detail.Begun.IsZero() || o.Detail.State != logbook.FlowPending || len(o.Detail.Atoms) > 0 {
		return nil
	}
	a := &amends{now: now}
	for _, number := range beginning(o) {
		step := o.Plan.Step(number)
		change := logbook.AtomChange{
			Name: step.Name(), Kind: step.Kind(), State: logbook.AtomRunning, Intention: logbook.IntendExecute,
			// Who has begun it is not known, but under which claim.
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

// write puts the marks into the first update.
func (a *amends) write(b *builder) {
	if a == nil || len(a.changes) == 0 {
		return
	}
	b.state = logbook.FlowPending
	b.flow(logbook.FlowRunning, nil, a.now)
	for _, change := range a.changes {
		b.add(change, a.now)
	}
}

// begin lets the first steps of a flow go whose marks it need not wait for, and
// gives those that must. What they change at once, if they are alone, is put
// into the same update as their marks: begun tells that something was.
//
// That all marks are in the first update is what the next owner counts on: then
// either all of them are known, or nothing is.
func (l *loop) begin(starts []start) (rest []start, begun bool, err error) {
	unmarked := l.unmarked
	l.unmarked = nil
	if len(unmarked) == 0 || !l.core.out.isFirst() {
		return starts, false, nil
	}
	for _, s := range starts {
		if s.call.Action != logbook.ActionExecute || s.call.Attempt != 1 || !unmarked[s.call.Step] {
			rest = append(rest, s)
			continue
		}
		l.hasBegun = true
		l.inFlight++
		go l.perform(s)
	}
	if len(rest) > 0 || l.inFlight == 0 {
		return rest, false, nil
	}
	runtime.Gosched() // a step that does not wait for anything ends now
	select {
	case r := <-l.reports:
		l.now = l.options.Now()
		return nil, true, l.takeReports(r)
	default:
		return nil, false, nil
	}
}

// isFirst tells whether what has changed so far is all in the first update of
// a flow.
func (b *builder) isFirst() bool { return b.sequence == 0 && len(b.full) == 0 }

// maxBytesOf is how long an update may be.
func maxBytesOf(limits *logbook.Limits) int { return limits.Command - limits.Command/headroomShare }
