package flow_test

import (
	"context"
	"fmt"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

type order struct {
	Customer string `json:"customer"`
	Day      int    `json:"day"`
}

type written struct {
	Following int  `json:"following"`
	Open      bool `json:"open"`
}

func write(_ context.Context, in order) (written, error) {
	return written{Following: in.Day + 1, Open: in.Day < 30}, nil
}

// report writes a report, and repeats on the next day while the account is open.
func report() *flow.Flow {
	return flow.Graph("report",
		flow.Func("write", write),
		flow.Again("next-day", flow.Requires("day"), flow.Rebind(map[string]string{"day": "following"}), flow.AgainAt("08:00 Europe/Berlin")),
	).Link("write", "next-day", flow.Decide("open", func(results logbook.Values) (bool, error) {
		var result written
		err := results.Decode("write", &result)
		return result.Open, err
	}))
}

// A flow repeats each day in one job, until its condition is false.
func ExampleAgain() {
	plan, err := flow.Compile(report(), "customer", "day")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan.Outline())
	// Output:
	// report (graph)
	//   1. write: customer ← store; day ← store; provides following, open
	//   2. next-day: only if open; day ← write.following; continues the job with the next iteration at 08:00 Europe/Berlin
	// inputs: customer, day
}
