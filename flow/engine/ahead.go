package engine

import (
	"runtime"
	"time"

	"github.com/conductord/conductord/logbook"
)

const (
	// maxAhead bounds the age of the changes that steps run ahead of. It is several round trips of a
	// healthy cluster. In a slower cluster, steps wait as they do without Repeatable.
	maxAhead = 50 * time.Millisecond
	// linger is the time for which the mark of a step that starts early waits for the step's end,
	// so that one update holds both. After that time, the step is recorded as running.
	linger = time.Millisecond
)

// ahead decides whether steps may start before earlier changes are durable. Those changes must
// be few and recent, and none of them may be a change that must be durable before any step
// starts.
type ahead struct {
	since   time.Time // when the oldest change was made that is not recorded; zero: all are recorded
	bytes   int       // of the updates that are recorded and not durable
	waiting bool      // nothing has been recorded, and something must be
	after   uint64    // nothing runs ahead before this number of updates is durable
	until   time.Time // the changes may wait for more until then; zero: they may not
}

// pendingUpdate is a recorded update that is not durable yet.
type pendingUpdate struct {
	durable <-chan error
	since   time.Time // when its oldest change was made
	bytes   int
}

// newAhead lets no step run ahead before the first updates are durable
//   - if they carry out interventions;
//   - if they record how the flow is built, which the next owner must build in the same way.
func newAhead(o *Options, corrected bool) ahead {
	strict := o.Detail.OnChange != "" && o.Detail.OnChange != logbook.ChangeAdopt
	return ahead{waiting: corrected || strict && o.Detail.Sequence == 0}
}

// mayRunAhead reports whether a step may start before its own mark and all earlier changes are
// durable. After a crash, the record may not show that such a step has started. The step must
// therefore be Repeatable, and this must be its first attempt in its first round: a lost attempt
// or round would give the step another attempt after each crash. A step with a version or on a worker
// never runs ahead, because the next owner must know both.
func (l *loop) mayRunAhead(s start) bool {
	step, call := s.plan.Step(s.step), s.call
	_, offered := step.WorkerStep()
	if !step.Repeatable() || offered || step.Version() != "" || call.Action != logbook.ActionExecute || call.Attempt > 1 || call.Asked > 0 || call.Round > 0 {
		return false
	}
	if l.ahead.waiting || l.acknowledged < l.ahead.after || l.ahead.bytes+l.core.out.bytes > l.core.out.maxBytes {
		return false
	}
	oldest := l.ahead.since
	if l.unacknowledged.len() > 0 {
		oldest = l.unacknowledged.first().since
	}
	return l.now.Sub(oldest) <= maxAhead
}

// startEarly starts the steps that need not wait for the record, and returns the others: the
// first steps of a flow (see unmarkedSteps), and those that may run ahead. If no others remain
// and a step has already ended, it takes the reports, so that they share an update with the
// marks; then ended is true. A full update is recorded at once.
//
// The first update must contain all marks of first steps, because the next owner relies on
// finding all of them recorded, or nothing.
func (l *loop) startEarly(starts []start) (rest []start, ended bool, err error) {
	unmarked := l.unmarked
	l.unmarked = nil
	if !l.core.out.isFirst() {
		unmarked = nil
	}
	if len(l.core.out.full) > 0 {
		l.record(l.core.out.take())
	}
	if l.ahead.since.IsZero() && l.core.out.dirty {
		l.ahead.since = l.now
	}
	rest = starts[:0]
	for _, s := range starts {
		first := s.call.Action == logbook.ActionExecute && s.call.Attempt == 1 && unmarked[s.call.Step]
		if !first && !l.mayRunAhead(s) {
			rest = append(rest, s)
			continue
		}
		l.ahead.until = l.now.Add(linger)
		l.startedUnmarked = l.startedUnmarked || first
		l.inFlight++
		go l.perform(l.ready(s), s)
	}
	if len(rest) > 0 || len(starts) == 0 {
		return rest, false, nil
	}
	// Gosched lets a step that never blocks end and report now, which saves an update. The
	// loop cannot wait for the end of the step, because a step can run for hours.
	runtime.Gosched()
	select {
	case r := <-l.reports:
		l.now = l.options.Now()
		return nil, true, l.takeReports(r)
	default:
		return nil, false, nil
	}
}

// lingers reports whether the changes wait for the end of a step that has started early: no other
// step waits for them, and they are few and young.
func (l *loop) lingers(rest []start) bool {
	return len(rest) == 0 && l.inFlight > 0 && l.now.Before(l.ahead.until) && l.now.Sub(l.ahead.since) < maxAhead
}
