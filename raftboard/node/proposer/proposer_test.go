package proposer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/memorylog"
	"github.com/conductord/conductord/raftboard/node/proposer"
	"github.com/conductord/conductord/raftboard/node/replication"
)

const (
	patience        = time.Minute
	maxWaitingBytes = 64 << 20
)

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// echo is a state machine that answers each command with its own text once its gate is
// open.
type echo struct {
	replication.Machine // no other method is called

	gate    chan struct{}
	opening sync.Once
	entries atomic.Int64
	fault   error
}

func (e *echo) AppliedIndex() uint64 { return 0 }

func (e *echo) Apply(entries []fsm.Entry) (results [][]*conductordv1.Result, err error) {
	<-e.gate
	for _, one := range entries {
		e.entries.Add(1)
		entry, err := command.DecodeEntry(one.Data)
		if err != nil {
			return nil, err
		}
		var answers []*conductordv1.Result
		for _, c := range entry.Commands {
			answers = append(answers, &conductordv1.Result{Error: &conductordv1.Error{Message: c.GetCloseSession().Session}})
		}
		results = append(results, answers)
	}
	return results, e.fault
}

func (e *echo) open() { e.opening.Do(func() { close(e.gate) }) }

// newEcho is a proposer over a log in memory.
func newEcho(t *testing.T, machine *echo) (*proposer.Proposer, *memorylog.Log) {
	t.Helper()
	machine.gate = make(chan struct{})
	log := memorylog.New("n1", machine)
	log.Lead()
	p := proposer.New(proposer.Options{
		Log: log, MaxBytes: maxWaitingBytes, Now: time.Now, Proposed: func(*conductordv1.Entry, int) {}, Committed: func(float64) {},
	})
	t.Cleanup(func() {
		machine.open()
		p.Close()
	})
	return p, log
}

// occupy fills all places for entries in flight, so that further commands wait.
func occupy(t *testing.T, p *proposer.Proposer, all *sync.WaitGroup, propose func()) {
	t.Helper()
	for before := range 2 {
		all.Go(propose)
		eventually(t, "an entry is on its way", func() bool { return p.Load().InFlight > before })
	}
}

func saying(text string) *conductordv1.Command {
	return &conductordv1.Command{Kind: &conductordv1.Command_CloseSession{CloseSession: &conductordv1.CloseSessionCommand{Session: text}}}
}

// While two entries are in flight, all new commands go into the next one.
func TestProposerPacks(t *testing.T) {
	machine := &echo{}
	p, _ := newEcho(t, machine)
	const callers = 64
	var all sync.WaitGroup
	propose := func(i int) {
		want := []string{fmt.Sprintf("%d first", i), fmt.Sprintf("%d second", i)}
		index, results, err := p.Propose(t.Context(), saying(want[0]), saying(want[1]))
		if err != nil || index == 0 || len(results) != 2 || results[0].Error.Message != want[0] || results[1].Error.Message != want[1] {
			t.Errorf("caller %d got entry %d, %v, %v", i, index, results, err)
		}
	}
	occupy(t, p, &all, func() { propose(-1) })
	for i := range callers {
		all.Go(func() { propose(i) })
	}
	eventually(t, "the callers wait", func() bool { return p.Load().Waiting == callers })
	machine.open()
	all.Wait()
	if entries := machine.entries.Load(); entries != 3 {
		t.Errorf("%d callers took %d entries, want 1 for all", callers, entries-2)
	}
}

func TestProposerRefusesWhenFull(t *testing.T) {
	for _, row := range []struct {
		name string
		text string
		fit  int
	}{
		{"proposals", "x", proposer.MaxWaiting},
		{"bytes", string(make([]byte, maxWaitingBytes/64)), 63},
	} {
		t.Run(row.name, func(t *testing.T) {
			machine := &echo{}
			p, _ := newEcho(t, machine)
			const tooMany = 10
			var all sync.WaitGroup
			var refused, done atomic.Int64
			propose := func() {
				switch _, _, err := p.Propose(t.Context(), saying(row.text)); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, jobs.ErrUncertain):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
			occupy(t, p, &all, propose)
			for range row.fit + tooMany {
				all.Go(propose)
			}
			eventually(t, "the queue is full", func() bool { return refused.Load() == tooMany && p.Load().Waiting == row.fit })
			machine.open()
			all.Wait()
			if done.Load() != int64(row.fit)+2 {
				t.Errorf("%d done, want %d", done.Load(), row.fit+2)
			}
			// There is room again.
			if _, _, err := p.Propose(t.Context(), saying(row.text)); err != nil {
				t.Errorf("after the crowd: %v", err)
			}
		})
	}
}

func TestProposerStops(t *testing.T) {
	t.Parallel()
	machine := &echo{}
	p, _ := newEcho(t, machine)
	outcomes := make(chan error, 32)
	propose := func() {
		_, _, err := p.Propose(context.Background(), saying("x"))
		outcomes <- err
	}
	var all sync.WaitGroup
	occupy(t, p, &all, propose)
	for range cap(outcomes) - 2 {
		all.Go(propose)
	}
	eventually(t, "the callers wait", func() bool { return p.Load().Waiting == cap(outcomes)-2 })
	p.Close()
	p.Close()
	for range cap(outcomes) {
		if err := <-outcomes; !errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, jobs.ErrUncertain) {
			t.Errorf("got %v", err)
		}
	}
	if _, _, err := p.Propose(t.Context(), saying("x")); !errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrUncertain) {
		t.Errorf("after the end: %v", err)
	}
	machine.open()
	eventually(t, "what was in flight is answered", func() bool { return machine.entries.Load() == 2 })
}

func TestProposerTellsOutcomes(t *testing.T) {
	t.Run("the caller leaves", func(t *testing.T) {
		machine := &echo{}
		p, _ := newEcho(t, machine)
		ctx, cancel := context.WithCancel(t.Context())
		outcome := make(chan error)
		go func() {
			_, _, err := p.Propose(ctx, saying("x"))
			outcome <- err
		}()
		cancel()
		if err := <-outcome; !errors.Is(err, jobs.ErrUncertain) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		machine.open()
		eventually(t, "the entry is applied", func() bool { return machine.entries.Load() == 1 })
	})
	t.Run("the state machine has failed", func(t *testing.T) {
		machine := &echo{fault: errors.New("the disk is full")}
		p, _ := newEcho(t, machine)
		machine.open()
		if _, _, err := p.Propose(t.Context(), saying("x")); !errors.Is(err, jobs.ErrUncertain) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the node does not lead", func(t *testing.T) {
		machine := &echo{}
		p, log := newEcho(t, machine)
		machine.open()
		log.StepDown()
		if _, _, err := p.Propose(t.Context(), saying("x")); !errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrUncertain) {
			t.Errorf("got %v", err)
		}
	})
}
