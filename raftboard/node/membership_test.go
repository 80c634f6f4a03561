package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/wire"
)

// startup is the start of a node with the members in its file.
type startup struct {
	node  int   // number of the node, from 1
	lists []int // the members in its file
	moved int   // a member with a different raft address in the file; 0: none
	wiped bool  // started with an empty disk
}

// together starts nodes in parallel, each with the same list.
func together(lists []int, which ...int) (all []startup) {
	for _, i := range which {
		all = append(all, startup{node: i, lists: lists})
	}
	return all
}

var (
	three = []int{1, 2, 3}
	five  = []int{1, 2, 3, 4, 5}
	whole = together(three, 1, 2, 3)
)

// No combination of configuration files creates two leaders that both acknowledge. A node that
// could do this stops, and names both lists.
func TestWrongMemberLists(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		before []startup // starts that form a working cluster
		then   []startup // the wrong starts
		later  []startup // starts after the others have settled: see "Known gaps" in docs/guarantees.md
		stops  []int     // the nodes that stop
		waits  []int     // nodes that wait for others
		nobody bool      // no node leads: at least two stop, and the others wait
		forms  bool      // one cluster can form anyway if all its members had answered before one stopped
		long   bool
	}{
		{name: "no mistake", then: whole},
		{name: "one lists itself alone, and is first", before: together([]int{3}, 3), then: together(three, 1, 2), stops: []int{1, 2}},
		{name: "one lists itself alone, and is last", long: true, then: append(together(three, 1, 2), startup{node: 3, lists: []int{3}}), nobody: true},
		{name: "one lists itself alone, on a new disk", before: whole, then: []startup{{node: 3, lists: []int{3}, wiped: true}}, stops: []int{3}},
		{name: "one lists itself alone, on its old disk", long: true, before: whole, then: []startup{{node: 3, lists: []int{3}}}},
		{name: "one was alone, and lists all", long: true, before: together([]int{3}, 3), then: []startup{{node: 3, lists: three}}},
		{name: "one lists two of three", then: append(together(three, 1, 3), startup{node: 2, lists: []int{1, 2}}), nobody: true},
		{name: "two do not know the third", long: true, before: together([]int{1, 2}, 1, 2), then: []startup{{node: 3, lists: three}}, stops: []int{3}},
		{name: "a circle", then: []startup{{node: 1, lists: []int{1, 2}}, {node: 2, lists: []int{2, 3}}, {node: 3, lists: []int{1, 3}}}, nobody: true},
		{name: "two clusters share one", then: append(together(three, 1, 2), together([]int{3, 4, 5}, 3, 4, 5)...), nobody: true, forms: true},
		{name: "another cluster takes one on a new disk", long: true, before: whole, then: []startup{{node: 3, lists: []int{3, 4, 5}, wiped: true}},
			stops: []int{3}, later: together([]int{3, 4, 5}, 4, 5), waits: []int{4, 5}},
		{name: "another address for one", long: true, then: append(together(three, 1, 3), startup{node: 2, lists: three, moved: 3}), nobody: true},
		{name: "another address for one, later", long: true, before: whole, then: []startup{{node: 2, lists: three, moved: 3}}},
		{name: "three become five", long: true, before: whole, then: together(five, 1, 4, 5), stops: []int{4, 5}},
		{name: "five become three", long: true, before: together(five, five...), then: together(three, 1, 2)},
		{name: "three become one", long: true, before: whole, then: together([]int{1}, 1)},
		{name: "one becomes three", long: true, before: together([]int{1}, 1), then: together(three, 2, 3), stops: []int{2, 3}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.long {
				longtest.Skip(t)
			}
			t.Parallel()
			m := newMistake(t)
			if len(row.before) > 0 {
				m.startAll(row.before)
				m.settle(nil, nil, false, false)
				m.acknowledge(true, false)
			}
			m.startAll(row.then)
			if len(row.later) > 0 {
				m.settle(row.stops, nil, false, false)
				m.startAll(row.later)
			}
			m.settle(row.stops, row.waits, row.nobody, row.forms)
			m.acknowledge(slices.ContainsFunc(m.nodes, func(n *node.Node) bool { return n != nil && n.Ready() == nil }), row.forms)
		})
	}
}

// mistake is nodes of one cluster id whose files differ.
type mistake struct {
	*cluster
	mu     sync.Mutex
	faults map[int]error // errors of stopped nodes by number; guarded by mu
}

func newMistake(t *testing.T) *mistake {
	m := &mistake{cluster: newCluster(t, 5), faults: map[int]error{}}
	for i := range m.options {
		m.options[i].Fatal = func(err error) { m.stopped(i+1, err) }
	}
	return m
}

func (m *mistake) stopped(number int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults[number] = errors.Join(m.faults[number], err)
}

// startAll starts nodes. It stops a node first that is already running.
func (m *mistake) startAll(all []startup) {
	m.t.Helper()
	members := m.options[0].Members
	for _, one := range all {
		i := one.node - 1
		m.stop(i)
		o := m.options[i]
		if o.Members = nil; one.wiped {
			if err := os.RemoveAll(o.DataDir); err != nil {
				m.t.Fatal(err)
			}
		}
		for _, number := range one.lists {
			member := members[number-1]
			if number == one.moved {
				member.Raft = freeAddresses(m.t, 1)[0]
			}
			o.Members = append(o.Members, member)
		}
		opened, err := node.Open(o)
		if err != nil {
			m.stopped(one.node, err)
			continue
		}
		m.nodes[i] = opened
	}
}

