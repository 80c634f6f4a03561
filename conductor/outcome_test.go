package conductor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestOutcomes(t *testing.T) {
	cause := &logbook.Failure{Kind: "error", Message: "no seats", Step: "book"}
	last := &logbook.Update{Sequence: 7}
	rows := []struct {
		name     string
		state    logbook.FlowState
		update   *logbook.Update
		cause    *logbook.Failure
		err      error
		order    *jobs.OperatorRequest
		claims   int
		failures int
		verb     string
		outcome  jobs.Outcome
		failure  string // the kind
		delay    time.Duration
	}{
		{name: "success", state: logbook.FlowSuccess, update: last, verb: "consume", outcome: jobs.OutcomeSuccess},
		{name: "reverted", state: logbook.FlowReverted, update: last, cause: cause, verb: "consume", outcome: jobs.OutcomeReverted, failure: "error"},
		{name: "undo failed", state: logbook.FlowFailure, update: last, cause: cause, verb: "consume", outcome: jobs.OutcomeFailed, failure: "error"},
		{name: "success when loaded", state: logbook.FlowSuccess, verb: "consume", outcome: jobs.OutcomeSuccess},
		{name: "reverted when loaded", state: logbook.FlowReverted, cause: cause, verb: "consume", outcome: jobs.OutcomeReverted, failure: "error"},
		{name: "suspended", state: logbook.FlowSuspended, update: last, verb: "abandon"},
		{name: "suspended by an order", state: logbook.FlowSuspended, update: last, order: &jobs.OperatorRequest{Kind: jobs.RequestSuspend}, verb: "abandon"},
		{name: "stopped for good", state: logbook.FlowSuspended, update: last, order: &jobs.OperatorRequest{Kind: jobs.RequestCancel}, verb: "consume", outcome: jobs.OutcomeCancelled},
		{name: "suspended before it could be undone", state: logbook.FlowSuspended, update: last, order: &jobs.OperatorRequest{Kind: jobs.RequestCancel, Revert: true}, verb: "abandon"},
		{name: "undone", state: logbook.FlowReverted, update: last, cause: cause, order: &jobs.OperatorRequest{Kind: jobs.RequestCancel, Revert: true}, verb: "consume", outcome: jobs.OutcomeCancelled, failure: "error"},
		{name: "reverted under an order to suspend", state: logbook.FlowReverted, update: last, cause: cause, order: &jobs.OperatorRequest{Kind: jobs.RequestSuspend}, verb: "consume", outcome: jobs.OutcomeReverted, failure: "error"},
		{name: "cancelled too late", state: logbook.FlowSuccess, update: last, order: &jobs.OperatorRequest{Kind: jobs.RequestCancel, Revert: true}, verb: "consume", outcome: jobs.OutcomeSuccess},
		{name: "cancelled, and the undo failed", state: logbook.FlowFailure, update: last, cause: cause, order: &jobs.OperatorRequest{Kind: jobs.RequestCancel, Revert: true}, verb: "consume", outcome: jobs.OutcomeFailed, failure: "error"},
		{name: "claim ended by another", err: fmt.Errorf("%w: trashed", conductor.ErrClaimEnded), verb: "let go"},
		{name: "handed over", err: conductor.ErrHandOver, verb: "abandon"},
		{name: "session in doubt", err: conductor.ErrDoubt, verb: "abandon"},
		{name: "fenced", err: fmt.Errorf("cannot record: %w", jobs.ErrFenced), verb: "let go"},
		{name: "claim lost", err: fmt.Errorf("%w: gone", conductor.ErrClaimLost), verb: "let go"},
		{name: "session expired", err: jobs.ErrSessionExpired, verb: "let go"},
		{name: "pinned to other code", err: fmt.Errorf("cannot run: %w", engine.ErrPinned), failures: 19, verb: "abandon", delay: 10 * time.Second},
		{name: "another could build it", err: fmt.Errorf("%w: but there", conductor.ErrElsewhere), claims: 1, failures: 19, verb: "abandon", delay: time.Second},
		{name: "another could build it, again", err: fmt.Errorf("%w: but there", conductor.ErrElsewhere), claims: 3, verb: "abandon", delay: 4 * time.Second},
		{name: "refuses other code", err: fmt.Errorf("cannot run: %w", engine.ErrChanged), verb: "trash", failure: logbook.FailureChanged},
		{name: "trouble, first time", err: errors.New("bad detail"), claims: 30, failures: 0, verb: "abandon", failure: "error", delay: time.Second},
		{name: "trouble, third time", err: errors.New("bad detail"), failures: 2, verb: "abandon", failure: "error", delay: 4 * time.Second},
		{name: "trouble, sixth time", err: errors.New("bad detail"), failures: 5, verb: "abandon", failure: "error", delay: 32 * time.Second},
		{name: "trouble, seventh time", err: errors.New("bad detail"), failures: 6, verb: "abandon", failure: "error", delay: time.Minute},
		{name: "trouble, last but one", err: errors.New("bad detail"), failures: 18, verb: "abandon", failure: "error", delay: time.Minute},
		{name: "trouble, last", err: errors.New("bad detail"), failures: 19, verb: "trash", failure: "error"},
		{name: "refused update", err: &logbook.LimitError{Field: "result"}, claims: 1, verb: "abandon", failure: "error", delay: time.Second},
		{name: "engine panicked", err: &flow.PanicError{Value: "internal error: x"}, claims: 1, verb: "abandon", failure: "panic", delay: time.Second},
		{name: "engine ended nowhere", state: logbook.FlowRunning, update: last, claims: 1, verb: "abandon", failure: "error", delay: time.Second},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			job := jobs.Job{ID: jobs.NewJobID(), Token: jobs.Token{Generation: 1, Index: 9}, Claims: row.claims, Failures: row.failures}
			end := engine.End{State: row.state, Update: row.update, Cause: row.cause}
			verb, ending := conductor.DecideUnder(conductor.Options{}, job, end, row.err, row.order)
			if verb != row.verb || ending.Outcome != row.outcome || ending.Delay != row.delay {
				t.Errorf("%s, outcome %q, delay %s; want %s, %q, %s", verb, ending.Outcome, ending.Delay, row.verb, row.outcome, row.delay)
			}
			if ending.Job != job.ID || ending.Token != job.Token {
				t.Errorf("for job %s under %s", ending.Job, ending.Token)
			}
			if got := kindOf(ending.Failure); got != row.failure {
				t.Errorf("failure %q, want %q", got, row.failure)
			}
			wantUpdate := row.update
			if row.failure != "" && verb != "consume" {
				wantUpdate = nil
			}
			if ending.Update != wantUpdate {
				t.Errorf("update %v, want %v", ending.Update, wantUpdate)
			}
			if verb == "abandon" && ending.Reason == "" {
				t.Error("abandoned without a reason")
			}
		})
	}
}

