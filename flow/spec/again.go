package spec

import (
	"maps"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/meant"
)

// Again continues the job with another iteration of the flow: see flow.Again. Requires and Optional of the step are the
// values of the next iteration.
type Again struct {
	After string `json:"after,omitempty"` // a time such as "24h"
	At    string `json:"at,omitempty"`    // a time of day such as "08:00 Europe/Berlin"
}

// again reads a step that continues the job.
func (r *reader) again(t *table, s *Step) {
	s.Requires, s.Optional = r.arguments(t, "requires"), r.arguments(t, "optional")
	for argument := range s.Optional {
		if _, both := s.Requires[argument]; both {
			t.fault("optional", "%s is required already", quoted(argument))
		}
	}
	s.Priority = t.integer("priority", -flow.MaxPriority, flow.MaxPriority)
	if s.Version = t.text("version"); s.Version != "" {
		r.checkSymbol(t, "version", s.Version)
	}
	for key, values := range map[string]Arguments{"requires": s.Requires, "optional": s.Optional} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if !slices.Contains(r.inputs, name) {
				t.fault(key, "the flow has no input %s for its next iteration: add it to inputs or store%s", quoted(name), meant.Hint(name, r.inputs))
			}
		}
	}
	s.Again = &Again{}
	inner := t.inner("again")
	if inner == nil {
		return
	}
	s.Again.After, s.Again.At = inner.text("after"), inner.text("at")
	if inner.has("after") && !inner.failed("after") {
		r.checkWaitTime(inner, "after", s.Again.After, "write a time such as 24h")
	}
	if inner.has("at") && !inner.failed("at") {
		if err := flow.CheckTimeOfDay(s.Again.At); err != nil {
			inner.fault("at", "%s", err)
		}
		if inner.has("after") {
			inner.fault("at", "use one of after and at")
		}
	}
	inner.rest()
}

// step makes the step for package flow. Parse has checked all that could fail.
func (a *Again) step(name string, options []flow.StepOption) *flow.Step {
	if d, err := time.ParseDuration(a.After); err == nil {
		options = append(options, flow.AgainAfter(d))
	}
	if a.At != "" {
		options = append(options, flow.AgainAt(a.At))
	}
	return flow.Again(name, options...)
}
