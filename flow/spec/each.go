package spec

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/conductord/conductord/flow"
)

// each reads the list for which a flow runs.
func (r *reader) each(t *table) *Each {
	inner := t.inner("each")
	if inner == nil {
		return nil
	}
	e := &Each{
		Over:   r.name(inner, "over"),
		As:     r.name(inner, "as"),
		Place:  inner.text("place"),
		AtOnce: inner.integer("at_once", 1, flow.MaxElements),
		Gather: r.arguments(inner, "gather"),
	}
	if inner.has("place") && !inner.failed("place") {
		r.checkSymbol(inner, "place", e.Place)
		if e.Place == e.As {
			inner.fault("place", "the element already has the name %s", quoted(e.As))
		}
	}
	called := map[string]bool{}
	for _, symbol := range slices.Sorted(maps.Values(e.Gather)) {
		if called[symbol] {
			inner.fault("gather", "two lists have the name %s", quoted(symbol))
		}
		called[symbol] = true
	}
	r.maxFailures(inner, e)
	if e.Enough = inner.integer("enough", 1, flow.MaxElements); inner.has("enough") && inner.has("max_failures") {
		inner.fault("enough", "enough already ignores the failures of the other elements: remove max_failures")
	}
	inner.rest()
	return e
}

// maxFailures reads how many elements may fail.
func (r *reader) maxFailures(t *table, e *Each) {
	value := t.values["max_failures"]
	if t.has("max_failures") {
		if text, isText := value.(string); !isText {
			t.integer("max_failures", 0, flow.MaxElements)
		} else if _, ok := percentOf(text); !ok {
			t.fault("max_failures", "must be a share from 0%% to 100%%, such as \"10%%\", not %s", quoted(text))
		}
		e.MaxFailures = r.json(t, "max_failures", value)
	}
	if e.Failures = t.text("failures"); !t.has("failures") || t.failed("failures") {
		return
	}
	if r.checkSymbol(t, "failures", e.Failures); !t.has("max_failures") {
		t.fault("failures", "this key requires max_failures")
	}
}

// percentOf reads a share such as "10%".
func percentOf(text string) (int, bool) {
	digits, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.Atoi(digits)
	return percent, ok && err == nil && percent >= 0 && percent <= 100
}

// each returns the each with its names replaced by the scope's names.
func (s *scope) each(e *Each) *Each {
	if e == nil || s.rename == nil {
		return e
	}
	made := Each{Over: s.rename(e.Over), As: s.rename(e.As), Place: s.symbol(e.Place), AtOnce: e.AtOnce, MaxFailures: e.MaxFailures, Failures: s.symbol(e.Failures), Enough: e.Enough}
	if len(e.Gather) > 0 {
		made.Gather = make(Arguments, len(e.Gather))
		for _, inner := range slices.Sorted(maps.Keys(e.Gather)) {
			made.Gather[s.rename(inner)] = s.rename(e.Gather[inner])
		}
	}
	return &made
}

// flow runs a body for each element.
func (e *Each) flow(name string, body flow.Node) *flow.Flow {
	var options []flow.EachOption
	if e.Place != "" {
		options = append(options, flow.Place(e.Place))
	}
	if e.AtOnce > 0 {
		options = append(options, flow.AtOnce(e.AtOnce))
	}
	if count, err := strconv.Atoi(string(e.MaxFailures)); err == nil {
		options = append(options, flow.MaxFailures(count))
	} else if e.MaxFailures != nil {
		percent, _ := percentOf(strings.Trim(string(e.MaxFailures), `"`))
		options = append(options, flow.MaxFailurePercent(percent))
	}
	if e.Failures != "" {
		options = append(options, flow.Failures(e.Failures))
	}
	for _, symbol := range slices.Sorted(maps.Keys(e.Gather)) {
		options = append(options, flow.Gather(symbol, e.Gather[symbol]))
	}
	each := flow.Each(name, e.Over, e.As, body, options...)
	if e.Enough > 0 {
		each.Enough(e.Enough)
	}
	return each
}
