package node_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

// changing is a cluster with changing members. The files list all nodes that will ever be members,
// except the files of the founders, which list the founders.
type changing struct {
	*cluster
	faults chan error // errors of stopped nodes
}

func newChanging(t *testing.T, founders, size int, adjust ...func(*node.Options)) *changing {
	t.Helper()
	c := &changing{faults: make(chan error, size)}
	c.cluster = newCluster(t, size, append(adjust, func(o *node.Options) {
		o.Fatal = func(err error) { c.faults <- err }
		o.Raft.SnapshotThreshold, o.Raft.TrailingLogs = 64, 128 // so that a new member gets a snapshot
	})...)
	for i := range c.options {
		if i < founders {
			c.options[i].Members = c.options[i].Members[:founders]
		} else {
			c.options[i].Init = false
		}
	}
	for i := range founders {
		c.start(i)
	}
	c.ready()
	return c
}

// join admits a node to the cluster and starts it.
func (c *changing) join(client *raftboard.Client, i int, how membership.Join) error {
	c.t.Helper()
	c.options[i].Init = false
	err := node.JoinCluster(c.options[i], how, admissionBy(c.t, client, c.options[i].Cluster, how.Replaces))
	if err == nil {
		c.start(i)
	}
	return err
}

// admissionBy requests a node's admission from a cluster.
func admissionBy(t *testing.T, client *raftboard.Client, cluster, replaces string) func(node.Member, uuid.UUID) (membership.Admission, error) {
	return func(self node.Member, instance uuid.UUID) (membership.Admission, error) {
		told, err := client.AddMember(t.Context(), raftboard.NewMember{
			Cluster: cluster, Name: self.Name, Instance: instance, RaftAddress: self.Raft, APIAddress: self.API, Replaces: replaces,
		})
		admission := membership.Admission{Generation: told.Generation, Origin: told.Origin}
		for _, founder := range told.Founders {
			admission.Founders = append(admission.Founders, node.Member{Name: founder.Name, Raft: founder.RaftAddress, API: founder.APIAddress})
		}
		return admission, err
	}
}

// awaitMembers waits until every running node knows these voters and non-voters.
func (c *changing) awaitMembers(voters, others string) {
	c.t.Helper()
	eventually(c.t, "the voters are "+voters+", and the others "+others, func() bool {
		for i, running := range c.nodes {
			if running == nil {
				continue
			}
			v, o := node.MembersOf(c.nodes[i])
			if strings.Join(v, " ") != voters || strings.Join(o, " ") != others || running.Ready() != nil {
				return false
			}
		}
		return true
	})
}

// fault waits for the error of a stopping node.
func (c *changing) fault() error {
	c.t.Helper()
	select {
	case fault := <-c.faults:
		return fault
	case <-time.After(patience):
		c.t.Fatalf("no node has stopped within %v", patience)
		return nil
	}
}

// refused expects that a node does not start, with this reason.
func (c *changing) refused(o node.Options, why string) {
	c.t.Helper()
	opened, err := node.Open(o)
	if err == nil {
		c.t.Errorf("%s starts", o.Name)
		_ = opened.Close()
	} else if !strings.Contains(err.Error(), why) {
		c.t.Errorf("%s does not start, and says %v", o.Name, err)
	}
}

// load posts until it is stopped, and counts the acknowledged jobs.
func (c *changing) load(client *raftboard.Client) (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var acknowledged atomic.Int64
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		for ctx.Err() == nil {
			_, err := client.Post(ctx, jobs.Posting{ID: jobs.NewJobID(), Name: "load", Board: "default", Kind: "plain"})
			if err == nil {
				acknowledged.Add(1)
			} else if ctx.Err() == nil && !errors.Is(err, jobs.ErrUncertain) && !errors.Is(err, jobs.ErrUnavailable) {
				c.t.Error(err)
			}
		}
	}()
	return func() int64 { cancel(); <-done; return acknowledged.Load() }
}

