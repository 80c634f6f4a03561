// Package raftlog is the log over hashicorp/raft: replication.Log, with the snapshots, the checks
// at the start, and the limits of the data on disk.
//
// The nouns: a Group is this node's part of the raft group. Its log is a logstore.Log, its network
// a transport.Transport.
//
// Raft's log and its snapshots are durable. A node does not start if its log or snapshots lack an
// entry that the node has acknowledged. A Group ends the process before raft removes an applied
// entry.
package raftlog

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/node/replication"
)

const (
	// leadershipNotices limits the waiting notices of raft. raft's main loop blocks on a full
	// channel, so a goroutine that does nothing else drains it.
	leadershipNotices = 64
	enqueueTimeout    = 2 * time.Second
	// transferPatience limits the time in which raft refuses entries because of a transfer of the
	// leadership. Such a transfer can last without limit (hashicorp/raft#696); after this time, the
	// process ends.
	transferPatience = 10 * time.Second
	// commitTimeout: an idle leader sends its commit index to each follower at intervals between
	// one and two times commitTimeout. raft's default is half as long, and costs twice as many
	// messages.
	commitTimeout = 100 * time.Millisecond
	// logCacheSize is the number of latest entries, each of up to proposer.MaxEntryBytes, that stay
	// in memory for the followers. A follower that keeps up needs no more. For a follower that lags
	// further, the leader reads the disk.
	logCacheSize = 64
)

// Group is this node's part of a raft group. It implements replication.Log.
type Group struct {
	running     atomic.Pointer[raft.Raft] // nil before its start
	machine     replication.Machine
	growth      *growth
	interval    time.Duration // Timings.SnapshotInterval
	voters      func() (voters []*transport.Asker, majority int)
	leaderships chan bool
	changes     chan struct{} // with a buffer of one
	asked       atomic.Int64  // entries whose results this node waits for; raised before raft sees them
	// transferring is the time since which raft has refused entries; nil: raft accepts entries.
	transferring atomic.Pointer[time.Time]
	fatal        func(error)
	logger       hclog.Logger
}

// New makes a group that does not run yet.
func New(fatal func(error), logger hclog.Logger) *Group {
	return &Group{leaderships: make(chan bool, leadershipNotices), changes: make(chan struct{}, 1), fatal: fatal, logger: logger}
}

// Options connect a group with its node.
type Options struct {
	ID        raft.ServerID
	DataDir   string
	Timings   Timings
	Log       *logstore.Log
	Transport raft.Transport
	Machine   replication.Machine
	Past      Past
	// Voters returns the askers of the other voters for a read round, and the number of voters in a
	// majority, including this node.
	Voters       func() (voters []*transport.Asker, majority int)
	SnapshotHold prometheus.Observer // time for which each snapshot delayed applying
	Reconfigured func()              // called after an entry with another list of members
}

// Run starts raft: it checks the data on disk, restores the latest snapshot, and takes part in the
// group.
func (g *Group) Run(o Options) error {
	snapshots, err := OpenSnapshots(o.DataDir, o.Past.Bootstrapped, o.Log, g.logger.Named("snapshot"))
	if err != nil {
		return err
	}
	cached, err := raft.NewLogCache(logCacheSize, o.Log)
	if err != nil {
		return fmt.Errorf("cannot open the raft log: %w", err)
	}
	if err := o.Past.check(o.DataDir, o.Log, cached, snapshots); err != nil {
		return err
	}
	g.machine, g.growth, g.interval, g.voters = o.Machine, newGrowth(o.Timings.SnapshotBytes), o.Timings.SnapshotInterval, o.Voters
	applied := newAppliedGuard(g.settled, g.followed)
	o.Log.Protect(applied)
	snapshots.applied, snapshots.fatal = applied, g.fatal
	state := &replica{machine: g.machine, asked: &g.asked, growth: g.growth, applied: applied, held: o.SnapshotHold, fatal: g.fatal, reconfigured: o.Reconfigured}
	running, err := raft.NewRaft(g.config(o), state, cached, o.Log, snapshots, o.Transport)
	if err != nil {
		return fmt.Errorf("cannot start raft: %w", errors.Join(err, state.unrestored))
	}
	state.started = true // before a leader can send a snapshot
	running.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if _, isLeader := o.Data.(raft.LeaderObservation); isLeader {
			signal(g.changes)
		}
		return false
	}))
	g.running.Store(running)
	return nil
}

func (g *Group) config(o Options) *raft.Config {
	config := raft.DefaultConfig()
	config.LocalID = o.ID
	config.HeartbeatTimeout = o.Timings.Heartbeat
	config.ElectionTimeout = o.Timings.Election
	config.LeaderLeaseTimeout = o.Timings.LeaderLease
	config.CommitTimeout = commitTimeout
	config.MaxAppendEntries = o.Timings.MaxAppendEntries
	config.SnapshotInterval = o.Timings.SnapshotInterval
	config.SnapshotThreshold = o.Timings.SnapshotThreshold
	config.TrailingLogs = o.Timings.TrailingLogs
	config.NotifyCh = g.leaderships
	config.Logger = g.logger.Named("raft")
	config.NoLegacyTelemetry = true
	return config
}

// Raft is raft itself; nil before its start.
func (g *Group) Raft() *raft.Raft { return g.running.Load() }

// settled is the last entry that this node knows to be committed or applied.
func (g *Group) settled() uint64 { return max(g.machine.AppliedIndex(), g.Committed()) }

// Append implements replication.Log.
func (g *Group) Append(entry []byte) replication.Pending {
	running := g.running.Load()
	if running == nil {
		return &pending{group: g, fault: raft.ErrNotLeader}
	}
	g.asked.Add(1)
	return &pending{group: g, future: running.Apply(entry, enqueueTimeout)}
}

