package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresConnections allows more than one connection for each caller.
const postgresConnections = 2 * maxCallers

// startPostgres makes a database, and starts its server. Every commit waits for an fsync, as by
// default. The other settings give it more memory, and avoid a checkpoint within a window.
func startPostgres(ctx context.Context, s *servers) (*pgxpool.Pool, string, error) {
	data := filepath.Join(s.dir, "postgres")
	if err := s.do(ctx, nil, "initdb", "-D", data, "-U", "peers", "-A", "trust", "-E", "UTF8", "--locale=C"); err != nil {
		return nil, "", err
	}
	port, err := ports(1)
	if err != nil {
		return nil, "", err
	}
	err = s.serve(nil, "postgres", "-D", data, "-p", port[0], "-h", "127.0.0.1", "-k", s.dir, "-c", "fsync=on", "-c", "synchronous_commit=on",
		"-c", "full_page_writes=on", "-c", "shared_buffers=512MB", "-c", "max_wal_size=8GB", "-c", "max_connections=300")
	if err != nil {
		return nil, "", err
	}
	pool, err := pgxpool.New(ctx, fmt.Sprintf("postgres://peers@127.0.0.1:%s/postgres?pool_max_conns=%d", port[0], postgresConnections))
	if err != nil {
		return nil, "", err
	}
	var about string
	err = s.until(ctx, "postgres", func(ctx context.Context) error {
		return pool.QueryRow(ctx, `select 'PostgreSQL ' || current_setting('server_version') || ', ' || string_agg(name || '=' || setting, ', ' order by name)
			from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method')`).Scan(&about)
	})
	if err != nil {
		pool.Close()
		return nil, "", err
	}
	return pool, about, nil
}
