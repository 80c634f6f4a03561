package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/wire"
)

// router has each call answered where the leader is, or from this node's own state.
type router struct {
	leader    *lead.State
	machine   *fsm.Machine
	reads     *lead.Reads
	ready     *lead.Readiness
	memory    *admission.Memory
	guard     *guard.Guard
	elsewhere *elsewhere
	secure    secured
	client    *http.Client // forwards calls
	forwarded prometheus.Counter
}

// newForwarder makes the client that forwards calls to other members, over connections that are
// kept. Nothing is sent to a node that is not the member of the address.
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
	transport := newTransport()
	transport.DialContext, transport.DialTLSContext = dial, dial
	return &http.Client{Transport: transport}
}

// newTransport speaks HTTP/2. Its connections detect a node that has died silently, so that not
// every call has to time out.
func newTransport() *http.Transport {
	transport := &http.Transport{
		IdleConnTimeout: time.Minute, Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{SendPingTimeout: 2 * time.Second, PingTimeout: 2 * time.Second},
	}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	return transport
}

// hopsOf is how often a call has been forwarded.
func hopsOf(header http.Header) (uint64, error) {
	text := header.Get(wire.HeaderHops)
	if text == "" {
		return 0, nil
	}
	hops, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, &logbook.InvalidError{Field: wire.HeaderHops, Reason: fmt.Sprintf("%.64q is not a number of hops", text)}
	}
	return hops, nil
}

// reply makes the answer of a call that this node carried out.
func reply[Res any](message *Res, index uint64, err error) (*connect.Response[Res], error) {
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	answer := connect.NewResponse(message)
	answer.Header().Set(wire.HeaderIndex, strconv.FormatUint(index, 10))
	return answer, nil
}