// settle waits until each node has stopped, waits for others, or is ready.
func (m *mistake) settle(stops, waits []int, nobody, forms bool) {
	m.t.Helper()
	eventually(m.t, "every node is settled", func() bool {
		m.mu.Lock()
		stopped := slices.Collect(maps.Keys(m.faults))
		m.mu.Unlock()
		for _, number := range stopped {
			m.stop(number - 1) // as the process would
		}
		if nobody && len(stopped) < 2 || slices.ContainsFunc(stops, func(i int) bool { return !slices.Contains(stopped, i) }) {
			return false
		}
		for i, running := range m.nodes {
			if running == nil {
				continue
			}
			err := running.Ready()
			if forms && err == nil {
				continue
			}
			if waiting := err != nil && strings.Contains(err.Error(), "waits for"); waiting != (nobody || slices.Contains(waits, i+1)) || !waiting && err != nil {
				return false
			}
		}
		return true
	})
	m.mu.Lock() // a node that waits for others can still stop
	defer m.mu.Unlock()
	for number, fault := range m.faults {
		text := fault.Error()
		if !nobody && !slices.Contains(stops, number) {
			m.t.Errorf("node %d has stopped: %v", number, fault)
		}
		if _, lists, found := strings.Cut(text, "list different members: ["); !found || !strings.Contains(lists, "] and [") {
			m.t.Errorf("node %d says %q, and not both lists", number, text)
		}
	}
}

// acknowledge posts at every running node until one acknowledges, and then once at each: at most
// one leader may acknowledge. If a cluster can form, this can take longer.
func (m *mistake) acknowledge(want, forms bool) {
	m.t.Helper()
	var leaders []string
	eventually(m.t, "one leader at most acknowledges postings", func() bool {
		leaders = m.post() // again, because the leader can change between two rounds
		return len(leaders) == 1 || len(leaders) == 0 && !want
	})
	if len(leaders) == 1 && !want && !forms {
		m.t.Errorf("acknowledged by the leader %v, and no node is ready", leaders)
	}
}

// post posts at every running node, and returns the leaders that acknowledge.
func (m *mistake) post() []string {
	m.t.Helper()
	leaders := map[string]bool{}
	for i, running := range m.nodes {
		if running == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(m.t.Context(), patience)
		answer, err := m.calls(i).board.Post(ctx, connect.NewRequest(&conductordv1.PostRequest{Postings: []*conductordv1.Posting{
			{Name: fmt.Sprint("at ", i+1), Board: "default", Kind: "plain"},
		}}))
		cancel()
		switch failed := wire.ErrorFromConnect(err); {
		case err == nil:
			leaders[answer.Header().Get(wire.HeaderLeader)] = true
		case errors.Is(failed, jobs.ErrUnavailable), errors.Is(failed, jobs.ErrUncertain):
		default:
			m.t.Errorf("a posting at node %d: %v", i+1, err)
		}
	}
	return slices.Collect(maps.Keys(leaders))
}

// Until every member has answered with the same list, a node names the missing members and takes
// part in no election.
func TestFirstStartWaitsForEveryMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.start(0, 1)
	eventually(t, "the nodes name the members that they wait for", func() bool {
		first, second := c.nodes[0].Ready(), c.nodes[1].Ready()
		return strings.Contains(fmt.Sprint(first), "waits for n3") && strings.Contains(fmt.Sprint(second), "waits for n3")
	})
	for i := range 2 { // without a configuration raft elects no leader
		if err := c.nodes[i].Ready(); !errors.Is(err, jobs.ErrUnavailable) || node.Raft(c.nodes[i]).LastIndex() != 0 {
			t.Errorf("node %d: ready: %v, and %d entries in its log", i+1, err, node.Raft(c.nodes[i]).LastIndex())
		}
	}
	c.start(2)
	c.ready()
	posted(t, c.client())
}

// A copy of a node's directory cannot run while the node runs, at any address. An older process of
// a node cannot continue after a later one.
func TestCopyOfADirectoryIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	original := c.leader()
	from := node.HelloOf(c.nodes[original])
	copied := c.options[original]
	copied.DataDir, copied.Init = t.TempDir(), false
	c.stop(original)
	if err := copyDir(copied.DataDir, c.options[original].DataDir); err != nil {
		t.Fatal(err)
	}
	c.start(original)
	c.ready()
	listens := freeAddresses(t, 2)
	copied.RaftListen, copied.APIListen = listens[0], listens[1]
	if opened, err := node.Open(copied); err == nil || !strings.Contains(err.Error(), "already runs, from this data directory or a copy of it") {
		t.Errorf("beside its original: %v", err)
		_ = opened.Close()
	}
	member := c.options[original].Members[(original+1)%3].Raft
	from.Start, from.Run = 100, uuid.New()
	if welcome, err := transport.Greet(dialRaft(t, member), transport.PurposeProbe, from); err != nil || welcome.Refusal != "" {
		t.Errorf("a later process: %q, %v", welcome.Refusal, err)
	}
	from.Start, from.Run = 99, uuid.New()
	if welcome, err := transport.Greet(dialRaft(t, member), transport.PurposeProbe, from); err != nil || !strings.Contains(welcome.Refusal, "start 99") || !strings.Contains(welcome.Refusal, "start 100") {
		t.Errorf("an older process: %q, %v", welcome.Refusal, err)
	}
	from.Start = 100
	if welcome, err := transport.Greet(dialRaft(t, member), transport.PurposeProbe, from); err != nil || !strings.Contains(welcome.Refusal, "runs twice") {
		t.Errorf("another process of the same start: %q, %v", welcome.Refusal, err)
	}
}
