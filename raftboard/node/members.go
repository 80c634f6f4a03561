package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// Two nodes with different lists of members could each count a majority of its
// own, and both acknowledge. So a list counts only when all in it have it:
//
//   - Each handshake carries the list, and nodes with different lists refuse
//     each other.
//   - A new node agrees when it has listened for an election timeout: a cluster
//     that counts it in, under another list, has found it by then.
//   - It takes part in raft when every listed member has told it that it agrees,
//     or one that has joined already. A node that agrees has written down its
//     list and whom it has met, and keeps to the list over a restart.
//   - Once raft has a configuration, that is the list: a file that differs is
//     refused at the start. So quorums that are counted by the options (of read
//     rounds and of the clock) are those of raft.

// roster is the members as the nodes compare them: names and raft addresses.
// Addresses of the API decide no quorum.
type roster map[string]string

func rosterOf(members []Member) roster {
	r := make(roster, len(members))
	for _, member := range members {
		r[member.Name] = member.Raft
	}
	return r
}

func (r roster) String() string {
	texts := make([]string, 0, len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		texts = append(texts, fmt.Sprintf("%s=%s", name, r[name]))
	}
	return fmt.Sprintf("%q", texts) // quoted: the other list may be anything
}

func (s *streamLayer) hello() hello {
	id := s.identity.get()
	joined := false
	select {
	case <-s.joined:
		joined = true
	default:
	}
	return hello{
		Cluster: id.Cluster, Generation: id.Generation, Name: id.Name, Instance: id.Instance,
		Start: id.Starts, Run: s.run, Members: s.roster, Agreed: time.Now().After(s.settled), Joined: joined, Peers: id.Peers,
	}
}

// judge decides whether a node is one of ours.
func (s *streamLayer) judge(other hello) error {
	if err := s.sameCluster(other); err != nil {
		return err
	}
	own := s.identity.get()
	switch {
	case other.Name == own.Name && other.Instance != own.Instance:
		return fmt.Errorf("another node is named %q too", own.Name)
	case other.Name == own.Name && other.Run != s.run:
		return fmt.Errorf("node %q runs already, from this data directory or a copy of it: its start %d is beside start %d", own.Name, other.Start, own.Starts)
	case other.Name == own.Name:
		return nil // raft may dial its own address
	case s.roster[other.Name] == "":
		return fmt.Errorf("node %q is not a member of the cluster", other.Name)
	}
	for name, instance := range other.Peers {
		if known, met := own.Peers[name]; met && known != instance {
			return fmt.Errorf("two nodes use the name %q, or it was made anew: node %q has met %s, and node %q has met %s", name, other.Name, instance, own.Name, known)
		}
	}
	if err := s.identity.meet(other.Name, other.Instance); err != nil {
		return err
	}
	return s.latest(other)
}

// sameCluster is what nodes must have in common.
func (s *streamLayer) sameCluster(other hello) error {
	own := s.identity.get()
	switch {
	case other.Cluster != own.Cluster:
		return fmt.Errorf("node %q belongs to cluster %q, and node %q to cluster %q", other.Name, other.Cluster, own.Name, own.Cluster)
	case other.Generation != own.Generation:
		return fmt.Errorf("node %q is of generation %d of the cluster, and node %q of generation %d", other.Name, other.Generation, own.Name, own.Generation)
	case maps.Equal(other.Members, s.roster):
		return nil
	}
	err := fmt.Errorf("node %q and node %q of cluster %q list different members: %v and %v: correct cluster.members in their files, which must be alike",
		other.Name, own.Name, own.Cluster, other.Members, s.roster)
	s.disagreed(other, err)
	return err
}

// latest refuses a process of a node after a later one: a process cannot come
// back, so one of them runs from a copy of the data directory.
func (s *streamLayer) latest(other hello) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.starts[other.Name]
	if other.Start < known.Start || (other.Start == known.Start && other.Run != known.Run) {
		return fmt.Errorf("node %q runs twice, or from an old copy of its data directory: start %d (process %s) comes after start %d (process %s)",
			other.Name, other.Start, other.Run, known.Start, known.Run)
	}
	s.starts[other.Name] = other
	return nil
}

// probe introduces the node to the others before it takes part in anything.
// One that all others refuse is wrong, not they: it does not start. Neither does
// a second process of the node, if the first is where the others look for it.
func (n *Node) probe() error {
	for _, member := range n.options.Members {
		self := member.Name == n.options.Name
		if self && member.Raft == n.options.RaftListen {
			continue
		}
		conn, err := n.stream.dial(raft.ServerAddress(member.Raft), purposeProbe, time.Second)
		var refused *refusedError
		if err == nil {
			_ = conn.Close()
		} else if self && errors.As(err, &refused) && refused.from == n.identity.get().Instance {
			return fmt.Errorf("at the raft address of node %q, %s, another process answers: %w", member.Name, member.Raft, err)
		}
	}
	return n.outcast()
}

// reception is how another node has answered this one last.
type reception struct {
	refusal error
	agreed  bool // on the members
}

// greeted notes how the others received this node.
func (n *Node) greeted(peer string, other hello, err error) {
	var refused *refusedError
	if peer == n.options.Name || (err != nil && !errors.As(err, &refused)) {
		return // not reached: nothing learned
	}
	n.mu.Lock()
	before, known := n.met[peer]
	n.met[peer] = reception{refusal: err, agreed: err == nil && other.Agreed}
	n.vouched = n.vouched || (err == nil && other.Joined)
	n.mu.Unlock()
	if err == nil || (known && before.refusal != nil && before.refusal.Error() == err.Error()) {
		return
	}
	n.logger.Error("a node of the cluster refuses this one", "peer", peer, "error", err)
	n.stopOutcast()
}

