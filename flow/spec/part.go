package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/internal/tomlpos"
)

// parts reads the flows that steps can use by name.
func (r *reader) parts(t *table) map[string]Part {
	values := t.table("flows")
	if len(values) == 0 {
		return nil
	}
	ours := r.named
	parts := make(map[string]Part, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		key := "flows." + name
		r.checkSymbol(t, key, name)
		inner, ok := values[name].(map[string]any)
		if !ok {
			t.fault(key, "must be a table, not %s", kindOf(values[name]))
			continue
		}
		r.named = map[string]tomlpos.Position{} // a part's names are its own
		parts[name] = r.part(newTable(r.faults, t.pathOf(key), "flow "+quoted(name), inner), name)
	}
	r.named = ours
	r.later = append(r.later, func() { r.checkCycles(t) })
	return parts
}

func (r *reader) part(t *table, name string) Part {
	p := Part{
		Description: t.text("description"),
		Pattern:     r.pattern(t),
	}
	p.Retry = r.rounds(t, name)
	p.OnTakeover, p.OnFailure = takeover(t), onFailure(t)
	p.Enough = t.integer("enough", 1, flow.MaxElements)
	p.Steps, p.Late = r.stepsOf(t, p.Pattern), r.lateOf(t)
	p.places = r.named
	t.rest()
	return p
}

// use reads the keys of a step that uses a part.
func (r *reader) use(t *table, s *Step) {
	s.Flow = t.text("flow")
	s.Each = r.each(t)
	if t.has("with") {
		s.With = r.renamed(t, "with")
	}
	if t.failed("flow") {
		return
	}
	r.later = append(r.later, func() {
		if _, known := r.flows[s.Flow]; !known {
			t.fault("flow", "there is no flow %s in this document%s", quoted(s.Flow), meant.Hint(s.Flow, slices.Sorted(maps.Keys(r.flows))))
		}
	})
}

// eachStep visits steps, including the steps, on_error and finally steps of nested flows.
func eachStep(steps []Step, visit func(s *Step)) {
	for i := range steps {
		visit(&steps[i])
		eachStep(withLate(steps[i].Steps, steps[i].Late), visit)
	}
}

// checkCycles finds parts that use themselves.
func (r *reader) checkCycles(t *table) {
	const unseen, open, done = 0, 1, 2
	state := map[string]int{}
	var path []string
	var visit func(name string)
	visit = func(name string) {
		part := r.flows[name]
		state[name], path = open, append(path, name)
		eachStep(part.Steps, func(s *Step) {
			if _, known := r.flows[s.Flow]; !known {
				return
			}
			switch state[s.Flow] {
			case unseen:
				visit(s.Flow)
			case open:
				from := slices.Index(path, s.Flow)
				circle := append(slices.Clone(path[from:]), s.Flow)
				t.fault("flows."+s.Flow, "it uses itself: %s", shortened(strings.Join(circle, " → ")))
			}
		})
		state[name], path = done, path[:len(path)-1]
	}
	for _, name := range slices.Sorted(maps.Keys(r.flows)) {
		if state[name] == unseen {
			visit(name)
		}
	}
}
