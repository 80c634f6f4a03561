package conductor_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
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
	go func() { _ = worker.Run(ctx) }() // ends with Drain
	<-worker.Ready()
	entities, err := client.Entities(ctx, jobs.EntityConductor)
	fmt.Println(entities[0].JobKinds, err)
	fmt.Println(worker.Drain(ctx), worker.Run(ctx))
	// Output:
	// [print] <nil>
	// <nil> <nil>
}
