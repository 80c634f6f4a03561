package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	temporalNamespace = "peers"
	temporalQueue     = "peers"
	temporalShards    = "32"
)

// temporalPeer is a Temporal server, all its services in one process, on PostgreSQL. A step is an
// activity; a local activity would not be durable on its own.
type temporalPeer struct {
	pool   *pgxpool.Pool
	client client.Client
	worker worker.Worker
}

func (p *temporalPeer) open(ctx context.Context, s *servers) (about string, err error) {
	if p.pool, about, err = startPostgres(ctx, s); err != nil {
		return "", err
	}
	database := p.pool.Config().ConnConfig.Port
	for name, schema := range map[string]string{"temporal": "temporal", "temporal_visibility": "visibility"} {
		tool := []string{"--plugin", "postgres12", "--ep", "127.0.0.1", "-p", fmt.Sprint(database), "-u", "peers", "--pw", "none", "--db", name}
		for _, action := range [][]string{{"create-database"}, {"setup-schema", "-v", "0.0"}, {"update-schema", "--schema-name", "postgresql/v12/" + schema}} {
			if err := s.do(ctx, nil, "temporal-sql-tool", append(tool, action...)...); err != nil {
				return "", err
			}
		}
	}
	address, err := p.serve(s, fmt.Sprint(database))
	if err != nil {
		return "", err
	}
	quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	if err := s.until(ctx, "temporal-server", func(ctx context.Context) error { return registerNamespace(ctx, address, quiet) }); err != nil {
		return "", err
	}
	if p.client, err = client.Dial(client.Options{HostPort: address, Namespace: temporalNamespace, Logger: quiet}); err != nil {
		return "", err
	}
	const pollers = 16
	options := worker.Options{
		MaxConcurrentWorkflowTaskPollers: pollers, MaxConcurrentActivityTaskPollers: pollers,
		MaxConcurrentActivityExecutionSize: 2 * maxCallers, MaxConcurrentWorkflowTaskExecutionSize: 2 * maxCallers,
	}
	p.worker = worker.New(p.client, temporalQueue, options)
	p.worker.RegisterWorkflow(temporalFlow)
	p.worker.RegisterWorkflow(temporalWait)
	p.worker.RegisterActivity(temporalStep)
	if err := p.worker.Start(); err != nil {
		return "", err
	}
	if err := s.until(ctx, "temporal-server", p.post); err != nil { // the server sees a new namespace only after a delay
		return "", err
	}
	version, err := command(ctx, find("temporal-server"), "--version").Output()
	return fmt.Sprintf("%s, %s history shards, %d pollers of each kind; SDK %s; %s", strings.TrimSpace(string(version)), temporalShards, pollers, moduleVersion("go.temporal.io/sdk"), about), err
}

// serve starts the server with its embedded configuration, which the environment fills in.
func (p *temporalPeer) serve(s *servers, database string) (address string, err error) {
	free, err := ports(9)
	if err != nil {
		return "", err
	}
	dynamic := filepath.Join(s.dir, "dynamic.yaml") // the server needs this file, which can be empty
	if err := os.WriteFile(dynamic, []byte("{}\n"), 0o644); err != nil {
		return "", fmt.Errorf("cannot configure temporal-server: %w", err)
	}
	env := []string{
		"DYNAMIC_CONFIG_FILE_PATH=" + dynamic, "DB=postgres12", "POSTGRES_SEEDS=127.0.0.1", "DB_PORT=" + database, "POSTGRES_USER=peers", "POSTGRES_PWD=none", "SQL_MAX_CONNS=50", "SQL_MAX_IDLE_CONNS=50",
		"NUM_HISTORY_SHARDS=" + temporalShards, "BIND_ON_IP=127.0.0.1", "TEMPORAL_BROADCAST_ADDRESS=127.0.0.1", "LOG_LEVEL=error", "FRONTEND_HTTP_PORT=" + free[8],
	}
	for i, service := range []string{"FRONTEND", "MATCHING", "HISTORY", "WORKER"} {
		env = append(env, service+"_GRPC_PORT="+free[2*i], service+"_MEMBERSHIP_PORT="+free[2*i+1])
	}
	return net.JoinHostPort("127.0.0.1", free[0]), s.serve(env, "temporal-server", "--allow-no-auth", "start")
}

func registerNamespace(ctx context.Context, address string, quiet log.Logger) error {
	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: address, Logger: quiet})
	if err != nil {
		return err
	}
	defer namespaces.Close()
	err = namespaces.Register(ctx, &workflowservice.RegisterNamespaceRequest{Namespace: temporalNamespace, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour)})
	if err != nil && strings.Contains(err.Error(), "already") {
		return nil
	}
	return err
}

func temporalStep(context.Context) error { return nil }

func temporalFlow(ctx workflow.Context, steps int) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	for range steps {
		if err := workflow.ExecuteActivity(ctx, temporalStep).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func (p *temporalPeer) post(ctx context.Context) error {
	_, err := p.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: "nobody"}, "peers-post", strings.Repeat("d", payloadBytes))
	return err
}

func (p *temporalPeer) flow(ctx context.Context, steps int) error {
	run, err := p.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: temporalQueue}, temporalFlow, steps)
	if err != nil {
		return err
	}
	return run.Get(ctx, nil)
}

func temporalWait(ctx workflow.Context) error {
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
	return nil
}

func (p *temporalPeer) signal(ctx context.Context) error {
	run, err := p.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: temporalQueue}, temporalWait)
	if err != nil {
		return err
	}
	if err := p.client.SignalWorkflow(ctx, run.GetID(), run.GetRunID(), "go", nil); err != nil {
		return err
	}
	return run.Get(ctx, nil)
}

func (p *temporalPeer) close() {
	if p.worker != nil {
		p.worker.Stop()
	}
	if p.client != nil {
		p.client.Close()
	}
	if p.pool != nil {
		p.pool.Close()
	}
}
