package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
)

// system runs jobs durably: what post and flow have acknowledged survives the loss of power.
type system interface {
	// open starts the servers, and the part of this program that runs steps. It returns the
	// version, and the settings that affect durability and speed.
	open(ctx context.Context, s *servers) (about string, err error)
	// post returns when one job with 512 bytes of data is durable. No worker takes that job.
	post(ctx context.Context) error
	// flow returns when a new flow of steps that do nothing, one after the other, has ended. Each
	// step is durable before the next one starts.
	flow(ctx context.Context, steps int) error
	// signal returns when a new flow, which waits for a signal, has got the signal and has ended. A system without
	// signals returns errNoSignals.
	signal(ctx context.Context) error
	// close ends the parts that open started in this program. The servers are killed
	// afterwards. It may be called after a failed open.
	close()
}

// peer is one system that conductord is compared with.
type peer struct {
	name      string
	make      func() system
	programs  []string // its servers
	get       string   // how to get them
	postsOnly bool
	noSignals bool
}

var (
	postgresPrograms = []string{"initdb", "postgres"}
	postgresGet      = "apt-get install postgresql"
)

var peers = []peer{
	{name: "dbos", make: func() system { return &dbosPeer{} }, programs: postgresPrograms, get: postgresGet},
	{name: "river", make: func() system { return &riverPeer{} }, programs: postgresPrograms, get: postgresGet, noSignals: true},
	{name: "asynq", make: func() system { return &asynqPeer{} }, programs: []string{"redis-server"}, get: "apt-get install redis-server", noSignals: true},
	{name: "etcd", make: func() system { return &etcdPeer{members: 1} }, programs: []string{"etcd"}, get: "apt-get install etcd-server", postsOnly: true},
	{name: "etcd3", make: func() system { return &etcdPeer{members: 3} }, programs: []string{"etcd"}, get: "apt-get install etcd-server", postsOnly: true},
	{
		name: "temporal", make: func() system { return &temporalPeer{} }, programs: append([]string{"temporal-server", "temporal-sql-tool"}, postgresPrograms...),
		get: "go install go.temporal.io/server/cmd/server@v1.32.0 and go.temporal.io/server/cmd/tools/sql@v1.32.0, and name them temporal-server and temporal-sql-tool; " + postgresGet,
	},
	{name: "restate", make: func() system { return &restatePeer{} }, programs: []string{"restate-server"}, get: "npm install --global @restatedev/restate-server@1.7.12"},
}

// missing returns the peer's first program that is not installed.
func (p peer) missing() string {
	for _, program := range p.programs {
		if find(program) == "" {
			return program
		}
	}
	return ""
}

// work is something that is measured.
type work struct {
	name    string
	callers int
	steps   int  // steps of a flow; 0: the work posts a job
	signals bool // the work signals a flow that waits
}

func works() []work {
	return []work{
		{name: "post-1", callers: 1}, {name: "post-64", callers: 64},
		{name: "job-1", callers: 1, steps: 1}, {name: "job-64", callers: 64, steps: 1},
		{name: "flow3-1", callers: 1, steps: 3}, {name: "flow3-64", callers: 64, steps: 3},
		{name: "flow10-1", callers: 1, steps: 10}, {name: "flow10-64", callers: 64, steps: 10},
		{name: "signal-1", callers: 1, signals: true}, {name: "signal-64", callers: 64, signals: true},
	}
}

const (
	maxCallers   = 64
	payloadBytes = 512
)

// chain is one job of a flow, where a flow is a chain of jobs.
type chain struct {
	Flow int64 `json:"flow"`
	Left int   `json:"left"` // jobs of the flow, this one included
	Data string
}

// waiters are callers that wait for the ends of their chains.
type waiters struct {
	mu   sync.Mutex
	last int64
	by   map[int64]chan struct{}
}

// run starts a chain, and waits until end is called with its id.
func (w *waiters) run(ctx context.Context, steps int, start func(chain) error) error {
	ended := make(chan struct{})
	w.mu.Lock()
	if w.by == nil {
		w.by = map[int64]chan struct{}{}
	}
	w.last++
	id := w.last
	w.by[id] = ended
	w.mu.Unlock()
	if err := start(chain{Flow: id, Left: steps}); err != nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flow %d has not ended: %w", id, context.Cause(ctx))
	}
}

func (w *waiters) end(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ended, found := w.by[id]; found {
		close(ended)
		delete(w.by, id)
	}
}

var (
	errNoFlows   = errors.New("has no flows")
	errNoSignals = errors.New("has no signals")
)

// moduleVersion is the version of a library that this program is built with.
func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return filepath.Base(path) + " " + module.Version
		}
	}
	return path + " of an unknown version"
}

// firstWords returns the first words of a program's output.
func firstWords(text []byte, count int) string {
	words := strings.Fields(string(text))
	return strings.Join(words[:min(count, len(words))], " ")
}
