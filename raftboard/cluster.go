package raftboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/wire"
)

// Status is one node's view of itself and its cluster.
type Status struct {
	Cluster       string
	Generation    uint64
	Node          string
	State         string // leader, follower, candidate, …
	Leader        string // the leader's name; empty: unknown
	LeaderAddress string // of the leader's API
	Term          uint64
	CommitIndex   uint64
	AppliedIndex  uint64
	Members       []Member
	Version       string // of the program
	// ClusterVersion is the version of log commands that the cluster uses. ProgramVersion is the
	// latest version that the node's program can read.
	ClusterVersion, ProgramVersion int
	StartedAt                      time.Time
	LastContact                    time.Duration // time since the node last heard the leader
	LogStore                       string        // format of raft's log: bolt or wal
	LogBytes, LogFreeBytes         uint64        // size of the log's files, and their free part
	SnapshotIndex, SnapshotBytes   uint64        // last entry of its latest snapshot, and its size; 0: none
	DiskFreeBytes                  uint64        // free space on the disk of the data directory
	DiskShort                      bool          // the node needs more free space, so the cluster rejects new work
	// ClockOffset is the difference between the node's wall clock and the cluster's time, positive
	// if the clock is ahead; nil: unknown.
	ClockOffset *time.Duration

	// MembersDiffer describes the error in the list of members in the node's file; empty: none.
	MembersDiffer string

	// TopologyDigest is the digest of the node's topology, and TopologyCluster its cluster's name
	// there; empty: the node uses no topology.
	TopologyDigest, TopologyCluster string

	// BackupAge is the age of the node's newest scheduled backup; without one, the time since the
	// node's start. BackupInterval is 0 if the node makes none. Backups has the newest first.
	BackupAge, BackupInterval time.Duration
	Backups                   []ScheduledBackup

	Jobs     map[jobs.State]uint64 // number of jobs, by state
	Sessions uint64
	Ready    bool
	NotReady string // reason, if the node is not ready
}

// ScheduledBackup is a backup that a node has made by its schedule.
type ScheduledBackup struct {
	File     string // its name in the node's directory of backups
	MadeAt   time.Time
	Bytes    uint64
	Index    uint64 // log index; 0 until the node has read the file
	Verified bool   // the node has read the file since its start, and the checksums match
	Fault    string // reason why the file cannot be used
}

// NodeStatus is the status of one endpoint, or the reason why it is unknown.
type NodeStatus struct {
	Endpoint string
	Status   Status
	Err      error
}

// statusTime limits the call to one node, which is not repeated.
const statusTime = 2 * time.Second

// transferTime limits an attempt to transfer the leadership, or to change a member: longer than a
// node waits for it.
const transferTime = 10 * time.Second

// Status reads the view of one node, with one call. The endpoint need not be one of the client's
// endpoints.
func (c *Client) Status(ctx context.Context, endpoint string) (Status, error) {
	base, err := c.options.baseURL(endpoint)
	if err != nil {
		return Status{}, fmt.Errorf("cannot read the status of a node: %w", err)
	}
	return c.status(ctx, c.peers.at(base))
}

func (c *Client) status(ctx context.Context, p *peer) (Status, error) {
	bounded, cancel := c.bounded(ctx, statusTime)
	defer cancel(nil)
	op := operation{name: "read the status of " + p.String(), reads: true, try: statusTime}
	answer, failed := exchange(bounded, c.core, p, op, &v1.StatusRequest{}, p.cluster.Status)
	switch {
	case failed == nil:
		return readStatus(answer)
	case failed.final:
		return Status{}, fmt.Errorf("cannot %s: %w", op.name, failed.err)
	case ctx.Err() != nil:
		return Status{}, fmt.Errorf("cannot %s: %w", op.name, ctx.Err())
	}
	if errors.Is(failed.err, jobs.ErrUnavailable) {
		return Status{}, fmt.Errorf("cannot %s: %w", op.name, failed.err)
	}
	return Status{}, fmt.Errorf("cannot %s: %w: %s", op.name, jobs.ErrUnavailable, wire.WithoutClass(failed.err))
}

// TransferLeader hands the leadership over to a node, or to any node that answers, and returns
// the name of the new leader. A repeat is harmless. Errors: ErrNotFound; ErrConflict if the node
// does not answer, or if there is no other node.
func (c *Client) TransferLeader(ctx context.Context, to string) (leader string, err error) {
	op := operation{name: "transfer the leadership", try: transferTime}
	request := &v1.TransferLeaderRequest{To: to}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.TransferLeaderRequest, v1.TransferLeaderResponse] {
		return p.cluster.TransferLeader
	})
	return answer.GetLeader(), err
}

