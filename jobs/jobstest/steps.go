package jobstest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var stepRows = []row{
	{"a wait for a step ends with the step, and not before", stepAwaited},
	{"a step that a retry runs again has not ended", stepOfRound},
	{"a failed flow ends the waits for all its steps", failedFlowEndsWaits},
	{"a wait for an instance begins before the instance", instanceAwaited},
	{"a wait for a step ends when the job needs an operator, or ends", stepOfStoppedJob},
	{"steps that do not exist are refused", stepsRefused},
}

// planned adds a definition with steps to an update.
func (k *kit) planned(u logbook.Update, steps ...logbook.DefinedStep) logbook.Update {
	k.Helper()
	packed, err := logbook.PackSteps(steps)
	k.wants("PackSteps", err, nil)
	u.Definition = &logbook.Definition{Hash: "of these steps", Packed: packed}
	return u
}

// execution is the start, or the end, of an execution of a step.
func execution(name string, number int, state logbook.AtomState, ended logbook.Attempt) logbook.AtomChange {
	ended.Action, ended.Number, ended.StartedAt = logbook.ActionExecute, number, time.Unix(1_800_000_000, 0)
	return logbook.AtomChange{Name: name, Kind: logbook.KindTask, State: state, Attempts: []logbook.Attempt{ended}}
}

// successful is an attempt that has ended with a result.
func successful(result string) logbook.Attempt {
	return logbook.Attempt{EndedAt: time.Unix(1_800_000_001, 0), Result: json.RawMessage(result)}
}

func unsuccessful() logbook.Attempt {
	return logbook.Attempt{EndedAt: time.Unix(1_800_000_001, 0), Failure: &logbook.Failure{Kind: logbook.FailureError, Message: "no"}}
}

// awaitStep waits for a step in its own goroutine, which ends with the row.
func (k *kit) awaitStep(job jobs.JobID, name string) <-chan jobs.Step {
	k.Helper()
	ended := make(chan jobs.Step, 1)
	go func() {
		step, err := k.Board.WaitStep(k.ctx, job, name)
		k.wants("WaitStep", err, nil)
		ended <- step
	}()
	return ended
}

func (k *kit) step(job jobs.JobID, name string) jobs.Step {
	k.Helper()
	step, err := k.Board.Step(k.ctx, job, name)
	k.wants("Step", err, nil)
	return step
}

func stepAwaited(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	job := claimed.Job.ID
	if step := k.step(job, "fly"); step.IsKnown() || step.Outcome != "" || step.FlowState != logbook.FlowPending || step.JobState != jobs.StateClaimed {
		k.Errorf("before the flow: %s", render(step))
	}
	first, second := k.awaitStep(job, "fly"), k.awaitStep(job, "stay")
	begun := k.planned(change(claimed, 1, logbook.FlowRunning), logbook.DefinedStep{Name: "fly"}, logbook.DefinedStep{Name: "stay", Version: "2"})
	begun.Atoms = []logbook.AtomChange{execution("fly", 1, logbook.AtomRunning, logbook.Attempt{})}
	k.wants("Update", k.update(begun), nil)
	if step := k.step(job, "stay"); !k.Encrypted && (!step.IsKnown() || step.Atom.State != logbook.AtomPending || step.Atom.Version != "2") || step.Outcome != "" {
		k.Errorf("before the step: %s", render(step))
	}
	done := change(claimed, 2, "")
	done.Atoms = []logbook.AtomChange{execution("fly", 1, logbook.AtomSuccess, successful(`"LH1"`)), execution("stay", 1, logbook.AtomRunning, logbook.Attempt{})}
	k.wants("Update", k.update(done), nil)
	step := answer(k, "WaitStep", first)
	if result, ok := step.Atom.Result(); step.Outcome != jobs.StepSuccess || !ok || string(result) != `"LH1"` || step.Flow != claimed.Job.Flow || step.Job != job {
		k.Errorf("ended as %s", render(step))
	}
	select {
	case step := <-second:
		k.Errorf("the wait for a running step ended: %s", render(step))
	default:
	}
	last, ending := change(claimed, 3, logbook.FlowSuccess), success(claimed)
	last.Atoms = []logbook.AtomChange{execution("stay", 1, logbook.AtomSuccess, successful("1"))}
	ending.Update = &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	k.same("outcome", answer(k, "WaitStep", second).Outcome, jobs.StepSuccess)
	k.same("outcome long after the end", answer(k, "WaitStep", k.awaitStep(job, "fly")).Outcome, jobs.StepSuccess)
}

