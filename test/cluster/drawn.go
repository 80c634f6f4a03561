package cluster

import (
	"fmt"
	"math/rand/v2"

	"github.com/conductord/conductord/flow"
)

// StepKind determines how often a step can be executed.
type StepKind string

// The kinds. Only a RetriedStep has a revert. A step that runs at most once has only one
// attempt at its revert. On a full disk that revert fails, and the flow correctly ends in
// failure.
const (
	RetriedStep    StepKind = "retried"    // retried after a failure
	RepeatableStep StepKind = "repeatable" // see flow.Repeatable
	OnceStep       StepKind = "once"       // see flow.AtMostOnce
)

// The sides that a result can pick. A step after a decider has the name of a side, and runs if the
// required result has picked that side.
const (
	Left  = "left"
	Right = "right"
)

// DrawnFlow is a flow whose steps write to the ledger. It is the argument of their factory.
type DrawnFlow struct {
	Pattern flow.Pattern `json:"pattern"`
	Steps   []DrawnStep  `json:"steps"`
}

// DrawnStep is a step of such a flow. It provides its result under its name.
type DrawnStep struct {
	Name   string   `json:"name"`
	Kind   StepKind `json:"kind"`
	Needs  []string `json:"needs,omitempty"`  // earlier steps whose results it uses
	Doomed bool     `json:"doomed,omitempty"` // it fails permanently, and the flow is reverted
}

// Sided reports whether the step comes after a decider.
func (s *DrawnStep) Sided() bool { return s.Name == Left || s.Name == Right }

// DrawFlow draws a flow. Half of them have steps of one kind, which share no results. In the
// other half, every second step is repeatable, and each step takes a result of an earlier
// step.
func DrawFlow(draw *rand.Rand) DrawnFlow {
	if draw.IntN(2) == 0 {
		return drawGraph(draw)
	}
	drawn := DrawnFlow{Pattern: flow.PatternLinear}
	if draw.IntN(3) == 0 {
		drawn.Pattern = flow.PatternUnordered
	}
	for i := range 1 + draw.IntN(4) {
		drawn.Steps = append(drawn.Steps, DrawnStep{Name: fmt.Sprintf("step%d", i+1), Kind: RetriedStep})
	}
	drawn.Steps[len(drawn.Steps)-1].Doomed = draw.IntN(3) == 0
	return drawn
}

// drawGraph usually draws a line of steps. One flow in four is doomed, and half of the flows
// have a decider between two steps at their end.
func drawGraph(draw *rand.Rand) DrawnFlow {
	drawn := DrawnFlow{Pattern: flow.PatternGraph}
	add := func(name string, needs ...string) {
		kinds := []StepKind{RepeatableStep, RepeatableStep, RepeatableStep, RepeatableStep, RetriedStep, RetriedStep, RetriedStep, OnceStep}
		drawn.Steps = append(drawn.Steps, DrawnStep{Name: name, Kind: kinds[draw.IntN(len(kinds))], Needs: needs})
	}
	add("step1")
	for i := range 2 + draw.IntN(4) {
		needs := []string{drawn.Steps[i].Name}
		if earlier := drawn.Steps[draw.IntN(i+1)].Name; earlier != needs[0] && draw.IntN(2) == 0 {
			needs = append(needs, earlier)
		}
		add(fmt.Sprintf("step%d", i+2), needs...)
	}
	last := &drawn.Steps[len(drawn.Steps)-1]
	switch name := last.Name; draw.IntN(4) {
	case 0:
		last.Doomed = true
	case 1, 2:
		add(Left, name)
		add(Right, name)
	}
	return drawn
}
