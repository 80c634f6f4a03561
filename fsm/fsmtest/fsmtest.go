// Package fsmtest is a board and a logbook over a state machine, without raft and without a
// network. Tests use it instead of a fake, also tests of programs that use conductord. The state
// machine is the real one: every write is an entry that is encoded, applied and answered as on a
// node.
//
// A test passes the Board to its code in place of a *raftboard.Client:
//
//	board := fsmtest.New(t, fsmtest.Options{})
//	go conductor.Run(t.Context(), conductor.Options{Client: board, Registry: registry})
//
// Package flow/engine/enginetest tests a flow alone, and package raftboard/node/nodetest runs a
// whole cluster.
//
// The Board does the work of the leader, with one exception: no session or claim expires by itself.
// A keep-alive only checks that the session exists. Expire ends a session as if it had missed its
// keep-alives, and ExpireClaim ends a claim as if its own TTL had passed. Delayed and cooling jobs
// become claimable when they are due, and due slots of schedules are posted.
//
// The Board uses the time of package time, so testing/synctest can control it.
package fsmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// DefaultCoolDown is short, so that tests which let sessions expire are fast.
const DefaultCoolDown = 50 * time.Millisecond

// mmapSize is the address space of a test's database. It is small, because many may be open in
// parallel.
const mmapSize = 64 << 20

// wakeAtOnce bounds the jobs that one command makes claimable.
const wakeAtOnce = 1_000

// Options are how a Board is made.
type Options struct {
	// Limits are checked before the state machine. Default: logbook.MaxLimits.
	Limits logbook.Limits
	// CoolDown is the cool-down of a job after the loss of its owner. Default: DefaultCoolDown;
	// negative: none.
	CoolDown time.Duration
	// MaxCrashes is the number of lost owners after which a job is trashed. Default: 0, never.
	MaxCrashes int
	// EventsKept is the number of retained events. Default: fsm.DefaultEventsKept.
	EventsKept int
	// Ahead is how far the board's time is ahead of the caller's clock.
	Ahead time.Duration
	// Logger is the state machine's. Default: silent.
	Logger hclog.Logger
}

func (o Options) withDefaults() Options {
	if o.Limits == (logbook.Limits{}) {
		o.Limits = logbook.MaxLimits
	}
	switch {
	case o.CoolDown == 0:
		o.CoolDown = DefaultCoolDown
	case o.CoolDown < 0:
		o.CoolDown = 0
	}
	return o
}

// errClosed is the error of every call on a closed board: the call did not happen.
var errClosed = fmt.Errorf("%w: the board is closed", jobs.ErrUnavailable)

// Board is a jobs.Board, a schedules.Scheduler and a logbook.Connection over one
// state machine. All its methods may be called concurrently.
type Board struct {
	options Options
	machine *fsm.Machine

	// mu is held while an entry is applied and its answer is read.
	mu     sync.Mutex
	index  uint64    // of the last entry
	clock  time.Time // of the last entry
	epoch  uint64    // the timer epoch
	closed bool
	dir    string // that Close removes; empty: none
	broken error  // why the state machine cannot continue

	// waitersMu is taken within mu, never the other way around.
	waitersMu sync.Mutex
	waiters   map[*waiter]struct{}

	timer *time.Timer // calls wake when the next job or slot is due; guarded by mu
	waker sync.WaitGroup
}

var (
	_ jobs.Board          = (*Board)(nil)
	_ schedules.Scheduler = (*Board)(nil)
	_ logbook.Connection  = (*Board)(nil)
)

// New makes an empty board, and closes it when the test ends.
func New(t testing.TB, options Options) *Board {
	t.Helper()
	board, err := Open(filepath.Join(t.TempDir(), "state.db"), options)
	if err != nil {
		t.Fatalf("cannot open a board: %v", err)
	}
	t.Cleanup(func() {
		if err := board.Close(); err != nil {
			t.Errorf("cannot close the board: %v", err)
		}
	})
	return board
}

