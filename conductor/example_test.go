package conductor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// openBoard returns a board for examples. A real program dials a cluster with raftboard.Dial.
func openBoard() (board *boardtest.Board, done func()) {
	board, err := boardtest.Open("", boardtest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return board, func() { _ = board.Close() }
}

// A worker for jobs without flows. The result of its function decides the end of the job.
func ExampleRun() {
	client, done := openBoard()
	defer done()
	ctx, stop := context.WithCancel(context.Background()) // in a real program: signal.NotifyContext
	type page struct{ Text string }
	print := func(_ context.Context, job jobs.Job, page page) error {
		switch page.Text {
		case "later":
			return conductor.Abandon(time.Hour, errors.New("the paper is short"))
		case "nonsense":
			return conductor.Trash(errors.New("nobody can print that"))
		case "large":
			return flow.Permanent(errors.New("too large for this printer"))
		}
		// An external system stores the token, and refuses older tokens.
		fmt.Println(page.Text, !job.Token.IsZero())
		return nil
	}
	var posted []jobs.Job
	for _, text := range []string{"later", "nonsense", "large", "hello"} {
		job, err := jobs.PostOne(ctx, client, jobs.NewPlainPosting("print", page{text}))
		if err != nil {
			log.Fatal(err)
		}
		posted = append(posted, job)
	}
	go func() {
		_, _ = client.Wait(ctx, posted[3].ID) // the last job in claim order
		stop()
	}()
	err := conductor.Run(ctx, conductor.Options{
		Client: client, MaxJobs: 1,
		Funcs: map[string]conductor.Func{"print": conductor.WithDetails(print)},
	})
	fmt.Println("stopped:", err)
	for _, job := range posted {
		job, err = client.Job(context.Background(), job.ID)
		fmt.Println(job.State, job.Outcome, job.Reason, err)
	}
	// Output:
	// hello true
	// stopped: <nil>
	// cooling  the paper is short <nil>
	// trashed  nobody can print that <nil>
	// completed failed  <nil>
	// completed success  <nil>
}

// A program that runs a conductor in the background waits until it is ready, and drains it at any
// time.
func ExampleConductor_Drain() {
	client, done := openBoard()
	defer done()
	worker, err := conductor.New(conductor.Options{Client: client, Funcs: map[string]conductor.Func{
		"print": func(context.Context, jobs.Job) error { return nil },
	}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }() // ends with Drain
	select {
	case <-worker.Ready():
	case err := <-ended:
		log.Fatal(err)
	}
	entities, err := client.Entities(ctx, jobs.EntityConductor)
	fmt.Println(entities[0].JobKinds, err)
	fmt.Println(worker.Drain(ctx), worker.Run(ctx))
	// Output:
	// [print] <nil>
	// <nil> <nil>
}

// resize is a type of step for workers. The type that reverts it is the same Task.
type resize struct{}

func (resize) Execute(_ context.Context, call *flow.Call) (any, error) {
	var width int
	if err := call.Arguments.Decode("width", &width); err != nil {
		return nil, flow.Permanent(err)
	}
	return map[string]int{"width": width}, nil
}

func (resize) Revert(context.Context, *flow.Call) error { return nil }

// runWorker runs steps until ctx ends. Then it finishes its running steps.
func runWorker(ctx context.Context, client steps.Client) error {
	return conductor.RunWorker(ctx, conductor.WorkerOptions{
		Client: client, Labels: []string{"gpu"}, Slots: 2,
		Tasks: map[string]flow.Task{"resize": resize{}, "remove": resize{}},
	})
}

// A worker runs a step of a flow in Go.
func ExampleRunWorker() {
	client, done := openBoard()
	defer done()
	registry := flow.NewRegistry()
	err := registry.Register("pictures", func(json.RawMessage) (*flow.Flow, error) {
		return flow.Linear("pictures", flow.NewStep("resize",
			flow.OnWorker(flow.WorkerStep{Type: "resize", Revert: "remove", Labels: []string{"gpu"}}),
			flow.Requires("width"), flow.Provides("size"))), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- runWorker(ctx, client) }()
	go func() { ended <- conductor.Run(ctx, conductor.Options{Client: client, Registry: registry}) }()
	job, err := jobs.PostOne(ctx, client, jobs.NewPosting("pictures", nil, map[string]int{"width": 200}))
	if err != nil {
		log.Fatal(err)
	}
	result, err := await.Result(ctx, client, job.ID)
	if err != nil {
		log.Fatal(err)
	}
	var size map[string]int
	fmt.Println(result.Decode("size", &size), size)
	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// <nil> map[width:200]
	// <nil> <nil>
}
