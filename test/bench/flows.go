package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/raftboard"
)

const flowKind = "bench-flow"

// threeSteps builds the flow that is measured: steps that do nothing, one
// after the other, so that what remains is the cost of running them durably.
func threeSteps(json.RawMessage) (*flow.Flow, error) {
	nothing := func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }
	return flow.Linear("bench",
		flow.Func("first", nothing), flow.Func("second", nothing), flow.Func("third", nothing)), nil
}

// startConductor runs a conductor in this process, with a client of its own,
// as a program that embeds one would. The function that it gives stops it and
// waits for that.
func startConductor(ctx context.Context, endpoints []string, maxJobs int) (stop func(), err error) {
	client, err := raftboard.Dial(ctx, endpoints...)
	if err != nil {
		return nil, err
	}
	registry := flow.NewRegistry()
	if err := registry.Register(flowKind, threeSteps); err != nil {
		client.Close()
		return nil, err
	}
	worker, err := conductor.New(conductor.Options{
		Board: client, Logbook: client, Registry: registry, Name: "bench", MaxJobs: maxJobs,
		Logger: hclog.New(&hclog.LoggerOptions{Name: "conductor", Level: hclog.Warn, Output: os.Stderr}),
	})
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("cannot run flows: %w", err)
	}
	working, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		if err := worker.Run(working); err != nil {
			progress("the conductor has ended: %v", err)
		}
	}()
	return func() {
		cancel()
		<-done
		client.Close()
	}, nil
}
