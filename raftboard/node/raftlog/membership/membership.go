package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// memberPoll is the interval at which a node that has not joined asks the other members.
const memberPoll = 100 * time.Millisecond

// Raft's configuration is the list of members. It is an entry of the log, so the nodes agree on it.
// Each change of it adds or removes one node, so the majorities before and after the change share a
// node. Read rounds and clock rounds count the same majority; see askers.go.
//
// The first configuration comes from the files. Two nodes with different lists in their files
// could each count their own majority, and both acknowledge writes. So a list is valid only when
// all its members have it:
//
//   - Each handshake contains the list of the cluster's founders. Nodes with different lists refuse
//     each other.
//   - A new node agrees after it has listened for one election timeout. By then, any cluster that
//     lists the node in another list has reached it.
//   - The node joins raft when every listed member has agreed, or when one member has joined. A node
//     that agrees has stored its list and the peers it has met, and keeps the list over a restart.
//   - Once raft has a configuration, the list in the file is ignored. The handshake still
//     contains the list of the first start, which never changes. A node that joins later gets
//     this list from the cluster.
//
// After that, a node refuses nodes that are not in its configuration. A refused node that was a
// member earlier has been removed. It stops when it learns that, because ids are never used again.
// An unknown node may be a new leader that joined while this node was away. So a node without a
// leader asks its known members, and accepts messages of the new node if one of them lists it.
// These rules apply to each message of raft, not only to the handshake: the connection of a removed
// node is closed.

// Members tracks the other members, and joins them. Its methods may be called concurrently.
type Members struct {
	self     transport.Member   // of the options; its incarnation is set with identity
	listen   string             // Options.RaftListen
	file     []transport.Member // of the options, including this node
	roster   transport.Roster   // with which the cluster started; set with identity
	identity *IdentityStore     // set before port
	port     *transport.Port    // set before probe
	group    *raftlog.Group
	logger   hclog.Logger
	fatal    func(error)

	mu         sync.Mutex
	answers    map[string]peerAnswer // guarded by mu
	peerJoined bool                  // a peer with the same list has joined: all had agreed; guarded by mu
	awaits     string                // the nodes for which the first election waits; guarded by mu
	asked      time.Time             // time of the last question whether members vouch for a node; guarded by mu
	conflict   error                 // another node's answer that forbids this one to run; guarded by mu
}

// peerAnswer is another node's last answer to this one.
type peerAnswer struct {
	refusal error
	agreed  bool // on the member list
	from    raft.ServerID
	members []raft.ServerID // known to that node
}

// New makes Members from the node's options.
func New(o Options, group *raftlog.Group, fatal func(error)) *Members {
	return &Members{
		self: o.self(), listen: o.RaftListen, file: o.Members, group: group, logger: o.Logger, fatal: fatal, answers: map[string]peerAnswer{},
	}
}

// Self is this node.
func (m *Members) Self() transport.Member { return m.self }

// Roster is the list with which the cluster started.
func (m *Members) Roster() transport.Roster { return m.roster }

// SetIdentity sets the identity; call it before SetPort.
func (m *Members) SetIdentity(identity *IdentityStore) {
	id := identity.Get()
	m.identity, m.roster, m.self.Incarnation = identity, id.Members, id.Incarnation
}

// RosterOf is the list with which a cluster of these members starts.
func RosterOf(members []transport.Member) transport.Roster {
	r := make(transport.Roster, len(members))
	for _, member := range members {
		member.Incarnation = transport.FirstIncarnation
		r[member.Name] = member.Address()
	}
	return r
}

// Listed is a member in raft's configuration.
type Listed struct {
	transport.Member
	Voter bool
}

// Servers returns raft's latest configuration, committed or not: raft counts its majorities by it.
// Before there is one, it is the first configuration of the cluster. It is empty on a joining node
// until the leader has connected.
func (m *Members) Servers() []raft.Server {
	if running := m.group.Raft(); running != nil {
		if servers := running.GetConfiguration().Configuration().Servers; len(servers) > 0 {
			return servers
		}
	}
	if m.identity.Get().Joining != nil {
		return nil
	}
	return FirstConfiguration(m.roster).Servers
}

