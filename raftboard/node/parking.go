package node

import (
	"slices"
	"sync"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// parking holds the calls that wait on this node: for a claimable job, for the
// end of a job, for the next event. It is told by the state machine, and
// nobody polls.
type parking struct {
	mu       sync.Mutex
	claims   []*claimWaiter // longest waiting first; under mu
	undrains int            // how often a drain has ended; under mu
	finishes map[jobs.JobID]map[chan struct{}]struct{}
	events   chan struct{} // closed and replaced when there are new events; under mu
}

// claimWaiter is a parked ClaimNext.
type claimWaiter struct {
	request jobs.ClaimRequest
	woken   chan []fsm.Lane // holds one wake-up: where something may be claimable

	// Under the parking's mu.

	undrains int  // the parking's, when it parked
	aside    bool // it may take nothing until a drain ends
}

func newParking() *parking {
	return &parking{finishes: map[jobs.JobID]map[chan struct{}]struct{}{}, events: make(chan struct{})}
}

// park lets a claim wait. The caller looks for jobs after it has parked, so
// that none is missed between.
func (p *parking) park(request jobs.ClaimRequest) *claimWaiter {
	waiter := &claimWaiter{request: request, woken: make(chan []fsm.Lane, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	waiter.undrains = p.undrains
	p.claims = append(p.claims, waiter)
	return waiter
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
	p.claims = slices.DeleteFunc(p.claims, func(waiter *claimWaiter) bool {
		if waiter.aside {
			waiter.woken <- nil // has room: see wake
		}
		return waiter.aside
	})
}

// leave takes a claim out of the parking. If it had been woken for something
// that it no longer wants, the next one is.
func (p *parking) leave(waiter *claimWaiter) {
	p.mu.Lock()
	if i := slices.Index(p.claims, waiter); i >= 0 {
		p.claims = slices.Delete(p.claims, i, i+1)
	}
	p.mu.Unlock()
	select {
	case lanes := <-waiter.woken:
		p.wake(lanes)
	default:
	}
}

// wake wakes the longest waiting claim for each lane, and no other: it passes
// the lane on by calling wake again when it has found something there, and so
// the waiters come one after another and never in a herd.
func (p *parking) wake(lanes []fsm.Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lane := range lanes {
		for i, waiter := range p.claims {
			if waiter.aside || !lane.Suits(&waiter.request) {
				continue
			}
			p.claims = slices.Delete(p.claims, i, i+1)
			waiter.woken <- []fsm.Lane{lane} // has room: a waiter is woken once, and then no longer parked
			break
		}
	}
}

// dismiss wakes the claims of sessions that have ended, for they must be told.
func (p *parking) dismiss(ended []jobs.SessionID) {
	if len(ended) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = slices.DeleteFunc(p.claims, func(waiter *claimWaiter) bool {
		over := slices.Contains(ended, waiter.request.Session)
		if over {
			waiter.woken <- nil // has room: see wake
		}
		return over
	})
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
