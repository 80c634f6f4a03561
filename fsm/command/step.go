package command

import (
	"maps"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// StepIDToProto converts the name of an attempt.
func StepIDToProto(id *steps.ID) *v1.StepAttempt {
	return &v1.StepAttempt{
		Flow: id.Flow.String(), Step: id.Step, Action: string(id.Action), Attempt: countOf(id.Attempt), Asked: countOf(id.Asked),
	}
}

// StepIDFromProto converts the name of an attempt. It refuses an empty name.
func StepIDFromProto(message *v1.StepAttempt) (steps.ID, error) {
	var r reader
	flow, err := logbook.ParseFlowID(message.GetFlow())
	id := steps.ID{
		Flow: keep(&r, flow, err), Step: message.GetStep(), Action: word(&r, "attempt action", message.GetAction(), knownAction),
		Attempt: r.count("attempt", message.GetAttempt()), Asked: r.count("attempt asked", message.GetAsked()),
	}
	if r.err == nil {
		r.err = logbook.MaxLimits.CheckName("step", id.Step)
	}
	if r.err == nil && (id.Attempt < 1 || id.Action == logbook.ActionReset) {
		r.err = &logbook.InvalidError{Field: "attempt", Reason: "it must be an execute or a revert with a number from 1"}
	}
	return id, r.err
}

// StepWorkToProto converts an attempt to make.
func StepWorkToProto(w *steps.Work) *v1.StepWork {
	message := &v1.StepWork{
		Id: StepIDToProto(&w.ID), Job: w.Job.String(), Type: w.Type, Labels: w.Labels, Key: w.Key, Round: countOf(w.Round),
		Token: TokenToProto(w.Token), Arguments: ValuesToProto(w.Arguments), Result: ValueToProto(w.Result), Failure: FailureToProto(w.Failure),
		Try: countOf(w.Try), Tries: countOf(w.Tries), Board: w.Board, LastFailure: FailureToProto(w.LastFailure),
		LastProgress: progressToProto(w.LastProgress),
	}
	for _, name := range slices.Sorted(maps.Keys(w.Checkpoints)) {
		message.Checkpoints = append(message.Checkpoints, &v1.Checkpoint{Name: name, Value: ValueToProto(w.Checkpoints[name])})
	}
	if w.Cause.Kind != "" {
		message.Cause = &v1.RevertCause{Kind: string(w.Cause.Kind), By: w.Cause.By, Reason: w.Cause.Reason}
	}
	if w.TimeLeft > 0 {
		message.TimeLeft = DurationToProto(w.TimeLeft)
	}
	for _, step := range slices.Sorted(maps.Keys(w.FlowFailures)) {
		failure := *w.FlowFailures[step]
		failure.Step = step
		message.Failures = append(message.Failures, FailureToProto(&failure))
	}
	return message
}

// StepWorkFromProto converts an attempt to make.
func StepWorkFromProto(message *v1.StepWork) (steps.Work, error) {
	var r reader
	id, err := StepIDFromProto(message.GetId())
	job, jobErr := jobs.ParseJobID(message.GetJob())
	left, leftErr := DurationFromProto("time_left", message.GetTimeLeft())
	w := steps.Work{
		ID: keep(&r, id, err), Job: keep(&r, job, jobErr), Type: message.GetType(), Labels: message.GetLabels(), Key: message.GetKey(),
		Round: r.count("round", message.GetRound()), Token: TokenFromProto(message.GetToken()), Arguments: ValuesFromProto(message.GetArguments()),
		Result: ValueFromProto(message.GetResult()), Failure: FailureFromProto(message.GetFailure()), TimeLeft: keep(&r, left, leftErr),
		Try: r.count("try", message.GetTry()), Tries: r.count("tries", message.GetTries()), Board: message.GetBoard(), LastFailure: FailureFromProto(message.GetLastFailure()),
		Cause:        logbook.RevertCause{Kind: logbook.CauseKind(message.GetCause().GetKind()), By: message.GetCause().GetBy(), Reason: message.GetCause().GetReason()},
		LastProgress: r.progress(message.GetLastProgress()),
	}
	for _, checkpoint := range message.GetCheckpoints() {
		if w.Checkpoints == nil {
			w.Checkpoints = make(logbook.Values)
		}
		w.Checkpoints[checkpoint.GetName()] = ValueFromProto(checkpoint.GetValue())
	}
	for _, failure := range message.GetFailures() {
		if w.FlowFailures == nil {
			w.FlowFailures = make(map[string]*logbook.Failure)
		}
		w.FlowFailures[failure.GetStep()] = FailureFromProto(failure)
	}
	return w, r.err
}

// StepOutcomeToProto converts a report.
func StepOutcomeToProto(o *steps.Outcome) *v1.StepOutcome {
	message := &v1.StepOutcome{
		Id: StepIDToProto(&o.ID), Done: o.Done, Result: ValueToProto(o.Result), Failure: FailureToProto(o.Failure),
		Progress: progressToProto(o.Progress), Output: text(o.Output), Stderr: text(o.Stderr),
		Sends: sendsToProto(o.Sends),
	}
	if o.NotYet > 0 {
		message.NotYet = DurationToProto(o.NotYet)
	}
	if o.Checkpoint != nil {
		message.Checkpoint = CheckpointToProto(o.Checkpoint)
	}
	return message
}

// StepOutcomeFromProto converts a report.
func StepOutcomeFromProto(message *v1.StepOutcome) (steps.Outcome, error) {
	var r reader
	id, err := StepIDFromProto(message.GetId())
	notYet, notYetErr := DurationFromProto("not_yet", message.GetNotYet())
	o := steps.Outcome{
		ID: keep(&r, id, err), Done: message.GetDone(), Result: ValueFromProto(message.GetResult()), Failure: FailureFromProto(message.GetFailure()),
		NotYet: keep(&r, notYet, notYetErr), Progress: r.progress(message.GetProgress()), Output: message.GetOutput(), Stderr: message.GetStderr(),
	}
	if message.GetCheckpoint() != nil {
		checkpoint, err := CheckpointFromProto(message.GetCheckpoint())
		o.Checkpoint = &checkpoint
		if o.Checkpoint.Value == nil {
			o.Checkpoint.Value = []byte("null")
		}
		keep(&r, checkpoint, err)
	}
	for _, message := range message.GetSends() {
		sent, err := SendingFromProto(message)
		o.Sends = append(o.Sends, keep(&r, sent, err))
	}
	return o, r.err
}