// disagreed hears of a node of this cluster with another member list. A node
// that has never worked stops: either list may be the wrong one. One that has
// worked has a majority behind its list, and goes on; unless it is its own
// majority, and the other has worked in a cluster that counts this node in.
func (n *Node) disagreed(other hello, err error) {
	_, counted := other.Members[n.options.Name]
	_, counts := n.stream.roster[other.Name]
	fresh := !n.identity.get().Bootstrapped
	if (fresh && (counted || counts)) || (!fresh && counted && other.Joined && len(n.options.Members) == 1) {
		n.mu.Lock()
		n.conflict = err
		n.mu.Unlock()
	}
	n.stopOutcast()
}

func (n *Node) stopOutcast() {
	if fault := n.outcast(); fault != nil && n.running.Load() {
		n.fatal(fault)
	}
}

// outcast is an error if every other member refuses this node, or if it cannot
// live beside the list of another.
func (n *Node) outcast() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conflict != nil {
		return n.conflict
	}
	var reasons []string
	for _, received := range n.met {
		if received.refusal == nil {
			return nil
		}
		reasons = append(reasons, received.refusal.Error())
	}
	if len(reasons) == 0 || len(reasons) < len(n.options.Members)-1 {
		return nil
	}
	slices.Sort(reasons)
	return fmt.Errorf("every other node refuses this one: %s", strings.Join(reasons, "; "))
}

// checkPast refuses a node that has run before and has lost its raft log.
func (n *Node) checkPast(logs raft.LogStore, snapshots raft.SnapshotStore) error {
	existing, err := raft.HasExistingState(logs, n.log, snapshots)
	if err != nil {
		return fmt.Errorf("cannot read the raft state: %w", err)
	}
	// A snapshot alone is no past to go on from: the votes were in the log's file.
	term, err := n.log.GetUint64(currentTermKey)
	if err != nil {
		return fmt.Errorf("cannot read the raft state: %w", err)
	}
	last, err := logs.LastIndex()
	id := n.identity.get()
	switch {
	case err != nil:
		return fmt.Errorf("cannot read the raft state: %w", err)
	case !id.Bootstrapped && term == 1 && last == 0:
		// Cut off between term and configuration. Nobody has been given a vote: raft
		// hears nobody before a node has joined.
		return n.log.SetUint64(currentTermKey, 0)
	case existing && term > 0:
		return n.identity.setBootstrapped()
	case existing, id.Bootstrapped:
		return fmt.Errorf("%s has lost its raft log: this node has run before and must not begin anew under its old identity", n.options.DataDir)
	}
	return nil
}

// compareConfiguration refuses a member list that is not raft's.
func (n *Node) compareConfiguration() error {
	servers := n.raft.GetConfiguration().Configuration().Servers
	if len(servers) == 0 {
		return nil
	}
	has := make(roster, len(servers))
	for _, server := range servers {
		id := string(server.ID) // name.incarnation
		has[id[:max(strings.LastIndex(id, "."), 0)]] = string(server.Address)
	}
	if !maps.Equal(has, n.stream.roster) {
		return fmt.Errorf("raft's configuration in %s and the node's file list different members: %v and %v: set cluster.members back in the file; "+
			"the members of a cluster that has worked cannot be changed", n.options.DataDir, has, n.stream.roster)
	}
	n.nowJoined()
	return nil
}

func (n *Node) nowJoined() {
	n.mu.Lock()
	n.joined, n.awaits = true, ""
	n.mu.Unlock()
	close(n.stream.joined)
}

// waitingLog is how often a node says again for whom its first start waits.
const waitingLog = 10 * time.Second

// join has a new node take part in raft once all members agree on who they are.
// It ends then, or with ctx.
func (n *Node) join(ctx context.Context) {
	look := time.NewTicker(dialPause)
	defer look.Stop()
	told, before := time.Time{}, ""
	for !n.isJoined() {
		awaited := n.awaited()
		if awaited == "" && time.Now().After(n.stream.settled) {
			if err := n.bootstrap(); err != nil && ctx.Err() == nil {
				n.fatal(err)
			}
			return
		}
		if awaited != "" && (awaited != before || time.Since(told) > waitingLog) {
			n.logger.Info("waiting for other members before the first election: all must answer, with the same list of members", "missing", awaited, "members", n.stream.roster)
			told, before = time.Now(), awaited
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) isJoined() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.joined
}

// awaited dials the members that have not agreed yet, and names those that still
// have not. Empty: all have, or one has joined, which rests on that.
func (n *Node) awaited() string {
	var missing []string
	for _, peer := range n.peers() {
		if n.hasAgreed(peer.Name) {
			continue
		}
		if conn, err := n.stream.dial(raft.ServerAddress(peer.Raft), purposeProbe, time.Second); err == nil {
			_ = conn.Close()
		}
		if !n.hasAgreed(peer.Name) {
			missing = append(missing, peer.Name)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.awaits = strings.Join(missing, ", "); n.vouched {
		n.awaits = ""
	}
	return n.awaits
}

func (n *Node) hasAgreed(peer string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.met[peer].agreed
}

// bootstrap writes the first configuration, once per node and the same on all:
// it is the first entry of every log, so that nobody has to be first.
func (n *Node) bootstrap() error {
	var servers []raft.Server
	for _, name := range slices.Sorted(maps.Keys(n.stream.roster)) {
		servers = append(servers, raft.Server{ID: serverID(name, 1), Address: raft.ServerAddress(n.stream.roster[name])})
	}
	if err := n.raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
		return fmt.Errorf("cannot bootstrap the cluster: %w", err)
	}
	if err := n.identity.setBootstrapped(); err != nil {
		return err
	}
	n.nowJoined()
	return nil
}
