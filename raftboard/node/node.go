// Package node is one daemon of a cluster: raft, the replicated state machine,
// and the API on top of both.
//
// Every node holds the whole state; one of them leads. The leader takes
// commands, packs them into log entries, and answers when a majority has them
// on disk and the state machine has applied them. It alone holds timers: for
// sessions that are not kept alive and for jobs that fall due. Other nodes
// forward what only the leader can answer.
//
// What lasts is raft's log and its snapshots, in the data directory. The state
// machine's own file is a cache: it is rebuilt from them at every start.
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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

const (
	stateFile         = "state.db"
	snapshotsRetained = 2 // an unreadable newest one is survived: trailing logs reach back to the one before
	// leadershipNotices bounds raft's notices that wait. raft's main loop
	// blocks on a full channel, so it is drained by a goroutine that does
	// nothing else.
	leadershipNotices  = 64
	handOverPatience   = 3 * time.Second
	fatalStatus        = 70 // EX_SOFTWARE of sysexits.h
	raftTimeout        = 10 * time.Second
	raftConnectionPool = 3
	// commitTimeout is how long a leader that has nothing to send lets its
	// followers wait to be told what is committed, once to twice over. Half of
	// it is raft's default, and half of what an idle leader costs: a message to
	// each follower each time.
	commitTimeout = 100 * time.Millisecond
)

