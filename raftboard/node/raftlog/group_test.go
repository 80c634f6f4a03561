package raftlog_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/node/replication"
	"github.com/conductord/conductord/raftboard/node/replication/replicationtest"
)

const (
	patience = 2 * time.Minute
	// heartbeat is long, so that a busy machine elects no other leader.
	heartbeat = 2 * time.Second
)

func TestMain(m *testing.M) {
	longtest.AtOnce(8)
	os.Exit(m.Run())
}

func TestGroup(t *testing.T) {
	replicationtest.Exercise(t, func(t *testing.T, machine replication.Machine) replicationtest.Node {
		s := newTrio(t)
		s.open(machine)
		if err := s.group.Raft().BootstrapCluster(raft.Configuration{Servers: s.servers}).Error(); err != nil {
			t.Fatal(err)
		}
		return s.node()
	})
}

// trio is a group of three nodes in memory: the first is under test, the others keep no state.
type trio struct {
	t       *testing.T
	dir     string
	servers []raft.Server
	lines   [3]*raft.InmemTransport
	others  [2]*raft.Raft
	askers  []*transport.Asker // of the other nodes
	runs    int
	group   *raftlog.Group
	close   func()
}

// void is the state machine of the other nodes: it ignores all entries.
type void struct{}

func (void) Apply(*raft.Log) any                 { return nil }
func (void) Snapshot() (raft.FSMSnapshot, error) { return void{}, nil }
func (void) Restore(from io.ReadCloser) error    { return from.Close() }
func (void) Persist(sink raft.SnapshotSink) error {
	return sink.Close()
}
func (void) Release() {}

func newTrio(t *testing.T) *trio {
	t.Helper()
	s := &trio{t: t, dir: t.TempDir()}
	for _, name := range []string{"n1", "n2", "n3"} {
		member := transport.Member{Name: name, Incarnation: transport.FirstIncarnation, Raft: name + ":1", API: name + ":2"}
		s.servers = append(s.servers, raft.Server{ID: member.ID(), Address: member.Address()})
	}
	for i := range s.others {
		at := s.servers[i+1]
		s.connect(i + 1)
		config := raft.DefaultConfig()
		config.LocalID, config.LogLevel = at.ID, "OFF"
		config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = heartbeat, heartbeat, heartbeat
		store := raft.NewInmemStore()
		other, err := raft.NewRaft(config, void{}, store, store, raft.NewInmemSnapshotStore(), s.lines[i+1])
		if err != nil {
			t.Fatal(err)
		}
		s.others[i] = other
		s.askers = append(s.askers, &transport.Asker{Timeout: heartbeat, Dial: func() (net.Conn, error) {
			here, there := net.Pipe()
			go transport.AnswerQuestions(there, func(int64) {}, func() transport.Standing { return transport.Standing{Term: other.CurrentTerm()} }) // ends with the connection
			return here, nil
		}})
	}
	t.Cleanup(func() {
		s.close()
		for i, other := range s.others {
			s.askers[i].Close()
			if err := other.Shutdown().Error(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// connect gives a node a new transport, connected to all nodes that have one.
func (s *trio) connect(at int) {
	_, s.lines[at] = raft.NewInmemTransport(s.servers[at].Address)
	for i, line := range s.lines {
		if i != at && line != nil {
			line.Connect(s.servers[at].Address, s.lines[at])
			s.lines[at].Connect(s.servers[i].Address, line)
		}
	}
}

// open starts the node under test.
func (s *trio) open(machine replication.Machine) {
	s.t.Helper()
	log, err := logstore.Open(s.dir, logstore.Bolt, logstore.Options{Fatal: func(err error) { s.t.Error(err) }})
	if err != nil {
		s.t.Fatal(err)
	}
	s.connect(0)
	s.group = raftlog.New(func(error) {}, hclog.NewNullLogger())
	err = s.group.Run(raftlog.Options{
		ID: s.servers[0].ID, DataDir: s.dir, Log: log, Transport: s.lines[0], Machine: machine,
		Timings: raftlog.Timings{Heartbeat: heartbeat, TrailingLogs: 1}.WithDefaults(),
		Past:    raftlog.Past{Fresh: s.runs == 0, Bootstrapped: s.runs > 0, SetBootstrapped: func() error { return nil }},
		Voters:  func() ([]*transport.Asker, int) { return s.askers, 2 },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.runs++
	s.close = func() {
		if err := s.group.Close(); err != nil {
			s.t.Error(err)
		}
		if err := log.Close(); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *trio) node() replicationtest.Node {
	return replicationtest.Node{
		Log:      s.group,
		Lead:     func() { s.transfer("leads", true) },
		StepDown: func() { s.transfer("does not lead", false) },
		Snapshot: func() error { return s.group.Raft().Snapshot().Error() },
		Reopen: func(machine replication.Machine) replicationtest.Node {
			s.close()
			s.open(machine)
			return s.node()
		},
	}
}

// transfer moves the leadership to or from the node under test, and waits for it.
func (s *trio) transfer(what string, lead bool) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for s.group.Leads() != lead || lead && s.group.Leader().ID == "" {
		if !lead {
			_ = s.group.Transfer(transport.Member{}) // repeated after a failure
		}
		for _, other := range s.others {
			if lead && other.State() == raft.Leader {
				_ = other.LeadershipTransferToServer(s.servers[0].ID, s.servers[0].Address).Error() // repeated after a failure
			}
		}
		select {
		case <-look.C:
		case <-deadline.C:
			s.t.Fatalf("not within %v: the node %s", patience, what)
		}
	}
}
