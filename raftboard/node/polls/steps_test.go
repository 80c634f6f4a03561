package polls_test

import (
	"testing"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/polls"
)

// TestWaitsForSteps: a change wakes the calls that wait for the step, or for any step of a flow with a new
// state. A restore wakes all. No waiter is left behind.
func TestWaitsForSteps(t *testing.T) {
	p := polls.New()
	one, other := logbook.NewFlowID(), logbook.NewFlowID()
	woken := func(changed <-chan struct{}) bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	for _, row := range []struct {
		name                 string
		changes              fsm.Changes
		fly, stay, elsewhere bool
	}{
		{"nothing", fsm.Changes{Events: true}, false, false, false},
		{"a step", fsm.Changes{Steps: []fsm.StepChange{{Flow: one, Step: "fly"}, {Flow: one, Step: "fly"}, {Flow: one, Step: "swim"}}}, true, false, false},
		{"a flow", fsm.Changes{Steps: []fsm.StepChange{{Flow: one}, {Flow: one, Step: "fly"}}}, true, true, false},
		{"a restore", fsm.Changes{Restored: true}, true, true, true},
	} {
		fly, leaveFly := p.AwaitStep(one, "fly")
		stay, leaveStay := p.AwaitStep(one, "stay")
		elsewhere, leaveElse := p.AwaitStep(other, "fly")
		if flows := p.Load().Steps; flows != 2 {
			t.Errorf("%s: calls wait for steps of %d flows, want 2", row.name, flows)
		}
		p.Changed(row.changes)
		if got := [3]bool{woken(fly), woken(stay), woken(elsewhere)}; got != [3]bool{row.fly, row.stay, row.elsewhere} {
			t.Errorf("%s: woken: %v", row.name, got)
		}
		leaveFly()
		leaveStay()
		leaveElse()
		if flows := p.Load().Steps; flows != 0 {
			t.Errorf("%s: %d flows are left", row.name, flows)
		}
	}
}
