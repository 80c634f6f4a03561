// Package node is one daemon of a cluster: raft, the replicated state machine,
// and the API on top of both.
//
// Every node holds the whole state; one of them leads. The leader takes commands, packs them
// into log entries, and answers when a majority has them on disk and the state machine has
// applied them. Only the leader holds timers: for sessions without keep-alives and for jobs
// that become due. Other nodes forward the calls that only the leader can answer.
//
// Raft's log and its snapshots, in the data directory, are durable. The state
// machine's own file is a cache: it is rebuilt from them at every start.
//
// This package opens, wires and closes a node: options.go, datadir.go (before the first start),
// node.go, then tls.go and metrics.go. The rooms below it, from the top:
//
//   - cluster answers the calls about the cluster, and api all others;
//   - lead tracks which node leads, and does the work of the leader;
//   - guard determines the caller of a call and the caller's permissions; polls holds waiting calls;
//   - proposer packs commands into log entries; offers matches steps and workers; clock is the
//     cluster's time; deadlines has timers; admission bounds what clients cost.
//
// Package replication is the seam between the node and its log. Package raftlog below it is the
// log over raft, with package membership for the other members, package logstore for its disk and
// package transport for its network. Package sums compares the states of the nodes. None of them
// knows this package.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/internal/boottime"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/node/cluster"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/offers"
	"github.com/conductord/conductord/raftboard/node/polls"
	"github.com/conductord/conductord/raftboard/node/proposer"
	"github.com/conductord/conductord/raftboard/node/raftlog"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
	"github.com/conductord/conductord/raftboard/node/sums"
)

const fatalStatus = 70 // EX_SOFTWARE of sysexits.h

// Node is a running daemon. Its methods may be called concurrently.
type Node struct {
	options  Options
	logger   hclog.Logger
	metrics  *nodeMetrics
	identity *membership.IdentityStore
	started  time.Time // boottime reading
	fatal    func(error)

	// Replication.
	machine      *fsm.Machine
	log          *logstore.Log
	port         *transport.Port
	transport    *transport.Transport
	group        *raftlog.Group
	proposer     *proposer.Proposer
	checks       *sums.Checks
	reads        *lead.Reads
	readAskers   *membership.Askers // for read rounds
	commitAskers *membership.Askers // for committed

	// Time.
	clock       *clock.Clock
	clocks      *clock.Rounds
	clockAskers *membership.Askers

	// Parts with their own locks.
	members      *membership.Members
	memberAskers *membership.Askers // for the service that changes the members
	committed    *lead.Committed
	ready        *lead.Readiness
	leader       *lead.State
	disk         *admission.Disk
	memory       *admission.Memory
	polls        *polls.Polls
	offers       *offers.Matcher
	shares       *admission.SessionShares
	logs         *steplog.Buffer // of steps in the node's process
	server       *admission.Server
	address      net.Addr // of the HTTP port
	api          *api.API
	cluster      *cluster.Cluster
	activity     *cluster.Activity

	// Start and end.
	lock     io.Closer // on the data directory
	cancel   context.CancelFunc
	routines sync.WaitGroup
	closed   func() error // ends the node at its first call
	failed   atomic.Bool  // fatal was called: raft may no longer answer
}

