package engine_test

import (
	"testing"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestPhasesMoveAsAtomsDo checks the engine's diagram below the logbook's: no event records a
// transition that the logbook refuses, each state of an atom can be reached, and every event in
// every phase has an answer.
func TestPhasesMoveAsAtomsDo(t *testing.T) {
	reached := map[logbook.AtomState]bool{}
	refused := 0
	for _, m := range engine.PhaseMoves() {
		if m.Err != nil {
			refused++
			continue
		}
		reached[m.To] = true
		if err := m.From.Move(m.To); err != nil {
			t.Errorf("event %d in phase %d: %v", m.Event, m.Phase, err)
		}
	}
	for _, state := range []logbook.AtomState{logbook.AtomPending, logbook.AtomRunning, logbook.AtomSuccess, logbook.AtomFailure, logbook.AtomReverting,
		logbook.AtomReverted, logbook.AtomRevertFailure, logbook.AtomRetrying, logbook.AtomIgnored} {
		if !reached[state] {
			t.Errorf("no event leads to %s", state)
		}
	}
	if refused == 0 {
		t.Error("every event can happen in every phase")
	}
}
