package engine_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
)

type page struct {
	Page string `json:"page"`
}

// The slow mirror is interrupted when the quick one has answered.
func Example_enough() {
	quick := flow.Func("quick", func(context.Context, none) (page, error) { return page{"from the quick mirror"}, nil })
	slow := flow.Func("slow", func(ctx context.Context, _ none) (page, error) {
		<-ctx.Done() // ends when enough mirrors have answered
		return page{}, context.Cause(ctx)
	})
	show := flow.Func("show", func(_ context.Context, in page) (none, error) {
		fmt.Println(in.Page)
		return none{}, nil
	})
	root := flow.Linear("fastest", flow.Unordered("mirrors", quick, slow).Enough(1), show)
	result, err := engine.RunLocal(context.Background(), root, nil)
	atom, _ := result.Detail.Atom("slow")
	fmt.Println(atom.State, atom.IsDropped(), errors.Join(err))
	// Output:
	// from the quick mirror
	// reverted true <nil>
}
