package steptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
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
	heartbeat  = 50 * time.Millisecond // a single node waits for no other
	startTime  = 30 * time.Second
	drainTime  = 5 * time.Second
	stepsWide  = 64 // parallel steps of one flow: more than the tested slots
	retryDelay = 50 * time.Millisecond
	prefix     = "conductord-steptest-"
	flowKind   = "conformance"
)

// cluster is a node and a conductor in this process. A tap between the node and its clients
// observes and disturbs calls.
type cluster struct {
	node      *node.Node
	tap       tap
	address   string // of the tap
	client    *raftboard.Client
	conductor *conductor.Conductor
	working   sync.WaitGroup // the conductor's Run
	opened    []func() error // close functions, called in reverse order
}

func openCluster(ctx context.Context) (c *cluster, err error) {
	c = &cluster{}
	if err = c.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start a node for the test: %w", err), c.close())
	}
	return c, nil
}

func (c *cluster) open(ctx context.Context) error {
	_ = scratch.Sweep("", prefix) // a remaining file is harmless
	dir, err := scratch.Make("", prefix)
	if err != nil {
		return err
	}
	c.opened = append(c.opened, dir.Remove)
	free, err := local.FreeAddresses(1)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.address = listener.Addr().String()
	c.node, err = node.Open(node.Options{
		Name: "test", Cluster: "test", DataDir: filepath.Join(dir.Path, "node"), Init: true, APIListen: "127.0.0.1:0",
		// The node announces the address of the tap, so that clients that learn the node's
		// address call the tap.
		Members: []node.Member{{Name: "test", Raft: free[0], API: c.address}},
		Raft:    node.RaftTimings{Heartbeat: heartbeat},
	})
	if err != nil {
		_ = listener.Close()
		return err
	}
	c.opened = append(c.opened, c.node.Close)
	c.tap.serve(listener, c.node.APIAddress().String())
	c.opened = append(c.opened, c.tap.server.Close)
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err = c.node.WaitReady(starting); err != nil {
		return err
	}
	if c.client, err = raftboard.Dial(starting, c.address); err != nil {
		return err
	}
	c.opened = append(c.opened, func() error { c.client.Close(); return nil }, c.stopConductor)
	return c.startConductor()
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
	if c.conductor == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	err := c.conductor.Drain(ctx)
	c.working.Wait()
	c.conductor = nil
	return err
}

func (c *cluster) close() (err error) {
	for _, closing := range slices.Backward(c.opened) {
		err = errors.Join(err, closing())
	}
	return err
}

// step is a step of a flow for the worker.
type step struct {
	Name, Type, Revert string
	Attempts           int
	Timeout            time.Duration
	Requires           []string // the names of its arguments
	arguments          string   // a JSON object, which is added to the job's store
}

// plan is a flow: its steps, one after another or in parallel.
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
		built.Add(flow.NewStep(s.Name, flow.OnWorker(flow.WorkerStep{Type: s.Type, Revert: s.Revert}), flow.Requires(s.Requires...),
			flow.Retry(flow.Backoff{Attempts: s.Attempts, Delay: retryDelay}), flow.Timeout(s.Timeout)))
	}
	return built, nil
}

// posting is the job that runs a plan.
func (p plan) posting() (posting jobs.Posting, err error) {
	store := logbook.Values{}
	for i := range p.Steps {
		s, arguments := &p.Steps[i], logbook.Values{}
		err = errors.Join(err, json.Unmarshal([]byte(s.arguments), &arguments))
		s.Requires = slices.Sorted(maps.Keys(arguments))
		maps.Copy(store, arguments)
	}
	posting = jobs.NewPosting(flowKind, p, nil)
	posting.Store = store
	return posting, err
}
