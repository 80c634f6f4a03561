package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/wire"
	"github.com/conductord/conductord/topology"
)

const (
	// otherClusterTime limits a call to another cluster, over all its servers. It is shorter than
	// an attempt of the client library, so the client receives the result.
	otherClusterTime = 2500 * time.Millisecond
	// elsewhereDial limits one connection attempt, so that an unreachable server leaves time for
	// others.
	elsewhereDial = 800 * time.Millisecond
	// maxElsewhere limits the parallel calls to each other cluster. A cluster that hangs costs this
	// node limited memory, and does not affect other boards.
	maxElsewhere = 256
	// maxElsewhereBytes limits the bytes of calls to other clusters. It is a quarter of the node's
	// memory for bodies, so a cluster that hangs leaves the rest to this cluster.
	maxElsewhereBytes = 8 << 20
)

// Elsewhere finds the boards of other clusters in the topology, and forwards postings to them.
type Elsewhere struct {
	source   *topology.Source // nil: every board is here
	cluster  string           // id of this cluster
	enforced bool             // access control is on
	secure   bool             // addresses without a scheme use TLS
	client   *http.Client
	machine  *fsm.Machine
	clusters sync.Map // of *otherCluster, by name
	// allow authorizes a posting before it is forwarded. Otherwise, any known caller could reach a
	// cluster that trusts this node's network, and learn the topology from errors.
	allow func(ctx context.Context, verb string, needed command.Permission, message any) error
	hide  func(ctx context.Context, answer any) // hides the parts of another cluster's answer that this caller may not see
}

// otherCluster is another cluster.
type otherCluster struct {
	calls  atomic.Int64 // in progress
	bytes  atomic.Int64 // of these calls
	server atomic.Int64 // server that answered last
}

// NewElsewhere makes an Elsewhere for a topology; nil: every board is here. Without files,
// addresses without a scheme speak plain text.
func NewElsewhere(source *topology.Source, cluster string, enforced bool, files *credentials.Store, machine *fsm.Machine) *Elsewhere {
	transport := NewTransport()
	transport.DialContext, transport.TLSHandshakeTimeout = (&net.Dialer{Timeout: elsewhereDial}).DialContext, elsewhereDial
	if files != nil {
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialElsewhere(ctx, files, network, address)
		}
	}
	return &Elsewhere{
		source: source, cluster: cluster, enforced: enforced, secure: files != nil, machine: machine,
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// dialElsewhere uses no certificate, because the other cluster would take this node's certificate
// for the caller's.
func dialElsewhere(ctx context.Context, files *credentials.Store, network, address string) (net.Conn, error) {
	config := files.Client("h2")
	config.GetClientCertificate = nil
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: elsewhereDial}, Config: config}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil { // also for the handshake: the call has not been sent
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return conn, nil
}

// shownKey is the key of the header Authorization in a call's context.
type shownKey struct{}

// KeepShown keeps the caller's Authorization header, for calls to another cluster.
func (e *Elsewhere) KeepShown(next http.Handler) http.Handler {
	if e.source == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), shownKey{}, r.Header.Get("Authorization"))))
	})
}

// here is the name of this cluster in a topology.
func (e *Elsewhere) here(now *topology.Topology) string {
	name, _ := now.NameOf(e.cluster)
	return name
}

// Status returns the digest of the current topology, and this cluster's name in it.
func (e *Elsewhere) Status() (digest, cluster string) {
	if e.source == nil {
		return "", ""
	}
	now := e.source.Current()
	return now.Digest(), e.here(now)
}

