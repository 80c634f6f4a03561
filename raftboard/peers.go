package raftboard

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

// Times of the connections. A ping detects a vanished node well before a session of the
// default TTL expires.
const (
	dialTimeout = 2 * time.Second
	idleTimeout = 90 * time.Second
	pingAfter   = 2 * time.Second
	pingTimeout = 2 * time.Second
)

const (
	// maxLearned limits the nodes that are known only from answers.
	maxLearned = 16
	// shunTime is the time for which an unreachable learned address is skipped. Nodes may know
	// the leader by an address that cannot be reached from here. Other nodes forward to the
	// leader, at the cost of a hop.
	shunTime = 10 * time.Second
)

// peer is one node, by its address.
type peer struct {
	url      string
	board    conductordv1connect.BoardServiceClient
	sessions conductordv1connect.SessionServiceClient
	logbook  conductordv1connect.LogbookServiceClient
	schedule conductordv1connect.ScheduleServiceClient
	cluster  conductordv1connect.ClusterServiceClient
	access   conductordv1connect.AccessServiceClient
	workers  conductordv1connect.WorkerServiceClient
	stream   *stream.Caller

	configured bool
	shunned    time.Time // end of the skip time; guarded by peers.mu
	// The leader's address in this node's last answer, and the peer at it;
	// guarded by peers.mu.
	hint   string
	leader *peer
}

// String is the address for display.
func (p *peer) String() string {
	if path := socketOf(p.url); path != "" {
		return socketScheme + path
	}
	return strings.TrimPrefix(strings.TrimPrefix(p.url, "http://"), "https://")
}

// peers are the nodes that a client knows. It selects the node to try.
type peers struct {
	http connect.HTTPClient
	// keep makes the stream to a node.
	keep func(conductordv1connect.StreamServiceClient) *stream.Caller

	mu      sync.Mutex
	all     map[string]*peer // by URL
	order   []*peer          // the configured nodes, in the given order
	learned []*peer          // oldest first
	current int              // index in order: the next node while no leader is known
	spread  int              // index in order: the next node for a stale read
	leader  *peer            // nil: unknown
}

func newPeers(options Options, client connect.HTTPClient, keep func(conductordv1connect.StreamServiceClient) *stream.Caller) *peers {
	s := &peers{http: client, keep: keep, all: make(map[string]*peer)}
	for _, endpoint := range options.Endpoints {
		base, err := options.baseURL(endpoint)
		if err != nil || s.all[base] != nil {
			continue // validated before; repeated endpoints are one peer
		}
		p := s.newPeer(base)
		p.configured = true
		s.all[base] = p
		s.order = append(s.order, p)
	}
	return s
}

func (s *peers) newPeer(base string) *peer {
	client, options := s.http, wire.ClientOptions()
	return &peer{
		url:      base,
		board:    conductordv1connect.NewBoardServiceClient(client, base, options...),
		sessions: conductordv1connect.NewSessionServiceClient(client, base, options...),
		logbook:  conductordv1connect.NewLogbookServiceClient(client, base, options...),
		schedule: conductordv1connect.NewScheduleServiceClient(client, base, options...),
		cluster:  conductordv1connect.NewClusterServiceClient(client, base, options...),
		access:   conductordv1connect.NewAccessServiceClient(client, base, options...),
		workers:  conductordv1connect.NewWorkerServiceClient(client, base, options...),
		stream:   s.keep(conductordv1connect.NewStreamServiceClient(client, base, options...)),
	}
}

// The scheme of a socket's endpoint, and the suffix of the host that represents it in URLs.
const (
	socketScheme = "unix://"
	socketHost   = ".socket:80"
)

// socketOf returns the path of the socket that a base URL represents; empty: no socket.
func socketOf(base string) string {
	host, isSocket := strings.CutSuffix(strings.TrimPrefix(base, "http://"), socketHost)
	path, err := hex.DecodeString(host)
	if !isSocket || err != nil {
		return ""
	}
	return string(path)
}

