package conductor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

const (
	// tellEvery is the interval at which a running attempt reports progress and lines, if there
	// are any.
	tellEvery = 500 * time.Millisecond
	// tellWait limits the time that such a report waits for the conductor, because a flow has no
	// conductor for a moment when its owner changes.
	tellWait = 2 * time.Second
	// reportWait limits one report of an end.
	reportWait = 10 * time.Second
)

// heldStep is an attempt of the worker. stopping is also true while an ended attempt is being
// reported. stepWorker.mu guards it.
type heldStep struct {
	work     *steps.Work
	ctx      context.Context
	end      context.CancelCauseFunc
	stopping bool

	mu       sync.Mutex
	output   []byte // not reported yet
	cut      bool   // there was more output than one report can contain
	progress *logbook.Progress
}

// do runs an attempt, and reports its end until that is recorded or refused.
func (w *stepWorker) do(work context.Context, t *liveSession, h *heldStep) {
	recorded := false
	defer func() { w.drop(h, recorded) }()
	outcome := steps.Outcome{ID: h.work.ID, Done: true, Failure: flow.FailureOf(errToldToStop)}
	select {
	case w.running <- struct{}{}:
		if t.admit(h.ctx) == nil {
			outcome = w.run(t, h)
		}
		<-w.running
	case <-h.ctx.Done():
	}
	if work.Err() != nil {
		return // the session ends, and the attempt with it: its progress is unknown
	}
	w.mu.Lock()
	h.stopping = true
	w.mu.Unlock()
	recorded = w.report(work, t, outcome)
}

// run runs the attempt, and reports its progress.
func (w *stepWorker) run(t *liveSession, h *heldStep) steps.Outcome {
	task, given := w.options.Tasks[h.work.Type], h.work
	if missing := checkDecryptedWork(given); missing != nil {
		w.logger.Warn("step not started", "attempt", given.ID.String(), "error", missing)
		return withoutKey(given, missing)
	}
	call := &flow.Call{
		Arguments: given.Arguments, Action: given.Action, Job: given.Job.String(), Board: given.Board, Flow: given.Flow, Step: given.Step,
		Attempt: given.Attempt, Round: given.Round, Asked: given.Asked, Token: given.Token, Try: given.Try, Tries: given.Tries, LastFailure: given.LastFailure,
		Result: given.Result, Failure: given.Failure, FlowFailures: given.FlowFailures, Cause: given.Cause,
		LastProgress: given.LastProgress,
	}
	call.ReportTo(h)
	over := make(chan struct{})
	call.KeepCheckpoints(given.Checkpoints, nil, w.keeper(t, h, over))
	ctx := flow.WithOutput(h.ctx, h)
	if given.TimeLeft > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, given.TimeLeft)
		defer cancel()
	}
	var telling sync.WaitGroup
	telling.Go(func() { w.tell(t, h, over) }) // ends with over
	result, err := w.act(ctx, task, call)
	close(over)
	telling.Wait()
	outcome := steps.Outcome{ID: given.ID, Done: true, Result: result}
	outcome.Output, outcome.Progress = h.takeNews()
	outcome.Stderr, _ = call.Stderr()
	if err == nil && given.Action == logbook.ActionExecute {
		outcome.Sends = call.Sent()
		logbook.NameSends(given.Flow, given.SendPlace(), outcome.Sends)
		if tooMuch := w.options.Limits.CheckSends(outcome.Sends); tooMuch != nil {
			outcome.Sends, outcome.Result = nil, nil
			err = flow.Fail(logbook.FailureResult, fmt.Errorf("cannot send its signals: %w", tooMuch))
		}
	}
	if err != nil && h.ctx.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = flow.Fail(logbook.FailureTimeout, err) // the conductor's own limit may end a little later
	}
	if said, notYet := flow.AsNotYet(err); notYet {
		outcome.NotYet = said.After
		if said.Details != nil {
			outcome.Progress = &logbook.Progress{Details: said.Details}
		}
	} else if err != nil {
		outcome.Failure = flow.FitFailure(flow.FailureOf(err), w.options.Limits)
	}
	return outcome
}