// routed answers a call that posts. It passes the postings for this cluster's boards to the given
// row, and forwards the others. Each forwarded posting has its own verdict. If another cluster does
// not answer, only the verdicts of its postings are errors.
func (e *Elsewhere) routed(answers func(Call) unary[conductordv1.PostRequest, conductordv1.PostResponse]) func(Call) unary[conductordv1.PostRequest, conductordv1.PostResponse] {
	return func(row Call) unary[conductordv1.PostRequest, conductordv1.PostResponse] {
		local := answers(row)
		if e.source == nil {
			return local
		}
		return func(ctx context.Context, request *connect.Request[conductordv1.PostRequest]) (*connect.Response[conductordv1.PostResponse], error) {
			now, postings := e.source.Current(), request.Msg.GetPostings()
			if n := len(postings); n > command.MaxPostings { // each costs a verdict, which is larger
				return nil, wire.ErrorToConnect(&logbook.LimitError{Field: "postings", Limit: command.MaxPostings, Size: int64(n), Unit: "postings"})
			}
			own, parts := e.here(now), map[string][]int{}
			for i, posting := range postings {
				name := now.Route(posting.GetBoard()).Cluster
				parts[name] = append(parts[name], i)
			}
			if len(parts[own]) == len(postings) {
				return local(ctx, request)
			}
			if err := nameJobs(ctx, request.Header(), request.Msg); err != nil {
				return nil, wire.ErrorToConnect(err)
			}
			answer := connect.NewResponse(&conductordv1.PostResponse{Posted: make([]*conductordv1.PostedJob, len(postings))})
			for name, places := range parts {
				if name == own {
					continue
				}
				parts[name] = slices.DeleteFunc(places, func(place int) bool {
					err := e.allow(ctx, "post", command.Post, postings[place])
					if err != nil {
						answer.Msg.Posted[place] = refusedPosting(postings[place].Id, command.ErrorToProto(err))
					}
					return err != nil
				})
			}
			e.post(ctx, now, request, parts, local, answer)
			e.hide(ctx, answer.Msg)
			return answer, nil
		}
	}
}

// post lets all parts be answered in parallel.
func (e *Elsewhere) post(
	ctx context.Context, now *topology.Topology, request *connect.Request[conductordv1.PostRequest], parts map[string][]int,
	local unary[conductordv1.PostRequest, conductordv1.PostResponse], answer *connect.Response[conductordv1.PostResponse],
) {
	var answering sync.WaitGroup
	for name, places := range parts {
		if len(places) == 0 { // all are refused
			continue
		}
		part := connect.NewRequest(&conductordv1.PostRequest{Brief: request.Msg.Brief})
		for key, values := range request.Header() {
			part.Header()[key] = values
		}
		for _, place := range places {
			part.Msg.Postings = append(part.Msg.Postings, request.Msg.Postings[place])
		}
		answering.Go(func() {
			var got *connect.Response[conductordv1.PostResponse]
			var err error
			if name == e.here(now) {
				if got, err = local(ctx, part); err == nil { // the index of another cluster has no meaning here
					answer.Header().Set(wire.HeaderIndex, got.Header().Get(wire.HeaderIndex))
				}
				err = wire.ErrorFromConnect(err)
			} else {
				got, err = e.forward(ctx, now, name, part)
			}
			if err == nil && len(got.Msg.Posted) != len(places) {
				err = fmt.Errorf("%w: cluster %q returned %d results for %d postings", jobs.ErrUncertain, name, len(got.Msg.Posted), len(places))
			}
			for i, place := range places {
				if err != nil {
					answer.Msg.Posted[place] = refusedPosting(request.Msg.Postings[place].Id, command.ErrorToProto(err))
				} else {
					answer.Msg.Posted[place] = got.Msg.Posted[i]
				}
			}
		})
	}
	answering.Wait()
}

