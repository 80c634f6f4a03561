package tree

import (
	"fmt"
	"slices"
	"strings"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// Limits of one text about places.
const (
	maxHolders = 3 // elements that hold places
	maxLoops   = 3 // loops in which elements wait
)

// fullLoops returns the loops with at_once in which elements wait for a place. It returns none if the plan is nil,
// or if the flow cannot be read here, such as a flow with a hidden list.
func fullLoops(plan *flow.Plan, detail *logbook.FlowDetail) []engine.Places {
	if plan == nil || !slices.ContainsFunc(plan.Steps(), func(step *flow.Step) bool { return step.AtOnce() > 0 }) {
		return nil
	}
	loops, err := engine.PlacesOf(engine.Options{Plan: plan, Detail: *detail, Store: detail.Store})
	if err != nil {
		return nil
	}
	return loops
}

// loopsOf is fullLoops for the rows of a flow.
func loopsOf(rows []treeRow, detail *logbook.FlowDetail) []engine.Places {
	if len(rows) == 0 {
		return nil
	}
	return fullLoops(rows[0].plan, detail)
}

// placesText tells how many elements of a loop wait, and which elements hold the places.
func placesText(p *engine.Places) string {
	holders := make([]string, 0, maxHolders)
	for _, element := range p.Holders[:min(len(p.Holders), maxHolders)] {
		holders = append(holders, fmt.Sprintf("[%d]", element))
	}
	if more := len(p.Holders) - len(holders); more > 0 {
		holders = append(holders, fmt.Sprintf("%d more", more))
	}
	last := len(holders) - 1
	names, hold := holders[last], "holds the only place"
	if last > 0 {
		names = strings.Join(holders[:last], ", ") + " and " + names
	}
	if p.Limit > 1 {
		hold = fmt.Sprintf("hold the %d places", p.Limit)
	}
	if p.Waiting == 1 {
		return fmt.Sprintf("1 element waits; %s %s", names, hold)
	}
	return fmt.Sprintf("%d elements wait; %s %s", p.Waiting, names, hold)
}

// PlacesText describes the loops with at_once in which elements wait for a place; empty: none, or not known. The plan
// can be nil.
func PlacesText(plan *flow.Plan, detail *logbook.FlowDetail) string {
	loops := fullLoops(plan, detail)
	texts := make([]string, 0, maxLoops)
	for i := range loops[:min(len(loops), maxLoops)] {
		texts = append(texts, cli.Clean(loops[i].Opening)+": "+placesText(&loops[i]))
	}
	if more := len(loops) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more loops", more))
	}
	return strings.Join(texts, "; ")
}