// Node is a running daemon. Its methods may be called concurrently.
type Node struct {
	options  Options
	logger   hclog.Logger
	metrics  *nodeMetrics
	identity *identityStore
	started  time.Time
	fatal    func(error)

	watchPatience time.Duration // shorter in tests; never written once calls come

	lock       io.Closer // on the data directory
	machine    *fsm.Machine
	log        *guardedLog
	stream     *streamLayer
	transport  *raft.NetworkTransport
	growth     *growth
	raft       *raft.Raft // may be read by the stream's goroutines once running is set
	running    atomic.Bool
	proposer   *proposer
	reads      *readRounds
	wall       *wallClock
	parking    *parking
	clock      clock
	backfills  chan struct{} // holds one for the backfill that is under way
	leadership *moments
	forward    *forwarder

	http       *http.Server
	stopCalls  context.CancelFunc
	apiAddress net.Addr
	cancel     context.CancelFunc
	routines   sync.WaitGroup
	closing    sync.Once
	closeErr   error

	mu       sync.Mutex
	reigning *reign // observes changes; under mu
	serves   *reign // set while this node answers as the leader; under mu
	met      map[string]error
	stopping atomic.Bool

	caughtUp  atomic.Bool   // this node has once applied all that a leader had committed
	catchUpTo atomic.Uint64 // what that is; 0: not known yet
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
		options:    options,
		logger:     options.Logger,
		started:    time.Now(),
		parking:    newParking(),
		backfills:  make(chan struct{}, 1),
		leadership: newMoments(),
		met:        map[string]error{},

		watchPatience: watchPatience,
	}
	n.fatal = n.fatalOnce(options.Fatal)
	n.metrics = newNodeMetrics(options.Metrics, n)
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) open() error {
	var err error
	if err := wrongDirectory(n.options); err != nil {
		return err
	}
	if n.lock, err = lockDataDir(n.options.DataDir); err != nil {
		return err
	}
	if n.identity, err = loadIdentity(n.options); err != nil {
		return err
	}
	if err := settleStores(n.options.DataDir, n.options.LogStore); err != nil {
		return err
	}
	n.log, err = openLog(n.options.DataDir, n.options.LogStore, n.logger.Named("log"), n.fatal)
	if err != nil {
		return err
	}
	n.log.written = n.metrics.logWrites.Inc
	n.machine, err = fsm.Open(fsm.Options{
		Path:       filepath.Join(n.options.DataDir, stateFile),
		Logger:     n.logger.Named("fsm"),
		Changed:    n.changed,
		Generation: n.identity.get().Generation,
	})
	if err != nil {
		return err
	}
	if err := n.openStream(); err != nil {
		return err
	}
	if err := n.probe(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	if err := intact(n.options.DataDir, func() error { return n.openRaft(ctx) }); err != nil {
		return err
	}
	return n.serve()
}

func (n *Node) openStream() error {
	members := map[raft.ServerAddress]Member{}
	for _, member := range n.options.Members {
		members[raft.ServerAddress(member.Raft)] = member
	}
	var err error
	n.stream, err = openStreamLayer(n.options.RaftListen, &streamLayer{
		identity:   n.identity,
		members:    members,
		logger:     n.logger.Named("transport"),
		serveTerms: func(conn net.Conn) { answerTerms(conn, n.stands) },
		greeted:    n.greeted,
	})
	return err
}

// probe introduces the node to the others before it takes part in anything.
// One that all others refuse is wrong, not they: it does not start.
func (n *Node) probe() error {
	for _, peer := range n.peers() {
		conn, err := n.stream.dial(raft.ServerAddress(peer.Raft), purposeProbe, time.Second)
		if err == nil {
			_ = conn.Close()
		}
	}
	return n.outcast()
}

// greeted notes how the others received this node.
func (n *Node) greeted(peer string, err error) {
	var refused *refusedError
	if err != nil && !errors.As(err, &refused) {
		return // not reached: nothing learned
	}
	n.mu.Lock()
	before, known := n.met[peer]
	n.met[peer] = err
	n.mu.Unlock()
	if err == nil || (known && before != nil && before.Error() == err.Error()) {
		return
	}
	n.logger.Error("a node of the cluster refuses this one", "peer", peer, "error", err)
	if fault := n.outcast(); fault != nil && n.running.Load() {
		n.fatal(fault)
	}
}

// outcast is an error if every other member refuses this node.
func (n *Node) outcast() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var refusals []error
	for _, err := range n.met {
		if err == nil {
			return nil
		}
		refusals = append(refusals, err)
	}
	if len(refusals) == 0 || len(refusals) < len(n.options.Members)-1 {
		return nil
	}
	slices.SortFunc(refusals, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	var reasons []string
	for _, refusal := range refusals {
		reasons = append(reasons, refusal.Error())
	}
	return fmt.Errorf("every other node refuses this one: %s", strings.Join(reasons, "; "))
}

func (n *Node) openRaft(ctx context.Context) error {
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(n.options.DataDir, snapshotsRetained, n.logger.Named("snapshot"))
	if err != nil {
		return fmt.Errorf("cannot open the snapshots: %w", err)
	}
	cached, err := raft.NewLogCache(logCacheSize, n.log)
	if err != nil {
		return fmt.Errorf("cannot open the raft log: %w", err)
	}
	n.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.stream, MaxPool: raftConnectionPool, Timeout: raftTimeout, Logger: n.logger.Named("transport"),
	})
	n.growth = newGrowth(n.options.Raft.SnapshotBytes)
	notices := make(chan bool, leadershipNotices)
	config := n.raftConfig(notices)
	if err := n.bootstrap(config, cached, snapshots, n.transport); err != nil {
		return err
	}
	patient := &patientTransport{
		NetworkTransport: n.transport, leading: n.leadsIn, closed: n.stream.life.Done(),
		heard: n.stream.heard, quiet: time.Duration(quietShare * float64(n.options.Raft.LeaderLease)),
	}
	asked := new(atomic.Int64)
	n.raft, err = raft.NewRaft(config, &replica{machine: n.machine, asked: asked, growth: n.growth, fatal: n.fatal}, cached, n.log, snapshots, patient)
	if err != nil {
		return fmt.Errorf("cannot start raft: %w", err)
	}
	n.running.Store(true)
	n.proposer = newProposer(n.raft, asked, n.clock.now, n.metrics, n.fatal)
	n.reads = n.newReadRounds()
	n.wall = newWallClock(n.newAskers(), len(n.options.Members)/2+1)
	n.forward = newForwarder(n)
	n.routines.Go(func() { n.followLeadership(ctx, notices) })
	n.watchLeader(ctx)
	n.routines.Go(func() { n.catchUp(ctx); n.dropOldStore() })
	n.routines.Go(func() { n.compact(ctx) })
	return nil
}

