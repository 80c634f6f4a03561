// Package proposer batches commands into log entries.
//
// The nouns: a proposal is a list of commands of one caller that go into one entry, and an Outcome
// is the caller's answer. A Piggybacked command of another caller goes into the same entry.
//
// A caller gets the results of its commands after they are applied. The error ErrUnavailable means
// that they did not happen. ErrUncertain means that they may have happened.
package proposer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/replication"
	"github.com/conductord/conductord/raftboard/wire"
)

// Limits of an entry. An entry takes the waiting commands up to these limits. A single command may
// be as large as the limits allow.
const (
	MaxEntryCommands = 512
	MaxEntryBytes    = 512 << 10 // raft advises against larger entries: heartbeats share the connection
	// entriesInFlight lets one entry fill while another is being written. A higher number would
	// only make entries smaller.
	entriesInFlight = 2
	MaxWaiting      = 4096 // proposals in the queue; more are refused with ErrOverloaded
	// settlePatience limits the wait of Close for the entries in flight.
	settlePatience = time.Second
)

// entryRule limits log entries, because every entry of any size costs each node fsyncs and a
// transaction.
var entryRule = wire.BatchRule{
	Max:      wire.Load{Commands: MaxEntryCommands, Bytes: MaxEntryBytes},
	Much:     wire.Load{Commands: MaxEntryCommands / 8, Bytes: MaxEntryBytes / 4},
	Few:      4,
	InFlight: entriesInFlight,
}

// proposal is a group of commands for one entry, in order.
type proposal struct {
	commands []*conductordv1.Command
	load     wire.Load
	shares   []share // of the commands, in their order
}

// share is the part of a proposal for which one caller waits.
type share struct {
	commands int
	answer   chan Outcome // buffered: the proposer never waits for a caller
}

// join adds commands, and sends their results to the answer.
func (p *proposal) join(answer chan Outcome, commands ...*conductordv1.Command) {
	p.shares = append(p.shares, share{len(commands), answer})
	p.commands = append(p.commands, commands...)
	for _, c := range commands {
		p.load = p.load.Plus(wire.Load{Commands: 1, Bytes: command.Size(c)})
	}
}

// answer sends each share its own part of the answer.
func (p *proposal) answer(answer Outcome) {
	results := answer.Results
	for _, one := range p.shares {
		if results != nil {
			answer.Results, results = results[:one.commands:one.commands], results[one.commands:]
		}
		one.answer <- answer
	}
}

// Outcome is the answer to a proposal.
type Outcome struct {
	Index   uint64
	Results []*conductordv1.Result
	Err     error
}

// Piggybacked is a command of another caller that is added to the entry of a proposal.
type Piggybacked struct {
	Command *conductordv1.Command
	Still   func() error // the refusal of that caller's call if it started now
	Outcome chan Outcome // with a buffer of one
}

// Proposer batches all waiting commands into one log entry. Commands that arrive while this entry
// is in flight go into the next entry. There is no timer: under load, entries fill without a wait,
// and without load, a command is sent at once.
type Proposer struct {
	options Options

	queue    chan *proposal
	waiting  atomic.Int64 // bytes in the queue
	inFlight chan struct{}
	landed   chan int // number of commands of each entry that the log has answered
	stopped  chan struct{}
	stopping sync.Once
	done     sync.WaitGroup
}

// Options connect a proposer with its log and its limits.
type Options struct {
	Log       replication.Log
	MaxBytes  int64 // that may wait in the queue
	Now       func() time.Time
	Proposed  func(entry *conductordv1.Entry, bytes int) // called for each entry
	Committed func(seconds float64)                      // called with the duration of each entry
}

// New starts the proposer's goroutine; it ends with Close.
func New(options Options) *Proposer {
	p := &Proposer{
		options:  options,
		queue:    make(chan *proposal, MaxWaiting),
		inFlight: make(chan struct{}, entriesInFlight),
		landed:   make(chan int, entriesInFlight),
		stopped:  make(chan struct{}),
	}
	p.done.Go(p.run)
	return p
}

// Stopped returns a channel that closes when the proposer stops and no longer answers callers.
func (p *Proposer) Stopped() <-chan struct{} { return p.stopped }

// Load is the current use of a proposer.
type Load struct {
	Waiting  int   // proposals in the queue
	Bytes    int64 // of them
	InFlight int   // entries that are proposed and not applied yet
}

// Load returns the current use of the proposer.
func (p *Proposer) Load() Load {
	return Load{Waiting: len(p.queue), Bytes: p.waiting.Load(), InFlight: len(p.inFlight)}
}

// Propose replicates commands as a part of one entry and returns their results. ErrUnavailable: no
// effect. ErrUncertain: an ambiguous result.
func (p *Proposer) Propose(ctx context.Context, commands ...*conductordv1.Command) (uint64, []*conductordv1.Result, error) {
	return p.ProposeWith(ctx, nil, commands...)
}

// ProposeWith adds waiting claims to the entry of the commands that post matching jobs. The claims
// get their results on their own channels.
func (p *Proposer) ProposeWith(ctx context.Context, piggybacked []*Piggybacked, commands ...*conductordv1.Command) (uint64, []*conductordv1.Result, error) {
	answer := make(chan Outcome, 1)
	var one proposal
	one.join(answer, commands...)
	for _, claim := range piggybacked {
		one.join(claim.Outcome, claim.Command)
	}
	if err := p.enqueue(&one); err != nil {
		one.answer(Outcome{Err: err})
		return 0, nil, err // certainly, though the node may be stopping
	}
	got := p.await(ctx, answer)
	return got.Index, got.Results, got.Err
}

