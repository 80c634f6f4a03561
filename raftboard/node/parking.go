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

// parking holds the calls that wait on this node: for a claimable job, for the
// end of a job, for the next event. It is told by the state machine, and
// nobody polls.
type parking struct {
	mu sync.Mutex

	// The claims, longest waiting first: all of them, those that ask for a kind
	// of job, and those that ask for any. Where jobs of thousands of kinds become
	// claimable at once, only who asks for them is looked at. Under mu.

	claims []*claimWaiter
	ofKind map[string][]*claimWaiter
	ofAny  []*claimWaiter
	parked uint64 // how many there have ever been

	// asking has the parked claims by their requests; under mu.
	asking map[requestID]*claimWaiter

	undrains int // how often a drain has ended; under mu
	finishes map[jobs.JobID]map[chan struct{}]struct{}
	events   chan struct{} // closed and replaced when there are new events; under mu
	// doubts are what will come of claims that ride with a posting, until somebody
	// has heard of it; under mu.
	doubts map[requestID]chan proposed
}

// requestID names a request for claims, which all its tries have in common.
type requestID struct {
	session jobs.SessionID
	nonce   jobs.Nonce
}

func idOf(r *jobs.ClaimRequest) requestID { return requestID{r.Session, r.Nonce} }

// claimWaiter is a parked ClaimNext.
type claimWaiter struct {
	number  uint64 // in the order of their parking
	request jobs.ClaimRequest
	claim   *conductordv1.Command // the request, as it is proposed
	woken   chan []fsm.Lane       // holds one wake-up: where something may be claimable
	ridden  chan proposed         // holds one: what came of the claim, where it has ridden with a posting
	// repeated is closed when another call asks with the same nonce. This one's
	// connection is dead then, or its caller would not have asked again.
	repeated chan struct{}

	// Under the parking's mu.

	undrains int  // the parking's, when it parked
	aside    bool // it may take nothing until a drain ends
	resting  bool // it has looked, and found nothing
	riding   bool // a posting has taken the claim along, and it is no longer parked
}

// A call that posts takes so many claims along at most, and so many bytes of
// them, which its entry is larger by. What is left is claimed as ever, by those
// who are woken for it.
const (
	maxRiders     = 16
	maxRiderBytes = maxEntryBytes / 8
)

func newParking() *parking {
	return &parking{
		ofKind: map[string][]*claimWaiter{}, asking: map[requestID]*claimWaiter{}, doubts: map[requestID]chan proposed{},
		finishes: map[jobs.JobID]map[chan struct{}]struct{}{}, events: make(chan struct{}),
	}
}

