// Command worker is a conductor with its own flow, written in Go. It claims the jobs of kind
// "greet" from a cluster and runs them until it is interrupted:
//
//	go run ./examples/worker
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
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/raftboard"
)

type request struct {
	Name string `json:"name"` // from the job's store
}

type greeting struct {
	Text string `json:"text"` // provided by compose, required by deliver
}

func compose(_ context.Context, in request) (greeting, error) {
	return greeting{Text: "Hello, " + in.Name + "!"}, nil
}

func deliver(_ context.Context, in greeting) (struct{}, error) {
	_, err := fmt.Println(in.Text)
	return struct{}{}, err
}

// greet builds the flow. It has no arguments. Each conductor that runs the flow calls greet.
func greet(struct{}) (*flow.Flow, error) {
	return flow.Linear("greet", flow.Func("compose", compose), flow.Func("deliver", deliver)), nil
}

func main() {
	if err := work(); err != nil {
		log.Fatal(err)
	}
}

func work() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	client, err := raftboard.Dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()

	registry := flow.NewRegistry()
	if err := flow.Register(registry, "greet", greet); err != nil {
		return err
	}
	return conductor.Run(ctx, conductor.Options{Client: client, Registry: registry})
}
