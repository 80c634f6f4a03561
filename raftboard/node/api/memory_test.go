package api_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
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

// newAPI serves the API of a node that leads alone, over a log in memory, to a client.
func newAPI(t *testing.T) (*api.API, *raftboard.Client) {
	t.Helper()
	const node, memory = "n1", 64 << 20
	logger, metrics := hclog.NewNullLogger(), prometheus.NewRegistry()
	p := &api.Parts{
		Node: node, Limits: logbook.MaxLimits, Memory: admission.NewMemory(memory, logger), Disk: admission.NewDisk(node, t.TempDir(), 1<<20, 1, logger),
		Polls: polls.New(), Offers: offers.New(logger), Logs: steplog.New(node),
	}
	p.Shares = admission.NewSessionShares(func(id jobs.SessionID) bool { _, err := p.Machine.Session(id); return err == nil })
	var err error
	p.Machine, err = fsm.Open(fsm.Options{
		Path: filepath.Join(t.TempDir(), "state.db"), Logger: logger, Generation: 1, MmapSize: 64 << 20,
		Changed: func(changes fsm.Changes) {
			p.Polls.Changed(changes)
			p.Shares.Ended(changes.Ended)
			p.Offers.Ended(changes.Ended)
			p.Offers.Recorded(changes.Worked)
			p.Leader.Changed(changes)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	log := memorylog.New(node, p.Machine)
	p.Leader = lead.NewState(node, time.Second, log)
	p.Leader.Hanging = func() bool { return false }
	p.Ready = &lead.Readiness{Leader: p.Leader, Machine: p.Machine, Awaited: func() string { return "" }, Listed: func() bool { return true }}
	p.Reads = &lead.Reads{Log: log, Leader: p.Leader, Applied: p.Machine.WaitApplied, RoundDone: func() {}}
	p.Clock = clock.New(p.Machine.Time, time.Now, logger)
	p.Proposer = proposer.New(proposer.Options{Log: log, MaxBytes: memory, Now: p.Clock.Now, Proposed: func(*conductordv1.Entry, int) {}, Committed: func(float64) {}})
	p.Elsewhere = api.NewElsewhere(nil, "test", false, nil, p.Machine)
	p.Guard = guard.New(guard.Options{
		Cluster: "test", Node: node, Machine: p.Machine, Now: p.Clock.AnswerTime, Metrics: metrics, Logger: logger,
		IsMember: func(name string) bool { return name == node }, Applied: func(context.Context) error { return nil },
	})
	a := api.New(p)
	tasks := &lead.Tasks{
		Node: node, Heartbeat: time.Minute, Timings: lead.SessionTimings{Grace: 200 * time.Millisecond, CoolDown: 100 * time.Millisecond}, Retention: lead.Retention{MaxAge: time.Hour, Keep: 100_000},
		Machine: p.Machine, Proposer: p.Proposer, Clock: p.Clock, Rounds: clock.NewRounds(func() ([]*transport.Asker, int) { return nil, 1 }, p.Clock),
		Leader: p.Leader, Ready: p.Ready, Disk: p.Disk, Deferred: func() {}, Logger: logger, Fatal: func(err error) { t.Error(err) },
	}
	return a, served(t, a, p, tasks, log)
}

// served has a node lead and answer a client, until the test ends.
func served(t *testing.T, a *api.API, p *api.Parts, tasks *lead.Tasks, log *memorylog.Log) *raftboard.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { tasks.Follow(ctx, log.Leaderships()) })
	log.Lead()
	server := admission.NewServer(tasks.Logger, 64<<20, false)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	status := func(context.Context, *connect.Request[conductordv1.StatusRequest]) (*connect.Response[conductordv1.StatusResponse], error) {
		return connect.NewResponse(&conductordv1.StatusResponse{Cluster: "test", Node: p.Node, Ready: true}), nil
	}
	rows := append(a.Calls(), api.Plain("ClusterService/Status", api.Here(a.Router, status))) // a client asks for it first
	calls := a.Handler(rows, func(string, time.Duration, error) {}, http.NotFoundHandler(), api.NewPanics(tasks.Logger))
	server.Serve([]net.Listener{server.Listener(listener, nil)}, p.Guard.Authenticate(server.Bound(calls)), &running, func(err error) { t.Error(err) })
	client, err := raftboard.Dial(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		err := server.Stop()
		cancel()
		running.Wait()
		p.Proposer.Close()
		p.Reads.Close()
		if err := errors.Join(err, p.Machine.Close()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// opened is a session that lasts for the test.
func opened(t *testing.T, client *raftboard.Client) jobs.SessionID {
	t.Helper()
	session, err := client.OpenSession(t.Context(), jobs.Opening{ID: jobs.NewSessionID(), Name: "worker", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return session.ID
}
