package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine/enginetest"
	"github.com/conductord/conductord/logbook"
)

type payment struct {
	Amount int `json:"amount"`
}

// bank is the outside world: it recognises a key that it has seen.
type bank struct {
	charged map[string]int
}

func (b *bank) charge(ctx context.Context, in payment) (struct{}, error) {
	b.charged[flow.CallFrom(ctx).Key()] = in.Amount
	return struct{}{}, nil
}

var three = flow.Backoff{Attempts: 3, Delay: time.Minute}

// TestOrder shows a flow whose second step fails twice, and its trace.
func TestOrder(t *testing.T) {
	order := flow.Linear("order",
		flow.NewStep("reserve", enginetest.Succeed("room 7")),
		flow.NewStep("charge", enginetest.FailTimes(1, errors.New("busy")), flow.Retry(three)),
		flow.NewStep("ship", enginetest.Fail(errors.New("no boxes"))))
	enginetest.Run(t, order, nil).Want(t, `
		1: flow running, reserve running E1?
		2: reserve success E1+, charge running E1?
		3: charge pending E1- again in 1m0s
		4: charge running E2?
		5: charge success E2+, ship running E1?
		6: flow reverting (ship: error), ship failure (to revert) E1-, reserve (to revert), charge (to revert), ship reverting R1?
		7: ship reverted R1+, charge reverting R1?
		8: charge reverted R1+, reserve reverting R1?
		9: flow reverted, reserve reverted R1+
		took: 1m0s
		end: reverted (ship: error)`)
}

// TestChargedOnce lets the process die at every point, and looks at the bank
// each time.
func TestChargedOnce(t *testing.T) {
	var world *bank
	build := func() *flow.Flow {
		return flow.Linear("order", flow.Func("charge", world.charge), flow.NewStep("ship", enginetest.Succeed(nil)))
	}
	enginetest.CrashEverywhere(t, build, logbook.Values{"amount": json.RawMessage("40")},
		enginetest.Before(func() { world = &bank{charged: make(map[string]int)} }),
		enginetest.Check(func(*enginetest.Trace) error {
			if n := len(world.charged); n != 1 {
				return fmt.Errorf("the bank has charged %d times", n)
			}
			return nil
		}))
}

// deletion waits a week for its backup, asks two people, and deletes a disk.
func deletion() *flow.Flow {
	return flow.Linear("deletion",
		flow.Signal[string]("backup-done", flow.WaitFor(7*24*time.Hour)),
		flow.Approve("ask", flow.Approval{
			Text:   "Delete {disk}?",
			Need:   []logbook.Need{{Role: "owner", Count: 1}, {Role: "dba", Count: 1}},
			Fields: json.RawMessage(`{"required": ["ticket"], "properties": {"ticket": {"type": "string"}}}`),
		}, flow.Requires("disk")),
		flow.Sleep("cool-off", 24*time.Hour),
		flow.NewStep("delete", enginetest.Succeed(nil)))
}

// TestApproved sends the signal after two hours, and lets two people approve.
func TestApproved(t *testing.T) {
	ticket := json.RawMessage(`{"ticket": "CHG-17"}`)
	trace := enginetest.Run(t, deletion(), logbook.Values{"disk": json.RawMessage(`"sda"`)},
		enginetest.After(2*time.Hour, enginetest.Signal("backup-done", "s3://backups/sda")),
		enginetest.Decide("ask", logbook.Decision{By: "ann", Roles: []string{"owner", "dba"}, Answers: ticket}),
		enginetest.Decide("ask", logbook.Decision{By: "bob", Roles: []string{"owner"}, Answers: ticket}))
	trace.WantState(t, logbook.FlowSuccess)
	if trace.Took != 26*time.Hour {
		t.Errorf("the flow took %s", trace.Took)
	}
}

// TestNoBackup sends no signal: the wait fails at its limit.
func TestNoBackup(t *testing.T) {
	trace := enginetest.Run(t, deletion(), logbook.Values{"disk": json.RawMessage(`"sda"`)})
	trace.WantState(t, logbook.FlowReverted)
}