// await waits for the answer to a share of a proposal.
func (p *Proposer) await(ctx context.Context, answer <-chan Outcome) Outcome {
	select {
	case got := <-answer:
		return got
	case <-ctx.Done():
		return Outcome{Err: fmt.Errorf("%w: %w", jobs.ErrUncertain, ctx.Err())}
	case <-p.stopped:
		return Outcome{Err: fmt.Errorf("%w: the node is stopping", jobs.ErrUncertain)}
	}
}

// enqueue queues a proposal. After an error, it had no effect.
func (p *Proposer) enqueue(one *proposal) error {
	select {
	case <-p.stopped:
		return fmt.Errorf("%w: the node is stopping", jobs.ErrUnavailable)
	default:
	}
	size := int64(one.load.Bytes)
	if total := p.waiting.Add(size); total > p.options.MaxBytes {
		p.waiting.Add(-size)
		return fmt.Errorf("%w: proposals of %d bytes already wait; try again", jobs.ErrOverloaded, total-size)
	}
	select {
	case p.queue <- one:
		return nil
	default:
		p.waiting.Add(-size)
		return fmt.Errorf("%w: %d proposals already wait; try again", jobs.ErrOverloaded, MaxWaiting)
	}
}

// Close refuses the waiting proposals, and waits briefly for the entries in flight. Entries that
// are still in flight afterwards are answered when the log ends.
func (p *Proposer) Close() {
	p.stopping.Do(func() { close(p.stopped) })
	p.done.Wait()
	patience := time.NewTimer(settlePatience)
	defer patience.Stop()
	for range entriesInFlight {
		select {
		case p.inFlight <- struct{}{}:
		case <-patience.C:
			return
		}
	}
}

// batching is the state of the proposer's goroutine: the entry that is being filled,
// and the entries in flight.
type batching struct {
	next     []*proposal
	load     wire.Load // of next
	held     *proposal // did not fit, and comes first in the next entry
	inFlight int       // entries
	commands int       // number of commands in them
}

func (p *Proposer) run() {
	defer p.refuseWaiting()
	var b batching
	for {
		p.fill(&b)
		if entryRule.SendNow(b.load, b.held != nil, b.inFlight, b.commands) {
			p.send(b.depart())
			continue
		}
		var queue chan *proposal
		if b.open() {
			queue = p.queue
		}
		select {
		case one := <-queue:
			p.waiting.Add(-int64(one.load.Bytes))
			b.add(one)
		case commands := <-p.landed:
			b.inFlight, b.commands = b.inFlight-1, b.commands-commands
		case <-p.stopped:
			if b.held != nil {
				b.next = append(b.next, b.held)
			}
			answerAll(b.next, Outcome{Err: fmt.Errorf("%w: the node is stopping", jobs.ErrUnavailable)})
			return
		}
	}
}

// fill takes the waiting proposals.
func (p *Proposer) fill(b *batching) {
	for b.open() {
		select {
		case one := <-p.queue:
			p.waiting.Add(-int64(one.load.Bytes))
			b.add(one)
		default:
			return
		}
	}
}

// open reports whether the entry takes more commands. While no entry can be sent, commands stay in
// the queue, which is limited.
func (b *batching) open() bool { return b.held == nil && b.inFlight < entriesInFlight }

func (b *batching) add(one *proposal) {
	if entryRule.Full(b.load, one.load) {
		b.held = one
		return
	}
	b.next = append(b.next, one)
	b.load = b.load.Plus(one.load)
}

// depart returns the entry, and starts the next one.
func (b *batching) depart() []*proposal {
	batch := b.next
	after := batching{inFlight: b.inFlight + 1, commands: b.commands + b.load.Commands}
	if b.held != nil {
		after.add(b.held)
	}
	*b = after
	return batch
}

// send appends an entry, and answers its callers when the entry is applied.
func (p *Proposer) send(batch []*proposal) {
	entry := &conductordv1.Entry{TimeUnixNano: p.options.Now().UnixNano()}
	for _, one := range batch {
		entry.Commands = append(entry.Commands, one.commands...)
	}
	count := len(entry.Commands)
	data, err := command.EncodeEntry(entry)
	if err != nil {
		p.landed <- count
		answerAll(batch, Outcome{Err: fmt.Errorf("%w: %w", jobs.ErrInvalid, err)})
		return
	}
	p.options.Proposed(entry, len(data))
	p.inFlight <- struct{}{}
	began := time.Now()
	pending := p.options.Log.Append(data)
	go func() { // ends when the log answers; a log that ends may drop the entry, and callers do not wait for it then
		defer func() {
			<-p.inFlight
			p.landed <- count // does not block: its buffer holds each entry in flight
		}()
		index, results, err := pending.Wait()
		if err != nil {
			answerAll(batch, Outcome{Err: err})
			return
		}
		p.options.Committed(time.Since(began).Seconds())
		if len(results) != len(entry.Commands) {
			panic(fmt.Sprintf("internal error: %d results for %d commands of entry %d", len(results), len(entry.Commands), index))
		}
		for _, one := range batch {
			n := len(one.commands)
			one.answer(Outcome{Index: index, Results: results[:n:n]})
			results = results[n:]
		}
	}()
}

func (p *Proposer) refuseWaiting() {
	for {
		select {
		case one := <-p.queue:
			one.answer(Outcome{Err: fmt.Errorf("%w: the node is stopping", jobs.ErrUnavailable)})
		default:
			return
		}
	}
}

func answerAll(batch []*proposal, answer Outcome) {
	for _, one := range batch {
		one.answer(answer)
	}
}
