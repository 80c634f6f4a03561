package engine

import (
	"fmt"
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
// begun, or all are ignored. A yes is recorded only when a step begins; until then the decider is
// asked again and may say no.
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
		all = all && f.vertices[step].phase == ignored
	}
	return all
}

// choose asks the deciders of a gate, if it has any, and records the steps that a no ignores. It
// reports whether the gate's successors may continue. After a no they may, because ignored steps
// count as done.
func (c *core) choose(gate int, now time.Time) bool {
	index, ok := c.plan.ChoiceAt(gate)
	if !ok || c.chosen(gate) {
		return true
	}
	choice := &c.plan.Choices()[index]
	depth, yes, no := flow.DepthAtom, false, false
	for i := range choice.Deciders {
		decider := &choice.Deciders[i]
		if c.allIgnored(decider) {
			continue // it has no say
		}
		found := flow.Found{Steps: c.resultsFor(choice)}
		var err error
		if found.Values, err = c.valuesFor(decider); err == nil {
			yes, err = decider.Ask(found)
		}
		if err != nil {
			c.decisionFailed(choice.Target.First, decider.Name, err, now)
			return false
		}
		if !yes {
			depth, no = min(depth, decider.Depth), true
		}
	}
	if no {
		c.ignore(c.plan.Ignored(index, depth), now)
	}
	return true
}

// allIgnored reports whether all steps whose results or values a decider takes were ignored.
func (f *facts) allIgnored(decider *flow.LinkDecider) bool {
	any := false
	for _, from := range decider.From {
		for step := from.First; step < from.End; step++ {
			if any = true; f.vertices[step].phase != ignored {
				return false
			}
		}
	}
	for i := range decider.Values {
		step := decider.Values[i].From
		if step == flow.FromEach {
			step = decider.Values[i].Gathered.Each
		}
		if any = true; step < 0 || f.vertices[step].phase != ignored {
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
		if name, is := secretIn(wire, value); is {
			return nil, flow.Fail(logbook.FailureArgument, fmt.Errorf("%.120q is a secret, which nothing is decided by", name))
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
	for i := range choice.Deciders {
		for _, from := range choice.Deciders[i].From {
			for step := from.First; step < from.End; step++ {
				if v := &f.vertices[step]; v.phase == succeeded {
					results[choice.NameOf(f.plan.Step(step))] = v.result
				}
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

// decisionFailed fails the step behind a decider that has failed, like a step without
// its arguments, in one update with the mark of its attempt. The failure is
// permanent, because a retry would repeat the step and not the decider.
func (c *core) decisionFailed(step int, decider string, err error, now time.Time) {
	failure := flow.FailureOf(err).Foreign()
	failure.Permanent = true
	failure.Message = "decider " + decider + " cannot decide: " + failure.Message
	c.executeHere(step, now)
	c.finish(outcome{step: step, failure: failure, unbegun: true, ended: now}, now)
}
