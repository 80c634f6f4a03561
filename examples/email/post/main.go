// Command post posts a job of kind "email" and waits for its end:
//
//	go run ./examples/email/post
//
// CONDUCTORD_SERVER has the nodes; default: 127.0.0.1:7070.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

type email struct{ To, Subject string }

func main() {
	ctx := context.Background()
	client, err := raftboard.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	job, err := jobs.PostOne(ctx, client, jobs.NewPlainPosting("email", email{To: "Ada", Subject: "Your booking"}))
	if err != nil {
		log.Fatal(err)
	}
	job, err = client.Wait(ctx, job.ID)
	fmt.Println(job.State, job.Outcome, err)
}