// baseURL is the canonical form of an endpoint.
func (o Options) baseURL(endpoint string) (string, error) {
	if path, isSocket := strings.CutPrefix(endpoint, socketScheme); isSocket && strings.HasPrefix(path, "/") {
		return "http://" + hex.EncodeToString([]byte(path)) + socketHost, nil
	}
	text := endpoint
	if !strings.Contains(text, "://") {
		text = "http://" + text
		if o.TLS != nil || o.Credentials != nil {
			text = "https://" + endpoint
		}
	}
	invalid := func(reason string) error {
		return &logbook.InvalidError{Field: "endpoint", Reason: fmt.Sprintf("%.128q %s", endpoint, reason)}
	}
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return "", invalid("is not of the form host:port")
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return "", invalid("is neither http nor https")
	case parsed.User != nil || strings.TrimSuffix(parsed.Path, "/") != "" || parsed.RawQuery != "" || parsed.Fragment != "":
		return "", invalid("has more than host and port")
	}
	host, port, err := net.SplitHostPort(parsed.Host)
	if number, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || host == "" || number == 0 {
		return "", invalid("is not of the form host:port")
	}
	return parsed.Scheme + "://" + strings.ToLower(parsed.Host), nil
}

// pick selects the next node; nil if all known nodes have been tried. The leader comes first,
// unless the call is spread over all nodes.
func (s *peers) pick(tried map[*peer]bool, spread bool) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.current
	if spread {
		first = s.spread
		s.spread = (s.spread + 1) % len(s.order)
	} else if s.leader != nil && !tried[s.leader] {
		return s.leader
	}
	for i := range s.order {
		if p := s.order[(first+i)%len(s.order)]; !tried[p] {
			return p
		}
	}
	now := time.Now()
	for _, p := range s.learned {
		if !tried[p] && now.After(p.shunned) {
			return p
		}
	}
	return nil
}

// failed records that a node gave no usable answer. unreached reports that there was no connection.
func (s *peers) failed(p *peer, unreached bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader == p {
		s.leader = nil
	}
	if s.order[s.current] == p {
		s.current = (s.current + 1) % len(s.order)
	}
	if unreached && !p.configured {
		p.shunned = time.Now().Add(shunTime)
	}
}

// heard records the address of the leader that an answer names, if any.
func (s *peers) heard(from *peer, address string) {
	if address == "" || socketOf(from.url) != "" { // through a socket, the node itself forwards
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := from.leader
	if from.hint != address || s.all[p.url] != p {
		scheme, _, _ := strings.Cut(from.url, "://")
		base, err := Options{}.baseURL(scheme + "://" + address)
		if err != nil {
			return // an unusable hint; every node forwards
		}
		if p = s.all[base]; p == nil {
			p = s.learnLocked(base)
		}
		from.hint, from.leader = address, p
	}
	if s.leader != p && time.Now().After(p.shunned) {
		s.leader = p
	}
}

// learn adds another node of the cluster, so that a client with one endpoint continues when that
// node is gone. Learned addresses are tried after the given ones.
func (s *peers) learn(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if socketOf(s.order[0].url) != "" {
		return
	}
	scheme, _, _ := strings.Cut(s.order[0].url, "://")
	base, err := Options{}.baseURL(scheme + "://" + address)
	if err == nil && s.all[base] == nil {
		s.learnLocked(base)
	}
}

func (s *peers) learnLocked(base string) *peer {
	if len(s.learned) == maxLearned {
		delete(s.all, s.learned[0].url)
		s.learned = append(s.learned[:0], s.learned[1:]...)
	}
	p := s.newPeer(base)
	s.all[base] = p
	s.learned = append(s.learned, p)
	return p
}

// known lists the nodes, the configured ones first.
func (s *peers) known() []*peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(append([]*peer(nil), s.order...), s.learned...)
}

// at returns the node at an endpoint, even if the node was unknown so far.
func (s *peers) at(base string) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.all[base]; p != nil {
		return p
	}
	return s.newPeer(base)
}
