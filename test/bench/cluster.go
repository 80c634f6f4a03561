package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/test/bench/measure"
)

const startPatience = 30 * time.Second

// cluster is conductord's side: three server processes and a client.
type cluster struct {
	processes *local.Cluster
	client    *raftboard.Client
}

// cost is what the operations of a window have cost the log.
type cost struct {
	EntriesPerOperation  float64            `json:"entries_per_operation"`  // that the leader proposed
	IndexPerOperation    float64            `json:"index_per_operation"`    // by which the commit index moved
	CommandsPerOperation float64            `json:"commands_per_operation"` // of all kinds
	BytesPerOperation    float64            `json:"bytes_per_operation"`    // of entries
	CPUPerOperation      time.Duration      `json:"cpu_per_operation_ns"`   // of the three servers together
	Commands             map[string]float64 `json:"commands"`               // per operation, by name
	Disturbed            bool               `json:"disturbed,omitempty"`    // the leader changed
}

// startCluster starts the servers with the configuration that is the default,
// but for the log store, and returns when all of them are ready.
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
	if c.client, err = raftboard.Dial(ctx, processes.Endpoints()...); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close kills the servers: what they hold is removed with the directory.
func (c *cluster) close() {
	if c.client != nil {
		c.client.Close()
	}
	c.processes.Close()
}

// measure does one work under its load.
func (c *cluster) measure(ctx context.Context, w work, load measure.Load) (measure.Run, cost, error) {
	if w.flows {
		stop, err := startConductor(ctx, c.processes.Endpoints(), load.Callers)
		if err != nil {
			return measure.Run{}, cost{}, err
		}
		defer stop()
	}
	var marks []mark
	run, err := measure.Drive(ctx, load,
		func(ctx context.Context) error { return w.call(ctx, c.client, load.PerCall) },
		func(ctx context.Context) error {
			now, err := c.mark(ctx)
			marks = append(marks, now)
			return err
		})
	if err != nil {
		return measure.Run{}, cost{}, err
	}
	return run, costBetween(marks[0], marks[1], run.Operations), nil
}

// mark is what the cluster counts at one moment.
type mark struct {
	counters measure.Counters // of all nodes together
	index    uint64           // committed
	term     uint64
}

func (c *cluster) mark(ctx context.Context) (mark, error) {
	m := mark{counters: measure.Counters{}}
	for _, node := range c.processes.Nodes {
		counters, err := readMetrics(ctx, node.API)
		if err != nil {
			return mark{}, err
		}
		m.counters.Add(counters)
		status, err := c.client.Status(ctx, node.API)
		if err != nil {
			return mark{}, err
		}
		m.index, m.term = max(m.index, status.CommitIndex), max(m.term, status.Term)
	}
	return m, nil
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
	grown := after.counters.Since(before.counters)
	per := func(value float64) float64 { return measure.Share(value, float64(operations)) }
	c := cost{
		EntriesPerOperation: per(grown["conductord_entries_total"]),
		IndexPerOperation:   per(float64(after.index - before.index)),
		BytesPerOperation:   per(grown["conductord_entry_bytes_sum"]),
		CPUPerOperation:     time.Duration(per(grown["process_cpu_seconds_total"]) * float64(time.Second)),
		Commands:            map[string]float64{},
		Disturbed:           before.term != after.term,
	}
	for key, value := range grown {
		if label, ok := strings.CutPrefix(key, "conductord_commands_total{"); ok {
			c.Commands[strings.TrimSuffix(label, "}")] = per(value)
			c.CommandsPerOperation += per(value)
		}
	}
	return c
}