// Upgrade raises the version of the cluster to the version of the leader's program, and returns
// it. From then on older programs cannot be members. A repeat is harmless. Error: ErrConflict if
// a member cannot read that version, or does not answer.
func (c *Client) Upgrade(ctx context.Context) (version int, err error) {
	op := operation{name: "upgrade the cluster", try: transferTime}
	answer, err := call(ctx, c.core, op, &v1.UpgradeRequest{}, func(p *peer) unary[v1.UpgradeRequest, v1.UpgradeResponse] { return p.cluster.Upgrade })
	return int(answer.GetVersion()), err
}

// Cluster asks every known node in parallel. The result has the client's own endpoints in their
// given order, then the learned nodes. A node that has answered under one address is not listed
// under another.
func (c *Client) Cluster(ctx context.Context) []NodeStatus {
	nodes := c.peers.known()
	all := make([]NodeStatus, len(nodes))
	var asking sync.WaitGroup
	for i, p := range nodes {
		asking.Go(func() {
			all[i].Endpoint = p.String()
			all[i].Status, all[i].Err = c.status(ctx, p)
		})
	}
	asking.Wait()
	named := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(n NodeStatus) bool {
		twice := n.Err == nil && named[n.Status.Node]
		named[n.Status.Node] = n.Err == nil || named[n.Status.Node]
		return twice
	})
}

func readStatus(message *v1.StatusResponse) (Status, error) {
	started, startedErr := command.TimeFromProto("started_at", message.GetStartedAt())
	contact, contactErr := command.DurationFromProto("last_contact", message.GetLastContact())
	offset, offsetErr := command.DurationFromProto("clock_offset", message.GetClockOffset())
	age, ageErr := command.DurationFromProto("backup_age", message.GetBackupAge())
	interval, intervalErr := command.DurationFromProto("backup_interval", message.GetBackupInterval())
	if err := errors.Join(startedErr, contactErr, offsetErr, ageErr, intervalErr); err != nil {
		return Status{}, fmt.Errorf("cannot read the status of a node: %w", err)
	}
	s := Status{
		Cluster: message.GetCluster(), Generation: message.GetGeneration(),
		Node: message.GetNode(), State: message.GetState(),
		Leader: message.GetLeader(), LeaderAddress: message.GetLeaderAddress(),
		Term: message.GetTerm(), CommitIndex: message.GetCommitIndex(), AppliedIndex: message.GetAppliedIndex(),
		Version: message.GetVersion(), StartedAt: started, LastContact: contact,
		Sessions: message.GetSessions(), Ready: message.GetReady(), NotReady: message.GetNotReady(), LogStore: message.GetLogStore(),
		Members: readMembers(message.GetMembers()), MembersDiffer: message.GetMembersDiffer(),
		ClusterVersion: int(message.GetClusterVersion()), ProgramVersion: int(message.GetProgramVersion()),
		TopologyDigest: message.GetTopologyDigest(), TopologyCluster: message.GetTopologyCluster(),
		LogBytes: message.GetLogBytes(), LogFreeBytes: message.GetLogFreeBytes(), SnapshotIndex: message.GetSnapshotIndex(), SnapshotBytes: message.GetSnapshotBytes(),
		DiskFreeBytes: message.GetDiskFreeBytes(), DiskShort: message.GetDiskShort(), BackupAge: age, BackupInterval: interval,
		Jobs: make(map[jobs.State]uint64, len(message.GetJobs())),
	}
	for _, b := range message.GetBackups() {
		made, err := command.TimeFromProto("made_at", b.GetMadeAt())
		if err != nil {
			return Status{}, fmt.Errorf("cannot read the status of a node: %w", err)
		}
		s.Backups = append(s.Backups, ScheduledBackup{File: b.GetFile(), MadeAt: made, Bytes: b.GetBytes(), Index: b.GetIndex(), Verified: b.GetVerified(), Fault: b.GetFault()})
	}
	if message.ClockOffset != nil {
		s.ClockOffset = &offset
	}
	for state, n := range message.GetJobs() {
		s.Jobs[jobs.State(state)] = n
	}
	return s, nil
}

// greet waits until a node has answered, and learns the other nodes from it.
func (c *Client) greet(ctx context.Context) error {
	op := operation{name: "reach the cluster", reads: true, first: true, try: statusTime}
	answer, err := call(ctx, c.core, op, &v1.StatusRequest{}, func(p *peer) unary[v1.StatusRequest, v1.StatusResponse] { return p.cluster.Status })
	if err != nil {
		return err
	}
	for _, member := range answer.GetMembers() {
		if member.GetName() != answer.GetNode() {
			c.peers.learn(member.GetApiAddress())
		}
	}
	return nil
}
