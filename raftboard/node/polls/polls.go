// Package polls keeps the calls that wait on a node: for a claimable job, for the end of a job, for
// the next event. None of them is durable: a caller repeats a lost call.
package polls

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/proposer"
)

// Polls holds the calls that wait on this node: for a claimable job, for the
// end of a job, for the next event. The state machine's changes wake them.
type Polls struct {
	mu sync.Mutex

	// The waiting claims in order of arrival: all claims, claims by kind of job, and claims for any
	// kind. When jobs of thousands of kinds become claimable together, the search visits only
	// claims for these kinds. Under mu.

	claims []*Waiter
	ofKind map[string][]*Waiter
	ofAny  []*Waiter
	added  uint64 // claims so far

	// asking has the waiting claims by their requests; guarded by mu.
	asking map[RequestID]*Waiter

	undrains int // number of ended drains; guarded by mu
	finishes map[jobs.JobID]map[chan struct{}]struct{}
	// steps has the calls that wait for a change of a step, by flow, with the step's name; guarded by mu.
	steps  map[logbook.FlowID]map[chan struct{}]string
	events chan struct{} // closed and replaced when there are new events; guarded by mu
	// undelivered has the outcomes of piggybacked claims until a call receives them; guarded by mu.
	undelivered map[RequestID]chan proposer.Outcome
}

// RequestID names a request for claims. All its attempts have the same RequestID.
type RequestID struct {
	session jobs.SessionID
	nonce   jobs.Nonce
}

// IDOf is the ID of a request.
func IDOf(r *jobs.ClaimRequest) RequestID { return RequestID{r.Session, r.Nonce} }

// Waiter is a waiting ClaimNext.
type Waiter struct {
	proposer.Piggybacked // the request as it is proposed, and its outcome if another call piggybacked it
	Request              jobs.ClaimRequest
	Woken                chan []fsm.Queue // with a buffer of one: queues with jobs that may be claimable
	// Repeated is closed when another call has the same nonce: a caller repeats a call only when
	// the connection of this one is dead.
	Repeated chan struct{}

	number uint64 // order of arrival

	// Guarded by Polls.mu.

	undrains    int  // Polls.undrains at the start of its wait
	drained     bool // its conductor is drained: no claim until a drain ends
	idle        bool // it has looked for a job and found none
	piggybacked bool // appended to the entry of another call, and no longer in Polls
}

// Limits of the claims that are piggybacked on one call. Their bytes are added to its
// entry. The other jobs are claimed by the waiters that they wake.
const (
	MaxPiggybacked    = 16
	MaxPiggybackBytes = proposer.MaxEntryBytes / 8
)

// New makes Polls without calls.
func New() *Polls {
	return &Polls{
		ofKind: map[string][]*Waiter{}, asking: map[RequestID]*Waiter{}, undelivered: map[RequestID]chan proposer.Outcome{},
		finishes: map[jobs.JobID]map[chan struct{}]struct{}{}, steps: map[logbook.FlowID]map[chan struct{}]string{}, events: make(chan struct{}),
	}
}

// Add adds a waiting claim. The caller looks for jobs after this call, so that it misses none. When
// a call waits again after an empty look, it passes its previous waiter and keeps its position, so
// newer waiters cannot overtake it. A new call ends the waiting call with the same nonce:
// otherwise, a call whose caller has gone could take the job.
func (p *Polls) Add(request jobs.ClaimRequest, claim *conductordv1.Command, before *Waiter) *Waiter {
	waiter := &Waiter{Request: request, Woken: make(chan []fsm.Queue, 1), Piggybacked: proposer.Piggybacked{Command: claim, Outcome: make(chan proposer.Outcome, 1)}}
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.undrains = p.undrains
	if before != nil {
		waiter.number, waiter.Repeated = before.number, before.Repeated
	} else {
		p.added++
		waiter.number, waiter.Repeated = p.added, make(chan struct{})
		if earlier := p.asking[IDOf(&request)]; earlier != nil {
			p.removeLocked(earlier)
			close(earlier.Repeated)
		}
	}
	p.asking[IDOf(&request)] = waiter
	p.claims = with(p.claims, waiter)
	if len(request.Kinds) == 0 {
		p.ofAny = with(p.ofAny, waiter)
	}
	for _, kind := range request.Kinds {
		p.ofKind[kind] = with(p.ofKind[kind], waiter)
	}
	return waiter
}

// Waits reports whether a claim with this nonce is waiting. A new call with this nonce would end
// the waiting claim.
func (p *Polls) Waits(id RequestID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asking[id] != nil
}

