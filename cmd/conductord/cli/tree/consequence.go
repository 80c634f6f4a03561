package tree

import (
	"slices"
	"strings"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// Consequence is the effect of an intervention on a flow, by the names of its steps.
type Consequence struct {
	Runs      []string `json:"runs"` // for the first time
	RunsAgain []string `json:"runs_again"`
	Undoes    []string `json:"reverts"`
	// Skips are steps that are treated as reverted or done without a call: by skip, complete, or a condition.
	Skips []string `json:"skips"`
	// Behind: the flow also runs all steps that wait for this one. They are not listed, because the
	// order of the steps is known only to the program that built the flow.
	Behind string `json:"and_all_that_wait_for,omitempty"`
}

// ConsequenceOf returns the consequence of an intervention that can be carried out. The plan is nil if the flow is not
// a document, or is a document that cannot be read here. Then only the record shows which steps have a valid result.
func ConsequenceOf(detail *logbook.FlowDetail, plan *flow.Plan, store logbook.Values, i logbook.Intervention) (c Consequence, err error) {
	if plan == nil {
		return RecordedConsequence(detail, i), nil
	}
	foreseen, err := engine.PlanIntervention(engine.Options{Plan: plan, Detail: *detail, Store: store}, i)
	c.Skips = foreseen.Skips
	for _, execution := range foreseen.Executions {
		c.add(execution.Step, execution.Again)
	}
	for _, undo := range foreseen.Undos {
		if undo.Finally {
			c.add(undo.Step, undo.State != logbook.AtomPending)
		} else if undo.Reverts {
			c.Undoes = append(c.Undoes, undo.Step)
		}
	}
	return c, err
}

func (c *Consequence) add(step string, again bool) {
	if again {
		c.RunsAgain = append(c.RunsAgain, step)
	} else {
		c.Runs = append(c.Runs, step)
	}
}

// RecordedConsequence is ConsequenceOf without a plan.
func RecordedConsequence(detail *logbook.FlowDetail, i logbook.Intervention) (c Consequence) {
	all := append(detail.Pending(), i)
	completed := func(step string) bool {
		return slices.ContainsFunc(all, func(i logbook.Intervention) bool { return i.Kind == logbook.InterveneComplete && i.Step == step })
	}
	if i.Kind == logbook.InterveneRerun {
		c.Behind = i.Step
	}
	onError := detail.Definition.ErrorSteps()
	for _, name := range cli.StepsOf(detail) {
		atom, begun := detail.Atom(name)
		named := i.Kind == logbook.InterveneRerun && (i.Step == "" || i.Step == name)
		skipped := begun && (i.Kind == logbook.InterveneSkip && i.Step == name || logbook.Forwards(all) && atom.State == logbook.AtomIgnored && !named)
		switch {
		case begun && atom.Kind != logbook.KindTask, completed(name):
		case onError[stepOf(name)]: // it runs only after another failure
		case skipped:
			c.Skips = append(c.Skips, name)
		case !logbook.Forwards(all):
			if begun && slices.Contains([]logbook.AtomState{logbook.AtomSuccess, logbook.AtomReverting, logbook.AtomRevertFailure}, atom.State) {
				c.Undoes = append(c.Undoes, name)
			}
		case !begun:
			c.add(name, false)
		case named || !atom.IsKept() && atom.State != logbook.AtomIgnored && !atom.FailureIgnored() && !atom.IsDropped():
			c.add(name, atom.Number(logbook.ActionExecute) > 0)
		}
	}
	slices.Reverse(c.Undoes)
	return c
}

// String describes the consequence in one line.
func (c Consequence) String() string {
	var parts []string
	for _, part := range []struct {
		what  string
		steps []string
	}{{"runs again: ", c.RunsAgain}, {"runs: ", c.Runs}, {"reverts: ", c.Undoes}} {
		if len(part.steps) > 0 {
			parts = append(parts, part.what+cli.Few(part.steps))
		}
	}
	if c.Behind != "" {
		parts = append(parts, "runs all steps that wait for "+cli.Clean(c.Behind))
	}
	if len(parts) == 0 {
		return "runs nothing"
	}
	return strings.Join(parts, "; ")
}
