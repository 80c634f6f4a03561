package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/conductord/conductord/flow"
)

// The keys of the lists in Late.
const (
	onErrorKey = "on_error"
	finallyKey = "finally"
)

// lateOf reads the on_error and finally steps of the document, or of a flow within it.
func (r *reader) lateOf(t *table) Late {
	return Late{OnError: r.listOf(t, onErrorKey), Finally: r.listOf(t, finallyKey)}
}

func (r *reader) listOf(t *table, key string) []Step {
	var steps []Step
	for i, values := range t.tables(key) {
		if r.steps++; len(steps) >= flow.MaxFinals {
			t.fault(key, "a flow has at most %d %s steps", flow.MaxFinals, key)
			break
		}
		where := fmt.Sprintf("%s step %d", key, i+1)
		if name, ok := values["name"].(string); ok && name != "" {
			where = key + " step " + quoted(name)
		} else if t.where != "" {
			where = t.where + ", " + where
		}
		steps = append(steps, r.lateStep(newTable(r.faults, fmt.Sprintf("%s[%d]", t.pathOf(key), i), where, values), key))
	}
	return steps
}

// notLate has the keys that an on_error or finally step cannot have, with the reason. {step} stands for the step with
// its article, and {steps} for its kind.
var notLate = map[string]string{
	"revert":             "{step} is never undone",
	"point_of_no_return": "the flow of {step} has ended before the step runs",
	"at_most_once":       "{step} runs again after a crash",
	"repeatable":         "{step} waits for the record of the steps before it",
	"same_worker_as":     "the other step may not have run",
	"on_failure":         "the failure of {step} is always ignored",
	"after":              "{steps} steps run one after another, as listed",
	"when":               "{step} has no conditions; its handler gets the cause of a failure as $cause",
	"again":              "the flow of {step} has ended before the step runs",
	"steps":              "{step} must be a single step, not a flow",
	"flow":               "{step} must be a single step, not a flow",
	"each":               "{step} must be a single step, not a flow",
	"finally":            "{step} must be a single step, not a flow",
	"on_error":           "{step} must be a single step, not a flow",
}

func (r *reader) lateStep(t *table, key string) Step {
	s := Step{Name: r.name(t, "name"), Description: t.text("description"), late: key}
	r.claim(t, "name", s.Name)
	words := strings.NewReplacer("{step}", map[string]string{onErrorKey: "an on_error step", finallyKey: "a finally step"}[key], "{steps}", key)
	for _, name := range slices.Sorted(maps.Keys(notLate)) {
		if _, has := t.values[name]; has {
			t.known[name] = true
			t.fault(name, "%s", words.Replace(notLate[name]))
		}
	}
	r.work(t, &s)
	t.rest()
	return s
}

// withLate are the steps of a flow, the on_error and finally steps last.
func withLate(steps []Step, late Late) []Step {
	return slices.Concat(steps, late.OnError, late.Finally)
}

// late makes on_error or finally steps for package flow.
func (b *builder) late(steps []Step) []*flow.Step {
	made := make([]*flow.Step, len(steps))
	for i := range steps {
		made[i] = b.node(&steps[i]).(*flow.Step)
	}
	return made
}
