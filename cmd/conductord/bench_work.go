package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// benchFlowKind is one that no other conductor knows.
	benchFlowKind = "bench-flow"
	// benchWait is how long a claim waits for a job, so that it notices the end.
	benchWait = 100 * time.Millisecond
	// benchKeepAlive keeps a session of operatorTTL.
	benchKeepAlive = operatorTTL / 4
)

// benchClaim claims jobs of the board and completes them, all in one session.
func (p *Program) benchClaim(ctx context.Context, cluster Cluster, f benchFlags) (*benchRun, error) {
	session := jobs.NewSessionID()
	if _, err := cluster.OpenSession(ctx, jobs.Opening{ID: session, Name: "bench", TTL: operatorTTL}); err != nil {
		return nil, err
	}
	living, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { keepAlive(living, cluster, session) }) // ends with stop
	return &benchRun{
		call: func(ctx context.Context) (int, error) {
			claimed, err := cluster.ClaimNext(ctx, jobs.ClaimRequest{
				Session: session, Nonce: jobs.NewNonce(), Boards: []string{f.board}, Kinds: []string{benchKind}, Wait: benchWait,
			})
			if err != nil || len(claimed) == 0 {
				return 0, err
			}
			job := claimed[0].Job
			return 1, cluster.Consume(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Outcome: jobs.OutcomeSuccess})
		},
		end: func(ctx context.Context) error {
			stop()
			keeping.Wait()
			return cluster.CloseSession(ctx, session)
		},
	}, nil
}

// keepAlive keeps a session until ctx ends. A call that fails is made again in
// time; the claims tell if the session was lost.
func keepAlive(ctx context.Context, board jobs.Attendant, session jobs.SessionID) {
	ticks := time.NewTicker(benchKeepAlive)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			_ = board.KeepAlive(ctx, session)
		}
	}
}

// benchFlow posts jobs and runs their flows by a conductor of its own, as a
// program that embeds one does.
func (p *Program) benchFlow(ctx context.Context, cluster Cluster, f benchFlags) (*benchRun, error) {
	registry := flow.NewRegistry()
	err := registry.Register(benchFlowKind, func(json.RawMessage) (*flow.Flow, error) {
		nothing := func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }
		return flow.Linear("bench", flow.Func("first", nothing), flow.Func("second", nothing), flow.Func("third", nothing)), nil
	})
	if err != nil {
		return nil, err
	}
	worker, err := conductor.New(conductor.Options{
		Board: cluster, Logbook: cluster, Registry: registry, Name: "bench", Boards: []string{f.board}, MaxJobs: min(f.clients, jobs.MaxClaims),
	})
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(working) }() // ends with stop
	return &benchRun{
		call: func(ctx context.Context) (int, error) { return 1, runBenchFlow(ctx, cluster, f.board) },
		end: func(context.Context) error {
			stop()
			return <-ended
		},
	}, nil
}

func runBenchFlow(ctx context.Context, cluster Cluster, board string) error {
	book := logbook.Book{ID: logbook.NewBookID(), Name: "bench"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "bench", Factory: logbook.Factory{Name: benchFlowKind}}}
	job, err := jobs.PostOne(ctx, cluster, jobs.Posting{Board: board, Name: "bench", Book: &book})
	if err != nil {
		return err
	}
	if job, err = cluster.Wait(ctx, job.ID); err != nil {
		return err
	}
	if job.Outcome != jobs.OutcomeSuccess {
		return fmt.Errorf("job %s ended %s %s: %s", job.ID, job.State, job.Outcome, job.Reason)
	}
	return nil
}

// benchRead reads a job that it has posted on hold, and cancels it at the end.
func (p *Program) benchRead(ctx context.Context, cluster Cluster, f benchFlags) (*benchRun, error) {
	job, err := jobs.PostOne(ctx, cluster, jobs.Posting{Board: f.board, Name: "bench", Kind: benchKind, Hold: true})
	if err != nil {
		return nil, err
	}
	return &benchRun{
		call: func(ctx context.Context) (int, error) {
			_, err := cluster.Job(ctx, job.ID)
			return 1, err
		},
		end: func(ctx context.Context) error {
			err := cluster.Cancel(ctx, jobs.Order{Job: job.ID, By: "bench", Reason: "the benchmark is over"})
			if errors.Is(err, jobs.ErrNotFound) {
				return nil // it was cancelled by somebody else, and forgotten
			}
			return err
		},
	}, nil
}
