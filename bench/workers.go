package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/measure"
)

const (
	workerKind = "bench-worker"
	workerStep = "bench.nothing"
	flowSteps  = 3
)

// workers measures the price of a step worker: flows of three steps that do nothing, done by a worker,
// against the same flows done by the conductor.
func (b *bench) workers(ctx context.Context) {
	b.inTurns(ctx, contest{name: "steps of workers", against: "steps in the conductor", steps: flowSteps,
		sides: [2]work{{name: "conductor", open: openFlow}, {name: "worker", open: openWorkerFlow}}})
}

// repeatable compares a sequence of steps that run ahead of their record with the same steps that
// wait for their record.
func (b *bench) repeatable(ctx context.Context) {
	for _, steps := range []int{flowSteps, 10} {
		b.inTurns(ctx, contest{name: fmt.Sprintf("%d repeatable steps", steps), against: "steps that wait", steps: steps,
			sides: [2]work{{name: "waits", open: openLine(steps)}, {name: "ahead", open: openLine(steps, flow.Repeatable())}}})
	}
}

// contest compares two ways to run a flow of the same number of steps.
type contest struct {
	name, against string
	steps         int
	sides         [2]work
}

// inTurns compares the second side of a contest with the first, on its own cluster.
func (b *bench) inTurns(ctx context.Context, o contest) {
	dir := b.place()
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := startCluster(ctx, b.o.binary, dir, b.o.LogStores[0])
	if err != nil {
		b.report.fail("the cluster for %s: %v", o.name, err)
		return
	}
	defer c.close()
	for _, callers := range []int{1, 16, 64} {
		if err := b.turnsOf(ctx, c, o, callers); err != nil {
			b.report.fail("%s, %d in flight: %v", o.name, callers, err)
			return
		}
	}
}

func (b *bench) turnsOf(ctx context.Context, c *cluster, o contest, callers int) error {
	load := measure.Load{Callers: callers, PerCall: 1, Warm: b.o.Warm, Window: b.o.Window}
	var rates, ratios, entries, commands []float64
	for number := range b.o.Pairs {
		var pair [2]side
		for turn := range o.sides {
			i := (turn + number) % 2
			var err error
			if pair[i], err = c.measure(ctx, o.sides[i], load, false); err != nil {
				return err
			}
		}
		rates = append(rates, pair[1].PerSecond*float64(o.steps))
		ratios = append(ratios, measure.Share(pair[1].PerSecond, pair[0].PerSecond))
		entries = append(entries, pair[1].Cost.Entries-pair[0].Cost.Entries)
		commands = append(commands, pair[1].Cost.Commands-pair[0].Cost.Commands)
	}
	name := fmt.Sprintf("%s, %d flows in flight", o.name, callers)
	b.report.figure(name, "steps/s", nil, rates...)
	b.report.figure(name+", against "+o.against, "of the rate", nil, ratios...)
	b.report.figure(name+", beyond "+o.against, "commands a flow", nil, commands...)
	b.report.figure(name+", beyond "+o.against, "entries a flow", nil, entries...)
	return nil
}

// openWorkerFlow is openFlow with steps of a worker. The worker runs in this process with its own
// client.
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