// act calls the task and encodes its result. A panic in either is returned as an error. So is
// runtime.Goexit, which ends the goroutine that calls the task.
func (w *stepWorker) act(ctx context.Context, task flow.Task, call *flow.Call) (result json.RawMessage, err error) {
	ended := make(chan struct{})
	err = &flow.PanicError{Value: "the task has ended its goroutine"}
	go func() { // ends with the task
		defer close(ended)
		result, err = w.call(ctx, task, call)
	}()
	<-ended
	return result, err
}

func (w *stepWorker) call(ctx context.Context, task flow.Task, call *flow.Call) (result json.RawMessage, err error) {
	defer flow.CatchPanic(&err)
	var value any
	if reverter, can := task.(flow.Reverter); call.Action != logbook.ActionRevert {
		value, err = task.Execute(ctx, call)
	} else if can {
		err = reverter.Revert(ctx, call)
	} else {
		err = flow.Permanent(errors.New("this worker cannot revert steps of this type"))
	}
	if err != nil {
		return nil, err
	}
	return w.encode(value)
}

func (w *stepWorker) encode(result any) (json.RawMessage, error) {
	encoded, raw := result.(json.RawMessage)
	var err error
	if raw && len(encoded) == 0 {
		encoded = json.RawMessage("null")
	} else if !raw {
		encoded, err = json.Marshal(result)
	}
	if err == nil {
		err = w.options.Limits.CheckValue("result", encoded)
	}
	if err != nil {
		return nil, flow.Fail(logbook.FailureResult, fmt.Errorf("cannot encode the result: %w", err))
	}
	return encoded, nil
}

// tell reports lines and progress until the attempt has ended. It does not repeat a failed report,
// because a lost report does little harm.
func (w *stepWorker) tell(t *liveSession, h *heldStep, over <-chan struct{}) {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-over:
			return
		}
		output, progress := h.takeNews()
		if output == "" && progress == nil {
			continue
		}
		calls, cancel := context.WithTimeout(t.alive, tellWait+callTime)
		_, err := w.options.Client.ReportStep(calls, t.id, steps.Outcome{ID: h.work.ID, Output: output, Progress: progress}, tellWait)
		cancel()
		if err != nil {
			w.logger.Debug("cannot report progress", "step", h.work.Step, "error", err)
		}
	}
}

// report reports the end of an attempt until it is recorded or permanently refused.
func (w *stepWorker) report(work context.Context, t *liveSession, outcome steps.Outcome) (recorded bool) {
	wait := newBackoff(boardBackoff)
	for work.Err() == nil {
		calls, cancel := context.WithTimeout(work, reportWait+2*callTime)
		recorded, err := w.options.Client.ReportStep(calls, t.id, outcome, reportWait)
		cancel()
		switch {
		case recorded:
			return true
		case errors.Is(err, jobs.ErrSessionExpired):
			t.lose(err)
			return false
		case errors.Is(err, jobs.ErrFenced), errors.Is(err, jobs.ErrNotAllowed):
			w.logger.Warn("step outcome refused", "attempt", outcome.ID.String(), "error", err)
			return false
		case (errors.Is(err, jobs.ErrInvalid) || errors.Is(err, jobs.ErrLimit)) && (outcome.Failure == nil || outcome.Failure.Kind != logbook.FailureResult):
			failure := &logbook.Failure{Kind: logbook.FailureResult, Message: err.Error()}
			outcome = steps.Outcome{ID: outcome.ID, Done: true, Failure: flow.FitFailure(failure, w.options.Limits)}
		case err != nil:
			w.logger.Warn("cannot report a step outcome", "attempt", outcome.ID.String(), "error", err)
			sleep(work, wait.NextBackOff())
		}
	}
	return false
}

// Write takes lines of the step; see flow.Output.
func (h *heldStep) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := steps.MaxOutput - len(cutMark) - len(h.output)
	if len(line) > left {
		h.cut = true
	}
	h.output = append(h.output, line[:min(len(line), max(0, left))]...)
	return len(line), nil
}

// cutMark ends output that exceeded one report.
const cutMark = "\n[more was written than a report holds]\n"

// Report takes the progress of the step; see flow.Reporter.
func (h *heldStep) Report(_ *flow.Call, progress logbook.Progress) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress = &progress
	return nil
}

// takeNews returns the unreported progress and lines.
func (h *heldStep) takeNews() (output string, progress *logbook.Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	output, progress = string(h.output), h.progress
	if h.cut {
		output += cutMark
	}
	h.output, h.cut, h.progress = nil, false, nil
	return output, progress
}
