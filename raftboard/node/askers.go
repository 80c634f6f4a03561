package node

import (
	"context"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/transport"
)

// peerAskers ask the other members for their Standing, as raft's configuration lists
// them now. Each user has askers of its own: a question of one must not replace another's.
type peerAskers struct {
	members *membership
	open    func(Member) *transport.Asker

	mu      sync.Mutex
	servers []raft.Server    // the configuration that peers was made for; under mu
	peers   []transport.Peer // under mu
	closed  bool             // under mu
	ending  sync.WaitGroup
}

// now returns the other members.
func (p *peerAskers) now() []transport.Peer {
	servers := p.members.servers()
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(servers, p.servers) || p.closed {
		return p.peers
	}
	before := p.peers
	p.servers, p.peers = servers, nil
	for _, member := range p.members.peers() {
		kept := slices.IndexFunc(before, func(peer transport.Peer) bool { return peer.Member == member.Member })
		asked := transport.Peer{Member: member.Member, Voter: member.voter}
		if kept >= 0 {
			asked.Asker = before[kept].Asker
			before = slices.Delete(slices.Clone(before), kept, kept+1)
		} else {
			asked.Asker = p.open(member.Member)
		}
		p.peers = append(p.peers, asked)
	}
	for _, gone := range before {
		p.ending.Go(gone.Close) // it waits for the question under way
	}
	return p.peers
}

// quorum returns the other voters, and how many voters are a majority, this node among
// them. Raft counts by the same configuration.
func (p *peerAskers) quorum() (voters []*transport.Asker, majority int) {
	for _, peer := range p.now() {
		if peer.Voter {
			voters = append(voters, peer.Asker)
		}
	}
	return voters, (len(voters)+1)/2 + 1
}

// ask returns the Standing of one other member.
func (p *peerAskers) ask(ctx context.Context, id string) (transport.Standing, error) {
	type answer struct {
		stands transport.Standing
		err    error
	}
	peers := p.now()
	at := slices.IndexFunc(peers, func(peer transport.Peer) bool { return string(peer.ID()) == id })
	if at < 0 {
		return transport.Standing{}, notAMember(id)
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

// close ends all questions.
func (p *peerAskers) close() {
	p.mu.Lock()
	p.closed = true
	peers := p.peers
	p.mu.Unlock()
	for _, peer := range peers {
		peer.Close()
	}
	p.ending.Wait()
}