// known returns Servers. On a node whose leader has not connected yet, it returns the members that
// the cluster named when the node joined.
func (m *Members) known() []raft.Server {
	if servers := m.Servers(); len(servers) > 0 {
		return servers
	}
	if joins := m.identity.Get().Joining; joins != nil && len(joins.Members) > 0 {
		return joins.Members
	}
	return FirstConfiguration(m.roster).Servers
}

// IDs returns the ids of the members.
func (m *Members) IDs() (all []raft.ServerID) {
	for _, server := range m.known() {
		all = append(all, server.ID)
	}
	return all
}

// IsMember reports whether a member has a name.
func (m *Members) IsMember(name string) bool { _, is := m.Find(name); return is }

// Hears reports whether this node accepts the messages of another node. It accepts messages of
// members. While it follows no other leader, it also accepts messages of a node that members vouch
// for. A starting node does not know the members yet, and ignores all messages of raft.
func (m *Members) Hears(id raft.ServerID) bool {
	return m.group.Raft() == nil || m.has(id) || !m.group.Follows(id) && m.isVouched(id)
}

func (m *Members) has(id raft.ServerID) bool { return slices.Contains(m.IDs(), id) }

// Limits of the question to the members whether an unknown node is a member.
const (
	vouchPause   = time.Second // minimum pause, so that an unknown node cannot cause more questions
	vouchTimeout = 500 * time.Millisecond
)

// vouched asks the members whether a node is a member.
func (m *Members) vouched(id raft.ServerID) bool {
	m.mu.Lock()
	again := time.Since(m.asked) >= vouchPause
	if again {
		m.asked = time.Now()
	}
	m.mu.Unlock()
	if again {
		var calls sync.WaitGroup
		for _, server := range m.known() {
			if server.ID != m.self.ID() {
				calls.Go(func() { _ = m.port.Probe(server.Address, vouchTimeout) })
			}
		}
		calls.Wait()
	}
	return m.isVouched(id)
}

// isVouched reports whether a member has listed a node when it was last met.
func (m *Members) isVouched(id raft.ServerID) bool {
	members := m.IDs()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, answer := range m.answers {
		if answer.refusal == nil && slices.Contains(members, answer.from) && slices.Contains(answer.members, id) {
			return true
		}
	}
	return false
}

// Lists reports whether a member has an address.
func (m *Members) Lists(address raft.ServerAddress) bool {
	return slices.ContainsFunc(m.Servers(), func(server raft.Server) bool { return server.Address == address })
}

// Now returns the current members.
func (m *Members) Now() []Listed {
	servers := m.Servers()
	members := make([]Listed, 0, len(servers))
	for _, server := range servers {
		member, err := transport.ParseAddress(server.Address)
		if err != nil { // not written by our program
			m.fatal(fmt.Errorf("cannot use raft's configuration: %w", err))
			continue
		}
		members = append(members, Listed{member, server.Suffrage == raft.Voter})
	}
	return members
}

// Peers are the other members.
func (m *Members) Peers() []Listed {
	return slices.DeleteFunc(m.Now(), func(member Listed) bool { return member.ID() == m.self.ID() })
}

// HasOtherVoter reports whether another node could lead.
func (m *Members) HasOtherVoter() bool {
	return slices.ContainsFunc(m.Peers(), func(member Listed) bool { return member.Voter })
}

// Find returns the member of a name.
func (m *Members) Find(name string) (Listed, bool) {
	members := m.Now()
	if at := slices.IndexFunc(members, func(member Listed) bool { return member.Name == name }); at >= 0 {
		return members[at], true
	}
	return Listed{}, false
}

// At returns the name of the member with an API address; empty: none.
func (m *Members) At(address string) string {
	for _, member := range m.Now() {
		if strings.EqualFold(member.API, address) {
			return member.Name
		}
	}
	return ""
}

// Difference describes the faults of the list in the node's file; empty: none. It is only
// information for an operator.
func (m *Members) Difference() string {
	file := RosterOf(m.file)
	var differs []string
	for _, member := range m.Now() {
		member.Incarnation = transport.FirstIncarnation // the file has no incarnation
		switch address, listed := file[member.Name]; {
		case !listed:
			differs = append(differs, "it lacks "+member.Name)
		case address != member.Address():
			differs = append(differs, fmt.Sprintf("%s is at %s and %s", member.Name, member.Raft, member.API))
		}
		delete(file, member.Name)
	}
	for _, name := range file.Names() {
		differs = append(differs, name+" is no member")
	}
	return strings.Join(differs, ", ")
}

