package engine

import (
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
)

// The instances of an each with a limit take turns (flow.Turns): in the order of the list, an instance starts when
// fewer than the limit are in progress. An undo takes the instances in reverse order, with the same limit. Dropped
// instances (flow.Enough) also take turns in their undo. Turns are not recorded: an instance has its turn if one of its
// steps has started. A resumed flow therefore has no more instances in progress than before.

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

// undoHasBegun reports whether the undo of an instance has started. Such instances are undone first. A dropped step
// can be undone in an instance that has finished.
func (f *facts) undoHasBegun(turn *flow.Turn) bool {
	for step := turn.Steps.First; step < turn.Steps.End; step++ {
		if v := &f.vertices[step]; v.phase == undone && !v.isDropped() {
			return true
		}
	}
	return false
}

// isBusy reports whether a step of an instance runs or reverts. The instance keeps its place of the limit in an undo.
// The number of such instances is at most the limit.
func (f *facts) isBusy(turn *flow.Turn) bool {
	for step := turn.Steps.First; step < turn.Steps.End; step++ {
		if phase := f.vertices[step].phase; phase.isOpen() || phase == left || phase == toUndo {
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

// dropsAlone reports whether the instances of an each with Enough are dropped, while the each itself is not undone.
func (f *facts) dropsAlone(turns *flow.Turns) bool {
	return !f.isBeingUndone(turns.Opening) && slices.ContainsFunc(f.plan.Groups(), func(group flow.Group) bool {
		return group.Enough > 0 && group.Opening == turns.Opening
	})
}

// isReached reports whether an undo has reached an instance: everything after the instance is undone, or only the
// instance is undone (alone).
func (f *facts) isReached(turn *flow.Turn, alone bool) bool {
	if alone {
		_, dropping := f.droppingMember(turn.Steps.First)
		return dropping
	}
	return f.order[turn.End].after == 0
}

// takeUndoTurn gives an instance its turn.
func (c *core) takeUndoTurn(turns *flow.Turns, element int, now time.Time) {
	if c.undoTurns == nil {
		c.undoTurns = make(map[turnID]bool)
	}
	c.undoTurns[c.turnID(turns, element)] = true
	turn := &turns.Elements[element]
	if !c.dropsAlone(turns) {
		c.tryRevert(turn.End, now)
	} else if member, dropping := c.droppingMember(turn.Steps.First); dropping {
		c.revertLast(&c.plan.TolerantElements()[member].Bounds, now)
	}
}

// takeUndoTurns undoes instances up to the limit, from the last one. Busy instances have their turn first. An undo does
// not continue in a flow that is held, or whose revert has failed.
func (c *core) takeUndoTurns(number int, now time.Time) {
	if c.broken || c.held {
		return
	}
	turns := &c.plan.Turns()[number]
	for element := range turns.Elements {
		if !c.undoTurns[c.turnID(turns, element)] && c.isBusy(&turns.Elements[element]) {
			c.takeUndoTurn(turns, element, now)
		}
	}
	alone := c.dropsAlone(turns)
	for {
		undoing, next, begun := 0, -1, false
		for element := range turns.Elements {
			turn := &turns.Elements[element]
			switch {
			case !c.isToUndo(turn):
				if end := &c.order[turn.End]; !alone && end.after == 0 && !end.undone && c.mayUndo(turn.End) { // a final step was the last
					c.tryRevert(turn.End, now)
				}
			case alone && !c.isReached(turn, alone): // it is complete
			case c.undoTurns[c.turnID(turns, element)]:
				undoing++
			case c.isReached(turn, alone) && (!begun || c.undoHasBegun(turn)):
				next, begun = element, c.undoHasBegun(turn)
			}
		}
		if next < 0 || undoing >= turns.AtOnce {
			return
		}
		c.takeUndoTurn(turns, next, now)
	}
}

// takeDropTurns undoes dropped instances up to the limit. It reports whether the group is an each with a limit.
func (c *core) takeDropTurns(group *flow.Group, now time.Time) bool {
	number := slices.IndexFunc(c.plan.Turns(), func(turns flow.Turns) bool { return turns.Opening == group.Opening })
	if number < 0 {
		return false
	}
	c.takeUndoTurns(number, now)
	return true
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

// forgetTurn resets the turn of an instance that is dropped.
func (c *core) forgetTurn(member int) {
	element := &c.plan.TolerantElements()[member]
	if opening := c.plan.Groups()[element.Group].Opening; opening >= 0 {
		delete(c.undoTurns, turnID{c.plan.Step(opening).Name(), element.Index})
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
