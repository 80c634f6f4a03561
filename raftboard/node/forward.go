package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// clients are the calls to one other node.
type clients struct {
	board    conductordv1connect.BoardServiceClient
	sessions conductordv1connect.SessionServiceClient
	logbook  conductordv1connect.LogbookServiceClient
	schedule conductordv1connect.ScheduleServiceClient
}

// forwarder passes calls on to the leader, over connections that are kept.
type forwarder struct {
	transport *http.Transport

	mu    sync.Mutex
	nodes map[string]*clients // by API address; under mu
}

func newForwarder(n *Node) *forwarder {
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
	return &forwarder{transport: transport, nodes: map[string]*clients{}}
}

func (f *forwarder) to(member Member) *clients {
	f.mu.Lock()
	defer f.mu.Unlock()
	if existing, ok := f.nodes[member.API]; ok {
		return existing
	}
	base, client := "http://"+member.API, &http.Client{Transport: f.transport}
	made := &clients{
		board:    conductordv1connect.NewBoardServiceClient(client, base, wire.ClientOptions()...),
		sessions: conductordv1connect.NewSessionServiceClient(client, base, wire.ClientOptions()...),
		logbook:  conductordv1connect.NewLogbookServiceClient(client, base, wire.ClientOptions()...),
		schedule: conductordv1connect.NewScheduleServiceClient(client, base, wire.ClientOptions()...),
	}
	f.nodes[member.API] = made
	return made
}

func (f *forwarder) close() { f.transport.CloseIdleConnections() }

// method is a call of the API as its generated client has it.
type method[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// lead answers a call where the leader is: here, or by passing it on once.
func lead[Req, Res any](
	ctx context.Context, n *Node, request *connect.Request[Req],
	remote func(*clients) method[Req, Res],
	local func(ctx context.Context, message *Req) (*Res, uint64, error),
) (*connect.Response[Res], error) {
	where, err := n.findLeader(ctx)
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	if where.here {
		return reply(local(ctx, request.Msg))
	}
	hops, err := hopsOf(request.Header())
	if err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	if hops >= wire.MaxHops {
		return nil, wire.ErrorToConnect(fmt.Errorf("%w: node %q is not the leader", jobs.ErrUnavailable, n.options.Name))
	}
	n.metrics.forwarded.Inc()
	passed := connect.NewRequest(request.Msg)
	passed.Header().Set(wire.HeaderHops, strconv.FormatUint(hops+1, 10))
	response, err := remote(n.forward.to(where.there))(ctx, passed)
	if err != nil {
		return nil, wire.ErrorToConnect(wire.ErrorFromConnect(err))
	}
	answer := connect.NewResponse(response.Msg)
	answer.Header().Set(wire.HeaderIndex, response.Header().Get(wire.HeaderIndex))
	return answer, nil
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

// read answers a read: linearizably where the leader is, or from this node's
// own state if the caller is content with that.
func read[Req, Res any](
	ctx context.Context, n *Node, request *connect.Request[Req], stale bool,
	remote func(*clients) method[Req, Res],
	look func(message *Req) (*Res, error),
) (*connect.Response[Res], error) {
	if stale {
		if err := n.awaitMinIndex(ctx, request.Header()); err != nil {
			return nil, wire.ErrorToConnect(err)
		}
		index := n.machine.AppliedIndex() // before the look, which may see more
		message, err := look(request.Msg)
		return reply(message, index, err)
	}
	return lead(ctx, n, request, remote, func(ctx context.Context, message *Req) (*Res, uint64, error) {
		index, err := n.reads.wait(ctx)
		if err != nil {
			return nil, 0, err
		}
		answer, err := look(message)
		return answer, index, err
	})
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