// A cluster grows from three to five nodes under load, loses two, and shrinks to three: its leader
// is also removed. Promise 1: no acknowledged job is lost.
func TestMembersGrowAndShrink(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	c := newChanging(t, 3, 5)
	client := c.client(0, 1, 2)
	for range 200 {
		posted(t, client)
	}
	stop := c.load(client)
	for _, i := range []int{3, 4} {
		if err := c.join(client, i, membership.Join{}); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitMembers("n1 n2 n3 n4 n5", "")
	if difference := node.Difference(c.nodes[0]); difference != "it lacks n4, it lacks n5" {
		t.Errorf("node 1 says of its file: %q", difference)
	}

	all := c.client(0, 1, 2, 3, 4)
	c.stop(0)
	c.stop(1)
	posted(t, all) // three of five are a majority
	c.options[0].Init, c.options[1].Init = false, false
	c.start(0, 1)
	c.awaitMembers("n1 n2 n3 n4 n5", "")

	leader := c.leader()
	other := c.others(leader)[0]
	for _, i := range []int{other, leader} {
		if _, err := all.RemoveMember(t.Context(), c.options[i].Name); err != nil {
			t.Fatal(err)
		}
		if fault := c.fault(); !strings.Contains(fault.Error(), "removed or replaced") {
			t.Errorf("a removed node stops with %v", fault)
		}
		c.stop(i)
		c.refused(c.options[i], "removed or replaced")
	}
	c.ready()
	acknowledged := stop()
	posted(t, all)
	same(t, c.cluster)
	for _, running := range c.nodes {
		if running != nil && node.Counts(running)[jobs.StateClaimable] < uint64(acknowledged)+202 {
			t.Errorf("%d postings were acknowledged, and there are %d", acknowledged+202, node.Counts(running)[jobs.StateClaimable])
		}
	}
}

// A node that lost its disk is replaced by a node of the same name. A live node is replaced by
// another one. Promise 7: the old node is refused, and never counts again.
func TestReplaceMembers(t *testing.T) {
	t.Parallel()
	c := newChanging(t, 3, 4)
	client := c.client(0, 1, 2)
	for range 200 {
		posted(t, client)
	}
	copied := t.TempDir()
	c.stop(2)
	if err := c.join(client, 2, membership.Join{Replaces: "n3"}); err == nil || !strings.Contains(err.Error(), "it contains a node") {
		t.Errorf("with a directory in use: %v", err)
	}
	if err := errors.Join(copyDir(copied, c.options[2].DataDir), os.RemoveAll(c.options[2].DataDir)); err != nil {
		t.Fatal(err)
	}
	c.options[2].Init = true
	c.refused(c.options[2], "conductord cluster replace")
	if err := os.RemoveAll(c.options[2].DataDir); err != nil {
		t.Fatal(err)
	}
	if err := c.join(client, 2, membership.Join{}); !errors.Is(err, jobs.ErrConflict) || !strings.Contains(err.Error(), "conductord cluster replace n3 n3") {
		t.Errorf("as a new member: %v", err)
	}
	if err := c.join(client, 2, membership.Join{Replaces: "n3"}); err != nil {
		t.Fatal(err)
	}
	c.awaitMembers("n1 n2 n3", "")

	// A node that has just started may not know yet that its caller is a member.
	c.options[0].Init, c.options[1].Init = false, false
	for range 4 {
		for i := range 2 {
			c.stop(i)
			c.start(i)
			c.ready()
		}
	}
	select {
	case fault := <-c.faults:
		t.Fatalf("a node stops while another one starts: %v", fault)
	default:
	}

	if err := c.join(client, 3, membership.Join{Replaces: "n1"}); err != nil {
		t.Fatal(err)
	}
	if fault := c.fault(); !strings.Contains(fault.Error(), "removed or replaced") {
		t.Errorf("the replaced node stops with %v", fault)
	}
	c.stop(0)
	c.awaitMembers("n2 n3 n4", "")
	same(t, c.cluster)

	c.stop(2)
	old := c.options[2]
	old.DataDir, old.Init = copied, false
	c.refused(old, "removed or replaced")
}

// A member without a vote has the state, and does not count for majorities. Its vote is added and
// removed.
func TestVotesOfMembers(t *testing.T) {
	t.Parallel()
	c := newChanging(t, 1, 3)
	client := c.client(0)
	posted(t, client)
	if err := c.join(client, 1, membership.Join{NonVoter: true}); err != nil {
		t.Fatal(err)
	}
	c.awaitMembers("n1", "n2")
	c.stop(1)
	posted(t, client) // one of one voter is a majority
	if _, err := client.SetVote(t.Context(), "n2", true); !errors.Is(err, jobs.ErrConflict) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a vote for a node that is away: %v", err)
	}
	c.start(1)
	c.ready()
	if _, err := client.TransferLeader(t.Context(), "n2"); !errors.Is(err, jobs.ErrConflict) {
		t.Errorf("a non-voter is to lead: %v", err)
	}
	for range 2 { // a repetition changes nothing
		if _, err := client.SetVote(t.Context(), "n2", true); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitMembers("n1 n2", "")
	if err := c.join(client, 2, membership.Join{}); err != nil {
		t.Fatal(err)
	}
	c.awaitMembers("n1 n2 n3", "")
	leader := c.leader()
	members, err := client.SetVote(t.Context(), c.options[leader].Name, false) // the leader transfers the leadership first
	if err != nil {
		t.Fatal(err)
	}
	if at := slices.IndexFunc(members, func(m raftboard.Member) bool { return m.Name == c.options[leader].Name }); members[at].Voter {
		t.Errorf("it has a vote: %v", members)
	}
	same(t, c.cluster)
}

// Each wrong change is refused in one line, and changes nothing.
func TestChangesThatAreRefused(t *testing.T) {
	t.Parallel()
	c := newChanging(t, 3, 5)
	client := c.client(0, 1, 2)
	members := c.options[4].Members
	add := func(change func(*raftboard.NewMember)) error {
		member := raftboard.NewMember{Cluster: "test", Name: "n4", Instance: uuid.New(), RaftAddress: members[3].Raft, APIAddress: members[3].API}
		change(&member)
		_, err := client.AddMember(t.Context(), member)
		return err
	}
	leader := c.leader()
	remove := func(name string) error { _, err := client.RemoveMember(t.Context(), name); return err }
	for _, row := range []struct {
		name   string
		err    error
		kind   error
		reason string
	}{
		{"a wrong cluster id", add(func(m *raftboard.NewMember) { m.Cluster = "other" }), jobs.ErrInvalid, `this is cluster "test"`},
		{"no instance", add(func(m *raftboard.NewMember) { m.Instance = uuid.Nil }), jobs.ErrInvalid, "UUID"},
		{"no name", add(func(m *raftboard.NewMember) { m.Name = "" }), jobs.ErrInvalid, "name"},
		{"no port", add(func(m *raftboard.NewMember) { m.RaftAddress = "host" }), jobs.ErrInvalid, "HOST:PORT"},
		{"a strange address", add(func(m *raftboard.NewMember) { m.APIAddress = "a@b,c:1" }), jobs.ErrInvalid, "HOST:PORT"},
		{"a long address", add(func(m *raftboard.NewMember) { m.APIAddress = strings.Repeat("a", 260) + ":1" }), jobs.ErrLimit, "260"},
		{"a used name", add(func(m *raftboard.NewMember) { m.Name = "n2" }), jobs.ErrConflict, `"n2" is already a member`},
		{"a used address", add(func(m *raftboard.NewMember) { m.APIAddress = members[1].API }), jobs.ErrConflict, "has the address"},
		{"an address that answers", add(func(m *raftboard.NewMember) {
			m.RaftAddress = c.nodes[0].APIAddress().String()
			m.APIAddress = "127.0.0.1:1"
		}), jobs.ErrConflict, "has the address"},
		{"a member that runs", add(func(m *raftboard.NewMember) { m.Name, m.Replaces = "n2", "n2" }), jobs.ErrConflict, "stop it first"},
		{"nobody to replace", add(func(m *raftboard.NewMember) { m.Replaces = "n9" }), jobs.ErrNotFound, "n9"},
		{"nobody to remove", remove("n9"), jobs.ErrNotFound, "n9"},
	} {
		if !errors.Is(row.err, row.kind) || !strings.Contains(row.err.Error(), row.reason) {
			t.Errorf("%s: %v", row.name, row.err)
		}
	}
	away := c.others(leader)
	c.stop(away[0])
	if err := remove(c.options[away[1]].Name); !errors.Is(err, jobs.ErrConflict) || !strings.Contains(err.Error(), "2 voters would remain, 2 of them must answer, and only 1 can be reached") {
		t.Errorf("the last member but one that answers: %v", err)
	}
	if _, err := client.MoveMember(t.Context(), c.options[away[0]].Name, "127.0.0.1:1", "127.0.0.1:2"); !errors.Is(err, jobs.ErrConflict) || !strings.Contains(err.Error(), "start it there first") {
		t.Errorf("a member that is nowhere: %v", err)
	}
	voters, _ := node.MembersOf(c.nodes[leader])
	if !slices.Equal(voters, []string{"n1", "n2", "n3"}) {
		t.Errorf("the members are %v", voters)
	}
	if err := remove(c.options[away[0]].Name); err != nil { // one member is down: two of two answer
		t.Errorf("a dead member: %v", err)
	}
}

// A member with new addresses is still the same member.
func TestMoveMember(t *testing.T) {
	t.Parallel()
	c := newChanging(t, 3, 3)
	client := c.client(0, 1, 2)
	posted(t, client)
	moving := c.leader()
	name := c.options[moving].Name
	c.stop(moving)
	addresses := freeAddresses(t, 2)
	o := &c.options[moving]
	o.Members = slices.Clone(o.Members)
	o.Members[moving].Raft, o.Members[moving].API = addresses[0], addresses[1]
	o.RaftListen, o.APIListen = "", ""
	c.start(moving)
	for range 2 {
		if _, err := client.MoveMember(t.Context(), name, addresses[0], addresses[1]); err != nil {
			t.Fatal(err)
		}
	}
	c.ready()
	posted(t, c.client(moving))
	if _, err := client.TransferLeader(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	posted(t, client)
	c.stop(c.others(moving)[0])
	posted(t, client) // with its vote
}

// A member that has been silent for long enough is removed.
func TestDeadMembersAreRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(o *node.Options) { o.RemoveDeadAfter = 2 * time.Second }).startAll()
	leader := c.leader()
	dead := c.others(leader)
	client := c.client()
	c.stop(dead[0])
	eventually(t, "a dead member is removed", func() bool {
		voters, _ := node.MembersOf(c.nodes[leader])
		return !slices.Contains(voters, c.options[dead[0]].Name)
	})
	posted(t, client)
}