// removeLocked removes a claim, if it still waits.
func (p *Polls) removeLocked(waiter *Waiter) {
	if id := IDOf(&waiter.Request); p.asking[id] == waiter {
		delete(p.asking, id)
	}
	p.claims = without(p.claims, waiter)
	p.ofAny = without(p.ofAny, waiter)
	for _, kind := range waiter.Request.Kinds {
		if p.ofKind[kind] = without(p.ofKind[kind], waiter); len(p.ofKind[kind]) == 0 {
			delete(p.ofKind, kind)
		}
	}
}

// with inserts a waiter into a list that is ordered by number.
func with(waiters []*Waiter, waiter *Waiter) []*Waiter {
	i, _ := find(waiters, waiter)
	return slices.Insert(waiters, i, waiter)
}

// without removes a waiter from such a list.
func without(waiters []*Waiter, waiter *Waiter) []*Waiter {
	i, found := find(waiters, waiter)
	if !found {
		return waiters
	}
	return slices.Delete(waiters, i, i+1)
}

func find(waiters []*Waiter, waiter *Waiter) (int, bool) {
	return slices.BinarySearchFunc(waiters, waiter.number, func(w *Waiter, number uint64) int {
		return cmp.Compare(w.number, number)
	})
}

// wakeAllLocked wakes all claims that meet a condition, without naming a queue.
func (p *Polls) wakeAllLocked(which func(*Waiter) bool) {
	for _, waiter := range slices.Clone(p.claims) {
		if which(waiter) {
			p.removeLocked(waiter)
			waiter.Woken <- nil // does not block: see wake
		}
	}
}

// ExcludeDrained keeps the claim of a drained conductor from being woken for jobs until a drain
// ends. If any drain has ended since the claim started to wait, the claim is woken at once, because
// it may have been the drain of this conductor.
func (p *Polls) ExcludeDrained(waiter *Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.drained = true
	if waiter.undrains != p.undrains {
		p.wakeDrainedLocked()
	}
}

// wakeDrained wakes the claims of drained conductors, because a drain has ended.
func (p *Polls) wakeDrained() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undrains++
	p.wakeDrainedLocked()
}

func (p *Polls) wakeDrainedLocked() {
	p.wakeAllLocked(func(waiter *Waiter) bool { return waiter.drained })
}

// SetIdle records that a claim has found no job, and can be piggybacked.
func (p *Polls) SetIdle(waiter *Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.idle = true
}

// Piggyback removes idle claims that can take the jobs about to become claimable, one for each yielded queue: the
// longest waiting first, as many as there are jobs for. The caller proposes them with the commands that make
// the jobs claimable, and sends each one's result to its outcome.
func (p *Polls) Piggyback(claimable iter.Seq[fsm.Queue]) []*proposer.Piggybacked {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.claims) == 0 {
		return nil
	}
	var chosen []*proposer.Piggybacked
	var queue fsm.Queue
	looks, bytes, taken := 0, 0, 0 // taken: number of further jobs of the queue that the previous claims can take
	for next := range claimable {
		if next != queue {
			queue, taken = next, 0
		}
		if taken--; taken >= 0 {
			continue
		}
		if looks++; looks > MaxPiggybacked {
			break
		}
		waiter := p.firstLocked(&queue, true)
		if waiter == nil {
			taken = math.MaxInt
			continue
		}
		if bytes += command.Size(waiter.Command); bytes > MaxPiggybackBytes {
			break
		}
		p.removeLocked(waiter)
		waiter.piggybacked = true
		maps.DeleteFunc(p.undelivered, func(_ RequestID, outcome chan proposer.Outcome) bool { return len(outcome) > 0 })
		p.undelivered[IDOf(&waiter.Request)] = waiter.Outcome
		chosen, taken = append(chosen, &waiter.Piggybacked), waiter.Request.Max-1
	}
	return chosen
}

// UndeliveredOutcome receives the outcome of an earlier, piggybacked attempt; nil: none.
func (p *Polls) UndeliveredOutcome(id RequestID) chan proposer.Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.undelivered[id]
}

// Delivered removes an outcome: a call has received it, and a repeat finds it in the state machine.
func (p *Polls) Delivered(id RequestID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.undelivered, id)
}

// Leave removes a claim. If the claim was woken meanwhile, the next waiter is woken in its place. A
// piggybacked claim can still be granted, so the caller must wait for its outcome.
func (p *Polls) Leave(waiter *Waiter) (piggybacked bool) {
	p.mu.Lock()
	p.removeLocked(waiter)
	piggybacked = waiter.piggybacked
	p.mu.Unlock()
	select {
	case queues := <-waiter.Woken:
		p.Wake(queues)
	default:
	}
	return piggybacked
}

