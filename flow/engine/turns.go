package engine

import (
	"time"

	"github.com/conductord/conductord/flow"
)

// The instances of an each with a limit take turns (flow.Turns): in the order of the list, an instance starts when
// fewer than the limit are in progress. An undo takes the instances in reverse order, with the same limit. Turns are
// not recorded: an instance has its turn if one of its steps has started. A resumed flow therefore has no more
// instances in progress than before.

// turnID identifies an instance, even in a plan that has grown.
type turnID struct {
	opening string
	element int
}

func (f *facts) turnID(turns *flow.Turns, element int) turnID {
	return turnID{f.plan.Step(turns.Opening).Name(), element}
}

// hasTurn reports whether the record shows that an instance has started. An instance without steps needs no turn.
func (f *facts) hasTurn(turn *flow.Turn) bool {
	if turn.Steps.First == turn.Steps.End {
		return true
	}
	for step := turn.Steps.First; step < turn.Steps.End; step++ {
		if f.vertices[step].phase != unbegun {
			return true
		}
	}
	return false
}

// turnCount is the progress of an each with a limit, so that the end of an instance does not search the list: see
// BenchmarkTurns.
type turnCount struct {
	begun   int // the instances before this one have started
	running int // instances that have started and not ended
}

// turnCountOf returns the progress of an each, and counts it if it is unknown.
func (c *core) turnCountOf(number int) *turnCount {
	if c.turnCounts == nil {
		c.turnCounts = make([]*turnCount, len(c.plan.Turns()))
	}
	if c.turnCounts[number] == nil {
		count := &turnCount{}
		for _, turn := range c.plan.Turns()[number].Elements {
			if c.order[turn.Begin].released && !c.order[turn.End].released {
				count.running++
			}
		}
		c.turnCounts[number] = count
	}
	return c.turnCounts[number]
}

// countTurn notes that the gate of a turn is released.
func (c *core) countTurn(place flow.TurnPlace) {
	if c.turnCounts == nil || c.turnCounts[place.Turns] == nil {
		return
	}
	if place.Begins {
		c.turnCounts[place.Turns].running++
	} else {
		c.turnCounts[place.Turns].running--
	}
}

// takeTurns starts instances up to the limit.
func (c *core) takeTurns(number int, now time.Time) {
	turns := &c.plan.Turns()[number]
	for !c.reverting && !c.broken && c.restartingScope(turns.Opening) < 0 {
		count := c.turnCountOf(number) // a release may have dropped the last one
		for count.begun < len(turns.Elements) && c.order[turns.Elements[count.begun].Begin].released {
			count.begun++
		}
		next := count.begun
		for next < len(turns.Elements) && (c.order[turns.Elements[next].Begin].released || c.order[turns.Elements[next].Begin].before > 0) {
			next++
		}
		if next == len(turns.Elements) || count.running >= turns.AtOnce {
			return
		}
		c.release(turns.Elements[next].Begin, now)
	}
}

// begunTurns returns the started turns of the plan, even turns whose instance has no started step.
func (f *facts) begunTurns() map[turnID]bool {
	taken := make(map[turnID]bool)
	for i := range f.plan.Turns() {
		turns := &f.plan.Turns()[i]
		for element := range turns.Elements {
			if f.order[turns.Elements[element].Begin].released {
				taken[f.turnID(turns, element)] = true
			}
		}
	}
	return taken
}

// isToUndo reports whether something of an instance is left to undo.
func (f *facts) isToUndo(turn *flow.Turn) bool {
	for step := turn.Steps.First; step < turn.Steps.End; step++ {
		if f.plan.Step(step).IsLate() {
			if f.isLatePending(step) {
				return true
			}
			continue
		}
		if phase := f.vertices[step].phase; phase.hasBegun() && phase != undone {
			return true
		}
	}
	return false
}

