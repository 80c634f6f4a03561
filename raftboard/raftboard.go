// Package raftboard is the client library: the jobs.Board and the logbook.Connection of a
// cluster.
//
//	client, err := raftboard.Dial(ctx, "10.0.0.1:7070", "10.0.0.2:7070", "10.0.0.3:7070")
//
// Post jobs with jobs.PostOne, read their results with await.Result (package jobs/await), and run
// them by passing the client to conductor.Run.
//
// A Client knows some endpoints of one cluster. It calls the leader if it knows one, and
// otherwise any node: every node accepts every call. If a node gives no usable answer, the client
// repeats the call at the next node; the call's ids, nonces or tokens make the repeat harmless. A
// method therefore returns with an answer, when its context ends, or after Options.Patience
// without a usable answer.
//
// Guarantees. An error that wraps jobs.ErrUnavailable means that nothing has happened: every
// attempt was refused or never left this process. An error that wraps jobs.ErrUncertain means
// that the result is ambiguous: an attempt may have been carried out. Both can also wrap the
// context's error. Calls that only read never return ErrUncertain.
//
// Writes of concurrent callers are batched: when an earlier call is back, everything that waits
// goes into one call, without a timer. Updates of flows and the endings of jobs keep the order of
// their calls.
//
// The package links neither raft nor the state machine.
package raftboard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/valuekeys"
)

// MaxEndpoints limits Options.Endpoints. No cluster is nearly so large, so a longer list is a
// mistake.
const MaxEndpoints = 64

// DefaultPatience is the default of Options.Patience: several elections, and the restart of a
// node.
const DefaultPatience = 30 * time.Second

// Options configures a Client.
type Options struct {
	// Endpoints are "host:port", "http://host:port" or "https://host:port" of one or more nodes.
	// The client learns more from the nodes' answers. A single "unix:///path" is the socket of a
	// node on this machine, for its operators.
	Endpoints []string
	// Patience is the time for which a call is repeated without a usable answer before it fails. A context can end it
	// earlier. Zero: DefaultPatience.
	Patience time.Duration
	// TLS is the configuration for https endpoints. With TLS, an endpoint without a scheme is an
	// https endpoint. Nil: the system's roots.
	TLS *tls.Config
	// Credentials are files for TLS, instead of the field TLS. Changed files are used from the next
	// connection on.
	Credentials *credentials.Store
	// Token is sent with every call. It requires https endpoints: in plain text, the token could
	// be read on the way.
	Token string
	// ValueKeys encrypts the values of jobs and flows before they are sent, and decrypts the
	// values of answers. Values that it cannot decrypt stay encrypted; see valuekeys.KeyID. Nil:
	// values are sent unencrypted.
	ValueKeys *valuekeys.Keys
	// HTTPClient replaces the default client, which uses HTTP/2 with and without TLS. TLS then only
	// determines the schemes.
	HTTPClient connect.HTTPClient
	// Logger logs nodes that fail to answer. Nil: none.
	Logger hclog.Logger
}

