package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// router has each call answered where the leader is, or from this node's own state.
type router struct {
	leader    *leaderState
	machine   *fsm.Machine
	reads     *readRounds
	ready     *readiness
	memory    *memoryBudget
	guard     *guard
	secure    secured
	client    *http.Client // forwards calls
	forwarded prometheus.Counter
}

// newForwarder makes the client that forwards calls to the leader, over
// connections that are kept.
func newForwarder(secure secured) *http.Client {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return secure.dial(ctx, address, "h2") }
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
