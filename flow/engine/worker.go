package engine

import (
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// adopts reports whether an attempt that was offered to workers continues, so that no new
// attempt starts. If its mark names no worker, no worker ever had it: it may be offered even if
// the step must run at most once.
func (f *facts) adopts(step int, action logbook.Action) bool {
	v := &f.vertices[step]
	_, offered := f.plan.Step(step).WorkerStep()
	return offered && v.attempt != nil && v.attempt.Offered && v.attempt.Action == action
}

// goesOn reports whether the open attempt at a step belongs to this action and continues: it
// has returned NotYet, or was offered to workers. No new attempt then starts.
func (f *facts) goesOn(step int, action logbook.Action) bool {
	return f.vertices[step].isAsked(action) || f.adopts(step, action)
}

// isWithWorker reports whether a worker may be executing a step that this run has not started.
// The execution must end before the step is undone.
func (f *facts) isWithWorker(step int) bool {
	v := &f.vertices[step]
	return v.phase == left && f.adopts(step, logbook.ActionExecute) && v.attempt.Worker != ""
}

// onlyWorker is the worker that must get an attempt at a step; zero: any may. A step that was
// ignored, or is undone, has kept nothing on its worker.
func (f *facts) onlyWorker(step int) flow.WorkerID {
	if earlier, bound := f.plan.SameWorkerAs(step); bound && f.vertices[earlier].phase == succeeded {
		return f.vertices[earlier].doneBy
	}
	return flow.WorkerID{}
}

func doneBy(attempt *logbook.Attempt) flow.WorkerID {
	return flow.WorkerID{Session: attempt.Worker, Name: attempt.WorkerName}
}

// wasLost reports whether the failure of an attempt is that its worker has gone.
func wasLost(failure *logbook.Failure) bool {
	return failure != nil && failure.Kind == logbook.FailureWorkerLost
}

// loses counts an attempt that has lost its worker, and reports whether the retry policy
// ignores the attempt.
func (h *history) loses(failure *logbook.Failure) bool {
	if !wasLost(failure) {
		return false
	}
	h.lost++
	return h.lost <= flow.MaxWorkersLost
}

// afterLoss returns the failure to record of an execution: an at-most-once step that has lost
// its worker must not be started again.
func (f *facts) afterLoss(step int, failure *logbook.Failure) *logbook.Failure {
	if !wasLost(failure) || !f.plan.Step(step).AtMostOnce() {
		return failure
	}
	return &logbook.Failure{Kind: logbook.FailureAtMostOnce, Permanent: true, Causes: []logbook.Failure{*failure},
		Message: "its worker was lost while the step ran, and the step must not be started twice"}
}

// spent is the time for which a worker has had the attempt that this run adopts. An attempt that
// has returned NotYet started before its worker got it, so its time starts anew.
func (v *vertex) spent(now time.Time) time.Duration {
	if v.attempt.Worker == "" || v.attempt.Asked > 0 {
		return 0
	}
	return max(0, now.Sub(v.attempt.StartedAt))
}

// assign records the worker that gets an attempt, and the start of the attempt, which is now. The
// step's timeout therefore excludes the wait for a worker, and the next owner of the flow uses
// the same start.
func (c *core) assign(step int, worker flow.WorkerID, now time.Time) {
	v := &c.vertices[step]
	attempt := *v.attempt
	attempt.Worker, attempt.WorkerName = worker.Session, worker.Name
	if v.isUntaken() {
		c.untaken--
	}
	v.touched = v.touched || attempt.Action == logbook.ActionExecute
	if attempt.Asked == 0 {
		attempt.StartedAt = now
	}
	marked := c.attempts.one(attempt)
	v.attempt = &marked[0]
	c.change(step, logbook.AtomChange{Attempts: marked}, now)
}

// tellUntaken calls Options.Untaken when the run starts or stops to wait only for workers to take
// steps.
func (l *loop) tellUntaken() {
	only := l.core.untaken > 0 && l.core.untaken == l.core.running
	if only != l.onlyUntaken && l.options.Untaken != nil {
		l.options.Untaken(only)
	}
	l.onlyUntaken = only
}
