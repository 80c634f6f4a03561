package flow_test

import (
	"context"
	"fmt"

	"github.com/conductord/conductord/flow"
)

// The machine is returned, whether the test succeeds, fails or is cancelled. The cause is empty after a success.
func ExampleFlow_Finally() {
	type machine struct {
		Machine string `json:"machine"`
	}
	type rented struct {
		Machine string `json:"machine,omitempty"` // empty if rent has no result
	}
	rent := flow.Func("rent", func(context.Context, struct{}) (machine, error) { return machine{Machine: "m-17"}, nil })
	test := flow.Func("test", func(context.Context, machine) (struct{}, error) { return struct{}{}, nil })
	giveBack := flow.Func("give-back", func(_ context.Context, in rented) (struct{}, error) {
		fmt.Println("returned:", in.Machine)
		return struct{}{}, nil
	})
	plan, err := flow.Compile(flow.Linear("load-test", rent, test).Finally(giveBack))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan.Outline())
	// Output:
	// load-test (linear)
	//   1. rent: provides machine
	//   2. test: machine ← rent.machine
	//   3. give-back: machine ← rent.machine; finally
}