// pending is an entry that was passed to raft.
type pending struct {
	group  *Group
	future raft.ApplyFuture // nil: fault has the reason
	fault  error
}

// Wait implements replication.Pending.
func (p *pending) Wait() (uint64, []*conductordv1.Result, error) {
	if p.future == nil {
		return 0, nil, outcome(p.fault)
	}
	err := p.future.Error()
	p.group.asked.Add(-1)
	p.group.watchTransfer(err)
	if err != nil {
		return 0, nil, outcome(err)
	}
	if fault, failed := p.future.Response().(error); failed {
		return 0, nil, fmt.Errorf("%w: %w", jobs.ErrUncertain, fault)
	}
	results, _ := p.future.Response().([]*conductordv1.Result)
	return p.future.Index(), results, nil
}

// outcome separates "it did not happen" from "it may have happened".
func outcome(err error) error {
	if Refused(err) {
		return fmt.Errorf("%w: %w", jobs.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", jobs.ErrUncertain, err)
}

// Refused reports whether raft has not taken an entry, or a change of members, into its log.
func Refused(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipTransferInProgress) || errors.Is(err, raft.ErrEnqueueTimeout)
}

func (g *Group) watchTransfer(err error) {
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		g.transferring.Store(nil)
		return
	}
	now := time.Now()
	if !g.transferring.CompareAndSwap(nil, &now) && now.Sub(*g.transferring.Load()) > transferPatience {
		g.fatal(errors.New("a leadership transfer does not end"))
	}
}

// Leads implements replication.Log.
func (g *Group) Leads() bool {
	running := g.running.Load()
	return running != nil && running.State() == raft.Leader
}

// LeadsIn reports whether this node leads in a term.
func (g *Group) LeadsIn(term uint64) bool { return g.Leads() && g.Term() == term }

// Term implements replication.Log.
func (g *Group) Term() uint64 {
	if running := g.running.Load(); running != nil {
		return running.CurrentTerm()
	}
	return 0
}

// Committed implements replication.Log.
func (g *Group) Committed() uint64 {
	if running := g.running.Load(); running != nil {
		return running.CommitIndex()
	}
	return 0
}

// Leader implements replication.Log.
func (g *Group) Leader() replication.Leader {
	running := g.running.Load()
	if running == nil {
		return replication.Leader{}
	}
	leader := replication.Leader{Heard: running.LastContact()}
	address, _ := running.LeaderWithID()
	if member, err := transport.ParseAddress(address); address != "" && err == nil {
		leader.ID, leader.Name, leader.API = string(member.ID()), member.Name, member.API
	}
	return leader
}

// Follows reports whether this node knows a leader other than a node of an id.
func (g *Group) Follows(other raft.ServerID) bool {
	leader := g.Leader().ID
	return leader != "" && leader != string(other)
}

// followed names the node that raft follows as the leader.
func (g *Group) followed() string {
	running := g.running.Load()
	if running == nil {
		return "a node"
	}
	address, id := running.LeaderWithID()
	return fmt.Sprintf("node %.64q at %.64q", id, address)
}

// Confirm implements replication.Log.
func (g *Group) Confirm() (uint64, error) {
	return (&readRound{g.Leads, g.Term, g.Committed, g.voters}).carryOut()
}

// Leaderships implements replication.Log.
func (g *Group) Leaderships() <-chan bool { return g.leaderships }

// LeaderChanges implements replication.Log.
func (g *Group) LeaderChanges() <-chan struct{} { return g.changes }

// State returns raft's name for the state of this node: follower, candidate, leader or shutdown.
func (g *Group) State() string { return strings.ToLower(g.running.Load().State().String()) }

// Transfer transfers the leadership to a voter; with the zero Member, to any voter. It ends at
// raft's own timeout.
func (g *Group) Transfer(to transport.Member) error {
	if to == (transport.Member{}) {
		return g.running.Load().LeadershipTransfer().Error()
	}
	return g.running.Load().LeadershipTransferToServer(to.ID(), to.Address()).Error()
}

// AddNonvoter adds a node as a member without a vote, or changes the address of such a member. For
// this and the other changes, Refused reports whether an error left the members unchanged.
func (g *Group) AddNonvoter(m transport.Member, patience time.Duration) error {
	return g.running.Load().AddNonvoter(m.ID(), m.Address(), 0, patience).Error()
}

// AddVoter gives a member a vote, or moves a voter.
func (g *Group) AddVoter(m transport.Member, patience time.Duration) error {
	return g.running.Load().AddVoter(m.ID(), m.Address(), 0, patience).Error()
}

// Demote removes the vote of a member.
func (g *Group) Demote(m transport.Member, patience time.Duration) error {
	return g.running.Load().DemoteVoter(m.ID(), 0, patience).Error()
}

// Remove removes a member.
func (g *Group) Remove(m transport.Member, patience time.Duration) error {
	return g.running.Load().RemoveServer(m.ID(), 0, patience).Error()
}

// Ping returns when raft's main loop answers, or when raft ends.
func (g *Group) Ping() { _ = g.running.Load().VerifyLeader().Error() }

// LatestSnapshot is the last entry of the latest snapshot, and its size; 0 if there is none.
func (g *Group) LatestSnapshot() (index, size uint64) { return g.growth.snapshot() }

// Unsnapshotted returns the bytes of log after the latest snapshot of this node.
func (g *Group) Unsnapshotted() int64 { return g.growth.passed() }

// Close ends raft. Close its network first: raft waits for its goroutines, and a goroutine that
// waits for a dead peer can take seconds.
func (g *Group) Close() error {
	if running := g.running.Load(); running != nil {
		return running.Shutdown().Error()
	}
	return nil
}

// signal sends a signal through a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // signalled already
	}
}
