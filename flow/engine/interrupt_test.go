package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

// TestNextRoundIsNotInterrupted: an interruption ends only its own execution. If that has
// ended meanwhile, the execution of the next round continues.
func TestNextRoundIsNotInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs, others := 0, 0
		failed := make(chan struct{})
		a := act("a", func(context.Context) error {
			if runs++; runs == 1 {
				return errors.New("woot")
			}
			return nil
		})
		b := act("b", func(context.Context) error {
			if others++; others == 1 {
				<-failed
			}
			return nil
		})
		root := flow.Unordered("f", a, b).WithRetry(flow.Times("r", 2))
		// The observer holds the loop until b has reported, too: so both end at once.
		local := engine.Local{Observe: func(e engine.Event) {
			if e.Step == "a" && e.State == logbook.AtomFailure {
				close(failed)
				time.Sleep(time.Second)
			}
		}}
		result, err := local.Run(t.Context(), root, nil)
		if err != nil || others != 2 {
			t.Errorf("%v, b was executed %d times", err, others)
		}
		detail, _ := result.Detail.Atom("b")
		for _, attempt := range detail.Attempts {
			if attempt.Failure != nil {
				t.Errorf("b was ended: %+v", attempt)
			}
		}
	})
}

// TestLaterGraceCounts: a second request to interrupt replaces the grace of the first.
func TestLaterGraceCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		revert, interrupt := make(chan struct{}), make(chan time.Duration, 1)
		began := time.Now()
		step := act("a", func(ctx context.Context) error {
			close(revert)
			interrupt <- time.Hour
			<-ctx.Done()
			interrupt <- time.Second
			for {
				deadline, changed := flow.InterruptionOf(ctx).Deadline()
				select {
				case <-changed:
				case <-time.After(time.Until(deadline)):
					return context.Cause(ctx)
				}
			}
		})
		result, _ := engine.Local{Revert: revert, Interrupt: interrupt}.Run(t.Context(), step, nil)
		if took := time.Since(began); result.State != logbook.FlowReverted || took > time.Minute {
			t.Errorf("%s after %s", result.State, took)
		}
	})
}

// TestOnlyTheEngineInterrupts: user code cannot claim that it was interrupted, because it
// would be tried again without end.
func TestOnlyTheEngineInterrupts(t *testing.T) {
	calls := 0
	step := act("a", func(context.Context) error {
		calls++
		return flow.Fail(logbook.FailureInterrupted, errors.New("not I"))
	})
	result, err := engine.RunLocal(t.Context(), step, nil)
	var failure *logbook.Failure
	if !errors.As(err, &failure) || failure.Kind != logbook.FailureError || calls != 1 || result.State != logbook.FlowReverted {
		t.Errorf("%v after %d calls, %s", err, calls, result.State)
	}
}

// TestCancelReachesABrokenFlow: a request interrupts a step outside a part whose undo failed
// permanently. Afterwards an operator can undo the whole flow.
func TestCancelReachesABrokenFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nasty, undone := true, 0
		part := flow.Linear("g", flow.FuncRevert("b", func(context.Context, none) (none, error) { return none{}, errors.New("woot") },
			func(context.Context, none, *none) error {
				if nasty {
					return errors.New("stuck")
				}
				return nil
			})).WithRetry(flow.Times("r", 2))
		long := flow.FuncRevert("w", func(ctx context.Context, _ none) (none, error) {
			select {
			case <-ctx.Done():
				return none{}, ctx.Err()
			case <-time.After(time.Hour):
				return none{}, nil
			}
		}, func(context.Context, none, *none) error { undone++; return nil })
		root := flow.Unordered("f", part, long)
		revert, interrupt := make(chan struct{}), make(chan time.Duration, 1)
		go func() {
			time.Sleep(time.Minute) // the undo has failed by then
			close(revert)
			interrupt <- 0
		}()
		began := time.Now()
		book := memory.New(logbook.MaxLimits)
		local := engine.Local{Logbook: book, Flow: logbook.NewFlowID(), Revert: revert, Interrupt: interrupt}
		result, _ := local.Run(t.Context(), root, nil)
		if took := time.Since(began); result.State != logbook.FlowFailure || took != time.Minute {
			t.Fatalf("%s after %s", result.State, took)
		}
		nasty = false
		j := newJournal(result.Detail)
		detail := j.snapshot()
		detail.Interventions = []logbook.Intervention{{ID: uuid.New(), Flow: detail.ID, Kind: logbook.InterveneRetryRevert, Token: logbook.Token{Index: 1}}}
		end, err := engine.Run(t.Context(), engine.Options{Plan: compiled(t, root), Detail: detail, Token: logbook.Token{Index: 2}, Journal: newJournal(detail)})
		if err != nil || end.State != logbook.FlowReverted || undone != 1 {
			t.Errorf("after a retry of the revert: %s, %v, undone %d times", end.State, err, undone)
		}
	})
}
