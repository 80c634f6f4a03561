package engine

import (
	"cmp"
	"slices"
)

// readySteps holds the steps that may start now, by priority, the highest first, then in the
// order of arrival: every run has the same order. It has one queue for each priority that has
// occurred; flow.MaxPriority bounds them, and most flows have one.
type readySteps struct {
	levels []level // the highest priority first; an empty one stays
	size   int
}

type level struct {
	priority int
	steps    queue[int]
}

func (r *readySteps) push(step, priority int) {
	r.queueOf(priority).push(step)
	r.size++
}

// pushFirst adds a step before all others, whatever their priorities.
func (r *readySteps) pushFirst(step int) {
	if len(r.levels) == 0 {
		r.levels = append(r.levels, level{})
	}
	r.levels[0].steps.pushFirst(step)
	r.size++
}

// queueOf returns the queue of a priority.
func (r *readySteps) queueOf(priority int) *queue[int] {
	at, found := slices.BinarySearchFunc(r.levels, priority, func(l level, priority int) int { return cmp.Compare(priority, l.priority) })
	if !found {
		r.levels = slices.Insert(r.levels, at, level{priority: priority})
	}
	return &r.levels[at].steps
}

// first returns the step that pop would remove. There must be one.
func (r *readySteps) first() int { return r.foremost().first() }

// pop removes the first step. There must be one.
func (r *readySteps) pop() int {
	step, _ := r.foremost().pop()
	r.size--
	return step
}

func (r *readySteps) foremost() *queue[int] {
	for i := range r.levels {
		if r.levels[i].steps.len() > 0 {
			return &r.levels[i].steps
		}
	}
	panic("internal error: there is no step that may start")
}

func (r *readySteps) len() int { return r.size }

func (r *readySteps) remove(unwanted func(step int) bool) {
	r.size = 0
	for i := range r.levels {
		r.levels[i].steps.remove(unwanted)
		r.size += r.levels[i].steps.len()
	}
}

// take removes the wanted steps and returns them in order.
func (r *readySteps) take(wanted func(step int) bool) (taken []int) {
	for i := range r.levels {
		taken = append(taken, r.levels[i].steps.take(wanted)...)
	}
	r.size -= len(taken)
	return taken
}

// each lets change renumber every step; priorities stay.
func (r *readySteps) each(change func(step *int)) {
	for i := range r.levels {
		r.levels[i].steps.each(change)
	}
}
