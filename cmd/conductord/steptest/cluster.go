package steptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler/scratch"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

const (
	heartbeat  = 50 * time.Millisecond // one node has nobody to wait for
	startTime  = 30 * time.Second
	drainTime  = 5 * time.Second
	stepsWide  = 64 // steps of one flow at once: more than the slots that are tested
	retryDelay = 50 * time.Millisecond
	prefix     = "conductord-steptest-"
	flowKind   = "conformance"
)

// cluster is a node and a conductor in this process, with a tap before the node.
type cluster struct {
	dir       *scratch.Dir
	node      *node.Node
	tap       *tap
	address   string // of the tap
	client    *raftboard.Client
	conductor *conductor.Conductor
	working   sync.WaitGroup // the conductor's Run
}

func openCluster(ctx context.Context) (c *cluster, err error) {
	_ = scratch.Sweep("", prefix) // what cannot be removed is in nobody's way
	c = &cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("cannot start a node for the test: %w", err), c.close())
		}
	}()
	if c.dir, err = scratch.Make("", prefix); err != nil {
		return nil, err
	}
	free, err := local.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	tap, listener, err := openTap()
	if err != nil {
		return nil, err
	}
	c.address = listener.Addr().String()
	c.node, err = node.Open(node.Options{
		Name: "test", Cluster: "test", DataDir: filepath.Join(c.dir.Path, "node"), Init: true, APIListen: "127.0.0.1:0",
		// The node is known by the address of the tap, so that clients that learn it go there.
		Members: []node.Member{{Name: "test", Raft: free[0], API: c.address}},
		Raft:    node.RaftTimings{Heartbeat: heartbeat},
	})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	tap.serve(listener, c.node.APIAddress().String())
	c.tap = tap
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err = c.node.WaitReady(starting); err != nil {
		return nil, err
	}
	if c.client, err = raftboard.Dial(starting, c.address); err != nil {
		return nil, err
	}
	return c, c.startConductor()
}

func (c *cluster) startConductor() (err error) {
	registry := flow.NewRegistry()
	if err = flow.Register(registry, flowKind, buildFlow); err != nil {
		return err
	}
	c.conductor, err = conductor.New(conductor.Options{
		Client: c.client, Registry: registry, Name: "test", Workers: stepsWide, Steps: 2 * stepsWide, Grace: time.Millisecond, Logs: c.node.Logs(),
	})
	if err != nil {
		return err
	}
	c.working.Go(func() { _ = c.conductor.Run(context.Background()) }) // ends with stopConductor
	return nil
}

func (c *cluster) stopConductor() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	err := c.conductor.Drain(ctx)
	c.working.Wait()
	c.conductor = nil
	return err
}

func (c *cluster) close() error {
	var errs []error
	if c.conductor != nil {
		errs = append(errs, c.stopConductor())
	}
	if c.client != nil {
		c.client.Close()
	}
	if c.tap != nil {
		errs = append(errs, c.tap.server.Close())
	}
	if c.node != nil {
		errs = append(errs, c.node.Close())
	}
	if c.dir != nil {
		errs = append(errs, c.dir.Remove())
	}
	return errors.Join(errs...)
}

// step is a step of a flow that the worker does. Its arguments come from the job's store.
type step struct {
	Name, Type, Revert string
	Arguments          []string
	Attempts           int
	Timeout            time.Duration
}

// plan is a flow: its steps, one after another, or at once.
type plan struct {
	Steps  []step
	AtOnce bool
}

func buildFlow(p plan) (*flow.Flow, error) {
	built := flow.Linear("test")
	if p.AtOnce {
		built = flow.Unordered("test")
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		built.Add(flow.NewStep(s.Name, flow.OnWorker(flow.WorkerStep{Type: s.Type, Revert: s.Revert}), flow.Requires(s.Arguments...),
			flow.Retry(flow.Backoff{Attempts: s.Attempts, Delay: retryDelay}), flow.Timeout(s.Timeout)))
	}
	return built, nil
}

// post posts a flow; arguments are JSON by name.
func (c *cluster) post(ctx context.Context, p plan, arguments map[string]string) (jobs.Job, error) {
	posting := jobs.NewPosting(flowKind, p, nil)
	posting.Store = logbook.Values{}
	for name, text := range arguments {
		posting.Store[name] = json.RawMessage(text)
	}
	return jobs.PostOne(ctx, c.client, posting)
}

// ended waits for the end of a job, and returns its flow.
func (c *cluster) ended(ctx context.Context, job jobs.JobID) (jobs.Job, logbook.FlowDetail, error) {
	ended, err := c.client.Wait(ctx, job)
	if err != nil {
		return ended, logbook.FlowDetail{}, err
	}
	detail, err := c.client.FlowDetail(ctx, ended.Flow)
	return ended, detail, err
}
