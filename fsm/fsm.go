// Package fsm is the replicated state machine. It applies commands to its tables and returns
// results. It has the whole state of a cluster: jobs and their claim order, sessions, claims and
// entities, books, flows and atoms, boards, schedules, principals, and the latest events.
//
// A Machine applies Entries, which are the committed entries of the log, in order. Results and
// tables depend on the entries alone. The package reads no clock, no randomness, no map order and
// no environment; time comes in the entry. So all nodes that have applied the same entries have
// equal rows (Digest compares them). Neither batches nor snapshots make a difference.
//
// Guarantees:
//
//   - A batch of entries is applied whole or not at all.
//   - A refused command changes nothing.
//   - A read sees the state between two batches.
//   - Repeating a command is harmless.
//
// Assumptions: the database file is only a cache of snapshot and log. Open deletes an old file, the
// file is never synced, and its content is not trusted after a stop. The log and the snapshots are
// durable. Entries were checked against the limits before they were proposed.
//
// The package has four layers. A test enforces that no layer uses a layer above it. Start to read in
// the middle:
//
//   - nouns with their rows, indexes and reads: job.go first (the state of a job follows from its
//     facts), job_index.go (so do its indexes and counters), claim_order.go (which job comes next),
//     ageing.go, flow.go, definition.go, atom.go, book.go, board.go, quota.go, schedule.go, event.go,
//     presence.go (sessions, entities, drains);
//   - commands: post.go, claim.go. Ends of claims: ending.go (by the owner), session.go (crash: the
//     owner died), expiry.go (the claim's own TTL), stop_request.go (settle: the job's next state;
//     suspend, resume, cancel), retry_policy.go. Operators: change.go, intervene.go, retry.go,
//     drain.go. The leader: timers.go, retention.go. Schedules: schedule_verbs.go, backfill.go;
//   - the machine: apply.go (a batch of entries), verbs.go (the function of each command), read.go,
//     snapshot.go, digest.go;
//   - the transaction: keys.go (all tables and keys), txn.go, view.go, caches.go, job_record.go,
//     flow_record.go, ledger.go, counters.go, quota_cache.go, session_claims.go, entry_use.go,
//     event_buffer.go, memory.go.
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

// DefaultEventsKept is the default number of kept events. On a busy board, a watch can pause for
// minutes without missing events.
const DefaultEventsKept = 100_000

const (
	// defaultMmapSize is address space, not memory. A database that grows beyond it is mapped
	// again, which waits for all open reads, including the writing of a snapshot.
	defaultMmapSize int64 = 4 << 30
	// lockTimeout is the time after which Open fails because another process has locked the file.
	lockTimeout = time.Second
)

// ErrClosed: the machine has been closed.
var ErrClosed = errors.New("the state machine is closed")

// Options configure a Machine.
type Options struct {
	// Path is the database file. An existing one is deleted. Required.
	Path string
	// Logger logs restorations and faults. Default: no log.
	Logger hclog.Logger
	// Changed is called after each commit with changes, in order, from the goroutine of Apply
	// or Restore. It must not block, and must not call Apply, Restore or Close. Default: none.
	Changed func(Changes)
	// EventsKept is the maximum number of kept events. Fewer are kept if they take more than
	// 1 KiB each on average. It must be equal on all nodes. Default: DefaultEventsKept.
	EventsKept int
	// Generation is the cluster's generation, for the tokens of claims. If a restored snapshot
	// has a higher generation, that one applies.
	Generation uint64
	// MemoryRows is the number of rows in memory at which they are flushed to the database.
	// Default: tables.DefaultMemoryRows.
	MemoryRows int
	// MmapSize is the reserved address space, in bytes. Default: 4 GiB with 64-bit addresses,
	// otherwise 1 GiB.
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

// Machine is the state of a cluster at the last log entry that this node has applied. All methods
// may be called concurrently. Apply, Snapshot and Restore wait for each other; reads do not.
type Machine struct {
	options Options

	// applying is locked while the state changes, from the first read to the call of Changed.
	// So changes are reported in order.
	applying sync.Mutex
	broken   error    // set by Apply when it cannot continue; read by Apply
	memory   memory   // for the values of the current batch
	messages messages // the same
	caches            // of the current state

	own ownEndings

	// mu guards database.
	mu       sync.RWMutex
	database *tables.DB // nil once closed

	// status is the status of the last commit. It is written under applying.
	status atomic.Pointer[status]
	// advance is closed and replaced at each commit.
	advanceMu sync.Mutex
	advance   chan struct{}
}

// status has the values that can be read without a transaction.
type status struct {
	ledger
	nextDue  time.Time
	nextSlot time.Time
}

// Open makes an empty state machine. It deletes an existing file.
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

// Close waits for open reads and closes the database. Calls of WaitApplied return ErrClosed. Closing
// twice is harmless.
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

// Space returns the size of the database file, and the number of its bytes that are free for more
// rows. Rows in memory count as flushed, so reusable can be negative.
func (m *Machine) Space() (size, reusable int64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.database == nil {
		return 0, 0, ErrClosed
	}
	size, err = m.database.Size()
	return size, m.database.Reusable(), err
}

// AppliedIndex returns the index of the last applied entry.
func (m *Machine) AppliedIndex() uint64 { return m.status.Load().Index }

// AppliedTerm returns the term of the last applied entry.
func (m *Machine) AppliedTerm() uint64 { return m.status.Load().Term }

// Time returns the time of the state machine: the latest time of all applied entries. Zero before the
// first command.
func (m *Machine) Time() time.Time { return m.status.Load().time() }

// TimerEpoch returns the index of the last begin_leadership.
func (m *Machine) TimerEpoch() uint64 { return m.status.Load().TimerEpoch }

// Generation returns the generation of new tokens.
func (m *Machine) Generation() uint64 { return m.status.Load().Generation }

// NextDue returns when the next delayed, cooling or waiting job is due, the next reservation ends, or the next
// deadline passes; zero if there is none.
func (m *Machine) NextDue() time.Time { return m.status.Load().nextDue }

// NextSlot returns the time of the next slot of all schedules; zero if there is none.
func (m *Machine) NextSlot() time.Time { return m.status.Load().nextSlot }

// LastPosition returns the position of the latest event; zero before the first event.
func (m *Machine) LastPosition() jobs.Position { return m.status.Load().LastEvent }

// Counts returns the numbers of jobs on all boards, by state, without a scan.
func (m *Machine) Counts() map[jobs.State]uint64 {
	counters := m.status.Load().Jobs
	counts := make(map[jobs.State]uint64, len(jobs.States))
	for i, state := range jobs.States {
		counts[state] = counters[i]
	}
	return counts
}

// OpenSessions returns the number of open sessions, without a scan.
func (m *Machine) OpenSessions() uint64 { return m.status.Load().OpenSessions }

// WaitApplied waits until the entry with the index has been applied. It returns the context's error,
// or ErrClosed, if that happens first.
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

// announce wakes all calls of WaitApplied.
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
