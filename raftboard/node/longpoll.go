package node

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// longPolls holds the calls that wait on this node: for a claimable job, for the
// end of a job, for the next event. The state machine's changes wake them.
type longPolls struct {
	mu sync.Mutex

	// The waiting claims in order of arrival: all of them, those that ask for a
	// kind of job, and those that ask for any. When jobs of thousands of kinds become
	// claimable at once, only the claims that ask for them are looked at. Under mu.

	claims []*claimWaiter
	ofKind map[string][]*claimWaiter
	ofAny  []*claimWaiter
	added  uint64 // claims so far

	// asking has the waiting claims by their requests; under mu.
	asking map[requestID]*claimWaiter

	undrains int // how often a drain has ended; under mu
	finishes map[jobs.JobID]map[chan struct{}]struct{}
	events   chan struct{} // closed and replaced when there are new events; under mu
	// undelivered has the outcomes of piggybacked claims until a call receives
	// them; under mu.
	undelivered map[requestID]chan proposed
}

// requestID names a request for claims, which all its tries have in common.
type requestID struct {
	session jobs.SessionID
	nonce   jobs.Nonce
}

func idOf(r *jobs.ClaimRequest) requestID { return requestID{r.Session, r.Nonce} }

// claimWaiter is a ClaimNext that waits.
type claimWaiter struct {
	number  uint64 // order of arrival
	request jobs.ClaimRequest
	claim   *conductordv1.Command // the request, as it is proposed
	still   func() error          // the refusal of the call, if it began now
	woken   chan []fsm.Queue      // holds one wake-up: where something may be claimable
	outcome chan proposed         // holds one: the outcome of the claim, if a posting piggybacked it
	// repeated is closed when another call asks with the same nonce: the caller asks
	// again only when the connection of this one is dead.
	repeated chan struct{}

	// Under longPolls.mu.

	undrains    int  // longPolls.undrains when it began to wait
	drained     bool // its conductor is drained: it may take nothing until a drain ends
	idle        bool // it has looked, and found nothing
	piggybacked bool // appended to the entry of a posting, and no longer in longPolls
}

// Bounds of the claims that are piggybacked on one call that posts. Their bytes are
// added to its entry. The other jobs are claimed by the waiters that they wake.
const (
	maxPiggybacked    = 16
	maxPiggybackBytes = maxEntryBytes / 8
)

func newLongPolls() *longPolls {
	return &longPolls{
		ofKind: map[string][]*claimWaiter{}, asking: map[requestID]*claimWaiter{}, undelivered: map[requestID]chan proposed{},
		finishes: map[jobs.JobID]map[chan struct{}]struct{}{}, events: make(chan struct{}),
	}
}

// add lets a claim wait. The caller looks for jobs after this call, so that none is
// missed between. When it waits again after an empty look, it passes
// its previous waiter and keeps its position, so newer waiters cannot overtake it.
// A new call ends the one that waits with the same nonce: otherwise a call whose
// caller has gone could take the job.
func (p *longPolls) add(request jobs.ClaimRequest, claim *conductordv1.Command, before *claimWaiter) *claimWaiter {
	waiter := &claimWaiter{request: request, claim: claim, woken: make(chan []fsm.Queue, 1), outcome: make(chan proposed, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.undrains = p.undrains
	if before != nil {
		waiter.number, waiter.repeated = before.number, before.repeated
	} else {
		p.added++
		waiter.number, waiter.repeated = p.added, make(chan struct{})
		if earlier := p.asking[idOf(&request)]; earlier != nil {
			p.removeLocked(earlier)
			close(earlier.repeated)
		}
	}
	p.asking[idOf(&request)] = waiter
	p.claims = with(p.claims, waiter)
	if len(request.Kinds) == 0 {
		p.ofAny = with(p.ofAny, waiter)
	}
	for _, kind := range request.Kinds {
		p.ofKind[kind] = with(p.ofKind[kind], waiter)
	}
	return waiter
}

// waits reports whether a claim with this nonce is waiting; a new call with it would end that one.
func (p *longPolls) waits(id requestID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asking[id] != nil
}

// removeLocked removes a claim, if it still waits.
func (p *longPolls) removeLocked(waiter *claimWaiter) {
	if id := idOf(&waiter.request); p.asking[id] == waiter {
		delete(p.asking, id)
	}
	p.claims = without(p.claims, waiter)
	p.ofAny = without(p.ofAny, waiter)
	for _, kind := range waiter.request.Kinds {
		if p.ofKind[kind] = without(p.ofKind[kind], waiter); len(p.ofKind[kind]) == 0 {
			delete(p.ofKind, kind)
		}
	}
}

// with inserts a waiter into a list that is ordered by number.
func with(waiters []*claimWaiter, waiter *claimWaiter) []*claimWaiter {
	i, _ := find(waiters, waiter)
	return slices.Insert(waiters, i, waiter)
}

// without removes a waiter from such a list.
func without(waiters []*claimWaiter, waiter *claimWaiter) []*claimWaiter {
	i, found := find(waiters, waiter)
	if !found {
		return waiters
	}
	return slices.Delete(waiters, i, i+1)
}

func find(waiters []*claimWaiter, waiter *claimWaiter) (int, bool) {
	return slices.BinarySearchFunc(waiters, waiter.number, func(w *claimWaiter, number uint64) int {
		return cmp.Compare(w.number, number)
	})
}

// wakeAllLocked wakes all claims that a condition holds for, without naming a queue.
func (p *longPolls) wakeAllLocked(which func(*claimWaiter) bool) {
	for _, waiter := range slices.Clone(p.claims) {
		if which(waiter) {
			p.removeLocked(waiter)
			waiter.woken <- nil // does not block: see wake
		}
	}
}

// excludeDrained keeps a drained conductor's claim from being woken for jobs until a
// drain ends. If one has ended since the claim began to wait, it is woken at once:
// that may have been its own.
func (p *longPolls) excludeDrained(waiter *claimWaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.drained = true
	if waiter.undrains != p.undrains {
		p.wakeDrainedLocked()
	}
}

// wakeDrained wakes the claims of drained conductors, because a drain has ended.
func (p *longPolls) wakeDrained() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undrains++
	p.wakeDrainedLocked()
}

func (p *longPolls) wakeDrainedLocked() {
	p.wakeAllLocked(func(waiter *claimWaiter) bool { return waiter.drained })
}

// setIdle notes that a claim has found nothing, and may be piggybacked.
func (p *longPolls) setIdle(waiter *claimWaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.idle = true
}

// piggyback removes idle claims that can take the jobs about to be posted: the
// longest waiting first, as many as there are jobs for. The caller proposes them with
// the posting, and sends each one's result to its outcome.
func (p *longPolls) piggyback(postings []*conductordv1.Posting) []*claimWaiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.claims) == 0 {
		return nil
	}
	var chosen []*claimWaiter
	var queue fsm.Queue
	looks, bytes, taken := 0, 0, 0 // taken: how many more jobs of the queue the claims before can take
	for _, posting := range postings {
		next, claimable := fsm.QueueOfPosting(posting)
		if !claimable {
			continue
		}
		if next != queue {
			queue, taken = next, 0
		}
		if taken--; taken >= 0 {
			continue
		}
		if looks++; looks > maxPiggybacked {
			break
		}
		waiter := p.firstLocked(&queue, true)
		if waiter == nil {
			taken = len(postings)
			continue
		}
		if bytes += command.Size(waiter.claim); bytes > maxPiggybackBytes {
			break
		}
		p.removeLocked(waiter)
		waiter.piggybacked = true
		maps.DeleteFunc(p.undelivered, func(_ requestID, outcome chan proposed) bool { return len(outcome) > 0 })
		p.undelivered[idOf(&waiter.request)] = waiter.outcome
		chosen, taken = append(chosen, waiter), waiter.request.Max-1
	}
	return chosen
}

