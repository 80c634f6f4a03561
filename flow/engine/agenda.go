package engine

import (
	"container/heap"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
)

// agenda holds the steps that wait to start. Each step is in exactly one place: ready, due, or
// the queue of a key.
type agenda struct {
	steps        *flow.Plan                     // in which they are numbered
	ready        readySteps                     // they may start now
	due          dueHeap                        // they wait for the time of their next attempt
	blocked      map[string]*queue[blockedStep] // they wait for a concurrency key, by key; no queue is empty
	blockedSteps int                            // how many steps are in blocked
}

// blockedStep waits for its key.
type blockedStep struct{ step, limit int }

// enqueue makes a step ready to start.
func (a *agenda) enqueue(step int) { a.ready.push(step, a.steps.Step(step).Priority()) }

// enqueueAt makes a step ready at a time.
func (a *agenda) enqueueAt(step int, at time.Time) { a.due.push(dueStep{at: at, step: step}) }

// wake makes the steps ready that are due.
func (a *agenda) wake(now time.Time) {
	for len(a.due) > 0 && !a.due[0].at.After(now) {
		a.enqueue(a.due.pop().step)
	}
}

// isQueued reports whether a step may start now, or waits for its time or a concurrency key.
func (a *agenda) isQueued(step int) (queued bool) {
	queued = slices.ContainsFunc(a.due, func(due dueStep) bool { return due.step == step })
	a.ready.each(func(other *int) { queued = queued || *other == step })
	for _, blocked := range a.blocked {
		blocked.each(func(b *blockedStep) { queued = queued || b.step == step })
	}
	return queued
}

// takeDue removes the named step from the steps that wait for their time, and returns it; empty: all
// such steps.
func (a *agenda) takeDue(name string) (steps []int) {
	a.due.remove(func(step int) bool {
		if name != "" && a.steps.Step(step).Name() != name {
			return false
		}
		steps = append(steps, step)
		return true
	})
	slices.Sort(steps)
	return steps
}

// block makes a step wait for a key.
func (a *agenda) block(key string, step blockedStep) {
	if a.blocked == nil {
		a.blocked = make(map[string]*queue[blockedStep])
	}
	if a.blocked[key] == nil {
		a.blocked[key] = &queue[blockedStep]{}
	}
	a.blocked[key].push(step)
	a.blockedSteps++
}

// unblock makes one step ready for each key that has a new permit, and queues for
// the next permit.
func (a *agenda) unblock(p permitSource) {
	for _, key := range p.newKeys() {
		blocked := a.blocked[key]
		if blocked == nil {
			p.returnKey(key) // the steps that waited for it need not run any more
			continue
		}
		first, _ := blocked.pop()
		a.blockedSteps--
		a.ready.pushFirst(first.step)
		if blocked.len() == 0 {
			delete(a.blocked, key)
		} else {
			p.queueFor(key, blocked.first().limit)
		}
	}
}

// returnReserved returns permits that no step can use now. It may also return a permit that
// was just reserved for a blocked step. If the run continues, it then queues for that key
// again.
func (a *agenda) returnReserved(p permitSource, goesOn bool) {
	for _, key := range p.returnReserved() {
		if blocked := a.blocked[key]; blocked != nil && goesOn {
			p.queueFor(key, blocked.first().limit)
		}
	}
}

// forget removes the steps of a scope from all queues.
func (a *agenda) forget(bounds *flow.Scope) {
	a.ready.remove(bounds.Holds)
	a.due.remove(bounds.Holds)
	for key, blocked := range a.blocked {
		before := blocked.len()
		blocked.remove(func(b blockedStep) bool { return bounds.Holds(b.step) })
		a.blockedSteps -= before - blocked.len()
		if blocked.len() == 0 {
			delete(a.blocked, key)
		}
	}
}

// renumber moves the steps to another plan; to has their numbers there.
func (a *agenda) renumber(plan *flow.Plan, to []int) {
	a.steps = plan
	a.ready.each(func(step *int) { *step = to[*step] })
	for i := range a.due {
		a.due[i].step = to[a.due[i].step]
	}
	heap.Init((*heapOrder)(&a.due))
	for _, blocked := range a.blocked {
		blocked.each(func(b *blockedStep) { b.step = to[b.step] })
	}
}