// leadsIn tells whether this node leads in a term.
func (n *Node) leadsIn(term uint64) bool {
	return n.running.Load() && n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term
}

func (n *Node) raftConfig(notices chan<- bool) *raft.Config {
	timings := n.options.Raft
	config := raft.DefaultConfig()
	self := n.identity.get()
	config.LocalID = self.server()
	config.HeartbeatTimeout = timings.Heartbeat
	config.ElectionTimeout = timings.Election
	config.LeaderLeaseTimeout = timings.LeaderLease
	config.CommitTimeout = commitTimeout
	config.MaxAppendEntries = timings.MaxAppendEntries
	config.SnapshotInterval = timings.SnapshotInterval
	config.SnapshotThreshold = timings.SnapshotThreshold
	config.TrailingLogs = timings.TrailingLogs
	config.NotifyCh = notices
	config.Logger = n.logger.Named("raft")
	config.NoLegacyTelemetry = true
	return config
}

// bootstrap writes the first configuration, once per node and the same on
// all: it is the first entry of every log, so that nobody has to be first.
func (n *Node) bootstrap(config *raft.Config, logs raft.LogStore, snapshots raft.SnapshotStore, transport raft.Transport) error {
	existing, err := raft.HasExistingState(logs, n.log, snapshots)
	if err != nil {
		return fmt.Errorf("cannot read the raft state: %w", err)
	}
	id := n.identity.get()
	// A snapshot alone is no past to go on from: the votes were in the log's file.
	term, err := n.log.GetUint64(currentTermKey)
	if err != nil {
		return fmt.Errorf("cannot read the raft state: %w", err)
	}
	switch {
	case existing && term > 0:
		return n.identity.setBootstrapped()
	case existing, id.Bootstrapped:
		return fmt.Errorf("%s has lost its raft log: this node has run before and must not begin anew under its old identity", n.options.DataDir)
	}
	var servers []raft.Server
	for _, member := range n.options.Members {
		servers = append(servers, raft.Server{ID: serverID(member.Name, 1), Address: raft.ServerAddress(member.Raft)})
	}
	if err := raft.BootstrapCluster(config, logs, n.log, snapshots, transport, raft.Configuration{Servers: servers}); err != nil {
		return fmt.Errorf("cannot bootstrap the cluster: %w", err)
	}
	return n.identity.setBootstrapped()
}

func (n *Node) newReadRounds() *readRounds {
	return &readRounds{
		term: n.raft.CurrentTerm, commit: n.raft.CommitIndex, reign: n.serving, applied: n.machine.WaitApplied,
		peers: n.newAskers(), majority: len(n.options.Members)/2 + 1, roundDone: n.metrics.readRounds.Inc,
	}
}

// newAskers makes connections of their own to every other node.
func (n *Node) newAskers() []*termAsker {
	var askers []*termAsker
	for _, peer := range n.peers() {
		askers = append(askers, &termAsker{
			address: raft.ServerAddress(peer.Raft), dial: n.stream.dial, timeout: n.options.Raft.Election,
		})
	}
	return askers
}

func (n *Node) peers() []Member {
	var peers []Member
	for _, member := range n.options.Members {
		if member.Name != n.options.Name {
			peers = append(peers, member)
		}
	}
	return peers
}

// changed hears from the state machine what a batch of entries has done. It
// runs in the goroutine that applies them, and only passes on.
func (n *Node) changed(changes fsm.Changes) {
	n.parking.changed(changes)
	n.mu.Lock()
	current := n.reigning
	n.mu.Unlock()
	if current == nil {
		return
	}
	n.metrics.retries.Add(float64(changes.Retried))
	now := time.Now()
	for _, session := range changes.Opened {
		current.deadlines.arm(session.ID, session.TTL, 0, now)
	}
	for _, id := range changes.Ended {
		current.deadlines.disarm(id)
	}
	current.timeClaims(changes.Timed, now)
	if !changes.NextSlot.IsZero() {
		select {
		case current.slots <- struct{}{}:
		default:
		}
	}
	if !changes.NextDue.IsZero() {
		select {
		case current.wake <- struct{}{}:
		default:
		}
	}
}