// Admit returns an error for a node that is not a member now, or has been met as another
// instance.
func (m *Members) Admit(other transport.Hello) error {
	id := m.identity.Get()
	_, was := id.Peers[other.ID()]
	if m.group.Raft() == nil && !id.Fresh() { // this node is starting, and has not read the configuration yet
		if !was {
			return nil
		}
		return m.identity.Meet(other.ID(), other.Instance)
	}
	if m.has(other.ID()) {
		return m.identity.Meet(other.ID(), other.Instance)
	}
	if was {
		return fmt.Errorf("node %q is no longer a member of the cluster: %w", other.ID(), transport.ErrRemoved)
	}
	if !id.Fresh() && !m.group.Follows(other.ID()) && m.vouched(other.ID()) {
		return nil
	}
	return fmt.Errorf("node %q is not a member of the cluster: to add the node, run \"conductord cluster join\" on its machine", other.ID())
}

// SetPort sets the raft port; call it before Probe.
func (m *Members) SetPort(port *transport.Port) { m.port = port }

// Probe calls the other nodes before this one takes part in raft. It refuses the start when
// all others refuse this node, or when another process of the same node answers at its raft
// address.
func (m *Members) Probe() error {
	if m.self.Raft != m.listen {
		var refused *transport.RefusedError
		if err := m.Call(m.self); errors.As(err, &refused) && refused.From == m.identity.Get().Instance {
			return fmt.Errorf("at the raft address of node %q, %s, another process answers: %w", m.self.Name, m.self.Raft, err)
		}
	}
	m.callAll()
	return m.RefusedByAll()
}

// Call makes a handshake with a member; Greeted records the outcome.
func (m *Members) Call(member transport.Member) error {
	return m.port.Probe(member.Address(), time.Second)
}

func (m *Members) callAll() {
	for _, peer := range m.Peers() {
		_ = m.Call(peer.Member)
	}
}

// note records a peer's answer, and reports whether it is a new refusal.
func (m *Members) note(peer string, answer peerAnswer, joined bool) (newRefusal bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.answers[peer]
	m.answers[peer] = answer
	m.peerJoined = m.peerJoined || (answer.refusal == nil && joined)
	return answer.refusal != nil && !(known && before.refusal != nil && before.refusal.Error() == answer.refusal.Error())
}

func (m *Members) setConflict(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conflict = err
}

// RefusedByAll returns an error if every other member refuses this node, or the answer of
// one forbids it to run.
func (m *Members) RefusedByAll() error {
	peers := m.Peers()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conflict != nil {
		return m.conflict
	}
	var reasons []string
	for _, peer := range peers {
		answer := m.answers[peer.Name]
		if answer.refusal == nil {
			return nil
		}
		reasons = append(reasons, answer.refusal.Error())
	}
	if len(reasons) == 0 {
		return nil
	}
	slices.Sort(reasons)
	return fmt.Errorf("every other node refuses this node: %s", strings.Join(reasons, "; "))
}

func (m *Members) hasAgreed(peer string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answers[peer].agreed
}

// await records the members that have not agreed, and returns their names: none if
// one has joined, because that implies that all have agreed.
func (m *Members) await(missing []string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.awaits = strings.Join(missing, ", "); m.peerJoined {
		m.awaits = ""
	}
	return m.awaits
}

// Awaited names the nodes for which the first election waits, separated by commas; empty: none.
func (m *Members) Awaited() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.awaits
}

// Greeted records the outcome of a handshake that this node started.
func (m *Members) Greeted(peer string, other transport.Hello, err error) {
	var refused *transport.RefusedError
	if peer == m.self.Name || (err != nil && !errors.As(err, &refused)) {
		return // no connection: no information
	}
	if err != nil && refused.Removed {
		m.setConflict(err)
	}
	if !m.note(peer, peerAnswer{refusal: err, agreed: err == nil && other.Agreed, from: other.ID(), members: other.Present}, other.Joined) {
		return
	}
	m.logger.Error("member refuses this node", "peer", peer, "error", err)
	m.stopIfRefused()
}

