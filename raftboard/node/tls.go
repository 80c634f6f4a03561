package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

// secured listens and dials for a node: with TLS if it has credentials, otherwise in plain text.
type secured struct {
	system  System
	store   *credentials.Store // nil: none
	cluster string
	clients bool // clients must have certificates
}

func newSecured(o Options) secured {
	return secured{o.System, o.Credentials, o.Cluster, o.ClientCertificates}
}

// raft makes an accepted connection of a member a TLS connection. Its first read does the TLS
// handshake, within the time limit of the handshake between nodes. raft returns nil without
// credentials.
func (s secured) raft() func(net.Conn) net.Conn {
	if s.store == nil {
		return nil
	}
	config := s.store.Raft(s.cluster)
	return func(conn net.Conn) net.Conn { return tls.Server(conn, config) }
}

// listenAPI listens for clients.
func (s secured) listenAPI(address string, at *admission.Server) (net.Listener, error) {
	raw, err := s.system.Listen(address)
	if err != nil || s.store == nil {
		return at.Listener(raw, nil), err
	}
	return at.Listener(raw, s.store.API(s.clients)), nil
}

// dial connects to another member, at either port. It sends nothing before the member has proven
// that it is a node of the cluster.
func (s secured) dial(ctx context.Context, address string, protocols ...string) (net.Conn, error) {
	conn, err := s.system.Dial(ctx, address)
	if err != nil || s.store == nil {
		return conn, err
	}
	config := s.store.Members(s.cluster)
	config.NextProtos = protocols
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// certified proves a member's name; nil without credentials.
func (s secured) certified() func(net.Conn, string) error {
	if s.store == nil {
		return nil
	}
	return credentials.CheckName
}

// url is the address of a path at another member's API.
func (s secured) url(address, path string) string {
	if s.store == nil {
		return "http://" + address + path
	}
	return "https://" + address + path
}

// newForwarder makes the client that forwards calls to other members, over persistent connections.
// It sends nothing to a node that is not the member with the address.
func newForwarder(secure secured, members *membership.Members) *http.Client {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		conn, err := secure.dial(ctx, address, "h2")
		if err != nil || secure.store == nil {
			return conn, err
		}
		if err := credentials.CheckName(conn, members.At(address)); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot forward a call to %s: %w", address, err), conn.Close())
		}
		return conn, nil
	}
	transport := api.NewTransport()
	transport.DialContext, transport.DialTLSContext = dial, dial
	return &http.Client{Transport: transport}
}

// Times of the warnings before certificates expire.
const (
	expiryWarning = 30 * 24 * time.Hour
	expiryLook    = 24 * time.Hour
)

// watchExpiry warns while the certificates expire soon, until ctx ends.
func (n *Node) watchExpiry(ctx context.Context) {
	for range clock.Every(ctx, expiryLook) {
		if expires := n.options.Credentials.Expires(); n.options.WallClock().Add(expiryWarning).After(expires) {
			n.logger.Warn("certificate expires soon or has expired", "expires", expires, "advice", "replace the files; a restart is not needed")
		}
	}
}
