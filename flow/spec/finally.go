package spec

import (
	"fmt"
	"maps"
	"slices"

	"github.com/conductord/conductord/flow"
)

// finallyOf reads the finally steps of the document, or of a flow within it.
func (r *reader) finallyOf(t *table) []Step {
	var steps []Step
	for i, values := range t.tables("finally") {
		if r.steps++; len(steps) >= flow.MaxFinals {
			t.fault("finally", "a flow has at most %d finally steps", flow.MaxFinals)
			break
		}
		where := fmt.Sprintf("finally step %d", i+1)
		if name, ok := values["name"].(string); ok && name != "" {
			where = "finally step " + quoted(name)
		} else if t.where != "" {
			where = t.where + ", " + where
		}
		steps = append(steps, r.final(newTable(r.faults, fmt.Sprintf("%s[%d]", t.pathOf("finally"), i), where, values)))
	}
	return steps
}

// notFinal has the keys that a finally step cannot have, with the reason.
var notFinal = map[string]string{
	"revert":             "a finally step is never undone",
	"point_of_no_return": "the flow of a finally step has ended before the step runs",
	"at_most_once":       "a finally step runs again after a crash",
	"repeatable":         "a finally step waits for the record of the steps before it",
	"same_worker_as":     "the other step may not have run",
	"on_failure":         "the failure of a finally step is always ignored",
	"after":              "finally steps run one after another, as listed",
	"when":               "a finally step has no conditions; its handler gets the cause of a failure as $cause",
	"again":              "the flow of a finally step has ended before the step runs",
	"steps":              "a finally step is one step, and no flow",
	"flow":               "a finally step is one step, and no flow",
	"each":               "a finally step is one step, and no flow",
	"finally":            "a finally step is one step, and no flow",
}

func (r *reader) final(t *table) Step {
	s := Step{Name: r.name(t, "name"), Description: t.text("description"), final: true}
	r.claim(t, "name", s.Name)
	for _, key := range slices.Sorted(maps.Keys(notFinal)) {
		if _, has := t.values[key]; has {
			t.known[key] = true
			t.fault(key, "%s", notFinal[key])
		}
	}
	r.work(t, &s)
	t.rest()
	return s
}

// withFinals are the steps of a flow, the finally steps last.
func withFinals(steps, finals []Step) []Step { return append(steps[:len(steps):len(steps)], finals...) }

// finals makes the finally steps for package flow.
func (b *builder) finals(steps []Step) []*flow.Step {
	finals := make([]*flow.Step, len(steps))
	for i := range steps {
		finals[i] = b.node(&steps[i]).(*flow.Step)
	}
	return finals
}
