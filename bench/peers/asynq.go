package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// asynqPeer is Asynq on Redis. A flow is a chain of jobs; each posts the next one. Asynq has no call
// that waits for a job, so the last job tells the caller itself, just before Asynq removes it.
type asynqPeer struct {
	client  *asynq.Client
	server  *asynq.Server
	waiters waiters
}

func (p *asynqPeer) open(ctx context.Context, s *servers) (string, error) {
	port, err := ports(1)
	if err != nil {
		return "", err
	}
	settings := []string{"--appendonly", "yes", "--appendfsync", "always"}
	if err := s.serve(nil, "redis-server", append([]string{"--port", port[0], "--bind", "127.0.0.1", "--dir", s.dir, "--save", ""}, settings...)...); err != nil {
		return "", err
	}
	redis := asynq.RedisClientOpt{Addr: "127.0.0.1:" + port[0], PoolSize: 2 * maxCallers}
	p.client = asynq.NewClient(redis)
	if err := s.until(ctx, "redis-server", func(context.Context) error { return p.client.Ping() }); err != nil {
		return "", err
	}
	const check = time.Millisecond // interval at which an empty queue is polled; with the default of 1 s, a single job waits that long
	server := asynq.NewServer(redis, asynq.Config{Concurrency: maxCallers, TaskCheckInterval: check, LogLevel: asynq.FatalLevel})
	if err := server.Start(asynq.HandlerFunc(p.work)); err != nil {
		return "", err
	}
	p.server = server
	version, err := command(ctx, find("redis-server"), "--version").Output()
	return fmt.Sprintf("%s, TaskCheckInterval %s; %s, %s", moduleVersion("github.com/hibiken/asynq"), check, firstWords(version, 3), strings.Join(settings, " ")), err
}

// work posts the next job of a chain.
func (p *asynqPeer) work(ctx context.Context, task *asynq.Task) error {
	var done chain
	if err := json.Unmarshal(task.Payload(), &done); err != nil {
		return err
	}
	if done.Left == 1 {
		p.waiters.end(done.Flow)
		return nil
	}
	return p.enqueue(ctx, chain{Flow: done.Flow, Left: done.Left - 1}, "default")
}

func (p *asynqPeer) enqueue(ctx context.Context, one chain, queue string) error {
	payload, err := json.Marshal(one)
	if err != nil {
		return err
	}
	_, err = p.client.EnqueueContext(ctx, asynq.NewTask("chain", payload), asynq.Queue(queue))
	return err
}

func (p *asynqPeer) post(ctx context.Context) error {
	return p.enqueue(ctx, chain{Data: strings.Repeat("d", payloadBytes)}, "nobody")
}

func (p *asynqPeer) flow(ctx context.Context, steps int) error {
	return p.waiters.run(ctx, steps, func(first chain) error { return p.enqueue(ctx, first, "default") })
}

func (p *asynqPeer) signal(context.Context) error { return errNoSignals }

func (p *asynqPeer) close() {
	if p.server != nil {
		p.server.Shutdown()
	}
	if p.client != nil {
		_ = p.client.Close()
	}
}
