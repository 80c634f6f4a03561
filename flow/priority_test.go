package flow_test

import (
	"errors"
	"testing"

	"github.com/conductord/conductord/flow"
)

func TestPriorities(t *testing.T) {
	for priority, fits := range map[int]bool{0: true, flow.MaxPriority: true, -flow.MaxPriority: true, flow.MaxPriority + 1: false, -flow.MaxPriority - 1: false} {
		plan, err := flow.Compile(flow.NewStep("a", idle{}, flow.Priority(priority)))
		if fits && (err != nil || plan.Step(0).Priority() != priority) || !fits && !errors.Is(err, flow.ErrInvalid) {
			t.Errorf("%d: %v", priority, err)
		}
	}
}
