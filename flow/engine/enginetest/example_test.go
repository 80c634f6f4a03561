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
