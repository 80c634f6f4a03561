package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/measure"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

const (
	flowKind  = "bench-flow"
	startKind = "bench-start"
	// spareSlot is the number of jobs that a conductor takes from a single caller: one slot is free
	// for the next job while the conductor ends the earlier job, as in an idle cluster.
	spareSlot = 2
)

func nothing(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }

// openFlow posts jobs, one after the other, with a flow of three steps that do nothing. The
// measured cost is therefore the cost of durable execution.
func openFlow(ctx context.Context, at *place, load measure.Load) (*doing, error) {
	return openFlows(ctx, at, load, flowKind, flow.Func("first", nothing), flow.Func("second", nothing), flow.Func("third", nothing))
}

// openLine is openFlow with the given number of steps and step options.
func openLine(length int, options ...flow.StepOption) func(context.Context, *place, measure.Load) (*doing, error) {
	return func(ctx context.Context, at *place, load measure.Load) (*doing, error) {
		steps := make([]flow.Node, length)
		for i := range steps {
			steps[i] = flow.Func(fmt.Sprintf("step-%d", i), nothing, options...)
		}
		return openFlows(ctx, at, load, flowKind, steps...)
	}
}

// openFlows posts jobs with a flow of steps, one after the other, and waits for each.
func openFlows(ctx context.Context, at *place, load measure.Load, kind string, steps ...flow.Node) (*doing, error) {
	stop, err := startConductor(ctx, at.dial, kind, max(load.Callers, spareSlot), func(json.RawMessage) (*flow.Flow, error) {
		return flow.Linear("bench", steps...), nil
	})
	if err != nil {
		return nil, err
	}
	return &doing{
		call: timed(func(ctx context.Context) error {
			job, err := postFlow(ctx, at.client, kind)
			if err != nil {
				return err
			}
			return awaitSuccess(ctx, at.client, job)
		}),
		close: stop,
	}, nil
}

// openStart posts a job and measures the time until its first step has begun. It then waits
// for the job's end, so that nothing else runs when it posts the next job. The conductor's
// client knows only a follower, like the conductor in a follower's daemon.
func openStart(ctx context.Context, at *place, _ measure.Load) (*doing, error) {
	begun := make(chan time.Time, 1)
	step := func(context.Context, struct{}) (struct{}, error) {
		select {
		case begun <- time.Now():
		default:
		}
		return struct{}{}, nil
	}
	stop, err := startConductor(ctx, dialer(at.follower), startKind, spareSlot, func(json.RawMessage) (*flow.Flow, error) {
		return flow.Linear("bench", flow.Func("only", step)), nil
	})
	if err != nil {
		return nil, err
	}
	return &doing{
		call: func(ctx context.Context) (time.Duration, error) {
			posted := time.Now()
			job, err := postFlow(ctx, at.client, startKind)
			if err != nil {
				return 0, err
			}
			select {
			case moment := <-begun:
				return moment.Sub(posted), awaitSuccess(ctx, at.client, job)
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		},
		close: stop,
	}, nil
}

// flowPosting is a job with a new flow of a kind.
func flowPosting(kind string) jobs.Posting {
	book := logbook.Book{ID: logbook.NewBookID(), Name: "bench"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "bench", Factory: logbook.Factory{Name: kind}}}
	return jobs.Posting{Board: benchBoard, Name: "bench", Book: &book}
}

func postFlow(ctx context.Context, client *raftboard.Client, kind string) (jobs.JobID, error) {
	job, err := jobs.PostOne(ctx, client, flowPosting(kind))
	return job.ID, err
}

func awaitSuccess(ctx context.Context, client *raftboard.Client, id jobs.JobID) error {
	job, err := client.Wait(ctx, id)
	if err == nil && job.Outcome != jobs.OutcomeSuccess {
		err = fmt.Errorf("job %s ended %s %s: %s", job.ID, job.State, job.Outcome, job.Reason)
	}
	return err
}

// startConductor runs a conductor in this process with its own client, like a program that
// embeds one. The returned function stops the conductor and waits for its end.
func startConductor(ctx context.Context, dial func(context.Context) (*raftboard.Client, error), kind string, maxJobs int, build func(json.RawMessage) (*flow.Flow, error)) (stop func(), err error) {
	client, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	registry := flow.NewRegistry()
	if err := registry.Register(kind, build); err != nil {
		client.Close()
		return nil, err
	}
	worker, err := conductor.New(conductor.Options{
		Client: client, Registry: registry, Name: "bench", Boards: []string{benchBoard}, MaxJobs: maxJobs,
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
