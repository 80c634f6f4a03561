package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/bench/measure"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
)

const (
	workerKind = "bench-worker"
	workerStep = "bench.nothing"
	flowSteps  = 3
)

// workers measures the price of a step worker: flows of three steps that do nothing, done by a worker,
// against the same flows done by the conductor, in turns.
func (b *bench) workers(ctx context.Context) {
	dir := b.place()
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := startCluster(ctx, b.o.binary, dir, b.o.LogStores[0])
	if err != nil {
		b.report.fail("the cluster for workers: %v", err)
		return
	}
	defer c.close()
	for _, callers := range []int{1, 16, 64} {
		if err := b.workersOf(ctx, c, callers); err != nil {
			b.report.fail("workers, %d in flight: %v", callers, err)
			return
		}
	}
}

func (b *bench) workersOf(ctx context.Context, c *cluster, callers int) error {
	load := measure.Load{Callers: callers, PerCall: 1, Warm: b.o.Warm, Window: b.o.Window}
	sides := []work{{name: "conductor", open: openFlow}, {name: "worker", open: openWorkerFlow}}
	var rates, ratios, entries, commands []float64
	for number := range b.o.Pairs {
		var pair [2]side
		for turn := range sides {
			i := (turn + number) % 2
			var err error
			if pair[i], err = c.measure(ctx, sides[i], load, false); err != nil {
				return err
			}
		}
		rates = append(rates, pair[1].PerSecond*flowSteps)
		ratios = append(ratios, pair[1].PerSecond/pair[0].PerSecond)
		entries = append(entries, pair[1].Cost.Entries-pair[0].Cost.Entries)
		commands = append(commands, pair[1].Cost.Commands-pair[0].Cost.Commands)
	}
	name := fmt.Sprintf("steps of workers, %d flows in flight", callers)
	b.report.figure(name, "steps/s", nil, rates...)
	b.report.figure(name+", against steps in the conductor", "of the rate", nil, ratios...)
	b.report.figure(name+", beyond the conductor's", "commands a flow", nil, commands...)
	b.report.figure(name+", beyond the conductor's", "entries a flow", nil, entries...)
	return nil
}

// openWorkerFlow is openFlow with steps that a worker does, in this process with a client of its own.
func openWorkerFlow(ctx context.Context, at *place, load measure.Load) (*doing, error) {
	client, err := at.dial(ctx)
	if err != nil {
		return nil, err
	}
	working, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	options := conductor.WorkerOptions{
		Client: client, Name: "bench", Boards: []string{benchBoard}, Slots: load.Callers,
		Tasks:  map[string]flow.Task{workerStep: flow.Func("nothing", nothing).Task()},
		Logger: hclog.New(&hclog.LoggerOptions{Name: "worker", Level: hclog.Warn, Output: os.Stderr}),
	}
	go func() { // ends with stop
		defer close(done)
		if err := conductor.RunWorker(working, options); err != nil {
			progress("the worker has ended: %v", err)
		}
	}()
	stop := func() {
		cancel()
		<-done
		client.Close()
	}
	step := func(name string) *flow.Step {
		return flow.NewStep(name, flow.OnWorker(flow.WorkerStep{Type: workerStep}))
	}
	flows, err := openFlows(ctx, at, load, workerKind, step("first"), step("second"), step("third"))
	if err != nil {
		stop()
		return nil, err
	}
	return &doing{call: flows.call, close: func() {
		flows.close()
		stop()
	}}, nil
}
