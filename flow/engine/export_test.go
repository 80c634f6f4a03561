package engine

import "github.com/conductord/conductord/logbook"

// PhaseMove is an event in a phase: the states of the atom before and after it.
type PhaseMove struct {
	Phase, Event int
	From, To     logbook.AtomState
	Err          error // the event cannot happen
}

// PhaseMoves are all events in all phases.
func PhaseMoves() (all []PhaseMove) {
	for p := unbegun; p < phases; p++ {
		for e := range events {
			to, err := p.after(e)
			all = append(all, PhaseMove{int(p), int(e), atoms[p], atoms[to], err})
		}
	}
	return all
}
