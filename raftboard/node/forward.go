package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// newForwarder makes the client that forwards calls to the leader, over
// connections that are kept.
func newForwarder(n *Node) *http.Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return n.options.System.Dial(ctx, address)
		},
		Protocols:       new(http.Protocols),
		IdleConnTimeout: time.Minute,
		// A node that has died silently is noticed by its connection, not by
		// every call on it.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 2 * time.Second, PingTimeout: 2 * time.Second},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: transport}
}

// hopsOf is how often a call has been forwarded already.
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

// reply makes an answer of a node's own.
func reply[Res any](message *Res, index uint64, err error) (*connect.Response[Res], error) {
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	answer := connect.NewResponse(message)
	answer.Header().Set(wire.HeaderIndex, strconv.FormatUint(index, 10))
	return answer, nil
}

// behindPatience is how long a call waits for this node to be as new as the
// caller wants it; then another node may be.
const behindPatience = 5 * time.Second

// awaitMinIndex waits until this node's own state includes what the caller has
// seen, and until it has once caught up with a leader: a node that has just
// restarted is far in the past.
func (n *Node) awaitMinIndex(ctx context.Context, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, behindPatience)
	defer cancel()
	if !n.caughtUp.Load() {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	text := header.Get(wire.HeaderMinIndex)
	if text == "" {
		return nil
	}
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return &logbook.InvalidError{Field: wire.HeaderMinIndex, Reason: fmt.Sprintf("%.64q is not a log index", text)}
	}
	if err := n.machine.WaitApplied(ctx, index); err != nil {
		return fmt.Errorf("%w: this node has not applied entry %d yet: %w", jobs.ErrUnavailable, index, err)
	}
	return nil
}