// Open starts a node: it reads its identity, replays its log and joins the
// others. It returns when the node can be called, which may be before the
// cluster has a leader; see Ready.
func Open(options Options) (*Node, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("cannot start the node: %w", err)
	}
	n := &Node{
		options: options,
		logger:  options.Logger,
		started: boottime.Now(),
		polls:   polls.New(),
		offers:  offers.New(options.Logger.Named("workers")),
		disk:    admission.NewDisk(options.Name, options.DataDir, options.DiskReserve, raftlog.SnapshotsRetained, options.Logger),
		memory:  admission.NewMemory(options.Memory, options.Logger),
		logs:    steplog.New(options.Name),
		server:  admission.NewServer(options.Logger.Named("http"), options.Memory, options.AccessControl),
	}
	n.shares = admission.NewSessionShares(func(id jobs.SessionID) bool { _, err := n.machine.Session(id); return err == nil })
	n.closed = sync.OnceValue(n.close)
	n.fatal = n.fatalOnce(options.Fatal)
	n.group = raftlog.New(n.fatal, n.logger)
	n.leader = lead.NewState(options.Name, options.Raft.Election, n.group)
	n.members = membership.New(options.asMember(), n.group, n.fatal)
	n.ready = &lead.Readiness{Leader: n.leader, Awaited: n.members.Awaited, Listed: func() bool { return len(n.members.Servers()) > 0 }}
	n.metrics = newNodeMetrics(options.Metrics)
	if secure := options.Credentials; secure != nil {
		if err := secure.Check(options.Cluster, options.Name); err != nil {
			return nil, fmt.Errorf("cannot start the node: %w", err)
		}
	}
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) open() error {
	var err error
	if err := membership.WrongDirectory(n.options.asMember()); err != nil {
		return err
	}
	if n.lock, err = membership.LockDataDir(n.options.DataDir); err != nil {
		return err
	}
	n.disk.GiveUpReserve()
	if n.identity, err = membership.LoadIdentity(n.options.asMember()); err != nil {
		return err
	}
	if err := sums.RefuseEvidence(n.options.DataDir); err != nil {
		return err
	}
	if err := logstore.Settle(n.options.DataDir, n.options.LogStore); err != nil {
		return err
	}
	n.members.SetIdentity(n.identity)
	n.log, err = logstore.Open(n.options.DataDir, n.options.LogStore, logstore.Options{
		Logger: n.logger.Named("log"), Fatal: n.fatal, Wrap: n.options.System.Log, Written: func(took time.Duration) { n.metrics.logWrite.Observe(took.Seconds()) },
	})
	if err != nil {
		return err
	}
	n.leader.Hanging = n.log.Hanging
	n.machine, err = fsm.Open(fsm.Options{
		Path:       filepath.Join(n.options.DataDir, membership.StateFile),
		Logger:     n.logger.Named("fsm"),
		Changed:    n.changed,
		Generation: n.identity.Get().Generation,
	})
	if err != nil {
		return err
	}
	n.ready.Machine = n.machine
	n.clock = clock.New(n.machine.Time, n.options.WallClock, n.logger)
	n.activity = &cluster.Activity{Now: n.clock.AnswerTime}
	if err := n.openPort(); err != nil {
		return err
	}
	if err := n.members.Probe(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	if err := logstore.CatchDamage(n.options.DataDir, func() error { return n.openRaft(ctx) }); err != nil {
		return err
	}
	listener, err := newSecured(n.options).listenAPI(n.options.APIListen, n.server)
	if err != nil {
		return fmt.Errorf("cannot listen on the API port: %w", err)
	}
	listeners := []net.Listener{listener}
	if n.options.Socket != "" {
		local, err := admission.ListenSocket(n.options.Socket)
		if err != nil {
			return errors.Join(fmt.Errorf("cannot listen on the socket: %w", err), listener.Close())
		}
		listeners = append(listeners, local)
	}
	panics := api.NewPanics(n.logger)
	n.address = listener.Addr()
	n.server.Serve(listeners, panics.Around(n.handler(panics)), &n.routines, n.fatal)
	return nil
}

// handler serves the API and pages.
func (n *Node) handler(panics *api.Panics) http.Handler {
	guard := n.api.Router.Guard
	calls := append(n.api.Calls(), n.cluster.Calls()...)
	handler := n.api.Handler(calls, n.metrics.called, promhttp.HandlerFor(n.options.Metrics, promhttp.HandlerOpts{}), panics)
	handler = guard.Authenticate(n.server.Bound(handler, api.RefusedOrigin), api.HealthPath, api.ReadyPath)
	handler = n.api.Router.Elsewhere.KeepShown(handler)
	return admission.Paced(withPages(n.server, handler, guard, n.options), guard.FromNode)
}

// withPages sends requests below a path to the handler of pages, and redirects a browser from the
// root to this path. All other requests go to the API.
func withPages(server *admission.Server, api http.Handler, g *guard.Guard, o Options) http.Handler {
	if o.Pages == nil {
		return api
	}
	path, shown := o.PagesPath, g.Recognized(o.PageToken, server.Bound(o.Pages(api)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, path):
			shown.ServeHTTP(w, r)
		case r.Method == http.MethodGet && (r.URL.Path == "/" || r.URL.Path+"/" == path) && strings.Contains(r.Header.Get("Accept"), "text/html"):
			http.Redirect(w, r, path, http.StatusFound)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

func (n *Node) openPort() error {
	var refusals admission.RefusalLog
	secure := newSecured(n.options)
	logger := n.logger.Named("transport")
	var err error
	n.port, err = transport.Open(transport.Options{
		Address: n.options.RaftListen, Identity: n.identity, Roster: n.members.Roster(), Run: uuid.New(),
		Settled: time.Now().Add(n.options.Raft.Election),
		Listen:  n.options.System.Listen, Secure: secure.raft(), Certified: secure.certified(), Logger: logger,
		Dial: func(ctx context.Context, address string) (net.Conn, error) { return secure.dial(ctx, address) },
		Refused: func(remote net.Addr, reason error) {
			refusals.Warn(logger, "refused a connection to the raft port", remote, reason)
		},
		Greeted: n.members.Greeted, Admit: n.members.Admit, Hears: n.members.Hears, Present: n.members.IDs, Disagreed: n.members.Disagreed, Mute: n.log.Hanging, Standing: n.stands, Hear: n.clock.Heard,
	})
	n.members.SetPort(n.port)
	return err
}

func (n *Node) openRaft(ctx context.Context) error {
	n.transport = transport.New(n.port, n.members.Self().Address(), n.logger.Named("transport"), n.group.LeadsIn, n.members.Lists, n.options.Raft.LeaderLease)
	n.checks = sums.New(n.machine, n.options.DataDir, n.fatal)
	n.readAskers = n.newAskers(nil)
	id := n.identity.Get()
	if err := n.group.Run(raftlog.Options{
		ID: id.Server(), DataDir: n.options.DataDir, Timings: n.options.Raft, Log: n.log, Transport: n.transport, Machine: n.checks,
		Past:   raftlog.Past{Fresh: id.Fresh(), Bootstrapped: id.Bootstrapped, SetBootstrapped: n.identity.SetBootstrapped},
		Voters: n.readAskers.Quorum, SnapshotHold: n.metrics.snapshotHold, Reconfigured: n.port.DropUnheard,
	}); err != nil {
		return err
	}
	n.members.Begin()
	if fault := n.members.RefusedByAll(); fault != nil { // met since the probe
		return fault
	}
	n.proposer = proposer.New(proposer.Options{
		Log: n.group, MaxBytes: n.options.Memory / proposalShare, Now: n.clock.Now, Proposed: n.metrics.proposed, Committed: n.metrics.commit.Observe,
	})
	n.reads = &lead.Reads{Log: n.group, Leader: n.leader, Applied: n.machine.WaitApplied, RoundDone: n.metrics.readRounds.Inc}
	n.clockAskers = n.newAskers(n.told)
	n.clocks = clock.NewRounds(n.clockAskers.Quorum, n.clock)
	n.memberAskers = n.newAskers(nil)
	n.commitAskers = n.newAskers(nil)
	n.committed = &lead.Committed{Ready: n.ready, Reads: n.reads, Peers: commitOf(n.commitAskers)}
	n.openAPI()
	n.registerGauges()
	n.routines.Go(func() { n.cluster.Schedule.Run(ctx) })
	n.routines.Go(func() { n.newLeaderTasks().Follow(ctx, n.group.Leaderships()) })
	n.routines.Go(func() { n.leader.Watch(ctx) })
	n.routines.Go(func() { n.members.Join(ctx) })
	n.routines.Go(func() { n.members.WatchRemoval(ctx) })
	n.disk.Machine, n.disk.Log = n.machine, n.log
	diskAskers := n.newAskers(n.told)
	n.routines.Go(func() {
		defer diskAskers.Close()
		n.disk.Watch(ctx, n.leader.Serves, diskAskers.Now)
	})
	n.routines.Go(func() { n.memory.Watch(ctx) })
	if n.options.Credentials != nil {
		n.routines.Go(func() { n.watchExpiry(ctx) })
	}
	n.routines.Go(func() { n.catchUp(ctx) })
	n.routines.Go(func() { n.group.Compact(ctx) })
	n.routines.Go(func() { n.cluster.Verify.Watch(ctx, n.options.VerifyInterval) })
	if n.options.AccessControl {
		n.routines.Go(func() { n.api.Router.ReportTokenUses(ctx, n.options.TokenUsePeriod) })
	}
	if after := n.options.RemoveDeadAfter; after > 0 {
		n.routines.Go(func() { n.cluster.Members.RemoveDead(ctx, after) })
	}
	return nil
}

func (n *Node) newLeaderTasks() *lead.Tasks {
	o := n.options
	return &lead.Tasks{
		Node: o.Name, Guarded: o.AccessControl, Heartbeat: o.Raft.Heartbeat, Timings: o.Sessions, Retention: o.Retention,
		Machine: n.machine, Proposer: n.proposer, Clock: n.clock, Rounds: n.clocks, Leader: n.leader, Ready: n.ready,
		Disk: n.disk, Deferred: n.metrics.expiriesDeferred.Inc, Logger: n.logger, Fatal: n.fatal,
	}
}

// catchUp waits until this node has caught up with a leader. The start has then succeeded,
// even with a converted log store, so the old store can be removed. A joining node now has
// the state of the cluster.
func (n *Node) catchUp(ctx context.Context) {
	n.ready.CatchUp(ctx, commitOf(n.readAskers))
	if !n.ready.CaughtUp.Load() {
		return
	}
	if n.identity.Get().Joining != nil {
		n.routines.Go(func() { n.settleIn(ctx) })
	}
	if err := logstore.DropOld(n.options.DataDir); err != nil {
		n.logger.Warn("cannot remove the old log store", "error", err)
	}
}

// openAPI makes the services that answer calls.
func (n *Node) openAPI() {
	o, secure := n.options, newSecured(n.options)
	elsewhere := api.NewElsewhere(o.Topology, o.Cluster, o.AccessControl, o.Credentials, n.machine)
	options := guard.Options{
		Enforced: o.AccessControl, Cluster: o.Cluster, Node: o.Name, Machine: n.machine, Now: n.clock.AnswerTime, Issuer: o.Issuer, Metrics: o.Metrics, Logger: o.Logger,
		IsMember: n.members.IsMember, Applied: n.committed.Apply,
	}
	if o.Topology != nil {
		options.Elsewhere = elsewhere.Refuse
	}
	n.api = api.New(&api.Parts{
		Node: o.Name, Limits: o.Limits, CheckFlow: o.CheckFlow, Machine: n.machine, Clock: n.clock, Leader: n.leader, Reads: n.reads, Ready: n.ready, Proposer: n.proposer,
		Memory: n.memory, Disk: n.disk, Shares: n.shares, Polls: n.polls, Offers: n.offers, Logs: n.logs, Guard: guard.New(options), Elsewhere: elsewhere,
		Peers: api.Peers{
			Client: newForwarder(secure, n.members), URL: secure.url, Forwarded: n.metrics.forwarded.Inc,
			Address: func(name string) (string, bool) { member, is := n.members.Find(name); return member.API, is },
		},
	})
	n.cluster = cluster.New(&cluster.Parts{
		Node: o.Name, Cluster: o.Cluster, Version: o.Version, DataDir: o.DataDir, LogStore: o.LogStore, Started: n.started, Limits: o.Limits, Backups: o.Backups,
		Router: n.api.Router, Machine: n.machine, Group: n.group, Log: n.log, Checks: n.checks, Activity: n.activity, Identity: n.identity, Members: n.members, Peers: n.memberAskers,
		Quiet: func(m Member) time.Duration { return n.port.Quiet(m.Address()) }, Clock: n.clock, Leader: n.leader, Ready: n.ready, Disk: n.disk, Logger: o.Logger,
	})
}

// newAskers returns askers of the other members, each with its own connection.
// told is the cluster's time that goes with their questions.
func (n *Node) newAskers(told func() int64) *membership.Askers {
	return membership.NewAskers(n.members, func(peer Member) *transport.Asker {
		return n.port.Asker(peer.Address(), n.options.Raft.Election, told)
	})
}

// commitOf returns a function that asks another node for its commit index.
func commitOf(askers *membership.Askers) lead.AskCommit {
	return func(ctx context.Context, node string) (term, commit uint64, err error) {
		stands, err := askers.Ask(ctx, node)
		return stands.Term, stands.Commit, err
	}
}

// told is the cluster's time that goes with this node's questions, in Unix nanoseconds;
// 0 while it does not serve as the leader.
func (n *Node) told() int64 {
	if !n.leader.Serves() {
		return 0
	}
	return n.clock.Now().UnixNano()
}

// stands returns this node's Standing for other nodes. While the node starts, it contains only its
// wall clock. Only a serving leader includes its commit index.
func (n *Node) stands() transport.Standing {
	now := transport.Standing{Wall: n.options.WallClock().UnixNano()}
	if n.group.Raft() == nil {
		return now
	}
	now.Term = n.group.Term()
	now.Crowded = n.disk.Crowded()
	if n.leader.Serves() {
		now.Commit = n.group.Committed()
	}
	if n.ready.CaughtUp.Load() {
		now.Applied = n.machine.AppliedIndex()
	}
	return now
}

// changed forwards the changes of a batch of entries. The goroutine that applies entries calls it,
// so changed does not wait.
func (n *Node) changed(changes fsm.Changes) {
	n.polls.Changed(changes)
	n.shares.Ended(changes.Ended)
	n.offers.Ended(changes.Ended)
	n.offers.Recorded(changes.Worked)
	if n.ready.CaughtUp.Load() { // entries applied before that are older
		n.activity.Add(changes)
	}
	if n.leader.Changed(changes) {
		n.metrics.applied(changes)
	}
}

// Digest sums up the state of this node, and returns the index of the last log
// entry in it. All nodes have the same sum at one index.
func (n *Node) Digest() (index uint64, sum [32]byte, err error) {
	for {
		index = n.machine.AppliedIndex()
		if sum, err = n.machine.Digest(); err != nil || n.machine.AppliedIndex() == index {
			return index, sum, err
		}
	}
}

// APIAddress is the listening address of the node's HTTP port.
func (n *Node) APIAddress() net.Addr { return n.address }

// Leading reports whether the node serves as the leader.
func (n *Node) Leading() bool { return n.leader.Serves() }

// OpenSession opens a session for the daemon's own conductor. No client's share limits it.
func (n *Node) OpenSession(ctx context.Context, opening jobs.Opening) (jobs.Session, error) {
	if n.options.AccessControl {
		ctx = admission.WithCaller(ctx, &admission.Caller{Name: admission.NodeCaller + n.options.Name})
	}
	return n.api.OpenSession(ctx, opening)
}

// NodeKey is the metadata key under which a conductor's entity names the node that keeps its
// Logs.
const NodeKey = api.NodeKey

// Logs keeps the output of steps that run in this process. The node answers readers from it,
// if the entity of their conductor names the node under NodeKey.
func (n *Node) Logs() *steplog.Buffer { return n.logs }

// Ready returns nil when the node can serve every call: it knows a leader, and has applied all
// entries that the leader had committed. Otherwise, the error names what is missing.
func (n *Node) Ready() error { return n.ready.Check() }

// Alive returns nil when raft's main loop answers, whether this node leads or not.
func (n *Node) Alive(ctx context.Context) error {
	answered := make(chan struct{})
	go func() { // ends when raft answers, or with raft
		n.group.Ping()
		close(answered)
	}()
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("raft does not answer: %w", ctx.Err())
	}
}

// WaitReady waits until the node is ready. When ctx ends, the error names what is missing.
func (n *Node) WaitReady(ctx context.Context) error { return n.ready.Wait(ctx) }

// fatalOnce ends the process after the first fault.
func (n *Node) fatalOnce(end func(error)) func(error) {
	if end == nil {
		end = func(error) { os.Exit(fatalStatus) }
	}
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			n.failed.Store(true)
			n.logger.Error("this node stops", "error", err)
			end(err)
		})
	}
}