func (o Options) withDefaults() Options {
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

func (o Options) validate() error {
	var faults []error
	if len(o.Endpoints) == 0 {
		faults = append(faults, fmt.Errorf("%w: no endpoint is set: add at least one node", jobs.ErrInvalid))
	}
	if o.TLS != nil && o.Credentials != nil {
		faults = append(faults, &logbook.InvalidError{Field: "credentials", Reason: "set together with TLS: set only one of the two"})
	}
	if len(o.Endpoints) > MaxEndpoints {
		faults = append(faults, &logbook.LimitError{Field: "endpoints", Limit: MaxEndpoints, Size: int64(len(o.Endpoints)), Unit: "endpoints"})
	}
	for _, endpoint := range o.Endpoints {
		base, err := o.baseURL(endpoint)
		switch {
		case err != nil:
			faults = append(faults, err)
		case o.Token != "" && !strings.HasPrefix(base, "https://"):
			faults = append(faults, &logbook.InvalidError{Field: "token", Reason: fmt.Sprintf("cannot go to %s in plain text: set the authorities of its certificate, or use an https endpoint", endpoint)})
		case len(o.Endpoints) > 1 && socketOf(base) != "":
			faults = append(faults, &logbook.InvalidError{Field: "endpoints", Reason: fmt.Sprintf("%s is one of several endpoints: a socket must be the only endpoint", endpoint)})
		}
	}
	if o.Patience < 0 {
		faults = append(faults, &logbook.InvalidError{Field: "patience", Reason: "negative"})
	}
	return errors.Join(faults...)
}

// Client is a connection to one cluster. All methods may be called concurrently. Close it when it
// is no longer needed.
type Client struct {
	*core
	stale bool // any node may answer reads
}

var (
	_ jobs.Board         = (*Client)(nil)
	_ logbook.Connection = (*Client)(nil)
)

// core is the part that a client and its stale views share.
type core struct {
	options Options
	log     hclog.Logger
	http    connect.HTTPClient
	peers   *peers
	// index is the highest log index in an answer to this client. A stale read is never older.
	index atomic.Uint64
	// ages records the ages of the stale answers to this client.
	ages struct {
		sync.Mutex
		oldest  time.Duration
		unknown bool // the age of one answer is unknown
	}

	posts   *batcher[*v1.Posting, *v1.PostedJob]
	ordered *batcher[*v1.Command, *v1.Result] // updates and endings
	others  *batcher[*v1.Command, *v1.Result] // all other writes

	definitions knownDefinitions

	life context.Context // ends with Close
	stop context.CancelFunc
	idle func() // closes idle connections

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // the goroutines of batchers and streams
}

// Dial opens a client. Without endpoints it takes all options from the environment variables of the
// command line: see FromEnvironment. With endpoints it uses no variables: no token, no TLS and no
// value keys, because the variables are meant for other nodes. An endpoint can be a list separated
// by commas. Dial waits until one node has answered, for DefaultPatience at most.
func Dial(ctx context.Context, endpoints ...string) (*Client, error) {
	if len(endpoints) > 0 {
		return Open(ctx, Options{Endpoints: split(endpoints...)})
	}
	options, err := FromEnvironment()
	if err != nil {
		return nil, fmt.Errorf("cannot open a client: %w", err)
	}
	return Open(ctx, options)
}

// Open makes a client and waits until one node, leader or not, has answered. It therefore reports a wrong address.
// ErrInvalid names every fault of the options. ErrUnavailable, after the patience or the end of the context, names the
// nodes that were tried.
func Open(ctx context.Context, options Options) (*Client, error) {
	client, err := newClient(options)
	if err != nil {
		return nil, err
	}
	if err := client.greet(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// newClient makes a client that has not called any node yet.
func newClient(options Options) (*Client, error) {
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("cannot open a client: %w", err)
	}
	c := &core{options: options.withDefaults()}
	c.log = c.options.Logger
	c.http, c.idle = c.options.HTTPClient, func() {}
	if c.http == nil {
		transport := newTransport(c.options.TLS, c.options.Credentials)
		c.http, c.idle = &http.Client{Transport: transport, CheckRedirect: noRedirect}, transport.CloseIdleConnections
	}
	if c.options.Token != "" {
		c.http = authorized{c.http, c.options.Token}
	}
	c.life, c.stop = context.WithCancel(context.Background())
	c.peers = newPeers(c.options, c.http, func(node conductordv1connect.StreamServiceClient) *stream.Caller {
		return stream.NewCaller(stream.CallerOptions{Node: node, Life: c.life, Spawn: c.spawn})
	})
	c.makeBatchers()
	return &Client{core: c}, nil
}

// newTransport makes HTTP/2 connections only: one to each node, which all long polls share. Pings
// detect a silently failed node within seconds.
func newTransport(secure *tls.Config, files *credentials.Store) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if path := socketOf("http://" + address); path != "" {
				network, address = "unix", path
			}
			return dialer.DialContext(ctx, network, address)
		},
		TLSClientConfig:     secure.Clone(),
		TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout:     idleTimeout,
		Protocols:           protocols,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	if files != nil {
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			config := files.Client("h2")
			return (&tls.Dialer{NetDialer: &dialer, Config: config}).DialContext(ctx, network, address)
		}
	}
	return transport
}

// noRedirect refuses redirects: nodes forward calls and never redirect them.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Stale returns a view of the client whose reads any node answers from its own state, without
// asking the others. The answers can be older than the cluster's state, but never older than what this
// client has written or read. Writes are unaffected. Closing the view closes the client.
func (c *Client) Stale() *Client { return &Client{core: c.core, stale: true} }

// StaleAge returns the age of the oldest stale answer to this client. The age of an answer is the time since its node
// last heard the leader. known is false if one of the nodes had not heard a leader since its start.
func (c *Client) StaleAge() (age time.Duration, known bool) {
	c.ages.Lock()
	defer c.ages.Unlock()
	return c.ages.oldest, !c.ages.unknown
}

// sawAge records the age of a stale answer.
func (c *core) sawAge(text string) {
	age, err := time.ParseDuration(text)
	c.ages.Lock()
	defer c.ages.Unlock()
	c.ages.oldest = max(c.ages.oldest, age)
	c.ages.unknown = c.ages.unknown || err != nil
}

// Close ends all calls, with errors that report the close and whether the call may have happened.
// It waits for the client's goroutines. It may be called more than once.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
	c.idle()
}

// spawn runs a goroutine that ends by itself or with the client's life. A closed
// client starts nothing, and returns false.
func (c *core) spawn(run func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Go(run)
	}
	return !c.closed
}

// saw records the log index that an answer includes.
func (c *core) saw(index uint64) {
	for {
		old := c.index.Load()
		if index <= old || c.index.CompareAndSwap(old, index) {
			return
		}
	}
}