// Disagreed handles a node of this cluster with another member list. A node that has never joined
// stops, because either list may be wrong. A node that has joined has a majority with its list, and
// continues. Exception: it also stops if it is the only member in its list, and the other node has
// joined a cluster that lists this node.
func (m *Members) Disagreed(other transport.Hello, err error) {
	_, counted := other.Members[m.self.Name]
	_, counts := m.roster[other.Name]
	id := m.identity.Get()
	fresh := id.Fresh()
	if (fresh && (counted || counts)) || (!fresh && counted && other.Joined && len(m.Now()) == 1) {
		m.setConflict(err)
	}
	m.stopIfRefused()
}

func (m *Members) stopIfRefused() {
	if fault := m.RefusedByAll(); fault != nil && m.group.Raft() != nil {
		m.fatal(fault)
	}
}

// Begin takes part in raft if this node is, or was, a member of a cluster that works.
func (m *Members) Begin() {
	id := m.identity.Get()
	if id.Fresh() {
		return // see join
	}
	m.nowJoined()
	if id.Bootstrapped {
		m.warnOfFile()
	}
	if !m.isListed() {
		m.callAll()
	}
}

// warnOfFile logs the faults of the list in the node's file. A node that has moved has its new addresses
// only there, until the cluster knows them.
func (m *Members) warnOfFile() {
	if differs := m.Difference(); differs != "" {
		m.logger.Warn("outdated cluster.members: only this node's addresses are used", "difference", differs)
	}
	if known, listed := m.Find(m.self.Name); listed && (known.Raft != m.self.Raft || known.API != m.self.API) {
		m.logger.Warn("the cluster does not know this node's addresses", "raft", m.self.Raft, "api", m.self.API, "known_raft", known.Raft, "known_api", known.API,
			"advice", "restore the addresses in cluster.members, or run conductord cluster move if the node has moved")
	}
}

func (m *Members) isListed() bool { return m.has(m.self.ID()) }

// removalLook is the interval at which a node without a leader checks whether it was removed.
const removalLook = 5 * time.Second

// WatchRemoval connects to the other nodes while this node is not listed and has no leader. Nodes
// that know of its removal refuse it, and it stops. A listed node campaigns, and is refused too.
// WatchRemoval ends with ctx.
func (m *Members) WatchRemoval(ctx context.Context) {
	for range clock.Every(ctx, removalLook) {
		if !m.group.Follows(m.self.ID()) && !m.isListed() {
			m.callAll()
		}
	}
}

func (m *Members) nowJoined() {
	m.await(nil)
	m.port.Join()
}

// waitingLog is the interval at which a node logs the members for which its first start waits.
const waitingLog = 10 * time.Second

// Join makes a new node take part in raft when all members agree on their list. It then returns, or
// with ctx.
func (m *Members) Join(ctx context.Context) {
	told, before := time.Time{}, ""
	for range clock.Every(ctx, memberPoll) {
		if m.port.Joined() {
			return
		}
		awaited := m.poll()
		if awaited == "" && m.port.Agreed() {
			if err := m.bootstrap(); err != nil && ctx.Err() == nil {
				m.fatal(err)
			}
			return
		}
		if awaited != "" && (awaited != before || time.Since(told) > waitingLog) {
			m.logger.Info("first election waits for members", "missing", awaited, "members", m.roster, "advice", "start all members with the same list of members")
			told, before = time.Now(), awaited
		}
	}
}

// poll connects to the members that have not agreed yet, and returns the names of those without
// agreement. It returns an empty text when all members have agreed, or when one has joined, which
// implies agreement.
func (m *Members) poll() string {
	var missing []string
	for _, peer := range m.Peers() {
		if m.hasAgreed(peer.Name) {
			continue
		}
		_ = m.Call(peer.Member)
		if !m.hasAgreed(peer.Name) {
			missing = append(missing, peer.Name)
		}
	}
	return m.await(missing)
}

// bootstrap writes the first configuration, once per node and equal on all nodes. It is the first
// entry of every log, so the nodes can start in any order.
func (m *Members) bootstrap() error {
	if err := m.group.Raft().BootstrapCluster(FirstConfiguration(m.roster)).Error(); err != nil {
		return fmt.Errorf("cannot bootstrap the cluster: %w", err)
	}
	if err := m.identity.SetBootstrapped(); err != nil {
		return err
	}
	m.nowJoined()
	return nil
}

// NotAMember is the error for a name that is not a member's.
func NotAMember(name string) error {
	return fmt.Errorf("node %.64q is not among the members of the cluster: %w", name, jobs.ErrNotFound)
}