// stopServing stops answering as the leader, and transfers the leadership to another node. Close
// calls it first, while the API still redirects callers to the leader.
func (n *Node) stopServing() {
	n.ready.Stopping.Store(true)
	if led := n.leader.Stop(); led == nil || !n.members.HasOtherVoter() || n.failed.Load() {
		return
	}
	transfer := make(chan error, 1)
	go func() { transfer <- n.group.Transfer(Member{}) }() // ends at raft's own timeout
	select {
	case err := <-transfer:
		if err != nil {
			n.logger.Warn("cannot hand over the leadership", "error", err)
			return
		}
		n.logger.Info("leadership handed over")
	case <-time.After(cluster.HandOverPatience):
		n.logger.Warn("cannot hand over the leadership", "error", "timed out", "timeout", cluster.HandOverPatience)
	}
}

// Close transfers the leadership if this node leads, and stops the node. It may be called more than
// once, and after a failed Open.
func (n *Node) Close() error { return n.closed() }

func (n *Node) close() error {
	var errs []error
	if n.group.Raft() != nil {
		n.stopServing()
	}
	errs = append(errs, n.server.Stop())
	if n.cancel != nil {
		n.cancel()
	}
	n.routines.Wait()
	if n.proposer != nil {
		n.proposer.Close()
	}
	// Close the connections before raft: raft waits for its goroutines, and a goroutine that waits
	// for a dead peer can take seconds.
	if n.transport != nil {
		errs = append(errs, n.transport.Close())
	}
	if n.port != nil {
		errs = append(errs, n.port.Close())
	}
	errs = append(errs, n.group.Close())
	if n.api != nil {
		n.api.Router.Peers.Client.CloseIdleConnections()
	}
	if n.committed != nil {
		n.commitAskers.Close()
		n.committed.Close()
	}
	if n.readAskers != nil {
		n.readAskers.Close()
	}
	if n.reads != nil {
		n.reads.Close()
	}
	if n.clockAskers != nil {
		n.clockAskers.Close()
	}
	if n.memberAskers != nil {
		n.memberAskers.Close()
	}
	if n.checks != nil {
		n.checks.Close()
	}
	if n.machine != nil {
		errs = append(errs, n.machine.Close())
	}
	if n.log != nil {
		errs = append(errs, n.log.Close())
	}
	if n.lock != nil {
		errs = append(errs, n.lock.Close())
	}
	return errors.Join(errs...)
}
