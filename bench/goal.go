package main

import (
	"fmt"
	"time"

	"github.com/conductord/conductord/internal/measure"
)

// goal is a bound for a figure. A missed goal does not fail the run; the report shows it.
type goal struct {
	what  string
	least bool // bound is a minimum, not a maximum
	bound float64
	of    func(*workReport) float64 // value of a work; nil: the goal is for a figure of nodes
}

// verdict is a goal and its result.
type verdict struct {
	Goal  string  `json:"goal"`
	Value float64 `json:"value"`
	Met   bool    `json:"met"`
}

func atLeast(what string, bound float64, of func(*workReport) float64) goal {
	return goal{what: what, least: true, bound: bound, of: of}
}

func atMost(what string, bound float64, of func(*workReport) float64) goal {
	return goal{what: what, bound: bound, of: of}
}

func (g goal) String() string {
	sign := "≤"
	if g.least {
		sign = "≥"
	}
	if g.what == "" {
		return fmt.Sprintf("%s %g", sign, g.bound)
	}
	return fmt.Sprintf("%s %s %g", g.what, sign, g.bound)
}

func (g goal) judge(value float64) verdict {
	met := value <= g.bound
	if g.least {
		met = value >= g.bound
	}
	return verdict{Goal: g.String(), Value: value, Met: met}
}

// worst returns the value farthest from the goal: the smallest if the bound is a minimum.
func (g goal) worst(spread measure.Spread) float64 {
	if g.least {
		return spread.Low
	}
	return spread.High
}

func (v verdict) String() string {
	if v.Met {
		return v.Goal + ": yes"
	}
	return v.Goal + ": no"
}

// The figures that goals are about: medians over the pairs.
func perSecond(w *workReport) float64           { return w.Ours.Median }
func ratio(w *workReport) float64               { return w.Ratio.Median }
func p50Ratio(w *workReport) float64            { return w.P50Ratio.Median }
func entriesPerOperation(w *workReport) float64 { return w.Typical.Ours.Cost.Entries }

// processorTime is the processor time of all nodes and the callers per operation, in microseconds.
func processorTime(w *workReport) float64 {
	c := w.Typical.Ours.Cost
	return float64(c.Leader.CPU+(floorMembers-1)*c.Followers.CPU+c.Callers.CPU) / float64(time.Microsecond)
}
