package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// flowKind is the factory of the flows that write to the ledger.
const flowKind = "ledger"

// errDoomed is the failure of a flow that must be undone.
var errDoomed = flow.Permanent(errors.New("this step always fails"))

// errFlaky is a failure after which the step is retried.
var errFlaky = errors.New("this step fails now and then")

// newPosting draws a job with a flow.
func newPosting(draw *rand.Rand) (jobs.Posting, error) {
	args, err := json.Marshal(DrawFlow(draw))
	if err != nil {
		return jobs.Posting{}, err
	}
	book := logbook.Book{ID: logbook.NewBookID(), Name: "ledger"}
	detail := logbook.FlowDetail{
		ID: logbook.NewFlowID(), Book: book.ID, Name: "ledger", Factory: logbook.Factory{Name: flowKind, Args: args},
	}
	book.Flows = []logbook.FlowDetail{detail}
	// Without the maximum MaxCrashes, a job that loses its conductor five times is trashed.
	return jobs.Posting{ID: jobs.NewJobID(), Name: "ledger", Book: &book, Flow: detail.ID, MaxCrashes: jobs.MaxMaxCrashes}, nil
}

// Conductor is a conductor in the test's process, at a place. When it is killed, its
// connections are gone and its steps write nothing more.
type Conductor struct {
	place  string
	ledger *Ledger
	dead   atomic.Bool
	link   *link
	client *raftboard.Client
	cancel context.CancelFunc
	ended  sync.WaitGroup
	runs   atomic.Int64
	work   time.Duration // maximum duration of a step
}

// ConductorOptions set the work of a conductor.
type ConductorOptions struct {
	Place     int
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Endpoints []string
	Ledger    *Ledger
	Name      string // unique among the conductors of a run
	Work      time.Duration
	Logger    hclog.Logger // nil: none
}

// StartConductor starts a conductor. It returns when a node has answered.
func StartConductor(ctx context.Context, o ConductorOptions) (*Conductor, error) {
	c := &Conductor{place: o.Name, ledger: o.Ledger, link: newLink(o.Dial), work: o.Work}
	var err error
	c.client, err = c.link.client(ctx, o.Endpoints, raftboard.DefaultPatience)
	if err != nil {
		c.link.cut()
		return nil, err
	}
	registry := flow.NewRegistry()
	if err := errors.Join(flow.Register(registry, flowKind, c.build), flow.Register(registry, waitKind, buildWaits)); err != nil {
		return nil, err
	}
	conducting, err := conductor.New(conductor.Options{
		Client: c.client, Registry: registry, Name: o.Name, Logger: o.Logger,
		AbandonDelay: 200 * time.Millisecond, MaxAbandonDelay: 5 * time.Second, MaxTries: 1_000,
	})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.ended.Go(func() { _ = conducting.Run(running) }) // an unclosed session expires
	return c, nil
}

// Kill ends the conductor as SIGKILL does. Its goroutines end before Wait returns.
func (c *Conductor) Kill() {
	c.dead.Store(true)
	c.link.cut()
	c.cancel()
	c.ended.Go(c.client.Close)
}

// Stop makes the conductor hand over its jobs, and ends it.
func (c *Conductor) Stop() {
	c.cancel()
	c.Wait()
	c.dead.Store(true)
	c.client.Close()
	c.link.cut()
}

// Wait returns when all goroutines of the conductor have ended.
func (c *Conductor) Wait() { c.ended.Wait() }

func (c *Conductor) alive() bool { return !c.dead.Load() }

func (c *Conductor) build(drawn DrawnFlow) (*flow.Flow, error) {
	built := map[flow.Pattern]func(string, ...flow.Node) *flow.Flow{
		flow.PatternLinear: flow.Linear, flow.PatternUnordered: flow.Unordered, flow.PatternGraph: flow.Graph,
	}[drawn.Pattern](flowKind)
	for _, step := range drawn.Steps {
		options := []flow.StepOption{flow.Provides(step.Name), flow.Requires(step.Needs...)}
		task := &ledgerTask{c, step}
		var work flow.Task = task
		switch step.Kind {
		case RepeatableStep:
			options = append(options, flow.Repeatable())
		case OnceStep:
			options = append(options, flow.AtMostOnce())
		default:
			work = &ledgerReverter{task}
			options = append(options, flow.Retry(flow.Backoff{Attempts: 50, Delay: 200 * time.Millisecond, MaxDelay: 2 * time.Second}))
		}
		built.Add(flow.NewStep(step.Name, work, options...))
		if step.Sided() {
			built.Link(step.Needs[0], step.Name, flow.Reaching(flow.DepthAtom), flow.Decide("picks "+step.Name, func(results logbook.Values) (bool, error) {
				var result Result
				err := json.Unmarshal(results[step.Needs[0]], &result)
				return result.Pick == step.Name, err
			}))
		}
	}
	return built, nil
}

