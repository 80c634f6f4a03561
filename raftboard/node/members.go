package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/transport"
)

// memberPoll is how often a node that has not joined asks the other members.
const memberPoll = 100 * time.Millisecond

// Two nodes with different member lists could each count a majority of their
// own, and both acknowledge. So a list counts only when all members in it have it:
//
//   - Each handshake carries the list. Nodes with different lists refuse each
//     other.
//   - A new node agrees after it has listened for one election timeout. A cluster
//     that lists it under another list has reached it by then.
//   - It joins raft when every listed member has said that it agrees, or one
//     member has said that it has joined. A node that agrees has stored its list
//     and the peers it has met, and keeps the list over a restart.
//   - Once raft has a configuration, that is the list: a start with another list
//     in the file is refused. So the quorums that are counted from the options
//     (read rounds, clock) are raft's.

// membership is what this node knows of the other members, and how it joins them. Its
// methods may be called concurrently.
type membership struct {
	self     Member
	listen   string           // Options.RaftListen
	members  []Member         // of the options, this node among them
	roster   transport.Roster // the same
	identity *identityStore   // set before port
	port     *transport.Port  // set before probe
	running  func() bool      // whether raft runs
	logger   hclog.Logger
	fatal    func(error)

	mu         sync.Mutex
	answers    map[string]peerAnswer // under mu
	peerJoined bool                  // a peer with the same list has joined: all had agreed; under mu
	awaits     string                // the nodes that the first election waits for; under mu
	conflict   error                 // another node's member list that forbids this one to run; under mu
}

// peerAnswer is another node's last answer to this one.
type peerAnswer struct {
	refusal error
	agreed  bool // on the member list
}

func newMembership(o Options, running func() bool, fatal func(error)) *membership {
	self, _ := o.self() // validated
	return &membership{
		self: self, listen: o.RaftListen, members: o.Members, roster: rosterOf(o.Members),
		running: running, logger: o.Logger, fatal: fatal, answers: map[string]peerAnswer{},
	}
}

func rosterOf(members []Member) transport.Roster {
	r := make(transport.Roster, len(members))
	for _, member := range members {
		r[member.Name] = member.Raft
	}
	return r
}

// peers are the other members.
func (m *membership) peers() []Member {
	var peers []Member
	for _, member := range m.members {
		if member.Name != m.self.Name {
			peers = append(peers, member)
		}
	}
	return peers
}

// majority is how many members are more than half of all.
func (m *membership) majority() int { return len(m.members)/2 + 1 }

// probe calls the other nodes before this one takes part in raft. It refuses the start
// when all others refuse this node, or when another process of the same node answers
// at its raft address.
func (m *membership) probe() error {
	for _, member := range m.members {
		self := member.Name == m.self.Name
		if self && member.Raft == m.listen {
			continue
		}
		var refused *transport.RefusedError
		if err := m.call(member); self && errors.As(err, &refused) && refused.From == m.identity.get().Instance {
			return fmt.Errorf("at the raft address of node %q, %s, another process answers: %w", member.Name, member.Raft, err)
		}
	}
	return m.refusedByAll()
}

// call shakes hands with a member; greeted notes the outcome.
func (m *membership) call(member Member) error {
	return m.port.Probe(raft.ServerAddress(member.Raft), time.Second)
}

// note records a peer's answer, and reports whether it is a new refusal.
func (m *membership) note(peer string, answer peerAnswer, joined bool) (newRefusal bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.answers[peer]
	m.answers[peer] = answer
	m.peerJoined = m.peerJoined || (answer.refusal == nil && joined)
	return answer.refusal != nil && !(known && before.refusal != nil && before.refusal.Error() == answer.refusal.Error())
}

func (m *membership) setConflict(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conflict = err
}

// refusedByAll returns an error if every other member refuses this node, or another
// node's list forbids it to run.
func (m *membership) refusedByAll() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conflict != nil {
		return m.conflict
	}
	var reasons []string
	for _, answer := range m.answers {
		if answer.refusal == nil {
			return nil
		}
		reasons = append(reasons, answer.refusal.Error())
	}
	if len(reasons) == 0 || len(reasons) < len(m.roster)-1 {
		return nil
	}
	slices.Sort(reasons)
	return fmt.Errorf("every other node refuses this one: %s", strings.Join(reasons, "; "))
}