// undoHasBegun reports whether an earlier run has started to undo an instance. Such instances are undone first.
func (f *facts) undoHasBegun(turn *flow.Turn) bool {
	for step := turn.Steps.First; step < turn.Steps.End; step++ {
		if phase := f.vertices[step].phase; phase == toUndo || phase == undone {
			return true
		}
	}
	return false
}

// mayUndo reports whether a gate may pass an undo: it is not the end of an instance whose turn to revert has not come,
// and not before a flow whose final steps have not ended.
func (f *facts) mayUndo(gate int) bool {
	if final, ok := f.plan.FinalOf(gate); ok {
		return f.hasFinished(final)
	}
	place, ok := f.plan.TurnAt(gate)
	if !ok || place.Begins {
		return true
	}
	turns := &f.plan.Turns()[place.Turns]
	return f.undoTurns[f.turnID(turns, place.Element)] || !f.isToUndo(&turns.Elements[place.Element])
}

// undoesByItself reports whether the undo of an instance needs no turn: one of its started steps has nothing to undo
// after it, because later steps have not started or are undone. The number of such interrupted instances is at most
// the limit.
func (f *facts) undoesByItself(turn *flow.Turn) bool {
	for step := turn.Steps.First; step < turn.Steps.End; step++ {
		if phase := f.vertices[step].phase; f.order[step].after == 0 && phase.hasBegun() && phase != undone && !f.plan.Step(step).IsLate() {
			return true
		}
	}
	return false
}

// takeUndoTurn gives an instance its turn.
func (c *core) takeUndoTurn(turns *flow.Turns, element int, now time.Time) {
	if c.undoTurns == nil {
		c.undoTurns = make(map[turnID]bool)
	}
	c.undoTurns[c.turnID(turns, element)] = true
	c.tryRevert(turns.Elements[element].End, now)
}

// takeUndoTurns undoes instances up to the limit, from the last one. Instances that are undone by themselves have
// their turn first.
func (c *core) takeUndoTurns(number int, now time.Time) {
	turns := &c.plan.Turns()[number]
	for element := range turns.Elements {
		if !c.undoTurns[c.turnID(turns, element)] && c.undoesByItself(&turns.Elements[element]) {
			c.takeUndoTurn(turns, element, now)
		}
	}
	for {
		undoing, next, begun := 0, -1, false
		for element := range turns.Elements {
			turn := &turns.Elements[element]
			switch {
			case !c.isToUndo(turn):
				if end := &c.order[turn.End]; end.after == 0 && !end.undone { // a final step was the last
					c.tryRevert(turn.End, now)
				}
			case c.undoTurns[c.turnID(turns, element)]:
				undoing++
			case c.order[turn.End].after == 0 && (!begun || c.undoHasBegun(turn)):
				next, begun = element, c.undoHasBegun(turn)
			}
		}
		if next < 0 || undoing >= turns.AtOnce {
			return
		}
		c.takeUndoTurn(turns, next, now)
	}
}

// forgetTurns resets the turns of a scope before its undo: no instance in it has had its turn.
func (c *core) forgetTurns(bounds *flow.Scope) {
	for i := range c.plan.Turns() {
		turns := &c.plan.Turns()[i]
		if bounds.Holds(turns.Opening) {
			for element := range turns.Elements {
				delete(c.undoTurns, c.turnID(turns, element))
			}
		}
	}
}

// keptTurns are the gates after the finished instances that a takeover keeps. If they were undone too, more instances
// than the limit would run in parallel.
func (f *facts) keptTurns() map[int]bool {
	kept := make(map[int]bool)
	for i := range f.plan.Turns() {
		turns := &f.plan.Turns()[i]
		left := turns.AtOnce
		for _, turn := range turns.Elements {
			if f.order[turn.Begin].released && !f.order[turn.End].released {
				left--
			}
		}
		for element := len(turns.Elements) - 1; element >= 0; element-- {
			if turn := &turns.Elements[element]; f.order[turn.End].released {
				kept[turn.End] = left <= 0
				left--
			}
		}
	}
	return kept
}
