// Command post posts a job with a flow for the worker in examples/worker, and waits for its
// result.
//
//	go run ./examples/post
//
// CONDUCTORD_SERVER has the nodes; default: 127.0.0.1:7070.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
	"github.com/conductord/conductord/raftboard"
)

func main() {
	if err := post(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func post(ctx context.Context) error {
	client, err := raftboard.Dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()

	job, err := jobs.PostOne(ctx, client, jobs.NewPosting("greet", nil, map[string]any{"name": "world"}))
	if err != nil {
		return err
	}
	result, err := await.Result(ctx, client, job.ID)
	if err != nil {
		return err
	}
	var text string
	if err := result.Decode("text", &text); err != nil {
		return err
	}
	fmt.Println(text)
	return nil
}
