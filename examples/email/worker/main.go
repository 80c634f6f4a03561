// Command worker does the jobs of kind "email", which have no flow, until it is
// interrupted:
//
//	go run ./examples/email/worker
//
// CONDUCTORD_SERVER has the nodes; default: 127.0.0.1:7070.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

type email struct{ To, Subject string }

func send(_ context.Context, job jobs.Job, mail email) error {
	_, err := fmt.Printf("to %s: %s (token %s)\n", mail.To, mail.Subject, job.Token)
	return err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := raftboard.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	err = conductor.Run(ctx, conductor.Options{
		Client: client, Funcs: map[string]conductor.Func{"email": conductor.WithDetails(send)},
	})
	if err != nil {
		log.Fatal(err)
	}
}
