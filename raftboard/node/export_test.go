package node

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// What the tests of this package see of its insides.

// SetWatchPatience is for before the first watch.
func SetWatchPatience(n *Node, patience time.Duration) { n.watchPatience = patience }

// Deadlines are the sessions' timers.
type Deadlines struct{ *deadlines[jobs.SessionID] }

func NewDeadlines(grace time.Duration) Deadlines {
	return Deadlines{newDeadlines[jobs.SessionID](grace, make(chan struct{}, 1))}
}

func (d Deadlines) Arm(id jobs.SessionID, ttl time.Duration, now time.Time) {
	d.arm(id, ttl, 0, now)
}
func (d Deadlines) Disarm(id jobs.SessionID) { d.disarm(id) }
func (d Deadlines) RearmAll(now time.Time)   { d.rearmAll(now) }
func (d Deadlines) Renew(id jobs.SessionID, now time.Time) (<-chan struct{}, bool) {
	return d.renew(id, now)
}
func (d Deadlines) Due(now time.Time, most int) (ids []jobs.SessionID) {
	for _, late := range d.due(now, most) {
		ids = append(ids, late.id)
	}
	return ids
}
func (d Deadlines) Spare(id jobs.SessionID, again time.Time) { d.spare(id, again) }
func (d Deadlines) Next() time.Time                          { return d.next() }
func (d Deadlines) Held() (sessions, inHeap int)             { return d.count(), len(d.heap) }

// WasPaused judges the lateness of a leader's timer loop.
func WasPaused(heartbeat, late time.Duration, d Deadlines) bool {
	n := &Node{options: Options{Raft: RaftTimings{Heartbeat: heartbeat}}, logger: hclog.NewNullLogger()}
	n.metrics = newNodeMetrics(prometheus.NewRegistry(), n)
	current := newReign(1, 0)
	current.deadlines = d.deadlines
	return n.wasPaused(current, late)
}

// Parking holds the calls that wait.
type Parking struct{ *parking }

// MaxRiders is how many claims a call that posts takes along.
const MaxRiders = maxRiders

// Waiter is a parked claim.
type Waiter struct{ *claimWaiter }

func NewParking() Parking { return Parking{newParking()} }

func (p Parking) Park(request jobs.ClaimRequest) Waiter {
	return Waiter{p.park(request, &conductordv1.Command{}, nil)}
}

// ParkLarge parks a claim that takes so many bytes in the log, and a few more.
func (p Parking) ParkLarge(request jobs.ClaimRequest, bytes int) Waiter {
	return Waiter{p.park(request, &conductordv1.Command{Kind: &conductordv1.Command_ClaimNext{
		ClaimNext: &conductordv1.ClaimNextCommand{Session: string(make([]byte, bytes))},
	}}, nil)}
}

// MaxRiderBytes is how many bytes of claims a call that posts takes along.
const MaxRiderBytes = maxRiderBytes

func (p Parking) ParkAgain(w Waiter) Waiter    { return Waiter{p.park(w.request, w.claim, w.claimWaiter)} }
func (p Parking) Leave(w Waiter) (riding bool) { return p.leave(w.claimWaiter) }
func (p Parking) Rest(w Waiter)                { p.rest(w.claimWaiter) }

// Board tells which of the waiters ride.
func (p Parking) Board(postings ...*conductordv1.Posting) (riders []Waiter) {
	for _, w := range p.board(postings) {
		riders = append(riders, Waiter{w})
	}
	return riders
}
func (p Parking) SetAside(w Waiter)           { p.setAside(w.claimWaiter) }
func (p Parking) Wake(lanes ...fsm.Lane)      { p.wake(lanes) }
func (p Parking) Changed(changes fsm.Changes) { p.changed(changes) }
func (p Parking) AwaitFinish(id jobs.JobID) (<-chan struct{}, func()) {
	return p.awaitFinish(id)
}
func (p Parking) NextEvents() <-chan struct{} { return p.nextEvents() }
func (p Parking) Held() (claims, finishes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.claims) == 0 && len(p.ofKind)+len(p.ofAny) > 0 {
		panic("internal error: claims that are gone are still looked for")
	}
	return len(p.claims), len(p.finishes)
}
func (w Waiter) Woken() <-chan []fsm.Lane { return w.woken }

// Resting is how many claims have looked, and wait.
func Resting(n *Node) (resting int) {
	n.parking.mu.Lock()
	defer n.parking.mu.Unlock()
	for _, waiter := range n.parking.claims {
		if waiter.resting {
			resting++
		}
	}
	return resting
}

