package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

const (
	postBoard = "peers-post" // a board without conductors
	flowBoard = "peers-flow"

	waitKind   = "peers-wait"
	waitSignal = "go"
)

// conductord is a cluster with the default configuration. A conductor in this program, with
// its own client, runs the steps.
type conductord struct {
	binary  string
	nodes   int
	cluster *local.Cluster
	client  *raftboard.Client
	payload json.RawMessage
	stop    func() // stops the conductor
}

func (c *conductord) open(ctx context.Context, s *servers) (string, error) {
	var err error
	if c.cluster, err = local.New(local.Options{Binary: c.binary, Dir: s.dir, Nodes: c.nodes}); err != nil {
		return "", err
	}
	if err := errors.Join(c.cluster.Start(), c.cluster.WaitReady(ctx)); err != nil {
		return "", err
	}
	for _, node := range c.cluster.Nodes {
		s.pids = append(s.pids, node.PID())
	}
	if c.client, err = raftboard.Dial(ctx, c.cluster.Endpoints()...); err != nil {
		return "", err
	}
	c.payload = json.RawMessage(`"` + strings.Repeat("d", payloadBytes-len(`""`)) + `"`)
	if err := c.startConductor(ctx); err != nil {
		return "", err
	}
	return "this build; default configuration: log store bolt, an fsync for every entry on every node, no setting turns that off", nil
}

func (c *conductord) startConductor(ctx context.Context) error {
	client, err := raftboard.Dial(ctx, c.cluster.Endpoints()...)
	if err != nil {
		return err
	}
	registry := flow.NewRegistry()
	for _, w := range works() {
		if w.callers > 1 || w.steps == 0 {
			continue // each kind once; signals have their own
		}
		err := registry.Register(flowKind(w.steps), func(json.RawMessage) (*flow.Flow, error) {
			var steps []flow.Node
			for i := range w.steps {
				steps = append(steps, flow.Func(fmt.Sprintf("step%d", i+1), nothing))
			}
			return flow.Linear("peers", steps...), nil
		})
		if err != nil {
			return err
		}
	}
	err = registry.Register(waitKind, func(json.RawMessage) (*flow.Flow, error) {
		return flow.Linear("peers", flow.Signal[struct{}](waitSignal)), nil
	})
	if err != nil {
		return err
	}
	runner, err := conductor.New(conductor.Options{
		Client: client, Registry: registry, Name: "peers", Boards: []string{flowBoard}, MaxJobs: maxCallers,
		Logger: hclog.New(&hclog.LoggerOptions{Name: "conductor", Level: hclog.Warn, Output: os.Stderr}),
	})
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		if err := runner.Run(running); err != nil {
			progress("the conductor has ended: %v", err)
		}
	}()
	c.stop = func() {
		cancel()
		<-done
		client.Close()
	}
	return nil
}

func flowKind(steps int) string { return fmt.Sprintf("peers-flow%d", steps) }

func nothing(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }

func (c *conductord) post(ctx context.Context) error {
	_, err := jobs.PostOne(ctx, c.client, jobs.Posting{Board: postBoard, Name: "peers", Kind: "peers-post", Details: c.payload})
	return err
}

func (c *conductord) flow(ctx context.Context, steps int) error {
	job, err := c.start(ctx, flowKind(steps))
	if err != nil {
		return err
	}
	return c.ends(ctx, job)
}

func (c *conductord) signal(ctx context.Context) error {
	job, err := c.start(ctx, waitKind)
	if err != nil {
		return err
	}
	if _, err := c.client.Signal(ctx, job.ID, logbook.Signal{Name: waitSignal, ID: "1"}); err != nil {
		return err
	}
	return c.ends(ctx, job)
}

// start posts a job with a flow of a kind.
func (c *conductord) start(ctx context.Context, kind string) (jobs.Job, error) {
	book := logbook.Book{ID: logbook.NewBookID(), Name: "peers"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "peers", Factory: logbook.Factory{Name: kind}}}
	return jobs.PostOne(ctx, c.client, jobs.Posting{Board: flowBoard, Name: "peers", Book: &book})
}

// ends returns when a job has succeeded.
func (c *conductord) ends(ctx context.Context, job jobs.Job) (err error) {
	if job, err = c.client.Wait(ctx, job.ID); err == nil && job.Outcome != jobs.OutcomeSuccess {
		err = fmt.Errorf("job %s ended %s %s: %s", job.ID, job.State, job.Outcome, job.Reason)
	}
	return err
}

func (c *conductord) close() {
	if c.stop != nil {
		c.stop()
	}
	if c.client != nil {
		c.client.Close()
	}
	if c.cluster != nil {
		c.cluster.Close()
	}
}
