package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/measure"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

const (
	startPatience = 30 * time.Second
	// runPatience is the time that a run may take in addition to its load: to start
	// conductors, post stocks, and wait for calls in flight.
	runPatience = time.Minute
)

// cluster is conductord's side: three server processes and a client.
type cluster struct {
	processes *local.Cluster
	client    *raftboard.Client
}

// side is one run on one side, and its cost.
type side struct {
	measure.Run
	Cost         cost   `json:"cost"`
	CommandBytes int    `json:"command_bytes,omitempty"` // of the floor: command size of one call
	Waiting      uint64 `json:"waiting,omitempty"`       // claimable jobs at the start
}

// cost is the cost of each operation of a window.
type cost struct {
	Entries   float64            `json:"entries"`  // proposed by the leader
	Index     float64            `json:"index"`    // growth of the commit index
	Commands  float64            `json:"commands"` // commands of all kinds
	Bytes     float64            `json:"bytes"`    // bytes of all entries
	Leader    measure.Usage      `json:"leader"`
	Followers measure.Usage      `json:"followers"` // mean of the followers
	Callers   measure.Usage      `json:"callers"`   // of the calling process; zero for the floor
	ByName    map[string]float64 `json:"by_name,omitempty"`
	Disturbed bool               `json:"disturbed,omitempty"` // the leader changed
}

// startCluster starts the servers with the default configuration, except for the log store,
// and returns when all of them are ready.
func startCluster(ctx context.Context, binary, dir, store string) (*cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot start conductord: %w", err)
	}
	processes, err := local.New(local.Options{
		Binary: binary, Dir: dir, Configure: func(c *config.Config) { c.LogStore = store },
	})
	if err != nil {
		return nil, err
	}
	c := &cluster{processes: processes}
	if err := errors.Join(processes.Start(), processes.WaitReady(ctx)); err != nil {
		c.close()
		return nil, err
	}
	if c.client, err = dialer(processes.Endpoints()...)(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// dialer opens clients of a cluster whose nodes are all reachable.
func dialer(endpoints ...string) func(context.Context) (*raftboard.Client, error) {
	return func(ctx context.Context) (*raftboard.Client, error) { return raftboard.Dial(ctx, endpoints...) }
}

// close kills the servers. Their data is removed with the directory.
func (c *cluster) close() {
	if c.client != nil {
		c.client.Close()
	}
	c.processes.Close()
}

// measure does one work under its load. Steady is the place's.
func (c *cluster) measure(ctx context.Context, w work, load measure.Load, steady bool) (side, error) {
	ctx, cancel := context.WithTimeout(ctx, runPatience+load.Warm+load.Window)
	defer cancel()
	leader, err := c.leader(ctx)
	if err != nil {
		return side{}, err
	}
	at := &place{client: c.client, dial: dialer(c.processes.Endpoints()...), steady: steady}
	for _, node := range c.processes.Nodes {
		if node != leader {
			at.follower = node.API
		}
	}
	board, err := c.client.BoardStatus(ctx, benchBoard)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return side{}, err
	}
	ready, err := w.open(ctx, at, load)
	if err != nil {
		return side{}, err
	}
	defer ready.close()
	var marks []mark
	run, err := measure.DriveTimed(ctx, load, ready.call, func(ctx context.Context) error {
		now, err := c.mark(ctx)
		marks = append(marks, now)
		return err
	})
	if err != nil {
		return side{}, err
	}
	return side{Run: run, Cost: costBetween(marks[0], marks[1], run.Operations), Waiting: board.Jobs[jobs.StateClaimable]}, nil
}

// leader returns the node that reports itself as the leader.
func (c *cluster) leader(ctx context.Context) (*local.Node, error) {
	for _, node := range c.processes.Nodes {
		status, err := c.client.Status(ctx, node.API)
		if err != nil {
			return nil, err
		}
		if status.Leader == status.Node {
			return node, nil
		}
	}
	return nil, fmt.Errorf("%w: no node leads", jobs.ErrUnavailable)
}

// mark has the cluster's counters and usage at one moment.
type mark struct {
	leader   string
	term     uint64
	index    uint64           // committed
	counters measure.Counters // of all nodes together
	nodes    map[string]measure.Usage
	callers  measure.Usage
}

// mark reads all nodes in parallel, so that the values belong to one moment.
func (c *cluster) mark(ctx context.Context) (mark, error) {
	m := mark{counters: measure.Counters{}, nodes: map[string]measure.Usage{}}
	var mu sync.Mutex
	var errs []error
	var asking sync.WaitGroup
	for _, node := range c.processes.Nodes {
		asking.Go(func() { // ends with its two calls
			counters, err := readMetrics(ctx, node.API)
			status, statusErr := c.client.Status(ctx, node.API)
			mu.Lock()
			defer mu.Unlock()
			if errs = append(errs, err, statusErr); err != nil || statusErr != nil {
				return
			}
			m.counters.Add(counters)
			m.nodes[node.Name] = measure.NodeUsage(node.PID(), counters)
			m.index, m.term = max(m.index, status.CommitIndex), max(m.term, status.Term)
			if status.Leader == node.Name {
				m.leader = node.Name
			}
		})
	}
	asking.Wait()
	own, err := measure.OwnUsage()
	m.callers = own
	return m, errors.Join(append(errs, err)...)
}

func readMetrics(ctx context.Context, address string) (measure.Counters, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot read the metrics of %s: %w", address, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot read the metrics of %s: %s", address, response.Status)
	}
	return measure.ReadCounters(response.Body)
}

func costBetween(before, after mark, operations int) cost {
	grown, n := after.counters.Since(before.counters), float64(operations)
	per := func(value float64) float64 { return measure.Share(value, n) }
	c := cost{
		Entries:   per(grown["conductord_entries_total"]),
		Index:     per(float64(after.index - before.index)),
		Bytes:     per(grown["conductord_entry_bytes_sum"]),
		Callers:   after.callers.Since(before.callers).Per(n),
		ByName:    map[string]float64{},
		Disturbed: before.term != after.term || before.leader != after.leader,
	}
	var followers []measure.Usage
	for name, usage := range after.nodes {
		spent := usage.Since(before.nodes[name]).Per(n)
		if name == after.leader {
			c.Leader = spent
		} else {
			followers = append(followers, spent)
		}
	}
	c.Followers = measure.MeanUsage(followers)
	for key, value := range grown {
		if label, ok := strings.CutPrefix(key, "conductord_commands_total{"); ok {
			c.ByName[strings.TrimSuffix(label, "}")] = per(value)
			c.Commands += per(value)
		}
	}
	return c
}
