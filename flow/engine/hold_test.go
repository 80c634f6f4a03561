package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestCancelAfterARevertFailsInAHeldFlow: the flow ends in failure and waits for an operator. A
// cancellation reverts a held flow, but none whose revert has failed.
func TestCancelAfterARevertFailsInAHeldFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancel := make(chan struct{})
		failsAfter := func(d time.Duration) func(context.Context, none) (none, error) {
			return func(context.Context, none) (none, error) {
				time.Sleep(d)
				return none{}, errors.New("it rains")
			}
		}
		undone := flow.FuncRevert("undone", failsAfter(0), func(context.Context, none, *none) error {
			time.Sleep(2 * time.Second)
			return errors.New("stuck")
		})
		root := flow.Unordered("f", flow.Func("fails", failsAfter(time.Second)),
			flow.Linear("part", undone).WithRetry(flow.Times("retry", 2)),
			act("long", func(context.Context) error {
				time.Sleep(3 * time.Second)
				close(cancel)
				time.Sleep(time.Second)
				return nil
			})).OnFailure(flow.HoldOnFailure)
		plan, err := flow.Compile(root)
		if err != nil {
			t.Fatal(err)
		}
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: newDetail(), Journal: newJournal(newDetail()),
			Token: logbook.Token{Index: 1}, Owner: "o", Workers: 3, Revert: cancel})
		if err != nil || end.State != logbook.FlowFailure || end.Cause.Step != "undone" {
			t.Errorf("the flow is %s because of %v: %v", end.State, end.Cause, err)
		}
	})
}