// Open makes an empty board that keeps its state in a file. Without a path, the file is
// in a temporary directory that Close removes.
func Open(path string, options Options) (board *Board, err error) {
	b := &Board{options: options.withDefaults(), waiters: make(map[*waiter]struct{})}
	if path == "" {
		if b.dir, err = os.MkdirTemp("", "fsmtest"); err != nil {
			return nil, err
		}
		path = filepath.Join(b.dir, "state.db")
	}
	machine, err := fsm.Open(fsm.Options{
		Path: path, Logger: options.Logger, Changed: b.changed,
		EventsKept: options.EventsKept, Generation: 1, MmapSize: mmapSize,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	b.machine = machine
	begin := &v1.Command{Kind: &v1.Command_BeginLeadership{BeginLeadership: &v1.BeginLeadershipCommand{Node: "fsmtest"}}}
	if _, err := b.propose(begin); err != nil {
		return nil, errors.Join(err, machine.Close(), os.RemoveAll(b.dir))
	}
	b.epoch = machine.TimerEpoch()
	return b, nil
}

// Close ends the board. Calls that wait are answered. Closing twice is
// harmless.
func (b *Board) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	if b.timer != nil && b.timer.Stop() {
		b.waker.Done()
	}
	b.mu.Unlock()
	b.waker.Wait()
	b.notify(func(*waiter) bool { return true })
	return errors.Join(b.machine.Close(), os.RemoveAll(b.dir))
}

// Machine is the state machine below, for tests that look into it.
func (b *Board) Machine() *fsm.Machine { return b.machine }

// Expire ends a session as if it had not been kept alive. It gives
// jobs.ErrSessionExpired if the session is over already.
func (b *Board) Expire(session jobs.SessionID) error {
	expire := &v1.ExpireSessionCommand{
		Session: session.String(), TimerEpoch: b.epoch,
		CoolDown: durationpb.New(b.options.CoolDown), MaxCrashes: uint32(b.options.MaxCrashes),
	}
	_, err := b.run(context.Background(), &v1.Command{Kind: &v1.Command_ExpireSession{ExpireSession: expire}})
	return err
}

// ExpireClaim ends a claim with its own TTL, as if the TTL had passed. It returns jobs.ErrFenced if
// the claim has already ended.
func (b *Board) ExpireClaim(job jobs.JobID, token jobs.Token) error {
	held, err := b.machine.Job(job)
	if err != nil {
		return err
	}
	expire := &v1.ExpireClaimCommand{
		Job: job.String(), Token: command.TokenToProto(token), TimerEpoch: b.epoch,
		CoolDown: durationpb.New(b.options.CoolDown), MaxCrashes: uint32(b.options.MaxCrashes),
	}
	if held.Claim != nil {
		expire.Extensions = uint32(held.Claim.Extensions)
	}
	_, err = b.run(context.Background(), &v1.Command{Kind: &v1.Command_ExpireClaim{ExpireClaim: expire}})
	return err
}

// run checks one command, applies it in its own entry, and returns its result, or the error in the
// result.
func (b *Board) run(ctx context.Context, c *v1.Command) (*v1.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := command.Check(b.options.Limits, c); err != nil {
		return nil, err
	}
	results, err := b.propose(c)
	if err != nil {
		return nil, err
	}
	return results[0], command.ErrorFromProto(results[0].GetError())
}

// Entry applies commands in one entry, as a leader batches commands of several callers. It returns
// the first error in the results.
func (b *Board) Entry(commands ...*v1.Command) error {
	for _, c := range commands {
		if err := command.Check(b.options.Limits, c); err != nil {
			return err
		}
	}
	results, err := b.propose(commands...)
	for _, result := range results {
		err = errors.Join(err, command.ErrorFromProto(result.GetError()))
	}
	return err
}

// propose applies commands in one entry.
func (b *Board) propose(commands ...*v1.Command) ([]*v1.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proposeLocked(commands...)
}

func (b *Board) proposeLocked(commands ...*v1.Command) ([]*v1.Result, error) {
	switch {
	case b.closed:
		return nil, errClosed
	case b.broken != nil:
		return nil, b.broken
	}
	// All entries have different times, so that a test can see their order.
	now := b.now()
	if !now.After(b.clock) {
		now = b.clock.Add(time.Nanosecond)
	}
	b.clock = now
	data, err := command.EncodeEntry(&v1.Entry{TimeUnixNano: now.UnixNano(), Commands: commands})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", jobs.ErrUnavailable, err)
	}
	b.index++
	results, err := b.machine.Apply([]fsm.Entry{{Index: b.index, Term: 1, Data: data}})
	if err != nil {
		b.broken = err
		return nil, err
	}
	if len(results) != 1 || len(results[0]) != len(commands) {
		panic(fmt.Sprintf("internal error: %d commands were given the answers %v", len(commands), results))
	}
	b.armLocked()
	return results[0], nil
}

func (b *Board) now() time.Time { return time.Now().Add(b.options.Ahead) }

// armLocked sets the timer for the next due job or slot. The timer's goroutine ends when it has
// woken all due jobs and slots; Close waits for it.
func (b *Board) armLocked() {
	if b.timer != nil && b.timer.Stop() {
		b.waker.Done()
	}
	b.timer = nil
	due := b.machine.NextDue()
	if slot := b.machine.NextSlot(); due.IsZero() || !slot.IsZero() && slot.Before(due) {
		due = slot
	}
	if due.IsZero() || b.closed {
		return
	}
	b.waker.Add(1)
	b.timer = time.AfterFunc(due.Sub(b.now()), b.wake)
}

// wake makes due jobs claimable, posts due slots, and sets the timer again.
func (b *Board) wake() {
	defer b.waker.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	c := &v1.Command{Kind: &v1.Command_WakeDue{WakeDue: &v1.WakeDueCommand{TimerEpoch: b.epoch, Max: wakeAtOnce}}}
	_, err := b.proposeLocked(c)
	if err == nil {
		err = b.fireLocked(b.now().Round(0).UTC())
	}
	if err != nil && b.options.Logger != nil {
		b.options.Logger.Error("cannot wake the jobs that are due, and post the slots", "error", err)
	}
}

// waiter is a call that waits for a change.
type waiter struct {
	wants func(fsm.Changes) bool
	woken chan struct{} // holds one signal, so that none is lost
}

// wait registers a waiter. Register the waiter before you check whether a wait is necessary,
// and remove it with forget.
func (b *Board) wait(wants func(fsm.Changes) bool) *waiter {
	w := &waiter{wants: wants, woken: make(chan struct{}, 1)}
	b.waitersMu.Lock()
	defer b.waitersMu.Unlock()
	b.waiters[w] = struct{}{}
	return w
}

func (b *Board) forget(w *waiter) {
	b.waitersMu.Lock()
	defer b.waitersMu.Unlock()
	delete(b.waiters, w)
}

// changed is called by the state machine after each commit.
func (b *Board) changed(changes fsm.Changes) {
	b.notify(func(w *waiter) bool { return changes.Restored || w.wants(changes) })
}

func (b *Board) notify(concerned func(*waiter) bool) {
	b.waitersMu.Lock()
	defer b.waitersMu.Unlock()
	for w := range b.waiters {
		if !concerned(w) {
			continue
		}
		select {
		case w.woken <- struct{}{}:
		default: // It has a signal already.
		}
	}
}

// over reports whether the board is closed.
func (b *Board) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}
