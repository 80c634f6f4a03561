// Package workload contains the workloads of `conductord bench`: each workload prepares its
// objects, makes calls, and removes its objects.
package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/load"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Cluster has the calls that workloads need.
type Cluster interface {
	jobs.Board
	logbook.Connection
}

const (
	kind = "bench" // kind of the jobs of Post and Claim
	// sessionTTL is the TTL of the sessions that claim.
	sessionTTL = 45 * time.Second
	// clearTime bounds the clean-up after a failed takeover.
	clearTime = 5 * time.Second
	// flowKind is a kind that no other conductor runs.
	flowKind = "bench-flow"
	// claimWait is the maximum time that a claim waits for a job. It is short, so that the workload
	// notices its end.
	claimWait = 100 * time.Millisecond
	// keepAliveEvery keeps a session of sessionTTL.
	keepAliveEvery = sessionTTL / 4
)

// Options are the options of all workloads; each workload documents its own.
type Options struct {
	Clients  int
	Duration time.Duration
	Board    string
	Batch    int
	Size     int           // bytes of a job's details, at least 2; 0: no details
	Calls    int           // of all clients together; 0: limited by the duration only
	TTL      time.Duration // TTL of the session that becomes silent
}

// Workload is ready to run.
type Workload struct {
	call  load.Call
	timed load.TimedCall // replaces call in workloads whose calls measure their own time
	// End cleans up, even after an interruption.
	End func(context.Context) error
	// Idle is the message for a run without operations; empty: every run has operations.
	Idle string
}

// Drive runs the calls.
func (r *Workload) Drive(ctx context.Context, f Options, progress func(load.Progress)) *load.Result {
	wanted := load.Load{Callers: f.Clients, Duration: f.Duration, Calls: f.Calls}
	if r.timed != nil {
		return load.DriveTimed(ctx, wanted, r.timed, progress)
	}
	return load.Drive(ctx, wanted, r.call, progress)
}

// details are the details of each job.
func (f Options) details() json.RawMessage {
	if f.Size == 0 {
		return nil
	}
	text := bytes.Repeat([]byte{'d'}, f.Size)
	text[0], text[f.Size-1] = '"', '"'
	return text
}

// Post posts jobs that no conductor takes.
func Post(_ context.Context, cluster Cluster, f Options) (*Workload, error) {
	details := f.details()
	return &Workload{
		call: func(ctx context.Context) (int, error) {
			postings := make([]jobs.Posting, f.Batch)
			for i := range postings {
				postings[i] = jobs.Posting{Board: f.Board, Name: "bench", Kind: kind, Details: details}
			}
			posted, err := cluster.Post(ctx, postings...)
			for i := 0; i < len(posted) && err == nil; i++ {
				err = posted[i].Err
			}
			return len(posted), err
		},
		End: func(context.Context) error { return nil },
	}, nil
}

// Claim claims jobs of the board and completes them, all in one session.
func Claim(ctx context.Context, cluster Cluster, f Options) (*Workload, error) {
	session := jobs.NewSessionID()
	if _, err := cluster.OpenSession(ctx, jobs.Opening{ID: session, Name: "bench", TTL: sessionTTL}); err != nil {
		return nil, err
	}
	living, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { keepAlive(living, cluster, session) }) // ends with stop
	return &Workload{
		call: func(ctx context.Context) (int, error) {
			claimed, err := cluster.ClaimNext(ctx, jobs.ClaimRequest{
				Session: session, Nonce: jobs.NewNonce(), Boards: []string{f.Board}, Kinds: []string{kind}, Max: f.Batch, Wait: claimWait,
			})
			if err != nil {
				return 0, err
			}
			return len(claimed), eachOf(len(claimed), func(i int) error {
				job := claimed[i].Job
				return cluster.Consume(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Outcome: jobs.OutcomeSuccess})
			})
		},
		End: func(ctx context.Context) error {
			stop()
			keeping.Wait()
			return cluster.CloseSession(ctx, session)
		},
		Idle: fmt.Sprintf("no job of `conductord bench post` waits on board %s: post some first", f.Board),
	}, nil
}

// eachOf calls a function n times in parallel, and returns the error with the lowest number.
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

// keepAlive keeps a session until ctx ends. A failed call is repeated in time. If the session
// is lost, the claims fail.
func keepAlive(ctx context.Context, board jobs.Attendant, session jobs.SessionID) {
	ticks := time.NewTicker(keepAliveEvery)
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

// Flow posts jobs, and runs their flows with its own conductor, like a program that embeds one.
func Flow(ctx context.Context, cluster Cluster, f Options) (*Workload, error) {
	registry := flow.NewRegistry()
	err := registry.Register(flowKind, func(json.RawMessage) (*flow.Flow, error) {
		nothing := func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }
		return flow.Linear("bench", flow.Func("first", nothing), flow.Func("second", nothing), flow.Func("third", nothing)), nil
	})
	if err != nil {
		return nil, err
	}
	worker, err := conductor.New(conductor.Options{
		Client: cluster, Registry: registry, Name: "bench", Boards: []string{f.Board}, MaxJobs: min(f.Clients, jobs.MaxClaims),
	})
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(working) }() // ends with stop
	return &Workload{
		call: func(ctx context.Context) (int, error) { return f.Batch, runFlows(ctx, cluster, f) },
		End: func(context.Context) error {
			stop()
			return <-ended
		},
	}, nil
}

// runFlows posts jobs in one call, and waits for each.
func runFlows(ctx context.Context, cluster Cluster, f Options) error {
	postings := make([]jobs.Posting, f.Batch)
	for i := range postings {
		book := logbook.Book{ID: logbook.NewBookID(), Name: "bench"}
		book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "bench", Factory: logbook.Factory{Name: flowKind}}}
		postings[i] = jobs.Posting{Board: f.Board, Name: "bench", Book: &book, Details: f.details()}
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

// Read posts a job on hold and reads it. It cancels the job at the end.
func Read(ctx context.Context, cluster Cluster, f Options) (*Workload, error) {
	job, err := jobs.PostOne(ctx, cluster, jobs.Posting{Board: f.Board, Name: "bench", Kind: kind, Hold: true, Details: f.details()})
	if err != nil {
		return nil, err
	}
	return &Workload{
		call: func(ctx context.Context) (int, error) {
			_, err := cluster.Job(ctx, job.ID)
			return 1, err
		},
		End: func(ctx context.Context) error {
			err := cluster.Cancel(ctx, jobs.JobCommand{Job: job.ID, By: "bench", Reason: "the benchmark is over"})
			if errors.Is(err, jobs.ErrNotFound) {
				return nil // another caller cancelled it, and it was removed
			}
			return err
		},
	}, nil
}
