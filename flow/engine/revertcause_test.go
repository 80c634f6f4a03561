package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestCausesOfReverts checks what a revert is told, with a crash before each write: the cause is the same
// for every owner of the flow.
func TestCausesOfReverts(t *testing.T) {
	failure := logbook.RevertCause{Kind: logbook.CauseFailure, Reason: "step pay: declined"}
	cancel := logbook.RevertCause{Kind: logbook.CauseCancel, By: "ann", Reason: "the customer \"called\""}
	deadline := logbook.RevertCause{Kind: logbook.CauseDeadline, Reason: "its deadline has passed"}
	operator := logbook.RevertCause{Kind: logbook.CauseOperator, By: "bob", Reason: "give up"}
	for _, row := range []struct {
		name    string
		asked   logbook.RevertCause // the request to revert; zero: none, and pay fails
		hold    bool                // at the failure, until an operator reverts the flow
		fails   bool                // the first revert, until an operator retries it
		rounds  int                 // of a retry; 0: none
		want    logbook.RevertCause
		retried bool // the first reverts are for a retry
	}{
		{name: "failure", want: failure},
		{name: "cancel", asked: cancel, want: cancel},
		{name: "cancel without a reason", asked: logbook.RevertCause{Kind: logbook.CauseCancel}, want: logbook.RevertCause{Kind: logbook.CauseCancel}},
		{name: "deadline", asked: deadline, want: deadline},
		{name: "operator", hold: true, want: operator},
		{name: "retried revert of a failure", fails: true, want: failure},
		{name: "retried revert of a cancelled flow", asked: cancel, fails: true, want: cancel},
		{name: "retry", rounds: 2, retried: true, want: failure},
	} {
		t.Run(row.name, func(t *testing.T) {
			for crash := 0; ; crash++ {
				r := &causeRun{journal: newJournal(newDetail()), fails: row.fails}
				root := flow.Linear("order", flow.FuncRevert("book", func(context.Context, none) (none, error) { return none{}, nil }, r.undo),
					act("pay", func(context.Context) error { return errors.New("declined") }))
				if row.rounds > 0 {
					root = root.WithRetry(flow.Times("again", row.rounds))
				}
				if row.hold {
					root = root.OnFailure(flow.HoldOnFailure)
				}
				r.left = crash
				crashed := r.runToEnd(t, compiled(t, root), row.asked)
				if end := r.snapshot(); end.State == logbook.FlowFailure {
					kind := logbook.InterveneRetryRevert
					if row.hold {
						kind = logbook.InterveneRevert
					}
					r.intervene(kind, operator.By, operator.Reason)
					crashed = r.runToEnd(t, compiled(t, root), logbook.RevertCause{}) || crashed
				}
				if state := r.snapshot().State; state != logbook.FlowReverted || len(r.told) == 0 && row.asked.Kind == "" {
					t.Fatalf("crash %d: %s, told %v", crash, state, r.told)
				}
				for i, told := range r.told {
					want := row.want
					if row.retried && i < len(r.told)-1 && told.Kind == logbook.CauseRetry {
						want = logbook.RevertCause{Kind: logbook.CauseRetry, Reason: failure.Reason}
					}
					if told != want {
						t.Errorf("crash %d: revert %d was told %+v, want %+v", crash, i+1, told, want)
					}
				}
				if row.retried && r.told[0].Kind != logbook.CauseRetry {
					t.Errorf("crash %d: the first revert was told %+v", crash, r.told[0])
				}
				if !crashed {
					return
				}
			}
		})
	}
}

// causeRun is a flow whose runs can crash, and the causes of its reverts.
type causeRun struct {
	*journal
	fails bool
	told  []logbook.RevertCause
	token uint64
}

func (r *causeRun) undo(ctx context.Context, _ none, _ *none) error {
	r.told = append(r.told, flow.CallFrom(ctx).Cause)
	if r.fails {
		r.fails = false
		return errors.New("the line is busy")
	}
	return nil
}

// runToEnd runs the flow until it ends, after crashes again. A request comes before each first step.
func (r *causeRun) runToEnd(t *testing.T, plan *flow.Plan, asked logbook.RevertCause) (crashed bool) {
	t.Helper()
	for {
		r.token += 10
		options := engine.Options{Plan: plan, Detail: r.snapshot(), Journal: r.journal, Workers: 1, Token: logbook.Token{Index: r.token}}
		if asked.Kind != "" {
			revert := make(chan struct{})
			options.Revert, options.RevertCause = revert, func() *logbook.Failure { return asked.Cancelled("cancelled") }
			options.Observe = func(event engine.Event) {
				if event.Step == "book" && event.State == logbook.AtomSuccess {
					close(revert)
				}
			}
			if atom, ok := options.Detail.Atom("book"); ok && atom.State == logbook.AtomSuccess {
				close(revert)
				options.Observe = nil
			}
		}
		end, err := engine.Run(t.Context(), options)
		if err == nil && end.Update != nil {
			err = r.apply(*end.Update)
		}
		switch {
		case errors.Is(err, errCrash):
			crashed, r.left = true, -1
		case err != nil:
			t.Fatal(err)
		default:
			return crashed
		}
	}
}

// intervene records an intervention, as an operator's request does.
func (r *causeRun) intervene(kind logbook.InterventionKind, by, reason string) {
	r.token += 10
	r.detail.Interventions = append(r.detail.Interventions, logbook.Intervention{ID: uuid.New(), Kind: kind, By: by, Reason: reason, Token: logbook.Token{Index: r.token}})
}
