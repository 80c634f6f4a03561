package cli

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
				Session: session, Nonce: jobs.NewNonce(), Boards: []string{f.board}, Kinds: []string{benchKind}, Max: f.batch, Wait: benchWait,
			})
			if err != nil {
				return 0, err
			}
			return len(claimed), eachOf(len(claimed), func(i int) error {
				job := claimed[i].Job
				return cluster.Consume(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Outcome: jobs.OutcomeSuccess})
			})
		},
		end: func(ctx context.Context) error {
			stop()
			keeping.Wait()
			return cluster.CloseSession(ctx, session)
		},
		idle: fmt.Sprintf("no job of `conductord bench post` waits on board %s: post some first", f.board),
	}, nil
}

// eachOf does something n times at once, and gives the first error by number.
func eachOf(n int, do func(i int) error) error {
	if n == 1 {
		return do(0)
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) }) // ends with its call
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
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
		call: func(ctx context.Context) (int, error) { return f.batch, runBenchFlows(ctx, cluster, f) },
		end: func(context.Context) error {
			stop()
			return <-ended
		},
	}, nil
}

// runBenchFlows posts jobs in one call, and waits for each.
func runBenchFlows(ctx context.Context, cluster Cluster, f benchFlags) error {
	postings := make([]jobs.Posting, f.batch)
	for i := range postings {
		book := logbook.Book{ID: logbook.NewBookID(), Name: "bench"}
		book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "bench", Factory: logbook.Factory{Name: benchFlowKind}}}
		postings[i] = jobs.Posting{Board: f.board, Name: "bench", Book: &book, Details: f.details()}
	}
	posted, err := cluster.Post(ctx, postings...)
	if err != nil {
		return err
	}
	return eachOf(len(posted), func(i int) error {
		if posted[i].Err != nil {
			return posted[i].Err
		}
		job, err := cluster.Wait(ctx, posted[i].Job.ID)
		if err == nil && job.Outcome != jobs.OutcomeSuccess {
			err = fmt.Errorf("job %s ended %s %s: %s", job.ID, job.State, job.Outcome, job.Reason)
		}
		return err
	})
}

// benchRead reads a job that it has posted on hold, and cancels it at the end.
func (p *Program) benchRead(ctx context.Context, cluster Cluster, f benchFlags) (*benchRun, error) {
	job, err := jobs.PostOne(ctx, cluster, jobs.Posting{Board: f.board, Name: "bench", Kind: benchKind, Hold: true, Details: f.details()})
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
