// Package fsm is the replicated state machine: commands in, one transaction of
// its tables, results out. It holds everything that a cluster knows: jobs and
// the order in which they are claimed, sessions, claims and entities, books,
// flows and atoms, and the tail of events.
//
// A Machine is fed with Entries, the committed entries of the log, in order.
// Its answers and its rows depend on nothing but those entries: it
// reads no clock, no randomness, no map order and no environment; time comes
// in the entry. Every node that has applied the same entries therefore holds
// the same state, byte for byte (Digest compares), however the entries were
// batched and wherever a snapshot came between them.
//
// Guarantees: a batch of entries is applied whole or not at all; a command that
// is refused has changed nothing; a read sees the state after some batch and
// never a half of one; repeating a command is harmless.
//
// Assumptions: the database file is a cache of snapshot and log. Open deletes
// an old one, the file is never synced, and after a stop nothing in it is
// trusted. The log and the snapshots are durable. Entries were checked against
// the limits before they were proposed.
//
// The package has four layers; a test holds that nothing uses a layer above its own.
// Read them from the middle:
//
//   - nouns, what is stored of each, its indexes and how it is read: job.go first (the
//     state of a job follows from its facts), job_index.go (and so do its indexes and
//     counters), claim_order.go (which job comes next), ageing.go, flow.go, definition.go, atom.go,
//     book.go, board.go, quota.go, schedule.go, event.go, presence.go (sessions, entities,
//     drains);
//   - commands, what each may do: post.go, claim.go; for the end of a claim ending.go (by
//     its owner), session.go (crash: the owner died), expiry.go (the claim's own time),
//     stop_request.go (settle: where the job goes then, and suspend, resume, cancel),
//     retry_policy.go; for operators change.go, intervene.go, retry.go, drain.go; timers.go
//     and retention.go for the leader's commands; schedule_verbs.go, backfill.go;
//   - the machine: apply.go (a batch of entries), verbs.go (how each command is applied),
//     read.go, snapshot.go, digest.go;
//   - the transaction below: keys.go (all tables and keys), txn.go, view.go, caches.go, job_record.go, flow_record.go, ledger.go,
//     counters.go, quota_cache.go, session_claims.go, entry_use.go, event_buffer.go, memory.go.
package fsm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
)

// DefaultEventsKept is how many events are kept for those who watch: enough
// for a watcher to be away for minutes on a busy board.
const DefaultEventsKept = 100_000

const (
	// defaultMmapSize is address space, not memory. The database can grow to
	// this size before it must be mapped anew, which waits for every open
	// read, a snapshot that is being written among them.
	defaultMmapSize int64 = 4 << 30
	// lockTimeout is how long Open waits for another process to let go of the
	// file before it says so.
	lockTimeout = time.Second
)

// ErrClosed: the machine has been closed.
var ErrClosed = errors.New("the state machine is closed")

// Options are how a Machine is opened.
type Options struct {
	// Path is the database file. An existing one is deleted. Required.
	Path string
	// Logger is told about restorations and faults. Default: silent.
	Logger hclog.Logger
	// Changed is called after each commit that changed something, in order,
	// from the goroutine of Apply or Restore. It must not block, and must not
	// call Apply, Restore or Close. Default: nobody is told.
	Changed func(Changes)
	// EventsKept is how many events are kept; fewer if they take more than
	// 1 KiB each on average. It must be the same on every node. Default:
	// DefaultEventsKept.
	EventsKept int
	// Generation is that of the cluster, for the tokens of claims. The higher
	// of this and that of a restored snapshot counts.
	Generation uint64
	// MemoryRows is how many rows are kept in memory before they are flushed
	// to the database. Default: tables.DefaultMemoryRows.
	MemoryRows int
	// MmapSize is how much address space is reserved, in bytes. Default: 4 GiB
	// where addresses have 64 bits, 1 GiB elsewhere.
	MmapSize int
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Changed == nil {
		o.Changed = func(Changes) {}
	}
	if o.EventsKept == 0 {
		o.EventsKept = DefaultEventsKept
	}
	if o.MmapSize == 0 {
		o.MmapSize = int(min(defaultMmapSize, math.MaxInt/2))
	}
	return o
}

func (o Options) validate() error {
	var faults []error
	if o.Path == "" {
		faults = append(faults, errors.New("no path for the database"))
	}
	if o.EventsKept < 0 {
		faults = append(faults, fmt.Errorf("cannot keep %d events", o.EventsKept))
	}
	if o.MmapSize < 0 {
		faults = append(faults, fmt.Errorf("cannot map %d bytes", o.MmapSize))
	}
	return errors.Join(faults...)
}

