package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// A flow under a retry is tried in one region after the other; the steps before it are not
// repeated.
func ExampleForEach() {
	type request struct {
		Region string `json:"region"`
	}
	type server struct {
		Server string `json:"server"`
	}
	create := flow.Func("create", func(_ context.Context, in request) (server, error) {
		return server{Server: in.Region + "-1"}, nil
	})
	order := flow.Linear("order",
		flow.Func("reserve", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }),
		flow.Linear("build", create).WithRetry(flow.ForEach("regions", []string{"north", "south"}, flow.Provides("region"))),
	)
	plan, err := flow.Compile(order)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan.Outline())
	// Output:
	// order (linear)
	//   1. reserve
	//   build (linear)
	//     2. regions: decides about failures here; provides region
	//     3. create: region ← regions; provides server
}

// patient waits until a region has room, for at most five rounds.
type patient struct{}

func (patient) Next(h *flow.History) (any, error) { return len(h.Rounds) + 1, nil }

func (patient) OnFailure(h *flow.History) flow.Decision {
	if h.Failure.Matches("region.full") && len(h.Rounds) < 5 {
		return flow.Decision{Verdict: flow.VerdictRetry, Delay: time.Duration(len(h.Rounds)) * time.Minute}
	}
	return flow.Decision{Verdict: flow.VerdictRevert}
}

// A controller decides by the failure, and sets the delay before the next round.
func ExampleNewRetrier() {
	create := flow.Func("create", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	plan, err := flow.Compile(flow.Linear("build", create).WithRetry(flow.NewRetrier("patient", patient{}, flow.Provides("round"))))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan.Outline())
	// Output:
	// build (linear)
	//   1. patient: decides about failures here; provides round
	//   2. create
}

// A decider ignores a step, by what another has found.
func ExampleDecide() {
	type order struct {
		Total int `json:"total"`
	}
	total := flow.Func("sum", func(context.Context, struct{}) (order, error) { return order{Total: 10}, nil })
	discount := flow.Func("discount", func(context.Context, order) (struct{}, error) { return struct{}{}, nil })
	large := func(results logbook.Values) (bool, error) {
		var sum order
		err := json.Unmarshal(results["sum"], &sum)
		return sum.Total >= 100, err
	}
	plan, err := flow.Compile(flow.Graph("checkout", total, discount).
		Link("sum", "discount", flow.Decide("large order", large), flow.Reaching(flow.DepthAtom)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan.Outline())
	// Output:
	// checkout (graph)
	//   1. sum: provides total
	//   2. discount: only if large order; total ← sum.total
}
