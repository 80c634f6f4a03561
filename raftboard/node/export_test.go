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

// Tune changes bounds of a node's HTTP port.
func Tune(n *Node, change func(*admission.Bounds)) { n.server.Tune(change) }

// Held is the present usage of a node's HTTP port.
func Held(n *Node) admission.Load { return n.server.Load() }

// SetMaxClientSessions bounds the sessions of each client.
func SetMaxClientSessions(n *Node, limit int64) { n.shares.Most.Store(limit) }

// Idle is how many claims wait after they have found no job.
func Idle(n *Node) int { return n.polls.Load().Idle }

// Propose has a node propose commands that no caller may send.
func Propose(ctx context.Context, n *Node, commands ...*conductordv1.Command) ([]*conductordv1.Result, error) {
	_, results, err := n.proposer.Propose(ctx, commands...)
	return results, err
}

// HelloOf is a node's hello in a handshake.
func HelloOf(n *Node) transport.Hello { return n.port.Hello() }

// Digest sums up the state of a node.
func Digest(n *Node) ([32]byte, error) { return n.machine.Digest() }

// AppliedIndex is how far a node has applied the log.
func AppliedIndex(n *Node) uint64 { return n.machine.AppliedIndex() }

// Submit has a leader carry out a command of the test's.
func Submit(ctx context.Context, n *Node, c *conductordv1.Command) (*conductordv1.Result, error) {
	_, result, err := n.api.Router.Submit.One(ctx, c)
	return result, err
}

// Raft is the node's raft.
func Raft(n *Node) *raft.Raft { return n.group.Raft() }

// Transfer hands the leadership over.
func Transfer(n *Node) error { return n.group.Transfer(Member{}) }

// TransferTo hands the leadership to a node.
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

// Waiting is how many claims wait on a node.
func Waiting(n *Node) int { return n.polls.Load().Claims }

// Finishes is how many jobs have calls that wait for their ends on a node.
func Finishes(n *Node) int { return n.polls.Load().Finishes }

// HoldApplied makes a node wait where it would wait until an entry is applied.
// It is for before the first call.
func HoldApplied(n *Node, hold func(ctx context.Context) error) {
	n.reads.Applied = func(ctx context.Context, _ uint64) error { return hold(ctx) }
}

// TimerEpoch is the timer epoch of the present leader.
func TimerEpoch(n *Node) uint64 { return n.machine.TimerEpoch() }

// FirstIndex is where the node's log begins.
func FirstIndex(n *Node) uint64 { first, _ := n.log.FirstIndex(); return first }

// Heard is for how long a peer has answered none of raft's messages.
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

// HangWrites has a node's log hang while the lock is held.
func HangWrites(o *Options, disk *sync.RWMutex) {
	o.System.Log = func(engine logstore.Engine) logstore.Engine { return hangingEngine{engine, disk} }
}

// DiskSpace describes the disk space of a node, in MiB.
func DiskSpace(n *Node) string {
	size, reusable, _ := n.machine.Space()
	return fmt.Sprintf("%d MiB: state %d, of which %d are free, log has %d free", n.disk.Free()>>20, size>>20, reusable>>20, n.log.Reusable()>>20)
}

// Lasting is how many calls last that a node ends with the right to them.
func Lasting(n *Node) int { return n.api.Router.Guard.Lasting() }

// Calls are the calls that the API takes, each with its permission class.
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

// Difference is a node's verdict on the list in its file.
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

// SealIdentity is an identity that was changed, with its checksum.
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
