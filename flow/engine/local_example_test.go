package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

type guest struct {
	Name string `json:"name"`
}

type welcome struct {
	Words string `json:"words"`
}

func greet(_ context.Context, in guest) (welcome, error) {
	return welcome{Words: "Hello, " + in.Name + "!"}, nil
}

func ExampleRunLocal() {
	store := logbook.Values{"name": json.RawMessage(`"Ada"`)}
	result, err := engine.RunLocal(context.Background(), flow.Linear("welcome", flow.Func("greet", greet)), store)
	var words string
	err = errors.Join(err, result.Decode("words", &words))
	fmt.Println(words, err)
	// Output: Hello, Ada! <nil>
}

// An unfinished flow continues as long as its logbook exists.
func ExampleLocal() {
	ctx, stop := context.WithCancel(context.Background())
	first := flow.Func("first", func(context.Context, none) (none, error) {
		fmt.Println("first")
		return none{}, nil
	})
	second := flow.Func("second", func(ctx context.Context, _ none) (none, error) {
		stop() // the program is interrupted here
		fmt.Println("second")
		return none{}, ctx.Err()
	})
	local := engine.Local{Logbook: memory.New(logbook.MaxLimits), Flow: logbook.NewFlowID()}
	result, err := local.Run(ctx, flow.Linear("two", first, second), nil)
	fmt.Println(result.State, errors.Is(err, context.Canceled))

	result, err = local.Run(context.Background(), flow.Linear("two", first, second), nil)
	fmt.Println(result.State, err)
	// Output:
	// first
	// second
	// running true
	// second
	// success <nil>
}