// OpenLog opens a raft log with its guard.
func OpenLog(dir string, kind LogStore, fatal func(error)) (*guardedLog, error) {
	return openLog(dir, kind, hclog.NewNullLogger(), fatal)
}

// OpenWAL opens a log in raft-wal with segments of a size.
func OpenWAL(dir string, segmentBytes int, fatal func(error)) (*guardedLog, error) {
	engine, err := openWAL(logPath(dir, LogStoreWAL), hclog.NewNullLogger(), segmentBytes)
	if err != nil {
		return nil, err
	}
	return &guardedLog{engine: engine, dataDir: dir, fatal: fatal}, nil
}

// LogPath is where a data directory has a log store.
func LogPath(dir string, kind LogStore) string { return logPath(dir, kind) }

// ConvertLogStep changes a log store over, and tells step before each thing that lasts.
func ConvertLogStep(ctx context.Context, dir string, to LogStore, step func(string)) (Conversion, error) {
	return convertLog(ctx, dir, to, hclog.NewNullLogger(), step)
}

// CountWrites has a log tell of its writes.
func CountWrites(log *guardedLog, written func()) { log.written = written }

// Propose has a node propose commands that no caller may send.
func Propose(ctx context.Context, n *Node, commands ...*conductordv1.Command) ([]*conductordv1.Result, error) {
	_, results, err := n.proposer.propose(ctx, commands...)
	return results, err
}

// Proposer packs commands into entries of a raft of the test's.
type Proposer struct{ *proposer }

func NewProposer(r *raft.Raft, fatal func(error)) Proposer {
	return Proposer{newProposer(r, new(atomic.Int64), time.Now, newNodeMetrics(prometheus.NewRegistry(), &Node{}), fatal)}
}

func (p Proposer) Propose(ctx context.Context, commands ...*conductordv1.Command) (uint64, []*conductordv1.Result, error) {
	return p.propose(ctx, commands...)
}
func (p Proposer) Close()       { p.close() }
func (p Proposer) Waiting() int { return len(p.queue) }

const (
	MaxWaiting      = maxWaiting
	MaxWaitingBytes = maxWaitingBytes
	MaxHandshaking  = maxHandshaking
	MaxHandshake    = maxHandshake
	HandshakeMagic  = handshakeMagic
	PurposeRaft     = byte(purposeRaft)
	PurposeTerms    = byte(purposeTerms)
	PurposeProbe    = byte(purposeProbe)
)

// Hello is what a node says first.
type Hello = hello

// Greet says hello on a connection, and gives the reason of a refusal.
func Greet(conn net.Conn, what byte, from Hello) (name, refusal string, err error) {
	if err := writeFrame(conn, append([]byte(handshakeMagic), what), from); err != nil {
		return "", "", err
	}
	var reply welcome
	err = readFrame(conn, &reply)
	return reply.Name, reply.Refusal, err
}

// HelloOf is what a node says.
func HelloOf(n *Node) Hello { return n.stream.hello() }

// ReadHello reads a frame.
func ReadHello(r io.Reader) (Hello, error) {
	var from hello
	err := readFrame(r, &from)
	return from, err
}

// AnswerHandshake is the listener's half of a handshake, for a node by itself.
func AnswerHandshake(conn net.Conn, members ...string) error {
	layer := &streamLayer{
		identity: &identityStore{id: identity{Cluster: "test", Name: "n1", Generation: 1, Peers: map[string]uuid.UUID{}}},
		members:  map[raft.ServerAddress]Member{},
		logger:   hclog.NewNullLogger(),
	}
	for _, name := range members {
		layer.members[raft.ServerAddress(name)] = Member{Name: name}
	}
	_, err := layer.answer(conn)
	return err
}

// Digest sums up the state of a node.
func Digest(n *Node) ([32]byte, error) { return n.machine.Digest() }

// AppliedIndex is how far a node has applied the log.
func AppliedIndex(n *Node) uint64 { return n.machine.AppliedIndex() }

// Submit has a leader carry out a command of the test's.
func Submit(ctx context.Context, n *Node, c *conductordv1.Command) (*conductordv1.Result, error) {
	_, result, err := n.submitOne(ctx, c)
	return result, err
}

// Raft is the node's raft.
func Raft(n *Node) *raft.Raft { return n.raft }

