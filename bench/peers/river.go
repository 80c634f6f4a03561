package main

import (
	"context"
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

// riverPeer is River on PostgreSQL. A flow is a chain of jobs; each posts the next one.
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
	// The defaults, 100 ms and 1 s, would dominate the time of a lone job: a job posted within
	// the cooldown of another job's notification sends none, and waits for the poll.
	const cooldown, poll = 5 * time.Millisecond, 20 * time.Millisecond
	p.client, err = river.NewClient(driver, &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2 * maxCallers}},
		FetchCooldown: cooldown, FetchPollInterval: poll, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return "", err
	}
	if err := p.client.Start(context.Background()); err != nil {
		return "", err
	}
	return moduleVersion("github.com/riverqueue/river") + ", FetchCooldown " + cooldown.String() + ", FetchPollInterval " + poll.String() + "; " + about, nil
}

// Work completes a job and posts the next one of its chain, in one transaction. By default, River
// writes completions in batches up to 250 ms apart, which would dominate the time of every job.
func (p *riverPeer) Work(ctx context.Context, job *river.Job[chain]) error {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // after a commit it does nothing
	if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
		return err
	}
	if job.Args.Left > 1 {
		if _, err := p.client.InsertTx(ctx, tx, chain{Flow: job.Args.Flow, Left: job.Args.Left - 1}, nil); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if job.Args.Left == 1 {
		p.waiters.end(job.Args.Flow)
	}
	return nil
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

func (p *riverPeer) signal(context.Context) error { return errNoSignals }

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