// park lets a claim wait. The caller looks for jobs after it has parked, so
// that none is missed between. When it waits again after an empty look, it passes
// its previous waiter and keeps its position, so newer waiters cannot overtake it.
// A new call ends the one that waits with the same nonce: otherwise a caller that
// has gone would take the job, and the one that is there would not hear of it.
func (p *parking) park(request jobs.ClaimRequest, claim *conductordv1.Command, before *claimWaiter) *claimWaiter {
	waiter := &claimWaiter{request: request, claim: claim, woken: make(chan []fsm.Lane, 1), ridden: make(chan proposed, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.undrains = p.undrains
	if before != nil {
		waiter.number, waiter.repeated = before.number, before.repeated
	} else {
		p.parked++
		waiter.number, waiter.repeated = p.parked, make(chan struct{})
		if earlier := p.asking[idOf(&request)]; earlier != nil {
			p.unparkLocked(earlier)
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

// unparkLocked takes a claim out of the parking, if it is there.
func (p *parking) unparkLocked(waiter *claimWaiter) {
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

// with puts a waiter into a list, which is in the order of their numbers.
func with(waiters []*claimWaiter, waiter *claimWaiter) []*claimWaiter {
	i, _ := find(waiters, waiter)
	return slices.Insert(waiters, i, waiter)
}

// without takes a waiter out of such a list.
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

// wakeAllLocked wakes claims that need not find anything.
func (p *parking) wakeAllLocked(which func(*claimWaiter) bool) {
	for _, waiter := range slices.Clone(p.claims) {
		if which(waiter) {
			p.unparkLocked(waiter)
			waiter.woken <- nil // has room: see wake
		}
	}
}

// setAside keeps a claim of a drained conductor from being woken for what only
// others can take, until a drain ends. If one has ended since it has parked, it
// is woken at once, for that may have been its own.
func (p *parking) setAside(waiter *claimWaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.aside = true
	if waiter.undrains != p.undrains {
		p.recallLocked()
	}
}

// recall wakes the claims that were set aside.
func (p *parking) recall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undrains++
	p.recallLocked()
}

func (p *parking) recallLocked() {
	p.wakeAllLocked(func(waiter *claimWaiter) bool { return waiter.aside })
}

// rest tells that a claim has found nothing, and may ride.
func (p *parking) rest(waiter *claimWaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.resting = true
}

// board takes claims out of the parking that rest and wait for what is about
// to be posted: the longest waiting ones, as many as there are jobs for. Whoever
// calls it has them told what came of their claims.
func (p *parking) board(postings []*conductordv1.Posting) []*claimWaiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.claims) == 0 {
		return nil
	}
	var riders []*claimWaiter
	var lane fsm.Lane
	looks, bytes, taken := 0, 0, 0 // taken: how many more jobs of the lane have somebody who takes them
	for _, posting := range postings {
		next, claimable := fsm.LaneOfPosting(posting)
		if !claimable {
			continue
		}
		if next != lane {
			lane, taken = next, 0
		}
		if taken--; taken >= 0 {
			continue
		}
		if looks++; looks > maxRiders {
			break
		}
		waiter := p.firstLocked(&lane, true)
		if waiter == nil {
			taken = len(postings)
			continue
		}
		if bytes += command.Size(waiter.claim); bytes > maxRiderBytes {
			break
		}
		p.unparkLocked(waiter)
		waiter.riding = true
		maps.DeleteFunc(p.doubts, func(_ requestID, ridden chan proposed) bool { return len(ridden) > 0 })
		p.doubts[idOf(&waiter.request)] = waiter.ridden
		riders, taken = append(riders, waiter), waiter.request.Max-1
	}
	return riders
}

// doubted is what will come of an earlier try of a claim; nil: none is under way.
func (p *parking) doubted(id requestID) chan proposed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doubts[id]
}

// settle forgets a doubt: the state machine knows what came of the claim.
func (p *parking) settle(id requestID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.doubts, id)
}

// leave takes a claim out of the parking. If it had been woken for something
// that it no longer wants, the next one is. It tells whether the claim rides: then
// it may be granted yet, and the answer comes by itself.
func (p *parking) leave(waiter *claimWaiter) (riding bool) {
	p.mu.Lock()
	p.unparkLocked(waiter)
	riding = waiter.riding
	p.mu.Unlock()
	select {
	case lanes := <-waiter.woken:
		p.wake(lanes)
	default:
	}
	return riding
}

// wake wakes the longest waiting claim for each lane, and no other: it passes
// the lane on by calling wake again when it has found something there, and so
// the waiters come one after another and never in a herd.
func (p *parking) wake(lanes []fsm.Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lane := range lanes {
		if waiter := p.firstLocked(&lane, false); waiter != nil {
			p.unparkLocked(waiter)
			waiter.woken <- []fsm.Lane{lane} // has room: a waiter is woken once, and then no longer parked
		}
	}
}

// firstLocked is the longest waiting claim that asks for jobs of a lane; nil if
// there is none. It may have to rest.
func (p *parking) firstLocked(lane *fsm.Lane, resting bool) *claimWaiter {
	var first *claimWaiter
	for _, waiters := range [][]*claimWaiter{p.ofKind[lane.Kind], p.ofAny} {
		i := slices.IndexFunc(waiters, func(w *claimWaiter) bool { return !w.aside && (w.resting || !resting) && lane.Suits(&w.request) })
		if i >= 0 && (first == nil || waiters[i].number < first.number) {
			first = waiters[i]
		}
	}
	return first
}

// dismiss wakes the claims of sessions that have ended, for they must be told.
func (p *parking) dismiss(ended []jobs.SessionID) {
	if len(ended) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeAllLocked(func(waiter *claimWaiter) bool { return slices.Contains(ended, waiter.request.Session) })
}

// awaitFinish gives a channel that is closed when the job finishes, and a
// function that lets go of it.
func (p *parking) awaitFinish(id jobs.JobID) (finished <-chan struct{}, leave func()) {
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

// nextEvents gives a channel that is closed when there are events after those
// that could be read before the call.
func (p *parking) nextEvents() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events
}

// changed tells the parked calls what a batch of entries has done.
func (p *parking) changed(changes fsm.Changes) {
	p.dismiss(changes.Ended)
	p.wake(changes.Claimable)
	if changes.Undrained || changes.Restored {
		p.recall()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range changes.Finished {
		for channel := range p.finishes[id] {
			close(channel)
		}
		delete(p.finishes, id)
	}
	if changes.Restored {
		// Anything may have happened: let everyone look again.
		for id, channels := range p.finishes {
			for channel := range channels {
				close(channel)
			}
			delete(p.finishes, id)
		}
	}
	if changes.Events || changes.Restored {
		close(p.events)
		p.events = make(chan struct{})
	}
}
