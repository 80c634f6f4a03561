package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dbosPeer is DBOS Transact on PostgreSQL. A flow runs in the caller's own program, without a
// queue. This is DBOS's usual way, and the faster one.
type dbosPeer struct {
	pool *pgxpool.Pool
	dbos dbos.Context
}

func (p *dbosPeer) open(ctx context.Context, s *servers) (about string, err error) {
	if p.pool, about, err = startPostgres(ctx, s); err != nil {
		return "", err
	}
	p.dbos, err = dbos.NewContext(context.Background(), dbos.Config{AppName: "peers", SystemDBPool: p.pool, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", err
	}
	dbos.RegisterWorkflow(p.dbos, dbosFlow)
	dbos.RegisterWorkflow(p.dbos, dbosWait)
	if err := dbos.Launch(p.dbos); err != nil {
		return "", err
	}
	return moduleVersion("github.com/dbos-inc/dbos-transact-golang") + "; " + about, nil
}

func dbosFlow(ctx dbos.Context, steps int) (int, error) {
	for range steps {
		if _, err := dbos.RunAsStep(ctx, func(context.Context) (int, error) { return 0, nil }); err != nil {
			return 0, err
		}
	}
	return steps, nil
}

func (p *dbosPeer) post(context.Context) error {
	_, err := dbos.Enqueue[int](p.dbos, "nobody", "peers-post", strings.Repeat("d", payloadBytes))
	return err
}

func (p *dbosPeer) flow(_ context.Context, steps int) error {
	handle, err := dbos.RunWorkflow(p.dbos, dbosFlow, steps)
	if err != nil {
		return err
	}
	_, err = handle.GetResult()
	return err
}

func dbosWait(ctx dbos.Context, _ int) (int, error) {
	return dbos.Recv[int](ctx, "go", time.Minute)
}

func (p *dbosPeer) signal(context.Context) error {
	handle, err := dbos.RunWorkflow(p.dbos, dbosWait, 0)
	if err != nil {
		return err
	}
	if err := dbos.Send(p.dbos, handle.GetWorkflowID(), 1, "go"); err != nil {
		return err
	}
	_, err = handle.GetResult()
	return err
}

func (p *dbosPeer) close() {
	if p.dbos != nil {
		const patience = 5 * time.Second
		_ = dbos.Shutdown(p.dbos, patience)
	}
	if p.pool != nil {
		p.pool.Close()
	}
}
