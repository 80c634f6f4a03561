package boardtest

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/internal/inprocess"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/memorylog"
	"github.com/conductord/conductord/raftboard/node/offers"
	"github.com/conductord/conductord/raftboard/node/polls"
	"github.com/conductord/conductord/raftboard/node/proposer"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

const (
	nodeName    = "n1"
	clusterName = "test"
	memory      = 64 << 20 // bytes of calls and proposals
	mmapSize    = 64 << 20 // address space of a database: many can be open in parallel
	diskReserve = 1 << 20
	retention   = 7 * 24 * time.Hour // of finished jobs, as a node's default
	retained    = 100_000            // finished jobs, as a node's default
)

// node is the services of a single node, which leads over a log in memory.
type node struct {
	log    *memorylog.Log
	parts  *api.Parts
	api    *api.API
	calls  http.Handler
	fault  error              // that ended the leadership; guarded by mu
	stop   context.CancelFunc // ends the leader's work
	closed func() error

	mu       sync.Mutex
	ended    bool           // no further calls start; guarded by mu
	handlers sync.WaitGroup // of calls; call Add under mu
	leading  sync.WaitGroup
	stamped  time.Time // time of the last entry; used only by the proposer's goroutine
}

// openNode opens a node with an empty state in a file, and makes it lead.
func openNode(path string, o *Options) (*node, error) {
	n := &node{}
	p := &api.Parts{
		Node: nodeName, Limits: o.Limits, Memory: admission.NewMemory(memory, o.Logger),
		Disk:  admission.NewDisk(nodeName, filepath.Dir(path), diskReserve, 1, o.Logger),
		Polls: polls.New(), Offers: offers.New(o.Logger), Logs: steplog.New(nodeName),
		Peers: api.Peers{Address: func(string) (string, bool) { return "", false }}, // there is no other node
	}
	n.parts, n.closed = p, sync.OnceValue(n.end)
	p.Shares = admission.NewSessionShares(func(id jobs.SessionID) bool { _, err := p.Machine.Session(id); return err == nil })
	var err error
	p.Machine, err = fsm.Open(fsm.Options{
		Path: path, Logger: o.Logger, Generation: 1, MmapSize: mmapSize, EventsKept: o.EventsKept, Changed: n.changed,
	})
	if err != nil {
		return nil, err
	}
	n.log = memorylog.New(nodeName, p.Machine)
	p.Leader = lead.NewState(nodeName, time.Second, n.log)
	p.Leader.Hanging = func() bool { return false }
	p.Ready = &lead.Readiness{Leader: p.Leader, Machine: p.Machine, Awaited: func() string { return "" }, Listed: func() bool { return true }}
	p.Reads = &lead.Reads{Log: n.log, Leader: p.Leader, Applied: p.Machine.WaitApplied, RoundDone: func() {}}
	p.Clock = clock.New(p.Machine.Time, func() time.Time { return time.Now().Add(o.Ahead) }, o.Logger)
	p.Proposer = proposer.New(proposer.Options{Log: n.log, MaxBytes: memory, Now: n.stamp, Proposed: func(*v1.Entry, int) {}, Committed: func(float64) {}})
	p.Elsewhere = api.NewElsewhere(nil, clusterName, false, nil, p.Machine)
	p.Guard = guard.New(guard.Options{
		Cluster: clusterName, Node: nodeName, Machine: p.Machine, Now: p.Clock.AnswerTime, Metrics: prometheus.NewRegistry(), Logger: o.Logger,
		IsMember: func(name string) bool { return name == nodeName }, Applied: func(context.Context) error { return nil },
	})
	n.api = api.New(p)
	n.calls = n.handler(o.Logger)
	n.lead(o)
	return n, nil
}

// changed is called by the state machine after each commit, as on every node.
func (n *node) changed(changes fsm.Changes) {
	p := n.parts
	p.Polls.Changed(changes)
	p.Shares.Ended(changes.Ended)
	p.Offers.Ended(changes.Ended)
	p.Offers.Recorded(changes.Worked)
	p.Leader.Changed(changes)
}

// stamp returns the time of the next entry. The times of entries differ, so that a test can
// determine their order.
func (n *node) stamp() time.Time {
	now := n.parts.Clock.Now()
	if !now.After(n.stamped) {
		now = n.stamped.Add(time.Nanosecond)
	}
	n.stamped = now
	return now
}

// lead starts the work of a leader.
func (n *node) lead(o *Options) {
	p := n.parts
	tasks := &lead.Tasks{
		Node: nodeName, Heartbeat: time.Minute, Retention: lead.Retention{MaxAge: retention, Keep: retained},
		Timings: lead.SessionTimings{Grace: o.Grace, CoolDown: o.CoolDown, MaxCrashes: o.MaxCrashes},
		Machine: p.Machine, Proposer: p.Proposer, Clock: p.Clock, Rounds: clock.NewRounds(func() ([]*transport.Asker, int) { return nil, 1 }, p.Clock),
		Leader: p.Leader, Ready: p.Ready, Disk: p.Disk, Deferred: func() {}, Logger: o.Logger, Fatal: n.fail,
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.leading.Go(func() { tasks.Follow(ctx, n.log.Leaderships()) })
	n.log.Lead()
}

func (n *node) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = errors.Join(n.fault, err)
}

// handler answers the calls of clients.
func (n *node) handler(logger hclog.Logger) http.Handler {
	status := func(context.Context, *connect.Request[v1.StatusRequest]) (*connect.Response[v1.StatusResponse], error) {
		return connect.NewResponse(&v1.StatusResponse{Cluster: clusterName, Node: nodeName, Ready: true}), nil
	}
	rows := append(n.api.Calls(), api.Plain("ClusterService/Status", api.Here(n.api.Router, status))) // a client calls this first
	calls := n.api.Handler(rows, func(string, time.Duration, error) {}, http.NotFoundHandler(), api.NewPanics(logger))
	calls = n.parts.Guard.Authenticate(admission.NewServer(logger, memory, false).Bound(calls, api.RefusedOrigin))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.begin() {
			defer n.handlers.Done()
			calls.ServeHTTP(w, r)
			return
		}
		http.Error(w, "the board is closed", http.StatusServiceUnavailable)
	})
}

// begin counts a call, until n ends.
func (n *node) begin() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ended {
		n.handlers.Add(1)
	}
	return !n.ended
}

// dial makes a client of the node.
func (n *node) dial(logger hclog.Logger) (*raftboard.Client, error) {
	transport := &inprocess.Transport{Handler: n.calls, Prepare: func(call *http.Request) {
		call.Proto, call.ProtoMajor, call.ProtoMinor = "HTTP/2.0", 2, 0
	}}
	return raftboard.Open(context.Background(), raftboard.Options{Endpoints: []string{"http://" + nodeName + ":1"}, HTTPClient: &http.Client{Transport: transport}, Logger: logger})
}

// close ends the node after its clients. It may be called more than once.
func (n *node) close() error { return n.closed() }

func (n *node) end() error {
	n.mu.Lock()
	n.ended = true
	n.mu.Unlock()
	n.handlers.Wait()
	n.stop()
	n.leading.Wait()
	n.parts.Proposer.Close()
	n.parts.Reads.Close()
	return errors.Join(n.fault, n.parts.Machine.Close())
}
