package transport_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// comer is a connection that waits for its handshake.
type comer struct {
	net.Conn
	address string
	closed  bool
}

func (c *comer) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.address))
}
func (c *comer) Read(into []byte) (int, error) { return len(into), nil }
func (c *comer) Close() error                  { c.closed = true; return nil }

// Places are taken from unknown callers before members, then from the address with the most, then
// from silent connections before active ones, then from the oldest.
func TestPlacesAreShared(t *testing.T) {
	const member, stranger, another = "10.0.0.2:1", "10.0.0.66:1", "10.0.0.67:1"
	type group struct {
		address string // with a trailing *, each connection has another address in its own /64
		count   int
		speaks  bool
	}
	all := transport.MaxHandshaking
	for _, row := range []struct {
		name    string
		waiting []group // in the order of their arrival
		next    string  // address of one more connection
		loses   int     // the group whose oldest connection loses its place; -1: the new one
	}{
		{"silent strangers, and a member", []group{{stranger, all, false}}, member, 0},
		{"silent strangers, and one more", []group{{stranger, all, false}}, stranger, 0},
		{"a few of one address, many of another", []group{{another, 6, false}, {stranger, all - 6, false}}, another, 1},
		{"strangers from everywhere, and a member", []group{{member, 2, false}, {"*", all - 2, true}}, member, 1},
		{"more connections of a member than of a stranger", []group{{member, all - 1, false}, {stranger, 1, true}}, member, 1},
		{"members alone, and a stranger", []group{{member, all, false}}, stranger, -1},
		{"members alone, and another", []group{{member, all, false}}, member, 0},
		{"one address: those that speak stay", []group{{member, 5, true}, {member, all - 5, false}}, member, 1},
		{"one address: all speak", []group{{member, 1, true}, {member, all - 1, true}}, member, 0},
		{"IPv6 addresses of one /64 count as one", []group{{another, 6, false}, {"[2001:db8::*]:1", all - 6, false}}, another, 1},
		{"an IPv4 address in IPv6", []group{{"10.0.0.67:1", 3, false}, {"[::ffff:10.0.0.66]:1", all/2 - 3, false}, {stranger, all / 2, false}}, another, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			places := transport.NewPlaces()
			places.Remember((&comer{address: member}).RemoteAddr())
			var groups [][]*comer
			for n, group := range row.waiting {
				groups = append(groups, nil)
				for i := range group.count {
					came := &comer{address: addressOf(group.address, n, i)}
					groups[n] = append(groups[n], came)
					if taken := places.Take(came); taken == nil {
						t.Fatal("there is no place")
					} else if group.speaks {
						_, _ = taken.Read(make([]byte, 1))
					}
				}
			}
			next := &comer{address: row.next}
			if taken := places.Take(next); (taken == nil) != (row.loses < 0) {
				t.Errorf("the new one has a place: %t", taken != nil)
			}
			var closed int
			for _, group := range groups {
				closed += len(slices.DeleteFunc(slices.Clone(group), func(c *comer) bool { return !c.closed }))
			}
			if row.loses >= 0 && (closed != 1 || !groups[row.loses][0].closed) || row.loses < 0 && closed > 0 {
				t.Errorf("%d have lost their places, and not the oldest of group %d", closed, row.loses)
			}
			if held := places.Held(); held != transport.MaxHandshaking {
				t.Errorf("%d places are taken", held)
			}
		})
	}
}

// addressOf is one address of a group.
func addressOf(pattern string, group, i int) string {
	own := netip.AddrFrom4([4]byte{11, byte(group), byte(i >> 8), byte(i)}).String()
	if pattern == "*" {
		return own + ":1"
	}
	return strings.ReplaceAll(pattern, "*", strings.ReplaceAll(netip.AddrFrom4([4]byte{byte(group), 1, byte(i >> 8), byte(i)}).String(), ".", ":"))
}

// The number of remembered addresses is limited for any number of addresses.
func TestPlacesRememberFewAddresses(t *testing.T) {
	places := transport.NewPlaces()
	for i := range 1_000 {
		came := &comer{address: addressOf("*", 0, i)}
		places.Leave(places.Take(came))
		places.Remember(came.RemoteAddr())
	}
	if held := places.Addresses(); held > transport.MaxMemberAddresses {
		t.Errorf("%d addresses are remembered", held)
	}
}
