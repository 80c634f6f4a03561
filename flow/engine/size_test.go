package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// TestUpdatesOfManyRoundsFit: when many retries begin again together, each with the most
// failures that a round keeps, every encoded update fits the largest command.
func TestUpdatesOfManyRoundsFit(t *testing.T) {
	list, err := json.Marshal(slices.Repeat([]int{0, 1, 5, 10, 20}, 20))
	if err != nil {
		t.Fatal(err)
	}
	for _, limits := range []logbook.Limits{{}, {Name: 32, Value: 1 << 10, Command: 64 << 10}} {
		var steps []flow.Node
		for i := range 16 {
			steps = append(steps, flow.Func(fmt.Sprintf("s%d", i), func(_ context.Context, in struct {
				N int `json:"n"`
				X int `json:"x"`
			}) (int, error) {
				if in.N == 1 {
					err := errors.New(strings.Repeat("woot ", in.X*in.X))
					for i := range in.X {
						err = fmt.Errorf("%d: %w", i, err)
					}
					return 0, err
				}
				return in.N, nil
			}))
		}
		body := flow.Unordered("u", steps...).WithRetry(flow.Times("r", 2, flow.Provides("n")))
		plan, err := flow.CompileWithin(limitsOf(limits), flow.Each("e", "list", "x", body), "list")
		if err != nil {
			t.Fatal(err)
		}
		j := newJournal(newDetail())
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Workers: 2_000, Limits: limits, Token: logbook.Token{Index: 1},
			Owner: "conductor", Store: logbook.Values{"list": list}})
		if err != nil || end.State != logbook.FlowSuccess {
			t.Fatalf("%+v: %s, %v", limits, end.State, err)
		}
		for _, update := range j.trace() {
			if err := limitsOf(limits).CheckUpdate(&update); err != nil {
				t.Errorf("%+v: %v", limits, err)
			}
			size := proto.Size(command.UpdateToProto(&update))
			if estimate := engine.UpdateSize(&update); size > estimate || size > limitsOf(limits).Command {
				t.Errorf("%+v: update %d has %d bytes, of %d that are estimated and %d allowed", limits, update.Sequence, size, estimate, limitsOf(limits).Command)
			}
		}
	}
}

func limitsOf(l logbook.Limits) logbook.Limits {
	l.Name, l.Value = cmp.Or(l.Name, logbook.MaxLimits.Name), cmp.Or(l.Value, logbook.MaxLimits.Value)
	l.Command, l.Steps = cmp.Or(l.Command, logbook.MaxLimits.Command), cmp.Or(l.Steps, logbook.MaxLimits.Steps)
	return l
}
