// Package bareraft is the floor for the comparison with conductord: a group of processes with
// hashicorp/raft and the daemon's log store, disk and timings, without anything on top.
//
// The state machine counts commands. The commands are opaque bytes of the same size as conductord's
// commands, and are packed into entries in the same way. They are proposed inside the leader's
// process. The benchmark measures the difference: the cost of a network API, a real state machine
// and the checks of a command.
//
// A process reads its instructions as lines of JSON from its standard input, and answers each line
// on its standard output. It ends with its input, so it does not outlive the program that started
// it.
package bareraft

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// These values must equal the constants of package raftboard/node, which no configuration
// shows.
const (
	logFile           = "raft.db"
	lockTimeout       = time.Second
	logCacheSize      = 64
	snapshotsRetained = 2
	raftTimeout       = 10 * time.Second
	connectionPool    = 3
)

// Options configure one process of the group. All processes list the same members.
type Options struct {
	Address string   `json:"address"` // its raft port, host:port; one of Members
	Members []string `json:"members"`
	Dir     string   `json:"dir"`
	// LogStore is bolt or wal, as in the daemon; empty: bolt.
	LogStore string `json:"log_store,omitempty"`

	Heartbeat         time.Duration `json:"heartbeat"`
	Election          time.Duration `json:"election"`
	LeaderLease       time.Duration `json:"leader_lease"`
	MaxAppendEntries  int           `json:"max_append_entries"`
	SnapshotInterval  time.Duration `json:"snapshot_interval"`
	SnapshotThreshold uint64        `json:"snapshot_threshold"`
	TrailingLogs      uint64        `json:"trailing_logs"`
}

// validate reports all problems at once.
func (o Options) validate() error {
	var faults []error
	if !slices.Contains(o.Members, o.Address) {
		faults = append(faults, fmt.Errorf("address %q is not among the members", o.Address))
	}
	if o.Dir == "" {
		faults = append(faults, errors.New("no directory"))
	}
	return errors.Join(faults...)
}

// Node is one member of the group.
type Node struct {
	raft      *raft.Raft
	log       *countedLog
	transport *raft.NetworkTransport
	proposer  *proposer
}

// Open starts a member, in an empty directory. It returns before the group has
// a leader.
func Open(options Options) (*Node, error) {
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("cannot start a bare raft node: %w", err)
	}
	n := &Node{}
	if err := n.open(options); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start a bare raft node: %w", err), n.Close())
	}
	n.proposer = newProposer(n.raft)
	return n, nil
}

func (n *Node) open(options Options) error {
	var err error
	if n.log, err = openLog(options); err != nil {
		return err
	}
	cached, err := raft.NewLogCache(logCacheSize, n.log)
	if err != nil {
		return err
	}
	silent := hclog.NewNullLogger()
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(options.Dir, snapshotsRetained, silent)
	if err != nil {
		return err
	}
	n.transport, err = raft.NewTCPTransport(options.Address, nil, connectionPool, raftTimeout, io.Discard)
	if err != nil {
		return err
	}
	config := options.raftConfig(silent)
	var servers []raft.Server
	for _, member := range options.Members {
		servers = append(servers, raft.Server{ID: raft.ServerID(member), Address: raft.ServerAddress(member)})
	}
	if err := raft.BootstrapCluster(config, cached, n.log, snapshots, n.transport, raft.Configuration{Servers: servers}); err != nil {
		return err
	}
	n.raft, err = raft.NewRaft(config, &counter{}, cached, n.log, snapshots, n.transport)
	return err
}

func (o Options) raftConfig(logger hclog.Logger) *raft.Config {
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(o.Address)
	config.HeartbeatTimeout = o.Heartbeat
	config.ElectionTimeout = o.Election
	config.LeaderLeaseTimeout = o.LeaderLease
	config.MaxAppendEntries = o.MaxAppendEntries
	config.SnapshotInterval = o.SnapshotInterval
	config.SnapshotThreshold = o.SnapshotThreshold
	config.TrailingLogs = o.TrailingLogs
	config.Logger = logger
	config.NoLegacyTelemetry = true
	return config
}

// Leading reports whether this member leads.
func (n *Node) Leading() bool { return n.raft.State() == raft.Leader }

// Close stops the member. It may be called after a failed Open.
func (n *Node) Close() error {
	var errs []error
	if n.raft != nil {
		errs = append(errs, n.raft.Shutdown().Error())
	}
	if n.proposer != nil {
		n.proposer.close()
	}
	if n.transport != nil {
		errs = append(errs, n.transport.Close())
	}
	if n.log != nil {
		errs = append(errs, n.log.Close())
	}
	return errors.Join(errs...)
}
