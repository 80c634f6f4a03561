package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// Router routes each call: to the leader, or to this node's own state.
type Router struct {
	*Parts
	Submit *Submitter
}

// Peers are the other nodes as seen by this node.
type Peers struct {
	Client    *http.Client
	URL       func(address, path string) string           // URL of a path at a node
	Address   func(name string) (address string, is bool) // API address of a member
	Forwarded func()                                      // called for each call that another node answers
}

// CallerOf calls another node by its address.
func CallerOf[Req, Res any](p *Peers, address, call string, options ...connect.ClientOption) *connect.Client[Req, Res] {
	return connect.NewClient[Req, Res](p.Client, p.URL(address, wire.Prefix+call), append(wire.ClientOptions(), options...)...)
}

// NewTransport speaks HTTP/2. Its connections detect a node that has died silently, so that not
// every call has to time out.
func NewTransport() *http.Transport {
	transport := &http.Transport{
		IdleConnTimeout: time.Minute, Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{SendPingTimeout: 2 * time.Second, PingTimeout: 2 * time.Second},
	}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	return transport
}

// HopsOf is the number of times that a call has been forwarded.
func HopsOf(header http.Header) (uint64, error) {
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

// reply makes the answer of a call that this node performed.
func reply[Res any](message *Res, index uint64, err error) (*connect.Response[Res], error) {
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	answer := connect.NewResponse(message)
	answer.Header().Set(wire.HeaderIndex, strconv.FormatUint(index, 10))
	return answer, nil
}
