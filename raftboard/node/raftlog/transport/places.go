package transport

import (
	"cmp"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxHandshaking limits the connections that have not completed the handshake. Each costs
	// some ten kilobytes.
	MaxHandshaking = 256
	// maxMemberAddresses limits the remembered addresses of members.
	maxMemberAddresses = 64
)

// places are shared by the connections that have not completed the handshake. When all are
// taken, a new connection replaces another one. The replaced one is chosen in this order: a
// stranger before an address of a member; the address with the most places; a connection that
// has sent nothing; the oldest. Silent strangers therefore cannot keep out a member, because a
// member sends the first message at once.
type places struct {
	mu        sync.Mutex
	taken     map[*place]struct{}      // guarded by mu
	addresses map[netip.Prefix]*remote // remotes with places, and remotes of members; guarded by mu
}

// remote is an address of incoming connections. IPv6 addresses of one /64 count as one, because one
// host may have them all.
type remote struct {
	prefix netip.Prefix
	places int
	member bool // a member has connected from this address, or was reached at it
}

// place is a connection with its place until the handshake ends.
type place struct {
	net.Conn
	from  *remote
	since time.Time
	spoke atomic.Bool // the other end has sent data
	lost  atomic.Bool // a newer connection has the place
}

// Read reads.
func (p *place) Read(into []byte) (int, error) {
	n, err := p.Conn.Read(into)
	if n > 0 && !p.spoke.Load() {
		p.spoke.Store(true)
	}
	return n, err
}

func newPlaces() *places {
	return &places{taken: map[*place]struct{}{}, addresses: map[netip.Prefix]*remote{}}
}

// take gives a new connection a place; nil: members have all places.
func (p *places) take(conn net.Conn) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := &place{Conn: conn, from: p.remoteLocked(conn.RemoteAddr()), since: time.Now()}
	p.taken[taken] = struct{}{}
	taken.from.places++
	if len(p.taken) <= MaxHandshaking {
		return taken
	}
	out := taken
	taken.spoke.Store(true) // it had no time to send data
	for other := range p.taken {
		if cmp.Or(other.rank()-out.rank(), other.since.Compare(out.since)) < 0 {
			out = other
		}
	}
	taken.spoke.Store(false)
	p.leaveLocked(out)
	if out == taken {
		return nil
	}
	out.lost.Store(true)
	_ = out.Conn.Close()
	return taken
}

// rank orders places by how well they are kept.
func (p *place) rank() int {
	rank := -2 * p.from.places
	if p.from.member {
		rank += 4 * MaxHandshaking
	}
	if p.spoke.Load() {
		rank++
	}
	return rank
}

// leave frees the place of a connection whose handshake has ended. A repeated call is harmless.
func (p *places) leave(left *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(left)
}

func (p *places) leaveLocked(left *place) {
	if _, has := p.taken[left]; !has {
		return
	}
	delete(p.taken, left)
	if left.from.places--; left.from.places == 0 && !left.from.member {
		delete(p.addresses, left.from.prefix)
	}
}

// remember records that a member is at an address.
func (p *places) remember(address net.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.remoteLocked(address); len(p.addresses)-len(p.taken) <= maxMemberAddresses {
		at.member = true
	} else if at.places == 0 {
		delete(p.addresses, at.prefix)
	}
}

func (p *places) remoteLocked(address net.Addr) *remote {
	parsed, _ := netip.ParseAddrPort(address.String()) // the zero value if it is not an IP address
	ip := parsed.Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.WithZone("").Prefix(bits)
	known := p.addresses[prefix]
	if known == nil {
		known = &remote{prefix: prefix}
		p.addresses[prefix] = known
	}
	return known
}