func stepOfRound(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	job := claimed.Job.ID
	begun := k.planned(change(claimed, 1, logbook.FlowRunning), logbook.DefinedStep{Name: "fly"})
	begun.Atoms = []logbook.AtomChange{execution("fly", 1, logbook.AtomRunning, logbook.Attempt{}), execution("fly", 1, logbook.AtomFailure, unsuccessful())}
	k.wants("Update", k.update(begun), nil)
	ended := k.awaitStep(job, "fly")
	for sequence, state := range []logbook.AtomState{logbook.AtomReverting, logbook.AtomReverted, logbook.AtomPending} {
		round := change(claimed, uint64(sequence+2), "")
		round.Atoms = []logbook.AtomChange{{Name: "fly", State: state}}
		k.wants("Update", k.update(round), nil)
		k.same("outcome in the round", k.step(job, "fly").Outcome, "")
	}
	again := change(claimed, 5, "")
	again.Atoms = []logbook.AtomChange{execution("fly", 2, logbook.AtomSuccess, successful("2"))}
	k.wants("Update", k.update(again), nil)
	k.same("outcome", answer(k, "WaitStep", ended).Outcome, jobs.StepSuccess)

	undone := change(claimed, 6, "")
	undone.Atoms = []logbook.AtomChange{{Name: "fly", State: logbook.AtomReverting}, {Name: "fly", State: logbook.AtomReverted}}
	k.wants("Update", k.update(undone), nil)
	k.same("outcome in the next round", k.step(job, "fly").Outcome, "")
}

func failedFlowEndsWaits(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	job := claimed.Job.ID
	begun := k.planned(change(claimed, 1, logbook.FlowRunning), logbook.DefinedStep{Name: "fly"}, logbook.DefinedStep{Name: "stay"}, logbook.DefinedStep{Name: "return"}, logbook.DefinedStep{Name: "tip"})
	begun.Atoms = []logbook.AtomChange{
		execution("fly", 1, logbook.AtomRunning, logbook.Attempt{}), execution("fly", 1, logbook.AtomSuccess, successful("1")), execution("stay", 1, logbook.AtomRunning, logbook.Attempt{}),
		{Name: "tip", Kind: logbook.KindTask, State: logbook.AtomIgnored},
	}
	k.wants("Update", k.update(begun), nil)
	k.same("outcome of a skipped step", answer(k, "WaitStep", k.awaitStep(job, "tip")).Outcome, jobs.StepSkipped)
	stay, never := k.awaitStep(job, "stay"), k.awaitStep(job, "return")
	failed := change(claimed, 2, logbook.FlowReverting)
	failed.Cause = &logbook.Failure{Kind: logbook.FailureError, Message: "no"}
	failed.Atoms = []logbook.AtomChange{execution("stay", 1, logbook.AtomFailure, unsuccessful()), {Name: "fly", State: logbook.AtomReverting}}
	k.wants("Update", k.update(failed), nil)
	k.same("outcome of the failed step", answer(k, "WaitStep", stay).Outcome, jobs.StepFailure)
	k.same("outcome while the step is undone", k.step(job, "fly").Outcome, "")
	fly := k.awaitStep(job, "fly")
	last, ending := change(claimed, 3, logbook.FlowReverted), success(claimed)
	last.Atoms = []logbook.AtomChange{{Name: "stay", State: logbook.AtomReverting}, {Name: "stay", State: logbook.AtomReverted}, {Name: "fly", State: logbook.AtomReverted}}
	ending.Outcome, ending.Update = jobs.OutcomeReverted, &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	k.same("outcome of the undone step", answer(k, "WaitStep", fly).Outcome, jobs.StepReverted)
	k.same("outcome of the step that never ran", answer(k, "WaitStep", never).Outcome, jobs.StepUnfinished)
	k.same("outcome of the failed step at the end", k.step(job, "stay").Outcome, jobs.StepFailure)
}