// Machine is the state of a cluster at the last log entry that this node has applied.
// Apply, Snapshot and Restore may be called from several goroutines, and take
// turns; reads run beside them.
type Machine struct {
	options Options

	// applying is held while the state changes, from the first read to the call of
	// Changed, so that changes are reported in order.
	applying sync.Mutex
	broken   error    // set by Apply when it cannot go on; read by Apply
	memory   memory   // for the values of the present batch
	messages messages // the same
	caches            // of the present state

	own ownEndings

	// mu guards which database is the present one.
	mu       sync.RWMutex
	database *tables.DB // nil once closed

	// status is of the last commit. Written under applying.
	status atomic.Pointer[status]
	// advance is closed and replaced at each commit.
	advanceMu sync.Mutex
	advance   chan struct{}
}

// status is what is known without opening a transaction.
type status struct {
	ledger
	nextDue  time.Time
	nextSlot time.Time
}

// Open makes an empty state machine, whatever was in the file before.
func Open(options Options) (*Machine, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("cannot open the state machine: %w", err)
	}
	if err := errors.Join(removeIfThere(options.Path), removeIfThere(restoringPath(options.Path))); err != nil {
		return nil, fmt.Errorf("cannot delete the old state: %w", err)
	}
	opened, err := options.database(options.Path)
	if err != nil {
		return nil, err
	}
	m := &Machine{options: options, database: opened, advance: make(chan struct{}), caches: newCaches()}
	if err := m.initialise(); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return m, nil
}

// initialise writes the first ledger into an empty database.
func (m *Machine) initialise() (err error) {
	defer caught(&err)
	t, err := m.begin(m.database, ledger{Schema: schemaVersion, Version: firstVersion, Generation: m.options.Generation}, m.caches)
	if err != nil {
		return err
	}
	after, err := t.commit()
	if err != nil {
		return fmt.Errorf("cannot prepare the state: %w", err)
	}
	m.status.Store(after)
	return nil
}

// Close closes the database when the last open read is over. Waiting callers get
// ErrClosed. Closing twice is harmless.
func (m *Machine) Close() error {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	present := m.database
	m.database = nil
	m.mu.Unlock()
	if present == nil {
		return nil
	}
	m.announce()
	return present.Close()
}

// Space returns the size of the state's file, and how many of its bytes are free for
// more rows. Rows in memory count as flushed, so reusable can be negative.
func (m *Machine) Space() (size, reusable int64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.database == nil {
		return 0, 0, ErrClosed
	}
	size, err = m.database.Size()
	return size, m.database.Reusable(), err
}

// AppliedIndex is the index of the last entry that has been applied.
func (m *Machine) AppliedIndex() uint64 { return m.status.Load().Index }

// AppliedTerm is the term of the last entry that has been applied.
func (m *Machine) AppliedTerm() uint64 { return m.status.Load().Term }

// Time is the time of the state machine: that of its latest entry, or of an
// earlier one that was ahead of it. Zero before the first command.
func (m *Machine) Time() time.Time { return m.status.Load().time() }

// TimerEpoch is the index of the last begin_leadership.
func (m *Machine) TimerEpoch() uint64 { return m.status.Load().TimerEpoch }

// Generation is that of the tokens that are being handed out.
func (m *Machine) Generation() uint64 { return m.status.Load().Generation }

// NextDue is when the next delayed or cooling job is due, or the next deadline
// passes; zero if there is none.
func (m *Machine) NextDue() time.Time { return m.status.Load().nextDue }

// NextSlot is when the next slot of a schedule is; zero if there is none.
func (m *Machine) NextSlot() time.Time { return m.status.Load().nextSlot }

// LastPosition is that of the latest event; zero before the first.
func (m *Machine) LastPosition() jobs.Position { return m.status.Load().LastEvent }

// Counts are the jobs on all boards by state, without a scan.
func (m *Machine) Counts() map[jobs.State]uint64 {
	counters := m.status.Load().Jobs
	counts := make(map[jobs.State]uint64, len(jobs.States))
	for i, state := range jobs.States {
		counts[state] = counters[i]
	}
	return counts
}

// OpenSessions is how many sessions are open, without a scan.
func (m *Machine) OpenSessions() uint64 { return m.status.Load().OpenSessions }

// WaitApplied returns when the entry with the index has been applied. It
// returns early with the context's error, or with ErrClosed.
func (m *Machine) WaitApplied(ctx context.Context, index uint64) error {
	for {
		m.advanceMu.Lock()
		advance := m.advance
		m.advanceMu.Unlock()
		if m.AppliedIndex() >= index {
			return nil
		}
		if m.closed() {
			return ErrClosed
		}
		select {
		case <-advance:
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for entry %d: %w", index, ctx.Err())
		}
	}
}

// announce wakes everybody in WaitApplied.
func (m *Machine) announce() {
	m.advanceMu.Lock()
	defer m.advanceMu.Unlock()
	close(m.advance)
	m.advance = make(chan struct{})
}

func (m *Machine) closed() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.database == nil
}