func (m *membership) hasAgreed(peer string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answers[peer].agreed
}

// await records the members that have not agreed, and returns their names: none if
// one has joined, because that implies that all have agreed.
func (m *membership) await(missing []string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.awaits = strings.Join(missing, ", "); m.peerJoined {
		m.awaits = ""
	}
	return m.awaits
}

func (m *membership) awaited() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.awaits
}

// greeted notes the outcome of a handshake that this node began.
func (m *membership) greeted(peer string, other transport.Hello, err error) {
	var refused *transport.RefusedError
	if peer == m.self.Name || (err != nil && !errors.As(err, &refused)) {
		return // not reached: nothing learned
	}
	if !m.note(peer, peerAnswer{refusal: err, agreed: err == nil && other.Agreed}, other.Joined) {
		return
	}
	m.logger.Error("a member refuses this node", "peer", peer, "error", err)
	m.stopIfRefused()
}

// disagreed is called for a node of this cluster with another member list. A
// node that has never joined stops: either list may be wrong. A node that has
// joined has a majority behind its list and goes on, unless it is the only member
// of its list and the other has joined a cluster that lists this node.
func (m *membership) disagreed(other transport.Hello, err error) {
	_, counted := other.Members[m.self.Name]
	_, counts := m.roster[other.Name]
	fresh := !m.identity.get().Bootstrapped
	if (fresh && (counted || counts)) || (!fresh && counted && other.Joined && len(m.members) == 1) {
		m.setConflict(err)
	}
	m.stopIfRefused()
}

func (m *membership) stopIfRefused() {
	if fault := m.refusedByAll(); fault != nil && m.running() {
		m.fatal(fault)
	}
}

// compareConfiguration refuses a member list that is not raft's.
func (m *membership) compareConfiguration(group *raft.Raft, dataDir string) error {
	servers := group.GetConfiguration().Configuration().Servers
	if len(servers) == 0 {
		return nil
	}
	has := make(transport.Roster, len(servers))
	for _, server := range servers {
		id := string(server.ID) // name.incarnation
		has[id[:max(strings.LastIndex(id, "."), 0)]] = string(server.Address)
	}
	if !maps.Equal(has, m.roster) {
		return fmt.Errorf("raft's configuration in %s and the node's file list different members: %v and %v: set cluster.members back in the file; "+
			"the members of a cluster that has worked cannot be changed", dataDir, has, m.roster)
	}
	m.nowJoined()
	return nil
}

func (m *membership) nowJoined() {
	m.await(nil)
	m.port.Join()
}

// waitingLog is how often a node logs again which members its first start waits for.
const waitingLog = 10 * time.Second

// join lets a new node take part in raft once all members agree on their list.
// It ends then, or with ctx.
func (m *membership) join(ctx context.Context, group *raft.Raft) {
	look := time.NewTicker(memberPoll)
	defer look.Stop()
	told, before := time.Time{}, ""
	for !m.port.Joined() {
		awaited := m.poll()
		if awaited == "" && m.port.Agreed() {
			if err := m.bootstrap(group); err != nil && ctx.Err() == nil {
				m.fatal(err)
			}
			return
		}
		if awaited != "" && (awaited != before || time.Since(told) > waitingLog) {
			m.logger.Info("first election waits for other members: all must answer with the same list of members", "missing", awaited, "members", m.roster)
			told, before = time.Now(), awaited
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// poll calls the members that have not agreed yet, and names those that still have
// not. It is empty when all have, or one has joined, which implies that.
func (m *membership) poll() string {
	var missing []string
	for _, peer := range m.peers() {
		if m.hasAgreed(peer.Name) {
			continue
		}
		_ = m.call(peer)
		if !m.hasAgreed(peer.Name) {
			missing = append(missing, peer.Name)
		}
	}
	return m.await(missing)
}

// bootstrap writes the first configuration, once per node and the same on all.
// It is the first entry of every log, so no node has to be the first.
func (m *membership) bootstrap(group *raft.Raft) error {
	if err := group.BootstrapCluster(firstConfiguration(m.roster)).Error(); err != nil {
		return fmt.Errorf("cannot bootstrap the cluster: %w", err)
	}
	if err := m.identity.setBootstrapped(); err != nil {
		return err
	}
	m.nowJoined()
	return nil
}