func instanceAwaited(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	job := claimed.Job.ID
	begun := k.planned(change(claimed, 1, logbook.FlowRunning), logbook.DefinedStep{Name: "guests", Kind: logbook.KindEach}, logbook.DefinedStep{Name: "book"})
	k.wants("Update", k.update(begun), nil)
	second, missing := k.awaitStep(job, "book[1]"), make(chan error, 1)
	go func() { // ends with the row
		_, err := k.Board.WaitStep(k.ctx, job, "book[7]")
		missing <- err
	}()
	grown := change(claimed, 2, "")
	grown.Atoms = []logbook.AtomChange{
		execution("book[0]", 1, logbook.AtomSuccess, successful("0")), execution("book[1]", 1, logbook.AtomSuccess, successful("1")),
	}
	k.wants("Update", k.update(grown), nil)
	k.same("outcome of an instance", answer(k, "WaitStep", second).Outcome, jobs.StepSuccess)
	_, err := k.Board.Step(k.ctx, job, "book")
	k.wants("Step with instances", err, jobs.ErrInvalid)
	last, ending := change(claimed, 3, logbook.FlowSuccess), success(claimed)
	ending.Update = &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	if err := answer(k, "WaitStep", missing); !k.Encrypted {
		k.wants("WaitStep for an instance that never existed", err, jobs.ErrNotFound)
	}
}

func stepOfStoppedJob(k *kit) {
	posting := k.withFlow("suspended")
	suspended, trashed := k.post(posting)[0], k.travelling(k.session("worker"), "trashed")
	first, second := k.awaitStep(suspended.ID, "fly"), k.awaitStep(trashed.Job.ID, "fly")
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(suspended.ID)), nil)
	if step := answer(k, "WaitStep", first); step.Outcome != "" || step.JobState != jobs.StateSuspended || !step.Settled() {
		k.Errorf("ended as %s", render(step))
	}
	begun := k.planned(change(trashed, 1, logbook.FlowRunning), logbook.DefinedStep{Name: "fly"})
	begun.Atoms = []logbook.AtomChange{execution("fly", 1, logbook.AtomRunning, logbook.Attempt{})}
	k.wants("Update", k.update(begun), nil)
	k.wants("Trash", k.Board.Trash(k.ctx, release(trashed)), nil)
	k.same("outcome of a step of a trashed job", answer(k, "WaitStep", second).Outcome, jobs.StepUnfinished)
}

func stepsRefused(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	plain := k.posted("without a flow")
	unknown := make(chan error, 1)
	go func() { // ends with the row
		_, err := k.Board.WaitStep(k.ctx, claimed.Job.ID, "swim")
		unknown <- err
	}()
	k.wants("Update", k.update(k.planned(change(claimed, 1, logbook.FlowRunning), logbook.DefinedStep{Name: "fly"})), nil)
	if k.Encrypted { // the board cannot read the definition: the wait ends with the job
		k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
		k.wants("WaitStep", answer(k, "WaitStep", unknown), nil)
		return
	}
	k.wants("WaitStep for a step that the definition lacks", answer(k, "WaitStep", unknown), jobs.ErrNotFound)
	for _, of := range []struct {
		name string
		job  jobs.JobID
		step string
		want error
	}{
		{"an unknown job", jobs.NewJobID(), "fly", jobs.ErrNotFound},
		{"a job without a flow", plain.ID, "fly", jobs.ErrNotFound},
		{"no step", claimed.Job.ID, "", jobs.ErrInvalid},
		{"a step with a control character", claimed.Job.ID, "fly\n", jobs.ErrInvalid},
		{"a long name", claimed.Job.ID, string(make([]byte, 100_000)), jobs.ErrLimit},
		{"an instance of an unknown step", claimed.Job.ID, "swim[0][1]", jobs.ErrNotFound},
	} {
		_, err := k.Board.Step(k.ctx, of.job, of.step)
		k.wants("Step of "+of.name, err, of.want)
		_, err = k.Board.WaitStep(k.ctx, of.job, of.step)
		k.wants("WaitStep of "+of.name, err, of.want)
	}
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	_, err := k.Board.WaitStep(ctx, claimed.Job.ID, "fly")
	k.wants("WaitStep that is given up", err, context.Canceled)
}
