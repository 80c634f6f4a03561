package membership

import (
	"context"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// Askers ask the other members in raft's current configuration for their Standing. Each user has
// its own askers, so that a question of one user does not replace a question of another.
type Askers struct {
	members *Members
	open    func(transport.Member) *transport.Asker

	mu      sync.Mutex
	servers []raft.Server    // the configuration for which peers was made; guarded by mu
	peers   []transport.Peer // guarded by mu
	closed  bool             // guarded by mu
	ending  sync.WaitGroup
}

// NewAskers makes askers of the members. open makes the asker of one member.
func NewAskers(members *Members, open func(transport.Member) *transport.Asker) *Askers {
	return &Askers{members: members, open: open}
}

// Now returns the other members.
func (p *Askers) Now() []transport.Peer {
	servers := p.members.Servers()
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(servers, p.servers) || p.closed {
		return p.peers
	}
	before := p.peers
	p.servers, p.peers = servers, nil
	for _, member := range p.members.Peers() {
		kept := slices.IndexFunc(before, func(peer transport.Peer) bool { return peer.Member == member.Member })
		asked := transport.Peer{Member: member.Member, Voter: member.Voter}
		if kept >= 0 {
			asked.Asker = before[kept].Asker
			before = slices.Delete(slices.Clone(before), kept, kept+1)
		} else {
			asked.Asker = p.open(member.Member)
		}
		p.peers = append(p.peers, asked)
	}
	for _, gone := range before {
		p.ending.Go(gone.Close) // it waits for the question in progress
	}
	return p.peers
}

// Quorum returns the other voters, and the number of voters in a majority, including this node.
// Raft counts by the same configuration.
func (p *Askers) Quorum() (voters []*transport.Asker, majority int) {
	for _, peer := range p.Now() {
		if peer.Voter {
			voters = append(voters, peer.Asker)
		}
	}
	return voters, (len(voters)+1)/2 + 1
}

// Ask returns the Standing of one other member.
func (p *Askers) Ask(ctx context.Context, id string) (transport.Standing, error) {
	type answer struct {
		stands transport.Standing
		err    error
	}
	peers := p.Now()
	at := slices.IndexFunc(peers, func(peer transport.Peer) bool { return string(peer.ID()) == id })
	if at < 0 {
		return transport.Standing{}, NotAMember(id)
	}
	answers := make(chan answer, 1)
	peers[at].Ask(func(stands transport.Standing, err error) { answers <- answer{stands, err} })
	select {
	case got := <-answers:
		return got.stands, got.err
	case <-ctx.Done():
		return transport.Standing{}, ctx.Err()
	}
}

// Close ends all questions.
func (p *Askers) Close() {
	p.mu.Lock()
	p.closed = true
	peers := p.peers
	p.mu.Unlock()
	for _, peer := range peers {
		peer.Close()
	}
	p.ending.Wait()
}
