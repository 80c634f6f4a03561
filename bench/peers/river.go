package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Kind is River's name for a chain's jobs.
func (chain) Kind() string { return "chain" }

// riverPeer is River on PostgreSQL. A flow is a chain of jobs; each posts the next one. The caller
// hears of the end from River's events, which follow the commit.
type riverPeer struct {
	river.WorkerDefaults[chain]
	pool    *pgxpool.Pool
	client  *river.Client[pgx.Tx]
	waiters waiters
}

func (p *riverPeer) open(ctx context.Context, s *servers) (about string, err error) {
	if p.pool, about, err = startPostgres(ctx, s); err != nil {
		return "", err
	}
	driver := riverpgxv5.New(p.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return "", err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return "", err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, p)
	const cooldown = 5 * time.Millisecond // between fetches; the default of 100 ms is the time of a lone job
	p.client, err = river.NewClient(driver, &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxCallers}},
		FetchCooldown: cooldown, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return "", err
	}
	const many = 10_000 // events of jobs that end at once; more would be dropped
	events, _ := p.client.SubscribeConfig(&river.SubscribeConfig{Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: many})
	go func() { // ends with the client
		for event := range events {
			var done chain
			if err := json.Unmarshal(event.Job.EncodedArgs, &done); err == nil && done.Left == 1 {
				p.waiters.end(done.Flow)
			}
		}
	}()
	if err := p.client.Start(context.Background()); err != nil {
		return "", err
	}
	return moduleVersion("github.com/riverqueue/river") + ", FetchCooldown " + cooldown.String() + "; " + about, nil
}

// Work posts the next job of a chain.
func (p *riverPeer) Work(ctx context.Context, job *river.Job[chain]) error {
	if job.Args.Left == 1 {
		return nil
	}
	_, err := p.client.Insert(ctx, chain{Flow: job.Args.Flow, Left: job.Args.Left - 1}, nil)
	return err
}

func (p *riverPeer) post(ctx context.Context) error {
	_, err := p.client.Insert(ctx, chain{Data: strings.Repeat("d", payloadBytes)}, &river.InsertOpts{Queue: "nobody"})
	return err
}

func (p *riverPeer) flow(ctx context.Context, steps int) error {
	return p.waiters.run(ctx, steps, func(first chain) error {
		_, err := p.client.Insert(ctx, first, nil)
		return err
	})
}

func (p *riverPeer) close() {
	if p.client != nil {
		const patience = 5 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = p.client.StopAndCancel(ctx)
	}
	if p.pool != nil {
		p.pool.Close()
	}
}