// forward lets another cluster answer the call, unless the call was already forwarded once.
func (e *Elsewhere) forward(
	ctx context.Context, now *topology.Topology, name string, part *connect.Request[conductordv1.PostRequest],
) (*connect.Response[conductordv1.PostResponse], error) {
	if theirs := part.Header().Get(wire.HeaderTopology); theirs != "" || part.Header().Get(wire.HeaderHops) != "" {
		return nil, fmt.Errorf("%w: a node with topology %.64s forwarded board %q to cluster %q, but in topology %s of this node the board is in cluster %q: use the same file on both nodes",
			jobs.ErrWrongCluster, cmp.Or(theirs, "of an unknown digest"), part.Msg.Postings[0].GetBoard(), e.here(now), now.Digest(), name)
	}
	known, _ := e.clusters.LoadOrStore(name, new(otherCluster))
	to := known.(*otherCluster)
	defer to.calls.Add(-1)
	if n := to.calls.Add(1); n > maxElsewhere {
		return nil, fmt.Errorf("%w: %d calls to cluster %q are in flight; the limit is %d; try again, or call that cluster's own servers", jobs.ErrOverloaded, n-1, name, maxElsewhere)
	}
	size := int64(proto.Size(part.Msg))
	defer to.bytes.Add(-size)
	if n := to.bytes.Add(size); n > maxElsewhereBytes {
		return nil, fmt.Errorf("%w: calls in flight to cluster %q have %d bytes, this call has %d, and the limit is %d; try again, or call that cluster's own servers",
			jobs.ErrOverloaded, name, n-size, size, maxElsewhereBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, otherClusterTime)
	defer cancel()
	servers, err := e.source.Servers(ctx, name)
	if err != nil {
		return nil, err
	}
	shown, _ := ctx.Value(shownKey{}).(string)
	if e.enforced && shown == "" {
		return nil, fmt.Errorf("%w: board %q is in cluster %q, and a certificate or a socket identifies the caller only to this node: use a token, or call that cluster at %s",
			jobs.ErrNotAllowed, part.Msg.Postings[0].GetBoard(), name, strings.Join(servers, ", "))
	}
	last := to.server.Load()
	for i := range servers {
		at := (int(last) + i) % len(servers)
		var got *connect.Response[conductordv1.PostResponse]
		if got, err = e.send(ctx, now.Digest(), servers[at], shown, part); err == nil {
			to.server.Store(int64(at))
			return got, nil
		}
		if !errors.Is(err, jobs.ErrUnavailable) || ctx.Err() != nil {
			break // settled, or ambiguous
		}
	}
	return nil, fmt.Errorf("cluster %q: %w", name, err)
}

// send is one attempt at one server.
func (e *Elsewhere) send(ctx context.Context, digest, server, shown string, part *connect.Request[conductordv1.PostRequest]) (*connect.Response[conductordv1.PostResponse], error) {
	base := server
	if !strings.Contains(server, "://") {
		base = "http://" + server
		if e.secure {
			base = "https://" + server
		}
	}
	if shown != "" && !strings.HasPrefix(base, "https://") {
		return nil, fmt.Errorf("%w: cannot send the caller's token to %s in plain text", jobs.ErrNotAllowed, server)
	}
	request := connect.NewRequest(part.Msg)
	request.Header().Set(wire.HeaderTopology, digest)
	if shown != "" {
		request.Header().Set("Authorization", shown)
	}
	got, err := connect.NewClient[conductordv1.PostRequest, conductordv1.PostResponse](e.client, base+conductordv1connect.BoardServicePostProcedure, wire.ClientOptions()...).CallUnary(ctx, request)
	if err = wire.ErrorFromConnect(err); errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %s has not answered in time", jobs.ErrUncertain, server)
	}
	return got, err
}

// Refuse returns an error for a board of another cluster. A board that still exists here also
// belongs to this cluster until it is deleted: its last jobs end here after the move.
func (e *Elsewhere) Refuse(board string) error {
	if e.source == nil {
		return nil
	}
	now := e.source.Current()
	name := now.Route(board).Cluster
	if name == e.here(now) || e.machine.HasBoard(board) {
		return nil
	}
	cluster := now.Clusters[name]
	return fmt.Errorf("%w: in topology %s, board %q is in cluster %q: call that cluster at %s", jobs.ErrWrongCluster, now.Digest(), board, name,
		cmp.Or(strings.Join(cluster.Servers, ", "), "the servers of "+cluster.SRV))
}