func (n *Node) observeReign(r *reign) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reigning = r
}

func (n *Node) startServing(r *reign) {
	n.mu.Lock()
	if !n.stopping.Load() {
		n.serves = r
	}
	n.mu.Unlock()
	n.caughtUp.Store(true)
	n.leadership.pass()
}

// endReign stops serving first, and then lets go of the timers.
func (n *Node) endReign(r *reign) {
	n.mu.Lock()
	if n.reigning == r {
		n.reigning, n.serves = nil, nil
	}
	n.mu.Unlock()
	close(r.over)
}

// serving is the present reign of this node, or an error that says why it does
// not answer as the leader.
func (n *Node) serving() (*reign, error) {
	n.mu.Lock()
	current := n.serves
	n.mu.Unlock()
	if current == nil || n.raft.State() != raft.Leader {
		return nil, fmt.Errorf("%w: node %q is not the leader", jobs.ErrUnavailable, n.options.Name)
	}
	return current, nil
}

// leader finds the member that leads, as far as this node knows.
func (n *Node) leader() (Member, bool) {
	address, id := n.raft.LeaderWithID()
	for _, member := range n.options.Members {
		if raft.ServerAddress(member.Raft) == address || (id != "" && serverID(member.Name, 1) == id) {
			return member, address != ""
		}
	}
	return Member{}, false
}

// APIAddress is where the node's HTTP port listens.
func (n *Node) APIAddress() net.Addr { return n.apiAddress }

// Leading tells whether the node serves as the leader.
func (n *Node) Leading() bool {
	_, err := n.serving()
	return err == nil
}

// fatalOnce ends the process after the first fault.
func (n *Node) fatalOnce(end func(error)) func(error) {
	if end == nil {
		end = func(error) { os.Exit(fatalStatus) }
	}
	var once sync.Once
	return func(err error) {
		once.Do(func() {
			n.logger.Error("this node stops: it cannot go on safely", "error", err)
			end(err)
		})
	}
}

// StopServing makes the node no longer answer as the leader, and hands the
// leadership over if it has it. A node that is to be closed does this first,
// while the API still tells callers where to go.
func (n *Node) StopServing() {
	n.stopping.Store(true)
	n.mu.Lock()
	led := n.serves
	n.serves = nil
	n.mu.Unlock()
	if led == nil || len(n.options.Members) == 1 {
		return
	}
	transfer := make(chan error, 1)
	go func() { transfer <- n.raft.LeadershipTransfer().Error() }() // ends at raft's own timeout
	select {
	case err := <-transfer:
		if err != nil {
			n.logger.Warn("cannot hand over the leadership", "error", err)
			return
		}
		n.logger.Info("handed over the leadership")
	case <-time.After(handOverPatience):
		n.logger.Warn("cannot hand over the leadership", "error", "it took too long")
	}
}

// Close stops the node, handing over first what it leads. It may be called
// more than once, and after a failed Open.
func (n *Node) Close() error {
	n.closing.Do(func() { n.closeErr = n.close() })
	return n.closeErr
}

func (n *Node) close() error {
	var errs []error
	if n.raft != nil {
		n.StopServing()
	}
	errs = append(errs, n.stopHTTP())
	if n.cancel != nil {
		n.cancel()
	}
	n.routines.Wait()
	if n.proposer != nil {
		n.proposer.close()
	}
	// The connections end before raft does: it waits for those of its own
	// goroutines that wait for a peer, and a dead peer may take seconds.
	if n.transport != nil {
		errs = append(errs, n.transport.Close())
	}
	if n.stream != nil {
		errs = append(errs, n.stream.Close())
	}
	if n.raft != nil {
		errs = append(errs, n.raft.Shutdown().Error())
	}
	if n.forward != nil {
		n.forward.close()
	}
	if n.reads != nil {
		n.reads.close()
	}
	if n.wall != nil {
		n.wall.close()
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