// undeliveredOutcome receives the outcome of an earlier try that was piggybacked;
// nil: there is none.
func (p *longPolls) undeliveredOutcome(id requestID) chan proposed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.undelivered[id]
}

// delivered forgets an outcome: a call has received it, and a repeat finds it in the
// state machine.
func (p *longPolls) delivered(id requestID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.undelivered, id)
}

// leave removes a claim. If it was woken meanwhile, the next waiter is woken in its
// place. A piggybacked claim may still be granted: its outcome must be awaited.
func (p *longPolls) leave(waiter *claimWaiter) (piggybacked bool) {
	p.mu.Lock()
	p.removeLocked(waiter)
	piggybacked = waiter.piggybacked
	p.mu.Unlock()
	select {
	case queues := <-waiter.woken:
		p.wake(queues)
	default:
	}
	return piggybacked
}

// wake wakes the longest waiting claim for each queue, and no other. A claim that has
// found something there calls wake again, so the waiters come one after another and
// never all at once.
func (p *longPolls) wake(queues []fsm.Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, queue := range queues {
		if queue.Reserved { // only the state machine knows whose conductor it is for
			p.wakeAllLocked(func(w *claimWaiter) bool { return !w.drained && queue.Suits(&w.request) })
		} else if waiter := p.firstLocked(&queue, false); waiter != nil {
			p.removeLocked(waiter)
			waiter.woken <- []fsm.Queue{queue} // does not block: a waiter is removed before it is woken
		}
	}
}

// firstLocked is the longest waiting claim that asks for jobs of a queue; nil if
// there is none. idle: only claims that have looked and found nothing.
func (p *longPolls) firstLocked(queue *fsm.Queue, idle bool) *claimWaiter {
	var first *claimWaiter
	for _, waiters := range [][]*claimWaiter{p.ofKind[queue.Kind], p.ofAny} {
		i := slices.IndexFunc(waiters, func(w *claimWaiter) bool { return !w.drained && (w.idle || !idle) && queue.Suits(&w.request) })
		if i >= 0 && (first == nil || waiters[i].number < first.number) {
			first = waiters[i]
		}
	}
	return first
}

// wakeSessions wakes the claims of sessions that have ended: their calls end with an error.
func (p *longPolls) wakeSessions(ended []jobs.SessionID) {
	if len(ended) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeAllLocked(func(waiter *claimWaiter) bool { return slices.Contains(ended, waiter.request.Session) })
}

// awaitFinish returns a channel that is closed when the job finishes, and a function
// that forgets the channel.
func (p *longPolls) awaitFinish(id jobs.JobID) (finished <-chan struct{}, leave func()) {
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

// nextEvents returns a channel that is closed when there are events after those
// that could be read before the call.
func (p *longPolls) nextEvents() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events
}

// changed wakes the calls that the changes of a batch of entries concern.
func (p *longPolls) changed(changes fsm.Changes) {
	p.wakeSessions(changes.Ended)
	p.wake(changes.Claimable)
	if changes.Undrained || changes.Restored {
		p.wakeDrained()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	finished := changes.Finished
	if changes.Restored { // anything may have happened: let every call look again
		finished = slices.Collect(maps.Keys(p.finishes))
	}
	for _, id := range finished {
		for channel := range p.finishes[id] {
			close(channel)
		}
		delete(p.finishes, id)
	}
	if changes.Events || changes.Restored {
		close(p.events)
		p.events = make(chan struct{})
	}
}
