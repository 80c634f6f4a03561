package bareraft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Limits of the proposer, equal to package raftboard/node.
const (
	maxEntryCommands = 512
	maxEntryBytes    = 512 << 10
	entriesInFlight  = 2
	maxWaiting       = 4096
	enqueueTimeout   = 2 * time.Second
)

var errStopping = errors.New("the bare raft node is stopping")

// proposer packs all waiting commands into one entry. Commands that arrive while this entry is in
// flight go into the next one, as in the daemon's proposer.
type proposer struct {
	raft    *raft.Raft
	entries atomic.Uint64 // number of proposed entries

	queue    chan *proposal
	inFlight chan struct{}
	stopped  chan struct{}
	done     sync.WaitGroup
}

// proposal is a command that waits for its entry.
type proposal struct {
	command []byte
	answer  chan error // buffered: the proposer never waits for a caller
}

// newProposer starts the proposer's goroutine; it ends with close.
func newProposer(r *raft.Raft) *proposer {
	p := &proposer{
		raft: r, queue: make(chan *proposal, maxWaiting),
		inFlight: make(chan struct{}, entriesInFlight), stopped: make(chan struct{}),
	}
	p.done.Go(p.run)
	return p
}

// propose returns when the command has been replicated and applied.
func (p *proposer) propose(ctx context.Context, command []byte) error {
	waiting := &proposal{command: command, answer: make(chan error, 1)}
	select {
	case p.queue <- waiting:
	case <-p.stopped:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-waiting.answer:
		return err
	case <-p.stopped:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close stops the proposer; waiting callers get an error.
func (p *proposer) close() {
	close(p.stopped)
	p.done.Wait()
}

func (p *proposer) run() {
	var held *proposal // a proposal that did not fit into the last entry
	for {
		select {
		case p.inFlight <- struct{}{}:
		case <-p.stopped:
			return
		}
		first := held
		if first == nil {
			select {
			case first = <-p.queue:
			case <-p.stopped:
				return
			}
		}
		var batch []*proposal
		batch, held = p.fill(first)
		p.send(batch)
	}
}

// fill takes the waiting proposals, and does not wait for more.
func (p *proposer) fill(first *proposal) (batch []*proposal, held *proposal) {
	batch = []*proposal{first}
	bytes := len(first.command)
	for {
		select {
		case next := <-p.queue:
			if len(batch) == maxEntryCommands || bytes+len(next.command) > maxEntryBytes {
				return batch, next
			}
			batch = append(batch, next)
			bytes += len(next.command)
		default:
			return batch, nil
		}
	}
}

// send proposes an entry, and answers its callers when raft has answered.
func (p *proposer) send(batch []*proposal) {
	var entry []byte
	for _, one := range batch {
		entry = appendCommand(entry, one.command)
	}
	p.entries.Add(1)
	future := p.raft.Apply(entry, enqueueTimeout)
	go func() { // ends when raft answers
		defer func() { <-p.inFlight }()
		err := future.Error()
		if err == nil && future.Response() != len(batch) {
			err = fmt.Errorf("%v of %d commands of entry %d were applied", future.Response(), len(batch), future.Index())
		}
		for _, one := range batch {
			one.answer <- err
		}
	}()
}
