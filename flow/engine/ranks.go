package engine

// ranks holds the steps that may start now: those of a higher priority first,
// and of one priority in the order in which they came, so that a run is the
// same every time. There are as many queues as priorities have occurred, which
// flow.MaxPriority bounds; most flows have one.
type ranks struct {
	levels []rank // the highest first; one that has run empty stays
	size   int
}

type rank struct {
	priority int
	steps    queue[int]
}

func (r *ranks) push(step, priority int) {
	r.level(priority).push(step)
	r.size++
}

// pushFirst puts a step before all others, whatever their priorities.
func (r *ranks) pushFirst(step int) {
	if len(r.levels) == 0 {
		r.levels = append(r.levels, rank{})
	}
	r.levels[0].steps.pushFirst(step)
	r.size++
}

// level is the queue of a priority.
func (r *ranks) level(priority int) *queue[int] {
	place := 0
	for place < len(r.levels) && r.levels[place].priority > priority {
		place++
	}
	if place == len(r.levels) || r.levels[place].priority != priority {
		r.levels = append(r.levels, rank{})
		copy(r.levels[place+1:], r.levels[place:])
		r.levels[place] = rank{priority: priority}
	}
	return &r.levels[place].steps
}

// first is the step that pop would take. There must be one.
func (r *ranks) first() int { return r.foremost().first() }

// pop takes the first step. There must be one.
func (r *ranks) pop() int {
	step, _ := r.foremost().pop()
	r.size--
	return step
}

func (r *ranks) foremost() *queue[int] {
	for i := range r.levels {
		if r.levels[i].steps.len() > 0 {
			return &r.levels[i].steps
		}
	}
	panic("internal error: there is no step that may start")
}

func (r *ranks) len() int { return r.size }

func (r *ranks) remove(unwanted func(step int) bool) {
	r.size = 0
	for i := range r.levels {
		r.levels[i].steps.remove(unwanted)
		r.size += r.levels[i].steps.len()
	}
}

// take removes the steps that are wanted, and gives them in their order.
func (r *ranks) take(wanted func(step int) bool) (taken []int) {
	for i := range r.levels {
		taken = append(taken, r.levels[i].steps.take(wanted)...)
	}
	r.size -= len(taken)
	return taken
}

// each lets every step be changed; its priority stays.
func (r *ranks) each(change func(step *int)) {
	for i := range r.levels {
		r.levels[i].steps.each(change)
	}
}