func TestStopRequestsInWords(t *testing.T) {
	for want, request := range map[string]*jobs.OperatorRequest{
		"cancel was requested by ann: too late":                             {Kind: jobs.RequestCancel, By: "ann", Reason: "too late"},
		"the job was cancelled: its deadline, 2026-11-29 14:00, has passed": {Kind: jobs.RequestCancel, By: jobs.ByDeadline, Reason: "its deadline, 2026-11-29 14:00, has passed"},
	} {
		if got := conductor.SaidOf(request); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestUnbuildableIsTrashed(t *testing.T) {
	faults := errors.Join(fmt.Errorf("%w: x", flow.ErrMissing), fmt.Errorf("%w: y", flow.ErrDuplicate))
	verb, ending := conductor.DecideUnbuildable(conductor.Options{}, jobs.Job{ID: jobs.NewJobID()}, faults)
	if verb != "trash" || kindOf(ending.Failure) != logbook.FailureBuild || !ending.Failure.Permanent {
		t.Fatalf("%s with %+v", verb, ending.Failure)
	}
	for _, part := range []string{"missing requirement: x", "duplicate: y"} {
		if !strings.Contains(ending.Reason, part) || !strings.Contains(ending.Failure.Message, part) {
			t.Errorf("%q is not in the reason %q", part, ending.Reason)
		}
	}
}

func TestReasonIsBounded(t *testing.T) {
	_, ending := conductor.DecideUnbuildable(conductor.Options{}, jobs.Job{}, errors.New(strings.Repeat("é", 5000)))
	if size := len(ending.Reason); size > 1024 || size < 1000 || strings.ToValidUTF8(ending.Reason, "") != ending.Reason {
		t.Errorf("reason of %d bytes", size)
	}
}

// A board with the conductor's limits accepts every ending, for every kind and length of failure.
func TestEndingsAreTaken(t *testing.T) {
	lower := logbook.Limits{Name: 64, Value: 1 << 10, Command: 64 << 10, Steps: 100}
	long := strings.Repeat("x", 1<<20)
	var joined []error
	for i := range 10_000 {
		joined = append(joined, fmt.Errorf("%w: step %d", flow.ErrMissing, i))
	}
	for name, err := range map[string]error{
		"long":          errors.New(long),
		"not UTF-8":     errors.New("a\xffb"),
		"panic":         &flow.PanicError{Value: long, Stack: long},
		"kind":          flow.Fail("a\n"+long, errors.New("x")),
		"ten thousand":  errors.Join(joined...),
		"a hand-over":   fmt.Errorf("%w: %s", conductor.ErrHandOver, long),
		"a bad failure": &logbook.Failure{Message: long, Causes: make([]logbook.Failure, 1000)},
	} {
		for _, limits := range []logbook.Limits{logbook.MaxLimits, lower} {
			job := jobs.Job{ID: jobs.NewJobID(), Token: jobs.Token{Index: 1}, Claims: 1}
			o := conductor.Options{Limits: limits}
			_, abandoned := conductor.Decide(o, job, engine.End{}, err)
			_, unbuilt := conductor.DecideUnbuildable(o, job, err)
			job.Failures = conductor.DefaultMaxTries
			_, trashed := conductor.Decide(o, job, engine.End{}, err)
			for _, ending := range []jobs.Ending{abandoned, unbuilt, trashed} {
				if err := jobs.CheckEnding(limits, &ending); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

func kindOf(f *logbook.Failure) string {
	if f == nil {
		return ""
	}
	return f.Kind
}