// Wake wakes the longest waiting claim for each queue, and no other. A claim that has
// found something there calls wake again, so the waiters come one after another and
// never all at once.
func (p *Polls) Wake(queues []fsm.Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, queue := range queues {
		if queue.Reserved { // only the state machine knows the conductor of the reservation
			p.wakeAllLocked(func(w *Waiter) bool { return !w.drained && queue.Suits(&w.Request) })
		} else if waiter := p.firstLocked(&queue, false); waiter != nil {
			p.removeLocked(waiter)
			waiter.Woken <- []fsm.Queue{queue} // does not block: a waiter is removed before it is woken
		}
	}
}

// firstLocked returns the longest waiting claim for the jobs of a queue; nil if there is none.
// idle: only claims that have looked and found no job.
func (p *Polls) firstLocked(queue *fsm.Queue, idle bool) *Waiter {
	var first *Waiter
	for _, waiters := range [][]*Waiter{p.ofKind[queue.Kind], p.ofAny} {
		i := slices.IndexFunc(waiters, func(w *Waiter) bool { return !w.drained && (w.idle || !idle) && queue.Suits(&w.Request) })
		if i >= 0 && (first == nil || waiters[i].number < first.number) {
			first = waiters[i]
		}
	}
	return first
}

// wakeSessions wakes the claims of sessions that have ended: their calls end with an error.
func (p *Polls) wakeSessions(ended []jobs.SessionID) {
	if len(ended) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeAllLocked(func(waiter *Waiter) bool { return slices.Contains(ended, waiter.Request.Session) })
}

// AwaitFinish returns a channel that is closed when the job finishes or stops, and a function
// that forgets the channel.
func (p *Polls) AwaitFinish(id jobs.JobID) (finished <-chan struct{}, leave func()) {
	channel := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finishes[id] == nil {
		p.finishes[id] = map[chan struct{}]struct{}{}
	}
	p.finishes[id][channel] = struct{}{}
	return channel, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.finishes[id], channel)
		if len(p.finishes[id]) == 0 {
			delete(p.finishes, id)
		}
	}
}

// AwaitStep returns a channel that closes when a step, its flow's state or its job changes so that a wait
// for the step can end. Get the channel before you read the step, and call leave at the end of the wait.
func (p *Polls) AwaitStep(flow logbook.FlowID, step string) (changed <-chan struct{}, leave func()) {
	channel := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps[flow] == nil {
		p.steps[flow] = map[chan struct{}]string{}
	}
	p.steps[flow][channel] = step
	return channel, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.removeStepLocked(flow, channel)
	}
}

func (p *Polls) removeStepLocked(flow logbook.FlowID, channel chan struct{}) {
	delete(p.steps[flow], channel)
	if len(p.steps[flow]) == 0 {
		delete(p.steps, flow)
	}
}

// wakeStepsLocked wakes the calls that wait for the changed steps, and all such calls after a restore.
func (p *Polls) wakeStepsLocked(changes fsm.Changes) {
	if len(p.steps) == 0 {
		return
	}
	changed := changes.Steps
	if changes.Restored {
		changed = nil
		for flow := range p.steps {
			changed = append(changed, fsm.StepChange{Flow: flow})
		}
	}
	for _, change := range changed {
		for channel, step := range p.steps[change.Flow] {
			if change.Step == "" || change.Step == step {
				close(channel)
				p.removeStepLocked(change.Flow, channel)
			}
		}
	}
}

// NextEvents returns a channel that closes at the next event. Get the channel before you read
// events.
func (p *Polls) NextEvents() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events
}

// Changed wakes the calls that wait for the changes of a batch of entries.
func (p *Polls) Changed(changes fsm.Changes) {
	p.wakeSessions(changes.Ended)
	p.Wake(changes.Claimable)
	if changes.Undrained || changes.Restored {
		p.wakeDrained()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	settled := slices.Concat(changes.Finished, changes.Stopped)
	if changes.Restored { // anything may have changed: let every call check again
		settled = slices.Collect(maps.Keys(p.finishes))
	}
	for _, id := range settled {
		for channel := range p.finishes[id] {
			close(channel)
		}
		delete(p.finishes, id)
	}
	p.wakeStepsLocked(changes)
	if changes.Events || changes.Restored {
		close(p.events)
		p.events = make(chan struct{})
	}
}

// Load is the number of waiting calls.
type Load struct {
	Claims   int // of ClaimNext
	Idle     int // of these: claims that have looked and found no job
	Finishes int // jobs whose end calls wait for
	Steps    int // flows with steps that calls wait for
}

// Load counts the waiting calls.
func (p *Polls) Load() Load {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.claims) == 0 && len(p.ofKind)+len(p.ofAny) > 0 {
		panic("internal error: claims that are gone are still looked for")
	}
	load := Load{Claims: len(p.claims), Finishes: len(p.finishes), Steps: len(p.steps)}
	for _, waiter := range p.claims {
		if waiter.idle {
			load.Idle++
		}
	}
	return load
}
