package raftboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// The endpoints are some nodes of one cluster; more are learned from them.
func ExampleDial() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := raftboard.Dial(ctx, "10.0.0.1:7070", "10.0.0.2:7070", "10.0.0.3:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, node := range client.Cluster(ctx) {
		fmt.Println(node.Endpoint, node.Status.State, node.Err)
	}
}

// A job is posted together with the book that says what is to be done. The id
// is made first: whoever posts again after an error posts the same job.
func ExampleClient_Post() {
	ctx := context.Background()
	client, err := raftboard.Dial(ctx, "127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	posted, err := client.Post(ctx, jobs.Posting{
		ID:   jobs.NewJobID(),
		Name: "trip of Ann",
		Book: &logbook.Book{ID: logbook.NewBookID(), Name: "trip of Ann", Flows: []logbook.FlowDetail{{
			ID:      logbook.NewFlowID(),
			Name:    "travel",
			Factory: logbook.Factory{Name: "travel"},
			Store:   logbook.Values{"customer": json.RawMessage(`"Ann"`)},
		}}},
	})
	if err != nil {
		log.Fatal(err) // errors.Is(err, jobs.ErrUncertain): post it again
	}
	if posted[0].Err != nil {
		log.Fatal(posted[0].Err) // this posting was refused, and why
	}
	fmt.Println(posted[0].Job.ID, posted[0].Job.State)
}

// Wait returns when the job is finished.
func ExampleClient_Wait() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	client, err := raftboard.Dial(ctx, "127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	id, err := jobs.ParseJobID("01a1fe8c-f068-7924-b66d-3d32adfcc83b")
	if err != nil {
		log.Fatal(err)
	}
	job, err := client.Wait(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Outcome, job.Failure)
}

// Watch yields what happens on the boards, also over the fall of a node.
func ExampleClient_Watch() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := raftboard.Dial(ctx, "127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for event, err := range client.Watch(ctx, jobs.Watch{Board: jobs.DefaultBoard, Flows: true}) {
		if err != nil {
			log.Fatal(err) // jobs.ErrCompacted: list the jobs, and watch from now on
		}
		fmt.Println(event.Time, event.Job, event.Kind, event.State)
	}
}
