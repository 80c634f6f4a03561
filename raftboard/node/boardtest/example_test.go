package boardtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// A conductor runs a flow on a board in memory.
func Example() {
	board, err := boardtest.Open("", boardtest.Options{}) // in a test: boardtest.New(t, boardtest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = board.Close() }()

	type guest struct{ Name string }
	registry := flow.NewRegistry()
	err = registry.Register("greet", func(json.RawMessage) (*flow.Flow, error) {
		return flow.Linear("greet", flow.Func("greet", func(_ context.Context, in guest) (string, error) {
			return "Hello, " + in.Name + "!", nil
		})), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	worker, err := conductor.New(conductor.Options{Client: board, Registry: registry})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	go func() { _ = worker.Run(ctx) }() // ends with Drain

	job, err := jobs.PostOne(ctx, board, jobs.NewPosting("greet", nil, guest{"Ada"}))
	if err != nil {
		log.Fatal(err)
	}
	job, err = board.Wait(ctx, job.ID)
	fmt.Println(job.State, job.Outcome, err, worker.Drain(ctx))
	// Output: completed success <nil> <nil>
}
