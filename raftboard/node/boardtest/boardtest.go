// Package boardtest is a board in memory for tests, also for tests of programs that use conductord.
// It is a cluster without raft and without a network: the client of package raftboard calls the
// services of a node in the same process. The node leads alone, over the real state machine and
// package memorylog.
//
// A test passes the Board to its code in place of a *raftboard.Client:
//
//	board := boardtest.New(t, boardtest.Options{})
//	go conductor.Run(t.Context(), conductor.Options{Client: board, Registry: registry})
//
// Package flow/engine/enginetest tests a flow alone, and package raftboard/node/nodetest runs a
// whole cluster, with the calls about members, backups and upgrades that a Board lacks.
//
// The node does all the work of a leader. By default, a session that misses its keep-alives expires
// an hour late, so that it outlives a test. Expire ends a session as if it had missed its
// keep-alives, and ExpireClaim ends a claim as if its own TTL had passed.
//
// The Board uses the time of package time, so testing/synctest can control it.
package boardtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node/api"
)

const (
	// DefaultCoolDown is short, so that tests which let sessions expire are fast.
	DefaultCoolDown = 50 * time.Millisecond
	// DefaultGrace is long, so that no session expires because a test or its machine was slow.
	DefaultGrace = time.Hour
)

// Options configure a Board.
type Options struct {
	// Limits are checked before the state machine. Default: logbook.MaxLimits.
	Limits logbook.Limits
	// Grace is the time beyond its TTL after which a session, or a claim with its own TTL, expires.
	// Default: DefaultGrace.
	Grace time.Duration
	// CoolDown is the cool-down of a job after the loss of its owner. Default: DefaultCoolDown;
	// negative: none.
	CoolDown time.Duration
	// MaxCrashes is the number of lost owners after which a job is trashed. Default: 0, never.
	MaxCrashes int
	// EventsKept is the number of retained events. Default: fsm.DefaultEventsKept.
	EventsKept int
	// Ahead is the difference between the board's time and the caller's clock.
	Ahead time.Duration
	// Logger is the node's logger. Default: silent.
	Logger hclog.Logger
}

func (o Options) withDefaults() Options {
	if o.Limits == (logbook.Limits{}) {
		o.Limits = logbook.MaxLimits
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	switch {
	case o.CoolDown == 0:
		o.CoolDown = DefaultCoolDown
	case o.CoolDown < 0:
		o.CoolDown = 0
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// Board is a client of a node in this process. All its methods may be called concurrently.
type Board struct {
	*raftboard.Client
	options Options
	node    *node
	dir     string // removed by Close; empty: none
}

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

// Open makes an empty board that keeps its state in a file. Without a path, the file is in a
// temporary directory that Close removes.
func Open(path string, options Options) (*Board, error) {
	b := &Board{options: options.withDefaults()}
	if path == "" {
		var err error
		if b.dir, err = os.MkdirTemp("", "boardtest"); err != nil {
			return nil, err
		}
		path = filepath.Join(b.dir, "state.db")
	}
	if err := b.open(path); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Board) open(path string) (err error) {
	if b.node, err = openNode(path, &b.options); err != nil {
		return err
	}
	b.Client, err = b.node.dial(b.options.Logger)
	return err
}

// Close ends the board. Waiting calls get an answer. Closing twice is harmless.
func (b *Board) Close() error {
	if b.Client != nil {
		b.Client.Close()
	}
	var err error
	if b.node != nil {
		err = b.node.close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// API is the node's services, for their own tests.
func (b *Board) API() *api.API { return b.node.api }

// Machine is the underlying state machine, for tests that read it.
func (b *Board) Machine() *fsm.Machine { return b.node.parts.Machine }

// Expire ends a session as if it had not been kept alive. It returns jobs.ErrSessionExpired if the
// session has already ended.
func (b *Board) Expire(session jobs.SessionID) error {
	return b.Entry(&v1.Command{Kind: &v1.Command_ExpireSession{ExpireSession: &v1.ExpireSessionCommand{
		Session: session.String(), TimerEpoch: b.Machine().TimerEpoch(),
		CoolDown: durationpb.New(b.options.CoolDown), MaxCrashes: uint32(b.options.MaxCrashes),
	}}})
}

// ExpireClaim ends a claim with its own TTL, as if the TTL had passed. It returns jobs.ErrFenced if
// the claim has already ended.
func (b *Board) ExpireClaim(job jobs.JobID, token jobs.Token) error {
	held, err := b.Machine().Job(job)
	if err != nil {
		return err
	}
	expire := &v1.ExpireClaimCommand{
		Job: job.String(), Token: command.TokenToProto(token), TimerEpoch: b.Machine().TimerEpoch(),
		CoolDown: durationpb.New(b.options.CoolDown), MaxCrashes: uint32(b.options.MaxCrashes),
	}
	if held.Claim != nil {
		expire.Extensions = uint32(held.Claim.Extensions)
	}
	return b.Entry(&v1.Command{Kind: &v1.Command_ExpireClaim{ExpireClaim: expire}})
}

// Entry applies commands in one entry, as a leader batches commands of several callers. It returns
// the first error in the results.
func (b *Board) Entry(commands ...*v1.Command) error {
	_, err := b.entry(commands...)
	return err
}

func (b *Board) entry(commands ...*v1.Command) ([]*v1.Result, error) {
	for _, c := range commands {
		if err := command.Check(b.options.Limits, c); err != nil {
			return nil, err
		}
	}
	_, results, err := b.node.parts.Proposer.Propose(context.Background(), commands...)
	for i := 0; i < len(results) && err == nil; i++ {
		err = command.ErrorFromProto(results[i].GetError())
	}
	return results, err
}

// SaveScheduleSince makes a schedule as if it had been made at a time in the past, and as if no
// leader had posted its slots since then.
func (b *Board) SaveScheduleSince(schedule schedules.Schedule, since time.Time) (schedules.Schedule, error) {
	save, err := command.PlanSave(&schedule, nil, schedules.NewID(), since)
	if err != nil {
		return schedule, fmt.Errorf("cannot plan the schedule: %w", err)
	}
	results, err := b.entry(save)
	if err != nil {
		return schedule, err
	}
	return command.ScheduleFromProto(results[0].GetSchedule().GetSchedule())
}
