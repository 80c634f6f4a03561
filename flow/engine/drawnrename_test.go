package engine_test

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// maxRenames bounds the renames between two runs of a flow.
const maxRenames = 3

// renames are the names of a flow's steps, which operators change between its runs. Steps are known by their first names.
type renames struct {
	steps  []string          // first names, without indexes of instances
	names  map[string]string // current names by first names; other steps have their first names
	firsts map[string]string // first names by all later names
}

// split cuts the indexes off the name of an instance.
func split(name string) (step, at string) {
	step, _, _ = strings.Cut(name, "[")
	return step, name[len(step):]
}

// current is the name of a step or an instance with a first name.
func (r *renames) current(first string) string {
	step, at := split(first)
	if name, ok := r.names[step]; ok {
		return name + at
	}
	return first
}

// first is the first name of a step or an instance.
func (r *renames) first(name string) string {
	step, at := split(name)
	if first, ok := r.firsts[step]; ok {
		return first + at
	}
	return name
}

// drawRenames draws the steps that operators rename before the next run; often none.
func (r *renames) drawRenames(rt *rapid.T) string {
	var drawn []string
	if rapid.Bool().Draw(rt, "renames") {
		for range rapid.IntRange(1, maxRenames).Draw(rt, "how many renames") {
			drawn = append(drawn, rapid.SampledFrom(r.steps).Draw(rt, "renamed"))
		}
	}
	return strings.Join(drawn, " ")
}

// compile makes the plan with the current names.
func (w *ward) compile(rt *rapid.T) {
	plan, err := flow.Compile(w.root(), "list")
	if err != nil {
		rt.Fatal(err)
	}
	w.plan = plan
}

// rename renames the steps of a phase in the record, if that is admitted, and in the plan. A step that has not started is
// renamed in the plan alone.
func (w *ward) rename(rt *rapid.T, j *journal, p phase, token uint64) {
	for _, step := range strings.Fields(p.renames) {
		i := logbook.Intervention{ID: uuid.New(), Flow: j.detail.ID, Kind: logbook.InterveneRename, Step: w.current(step), To: w.current(step) + "x", By: "ada",
			At: time.Unix(1, 0), Token: logbook.Token{Index: token}}
		switch _, err := j.detail.Admit(&i); {
		case err == nil:
			token++
			j.detail.Interventions = append(slices.Clip(j.detail.Interventions), i)
			renameAtoms(&j.detail, &i)
		case !errors.Is(err, logbook.ErrNotFound):
			continue
		}
		if w.names == nil {
			w.names, w.firsts = make(map[string]string), make(map[string]string)
		}
		w.names[step], w.firsts[i.To] = i.To, step
	}
	w.compile(rt)
}