// Transfer hands the leadership over.
func Transfer(n *Node) error { return n.raft.LeadershipTransfer().Error() }

// Parked tells how many claims wait on a node.
func Parked(n *Node) int { claims, _ := Parking{n.parking}.Held(); return claims }

// Asker asks one peer for where it stands.
type Asker struct{ *termAsker }

// NewAsker asks over the connections that dial makes.
func NewAsker(timeout time.Duration, dial func() (net.Conn, error)) Asker {
	return Asker{&termAsker{timeout: timeout, dial: func(raft.ServerAddress, purpose, time.Duration) (net.Conn, error) { return dial() }}}
}

func (a Asker) Ask(answer func(term, commit uint64, err error)) {
	a.ask(func(s standing, err error) { answer(s.term, s.commit, err) })
}
func (a Asker) Close() { a.close() }

// ErrOvertaken is the answer to a question that another one has replaced.
var ErrOvertaken = errOvertaken

// AnswerTerms serves questions until the connection ends.
func AnswerTerms(conn net.Conn, stand func() (term, commit uint64)) {
	answerTerms(conn, func() standing { term, commit := stand(); return standing{term: term, commit: commit} })
}

// TimerEpoch is that of the present leader.
func TimerEpoch(n *Node) uint64 { return n.machine.TimerEpoch() }

// FirstIndex is where the node's log begins.
func FirstIndex(n *Node) uint64 { first, _ := n.log.FirstIndex(); return first }

// NewClock makes a clock that was raised to a time.
func NewClock(floor time.Time) func() time.Time {
	c := &clock{}
	c.raise(floor)
	return c.now
}

// NewPatientTransport makes the transport that waits for dead peers. dialled
// is called at every dial.
func NewPatientTransport(listen string, dialled func(), leading bool, closed <-chan struct{}) *patientTransport {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		panic(err)
	}
	stream := &countingStream{Listener: listener, dialled: dialled}
	return &patientTransport{
		NetworkTransport: raft.NewNetworkTransport(stream, 1, time.Second, io.Discard),
		leading:          func(uint64) bool { return leading },
		heard:            func(raft.ServerAddress) time.Duration { return time.Hour },
		closed:           closed,
	}
}

// NewCalmTransport makes the transport that spares heartbeats, for a peer that has
// been quiet for as long as quiet tells.
func NewCalmTransport(listen string, quiet func() time.Duration, leading func() bool, enough time.Duration, closed <-chan struct{}) *patientTransport {
	made := NewPatientTransport(listen, func() {}, true, closed)
	made.heard = func(raft.ServerAddress) time.Duration { return quiet() }
	made.leading = func(uint64) bool { return leading() }
	made.quiet = enough
	return made
}

// Heard tells for how long a peer has answered nothing that raft has sent it.
func Heard(n *Node, address raft.ServerAddress) time.Duration { return n.stream.heard(address) }

type countingStream struct {
	net.Listener
	dialled func()
}

func (s *countingStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	s.dialled()
	return net.DialTimeout("tcp", string(address), timeout)
}

// Agreed is the latest time that a majority of all clocks has reached.
func Agreed(offsets []time.Duration, majority int, fault error) (time.Duration, error) {
	return agreed(offsets, majority, []error{fault})
}

// WakeAt plans when the timers of a leader have something to do.
func WakeAt(now, rested time.Time, times ...time.Time) time.Time {
	return wakeAt(now, rested, times...)
}

// ClaimsAtOnce bounds the claims of the sessions that one round expires.
const ClaimsAtOnce = claimsAtOnce

// Within is how many numbers sum up to no more than a bound.
func Within(numbers []int, bound int) int { return within(numbers, bound) }

// LastSnapshot is the last entry of the latest snapshot; 0 if there is none.
func LastSnapshot(n *Node) uint64 { return n.growth.index.Load() }

// Bounds of what goes beside another entry.
const (
	EntriesInFlight = entriesInFlight
	MuchCommands    = muchCommands
	MuchBytes       = muchBytes
	FewCommands     = fewCommands
)

// MayGo tells whether an entry of one proposal would go now.
func MayGo(entries, afloat, commands, bytes int) bool {
	l := loading{entries: entries, afloat: afloat, commands: commands, bytes: bytes}
	if commands > 0 {
		l.batch = []*proposal{{bytes: bytes}}
	}
	return l.mayGo()
}

// InTurn does the parts of a call.
func InTurn(parts int, do func(part int) error) error { return inTurn(parts, do) }