// ledgerTask is a step that can't be undone.
type ledgerTask struct {
	conductor *Conductor
	step      DrawnStep
}

// Execute writes to the ledger.
func (t *ledgerTask) Execute(ctx context.Context, call *flow.Call) (any, error) {
	return t.conductor.run(ctx, call, &t.step)
}

type ledgerReverter struct{ *ledgerTask }

// Revert writes to the ledger, too.
func (r *ledgerReverter) Revert(ctx context.Context, call *flow.Call) error {
	_, err := r.conductor.run(ctx, call, &r.step)
	return err
}

// run is one execution or one revert. Steps with retries take a while and sometimes fail.
// Other steps are quick, so that several of them run before anything is recorded.
func (c *Conductor) run(ctx context.Context, call *flow.Call, step *DrawnStep) (Result, error) {
	number := c.runs.Add(1)
	result := Result{Run: fmt.Sprintf("%s/%d", c.place, number), Pick: []string{Left, Right}[number%2]}
	entry := entryOf(call, step.Kind)
	entry.Place, entry.Run = c.place, result.Run
	entry.Ahead = step.Kind == RepeatableStep && len(step.Needs) > 0 && startedEarly()
	write := func(event Event) error {
		entry.At, entry.Event = time.Now(), event
		return c.ledger.Write(entry, c.alive)
	}
	if err := write(EventBegun); err != nil {
		return Result{}, err
	}
	chance := fnv.New32()
	_, _ = fmt.Fprintf(chance, "%s %d", call.Key(), call.Attempt)
	sum := chance.Sum32()
	takes := time.Duration(sum) % c.work
	if step.Kind != RetriedStep {
		const quick = 50
		takes = takes / quick * time.Duration(sum>>16%2) // none in half of the steps
	}
	rest(ctx, takes)
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	var failure error
	switch {
	case step.Doomed && call.Action == logbook.ActionExecute:
		failure = errDoomed
	case step.Kind == RetriedStep && sum%7 == 0:
		failure = errFlaky
	}
	if failure != nil {
		return Result{}, errors.Join(failure, write(EventFailed))
	}
	return result, write(EventDone)
}

// startedEarly reports whether the engine started the caller's goroutine without waiting for
// the record. The record does not show it, so the stack must.
func startedEarly() bool {
	stack := make([]byte, 16<<10)
	stack = stack[:runtime.Stack(stack, false)]
	return bytes.Contains(stack, []byte("created by github.com/conductord/conductord/flow/engine.(*loop).startEarly "))
}

// link makes connections that can all be cut together, like the connections of a killed
// process.
type link struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil: cut
	http  *http.Transport
}

var errCut = errors.New("the program of this connection is gone")

func newLink(dial func(ctx context.Context, network, address string) (net.Conn, error)) *link {
	l := &link{dial: dial, conns: map[net.Conn]struct{}{}}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	const pingAfter = 2 * time.Second // as raftboard's own
	l.http = &http.Transport{
		DialContext: l.open, Protocols: protocols, IdleConnTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
	return l
}

func (l *link) open(ctx context.Context, network, address string) (net.Conn, error) {
	const dialTimeout = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := l.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		_ = conn.Close()
		return nil, errCut
	}
	kept := &linked{conn, l}
	l.conns[kept] = struct{}{}
	return kept, nil
}

// linked is a connection that its link keeps until it is closed.
type linked struct {
	net.Conn
	link *link
}

// Close closes the connection.
func (c *linked) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

// cut ends all current and future connections.
func (l *link) cut() {
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for conn := range conns {
		_ = conn.(*linked).Conn.Close()
	}
	l.http.CloseIdleConnections()
}

// client opens a client over the link.
func (l *link) client(ctx context.Context, endpoints []string, patience time.Duration) (*raftboard.Client, error) {
	return raftboard.Open(ctx, raftboard.Options{
		Endpoints: endpoints, Patience: patience,
		HTTPClient: &http.Client{Transport: l.http, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	})
}
