package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// decide makes the choices of gates that were reached, and releases their successors.
func (c *core) decide(gates []int, now time.Time) {
	for _, gate := range gates {
		choice, _ := c.plan.ChoiceAt(gate)
		// The choice at an earlier gate may have reverted the flow.
		undone := c.reverting || c.broken || c.restartingScope(c.plan.Choices()[choice].Target.First) >= 0
		if !undone && c.choose(gate, now) {
			c.release(gate, now)
		}
	}
}

// chosen reports whether the record already has the choice of a gate: steps of its node have
// started, or all are ignored. A yes is recorded only when a step starts. Until then the decider
// is evaluated again, and may answer no.
func (f *facts) chosen(gate int) bool {
	choice, ok := f.plan.ChoiceAt(gate)
	if !ok {
		return true
	}
	target := f.plan.Choices()[choice].Target
	all := true
	for step := target.First; step < target.End; step++ {
		if f.vertices[step].phase.hasBegun() {
			return true
		}
		all = all && (f.vertices[step].phase == ignored || f.plan.Step(step).IsLate())
	}
	return all
}

// choose calls the deciders of a gate, if it has any, and records the steps that a no
// ignores. It reports whether the gate's successors may continue. After a no they may,
// because ignored steps count as done.
func (c *core) choose(gate int, now time.Time) bool {
	index, ok := c.plan.ChoiceAt(gate)
	if !ok || c.chosen(gate) {
		return true
	}
	choice := &c.plan.Choices()[index]
	depth, no := flow.DepthAtom, false
	for i := range choice.Deciders {
		decider := &choice.Deciders[i]
		answer, err := c.answer(choice, decider)
		if err != nil {
			c.decisionFailed(choice.Target.First, decider.Name, err, now)
			return false
		}
		if answer == answerNo {
			depth, no = min(depth, decider.Depth), true
		}
	}
	if no {
		c.ignore(c.plan.IgnoredBeside(index, depth, c.isAbsent), now)
	}
	return true
}

// answer is the answer of a decider.
type answer int

const (
	answerNone answer = iota // all its steps and values were ignored: it does not apply
	answerYes
	answerNo
)

// answer calls a decider, or the deciders of the node to which it is the alternative.
func (f *facts) answer(choice *flow.Choice, decider *flow.LinkDecider) (answer, error) {
	if len(decider.Of) == 0 {
		return f.asked(choice, decider)
	}
	otherwise := answerNo
	for i := range decider.Of {
		said, err := f.asked(choice, &decider.Of[i])
		if err != nil {
			return answerNone, err
		}
		if said == answerNo {
			otherwise = answerYes
		}
	}
	return otherwise, nil
}

// asked asks one decider.
func (f *facts) asked(choice *flow.Choice, decider *flow.LinkDecider) (answer, error) {
	if f.allIgnored(decider) {
		return answerNone, nil
	}
	found := flow.Found{Steps: f.resultsFor(choice)}
	var err error
	if found.Values, err = f.valuesFor(decider); err != nil {
		return answerNone, err
	}
	yes, err := decider.Ask(found)
	return map[bool]answer{false: answerNo, true: answerYes}[yes], err
}

// mayBeUndecided reports whether a decider can have caused the recorded failure of a step.
func (f *facts) mayBeUndecided(step int) bool {
	return !f.vertices[step].touched && slices.ContainsFunc(f.plan.Choices(), func(c flow.Choice) bool { return c.Target.First == step })
}

// allIgnored reports whether all steps whose results or values a decider takes were ignored.
func (f *facts) allIgnored(decider *flow.LinkDecider) bool {
	any := false
	for _, from := range decider.From {
		for step := from.First; step < from.End; step++ {
			if any = true; !f.isAbsent(step) {
				return false
			}
		}
	}
	for i := range decider.Values {
		step, ok := f.source(&decider.Values[i]).Provider()
		if any = true; !ok || !f.isAbsent(step) {
			return false
		}
	}
	return any
}

// valuesFor are the values that a decider takes, by the names in its question. The error is about a
// secret: its value is not known here, and a decision is recorded.
func (f *facts) valuesFor(decider *flow.LinkDecider) (logbook.Values, error) {
	values := make(logbook.Values, len(decider.Values))
	for i := range decider.Values {
		wire := &decider.Values[i]
		value, ok := f.value(wire)
		if !ok {
			continue
		}
		if name, is := secretIn(f.source(wire), value); is {
			return nil, flow.Fail(logbook.FailureArgument, fmt.Errorf("%.120q is a secret, and a condition cannot test a secret", name))
		}
		if inner, err := flow.Inner(wire.Symbol, value, wire.Path); err == nil {
			values[wire.Reference()] = inner
		}
	}
	return values, nil
}

// resultsFor are the results that deciders see, in a map that they may keep.
func (f *facts) resultsFor(choice *flow.Choice) logbook.Values {
	results := make(logbook.Values)
	add := func(from flow.Steps) {
		for step := from.First; step < from.End; step++ {
			v, name := &f.vertices[step], choice.NameOf(f.plan.Step(step))
			if v.phase == succeeded && !v.isDropped() || v.phase == tolerated && v.result != nil {
				results[name] = v.result
			}
			if v.phase == tolerated {
				results[flow.FailureName(name)] = f.ignoredFailure(step)
			}
		}
	}
	for i := range choice.Deciders {
		for _, decider := range choice.Deciders[i].Leaves() {
			for _, from := range decider.From {
				add(from)
			}
		}
	}
	return results
}

// ignore records steps as ignored, from last to first: if the update is split and a
// crash loses the rest, the node itself is still undecided.
func (c *core) ignore(steps []int, now time.Time) {
	for i := len(steps) - 1; i >= 0; i-- {
		if c.vertices[steps[i]].phase == unbegun {
			c.advance(steps[i], onIgnore, logbook.AtomChange{Intention: logbook.IntendIgnore}, now)
		}
	}
}

// decisionFailed fails the step after a decider that has failed, like a step without
// its arguments, in one update with the mark of its attempt. The failure is
// permanent, because a retry would repeat the step and not the decider.
func (c *core) decisionFailed(step int, decider string, err error, now time.Time) {
	failure := flow.FailureOf(err).Foreign()
	failure.Permanent = true
	failure.Message = "decider " + decider + " cannot decide: " + failure.Message
	c.executeHere(step, now)
	c.finish(outcome{step: step, failure: failure, unbegun: true, undecided: true, ended: now}, now)
}
