package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/cluster"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// Internals that the tests of this package use.

// Tune changes limits of a node's HTTP port.
func Tune(n *Node, change func(*admission.Bounds)) { n.server.Tune(change) }

// Held is the current usage of a node's HTTP port.
func Held(n *Node) admission.Load { return n.server.Load() }

// SetMaxClientSessions limits the sessions of each client.
func SetMaxClientSessions(n *Node, limit int64) { n.shares.Most.Store(limit) }

// Idle is the number of claims that wait after finding no job.
func Idle(n *Node) int { return n.polls.Load().Idle }

// AwaitedSteps is the number of flows with steps that calls wait for.
func AwaitedSteps(n *Node) int { return n.polls.Load().Steps }

// Propose lets a node propose commands that no caller can send.
func Propose(ctx context.Context, n *Node, commands ...*conductordv1.Command) ([]*conductordv1.Result, error) {
	_, results, err := n.proposer.Propose(ctx, commands...)
	return results, err
}

// HelloOf is a node's hello in a handshake.
func HelloOf(n *Node) transport.Hello { return n.port.Hello() }

// Digest is the checksum of a node's state.
func Digest(n *Node) ([32]byte, error) { return n.machine.Digest() }

// AppliedIndex is the last log index that a node has applied.
func AppliedIndex(n *Node) uint64 { return n.machine.AppliedIndex() }

// Submit sends a test's command through a leader.
func Submit(ctx context.Context, n *Node, c *conductordv1.Command) (*conductordv1.Result, error) {
	_, result, err := n.api.Router.Submit.One(ctx, c)
	return result, err
}

// Raft is the node's raft.
func Raft(n *Node) *raft.Raft { return n.group.Raft() }

// Transfer transfers the leadership.
func Transfer(n *Node) error { return n.group.Transfer(Member{}) }

// TransferTo transfers the leadership to a node.
func TransferTo(n *Node, name string) error {
	member, known := n.members.Find(name)
	if !known {
		return errors.New("no such member")
	}
	return n.group.Transfer(member.Member)
}

// Sweep makes a leader remove the jobs that the retention policy no longer keeps.
func Sweep(n *Node) error {
	current, err := n.leader.Serving()
	if err == nil {
		n.newLeaderTasks().Sweep(context.Background(), current)
	}
	return err
}

// Waiting is the number of claims that wait on a node.
func Waiting(n *Node) int { return n.polls.Load().Claims }

// Finishes is the number of jobs for whose ends calls wait on a node.
func Finishes(n *Node) int { return n.polls.Load().Finishes }

// HoldApplied replaces a node's wait for applied entries. It must be called before the first call
// to the node.
func HoldApplied(n *Node, hold func(ctx context.Context) error) {
	n.reads.Applied = func(ctx context.Context, _ uint64) error { return hold(ctx) }
}

// TimerEpoch is the timer epoch of the current leader.
func TimerEpoch(n *Node) uint64 { return n.machine.TimerEpoch() }

// FirstIndex is the first index of the node's log.
func FirstIndex(n *Node) uint64 { first, _ := n.log.FirstIndex(); return first }

// Heard is the time since a peer last answered a raft message.
func Heard(n *Node, peer string) time.Duration {
	member, _ := n.members.Find(peer)
	return n.port.Quiet(member.Address())
}

// LastSnapshot is the last entry of the latest snapshot; 0 if there is none.
func LastSnapshot(n *Node) uint64 { index, _ := n.group.LatestSnapshot(); return index }

// hangingEngine is a log store whose disk can be made to hang.
type hangingEngine struct {
	logstore.Engine
	disk *sync.RWMutex
}

func (e hangingEngine) StoreLogs(logs []*raft.Log) error {
	e.disk.RLock()
	defer e.disk.RUnlock()
	return e.Engine.StoreLogs(logs)
}

// HangWrites blocks writes to a node's log while the lock is held.
func HangWrites(o *Options, disk *sync.RWMutex) {
	o.System.Log = func(engine logstore.Engine) logstore.Engine { return hangingEngine{engine, disk} }
}

// DiskSpace describes the disk space of a node, in MiB.
func DiskSpace(n *Node) string {
	size, reusable, _ := n.machine.Space()
	return fmt.Sprintf("%d MiB: state %d, of which %d are free, log has %d free", n.disk.Free()>>20, size>>20, reusable>>20, n.log.Reusable()>>20)
}

// Lasting is the number of streams and waits of a node that end with their permission.
func Lasting(n *Node) int { return n.api.Router.Guard.Lasting() }

// Calls are the calls of the API with their permission classes.
func Calls() map[string]string {
	calls := map[string]string{}
	routed := api.New(&api.Parts{Guard: new(guard.Guard), Elsewhere: new(api.Elsewhere)})
	about := cluster.New(&cluster.Parts{Router: routed.Router, Clock: new(clock.Clock), Ready: new(lead.Readiness), Leader: new(lead.State), Machine: new(fsm.Machine)})
	for _, c := range append(routed.Calls(), about.Calls()...) {
		calls[c.Name] = string(c.Permission)
	}
	return calls
}

// MembersOf are the names of the members as a node knows them.
func MembersOf(n *Node) (voters, others []string) {
	for _, member := range n.members.Now() {
		if member.Voter {
			voters = append(voters, member.Name)
		} else {
			others = append(others, member.Name)
		}
	}
	slices.Sort(voters)
	return voters, others
}

// Difference is a node's report on differences from the members in its file.
func Difference(n *Node) string { return n.members.Difference() }

// Counts counts the jobs on a node by state.
func Counts(n *Node) map[jobs.State]uint64 { return n.machine.Counts() }

// Diverge makes a node skip the next entry, which drains a conductor: its state then differs
// from the other nodes'.
func Diverge(n, leader *Node) error {
	if _, err := n.machine.Apply([]fsm.Entry{{Index: Raft(leader).LastIndex() + 1, Term: n.group.Term()}}); err != nil {
		return err
	}
	data, err := command.EncodeEntry(&conductordv1.Entry{TimeUnixNano: leader.clock.Now().UnixNano(), Commands: []*conductordv1.Command{
		{Kind: &conductordv1.Command_DrainConductor{DrainConductor: &conductordv1.DrainCommand{Conductor: n.options.Name, By: "test", Absent: true}}},
	}})
	if err != nil {
		return err
	}
	return Raft(leader).Apply(data, 0).Error()
}

// SealIdentity updates the checksum of a changed identity.
func SealIdentity(data []byte) ([]byte, error) {
	var id membership.Identity
	if err := json.Unmarshal(data, &id); err != nil {
		return nil, err
	}
	whole, err := json.Marshal(&id)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		membership.Identity
		Checksum string `json:"checksum"`
	}{id, fmt.Sprintf("%08x", crc32.ChecksumIEEE(whole))})
}
