package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/logbook"
)

// MaxConditions limits the conditions of one step. They are all evaluated in one call.
const MaxConditions = 20

// conditions reads when: a condition, or a list of them.
func (r *reader) conditions(t *table) []Condition {
	if !t.has("when") {
		return nil
	}
	if values, ok := t.values["when"].(map[string]any); ok {
		return r.counted(t, []Condition{r.condition(newTable(r.faults, t.pathOf("when"), t.where+", when", values), true)})
	}
	tables := t.tables("when")
	if t.failed("when") {
		return nil
	}
	if len(tables) == 0 || len(tables) > MaxConditions {
		t.fault("when", "the list has %d conditions; it must have 1 to %d", len(tables), MaxConditions)
		return nil
	}
	return r.counted(t, r.listed(t, "when", tables, true))
}

// counted refuses too many conditions in others.
func (r *reader) counted(t *table, conditions []Condition) []Condition {
	if n := len(testsOf(conditions)); n > MaxConditions {
		t.fault("when", "the list has %d conditions; it must have 1 to %d", n, MaxConditions)
	}
	return conditions
}

// listed reads a list of conditions.
func (r *reader) listed(t *table, key string, tables []map[string]any, outermost bool) []Condition {
	var conditions []Condition
	for i, values := range tables {
		if values == nil {
			continue // not a table: a fault already
		}
		key := fmt.Sprintf("%s[%d]", key, i)
		conditions = append(conditions, r.condition(newTable(r.faults, t.pathOf(key), t.where+", "+key, values), outermost))
	}
	return conditions
}

// depthOf reads how far a no reaches.
func depthOf(t *table) string {
	return t.choice("depth", []string{
		flow.DepthAll.String(), flow.DepthFlow.String(), flow.DepthNeighbors.String(), flow.DepthAtom.String(),
	})
}

// alternative reads a condition that is true if the condition of another step is false.
func (r *reader) alternative(t *table) Condition {
	c := Condition{Otherwise: r.name(t, "otherwise"), Depth: depthOf(t)}
	t.elsewhere = map[string]string{}
	for _, key := range []string{"name", "step", "input", "all", "any", "not", "field", "failed", "failure", "is", "value"} {
		t.elsewhere[key] = "otherwise has the conditions of the other step"
	}
	t.rest()
	return c
}

// checkAlternative checks the step that an otherwise names.
func checkAlternative(steps []Step, place *table, at int, c *Condition) {
	other := slices.IndexFunc(steps, func(s Step) bool { return s.Name == c.Otherwise })
	switch {
	case other == at:
		place.fault("when", "a step cannot be the alternative to itself")
	case other < 0:
		place.fault("when", "there is no step %s in the same graph%s", quoted(c.Otherwise), meant.Hint(c.Otherwise, stepNames(steps)))
	case len(steps[other].When) == 0:
		place.fault("when", "the step %s has no condition", quoted(c.Otherwise))
	case !slices.ContainsFunc(steps[other].When, func(c Condition) bool { return c.Otherwise == "" || c.Otherwise == steps[at].Name }): // Compile reports cycles
		place.fault("when", "the step %[1]s has no condition except otherwise, so both steps would run: add a condition to %[1]s, or copy its when to run both", quoted(c.Otherwise))
	}
}

// subjects are the keys of a condition of which it has one.
var subjects = []string{"step", "input", "all", "any", "not"}

// condition reads a condition. Only the outermost one has a name and a depth, or is an alternative.
func (r *reader) condition(t *table, outermost bool) Condition {
	var c Condition
	if outermost {
		if t.has("otherwise") {
			return r.alternative(t)
		}
		c.Name, c.Depth = t.text("name"), depthOf(t)
		if t.has("name") && !t.failed("name") {
			r.checkSymbol(t, "name", c.Name)
		}
	}
	given := slices.DeleteFunc(slices.Clone(subjects), func(key string) bool { return !t.has(key) })
	if len(given) > 1 {
		t.fault(given[1], "a condition has only one of %s, and this condition already has %s", strings.Join(subjects, ", "), given[0])
	}
	t.elsewhere = map[string]string{}
	if len(given) == 0 {
		known := subjects
		if outermost {
			known = append(slices.Clone(known), "otherwise")
		}
		if _, alternative := t.values["otherwise"]; !alternative {
			t.fault("", "the condition tests nothing: add one of %s", strings.Join(known, ", "))
		}
		given = []string{""}
	}
	switch subject := given[0]; subject {
	case "":
	case "step", "input":
		r.test(t, &c, subject)
	case "not":
		if inner := t.inner("not"); inner != nil {
			not := r.condition(inner, false)
			c.Not = &not
		}
	default:
		tables := t.tables(subject)
		if len(tables) == 0 && !t.failed(subject) {
			t.fault(subject, "the list is empty: add conditions")
		}
		if list := r.listed(t, subject, tables, false); subject == "all" {
			c.All = list
		} else {
			c.Any = list
		}
	}
	switch {
	case c.Input != "":
		t.elsewhere["field"] = "write the path after the name: input = \"order.total\""
		t.elsewhere["failed"] = "it belongs to a condition with step"
		t.elsewhere["failure"] = "write the failure as a value: input = \"pay.failure.kind\""
	case c.Step == "":
		for _, key := range []string{"field", "failed", "failure"} {
			t.elsewhere[key] = "it belongs to a condition with step"
		}
		for _, key := range []string{"is", "value"} {
			t.elsewhere[key] = "it belongs to a condition with step or input"
		}
	}
	if !outermost {
		t.elsewhere["name"], t.elsewhere["depth"] = "it belongs to the condition around this one", "it belongs to the condition around this one"
		t.elsewhere["otherwise"] = "it must be a separate condition, not part of another condition"
	}
	t.rest()
	return c
}

// test reads a condition on a step or an input.
func (r *reader) test(t *table, c *Condition, subject string) {
	if subject == "input" {
		c.Input = r.name(t, "input")
	} else {
		c.Step = r.name(t, "step")
		if c.Field = t.text("field"); t.has("field") && !t.failed("field") {
			r.checkField(t, "field", c.Field)
		}
	}
	c.Is = Test(t.choice("is", tests))
	if subject == "step" {
		r.askedOfFailure(t, c)
	}
	if !t.has("is") && c.Failed == nil && !t.failed("failed") {
		t.fault("is", "missing: add a test, such as equals or over")
	}
	r.compared(t, c)
}

func (r *reader) checkField(t *table, key, field string) {
	if field == "" {
		t.fault(key, "empty: remove the key to test the whole result")
	} else if err := flow.CheckPath(field); err != nil {
		t.fault(key, "%v", err)
	}
}

// askedOfFailure reads the keys of a condition about a failure that is ignored.
func (r *reader) askedOfFailure(t *table, c *Condition) {
	if t.has("failed") {
		failed := t.truth("failed")
		c.Failed = &failed
		for _, key := range []string{"is", "value", "field", "failure"} {
			if t.has(key) {
				t.fault("failed", "failed is a complete test: remove %s", key)
				return
			}
		}
	}
	if !t.has("failure") {
		return
	}
	if c.Failure = t.text("failure"); t.has("field") {
		t.fault("failure", "a condition tests either a field of the result or of the failure: remove one")
		return
	}
	if part, _, _ := strings.Cut(c.Failure, "."); !t.failed("failure") && !slices.Contains(failureFields, part) {
		t.fault("failure", "must be one of %s, not %s%s", strings.Join(failureFields, ", "), quoted(part), meant.Hint(part, failureFields))
		return
	}
	r.checkField(t, "failure", c.Failure)
}

// failureFields are the fields of a failure that conditions can ask about.
var failureFields = []string{"kind", "message", "code", "details"}

// compared reads the operand of a condition.
func (r *reader) compared(t *table, c *Condition) {
	value, given := t.values["value"], t.has("value")
	switch {
	case c.Is == "":
		return // already a fault: the type of its value is unknown
	case c.Is == Exists || c.Is == Missing:
		if given {
			t.fault("value", "the test %s has no value: remove the key", c.Is)
		}
		return
	case !given:
		t.fault("value", "missing: the test %s requires a value", c.Is)
		return
	case value == nil:
		t.fault("value", "must not be null: use exists or missing")
		return
	}
	if c.Value = r.json(t, "value", value); t.failed("value") {
		return
	}
	if reason := c.unfit(value); reason != "" {
		t.fault("value", "%s", reason)
	}
}

// unfit is the reason why a condition cannot compare with a value.
func (c *Condition) unfit(value any) string {
	exact, err := logbook.DecodeJSON(c.Value)
	if err != nil {
		return err.Error()
	}
	switch c.Is {
	case Over, Under, AtLeast, AtMost:
		if _, ok := exact.(json.Number); !ok {
			return fmt.Sprintf("must be a number, not %s, for %s", kindOf(value), c.Is)
		}
	case In, NotIn:
		list, ok := exact.([]any)
		if !ok || len(list) == 0 {
			return fmt.Sprintf("must be a list of at least one value for %s, not %s", c.Is, kindOf(value))
		}
		if slices.Contains(list, nil) {
			return "the list contains null: use exists or missing"
		}
	case Matches:
		return unfitPattern(value)
	}
	// A comparison of the number with itself fails if the number is too large to be compared.
	if _, err := equal(exact, exact); err != nil {
		return err.Error()
	}
	return ""
}

func unfitPattern(value any) string {
	pattern, ok := value.(string)
	switch {
	case !ok:
		return "must be a regular expression for matches, not " + kindOf(value)
	case len(pattern) > maxPattern:
		return fmt.Sprintf("the regular expression has %d bytes; the limit is %d", len(pattern), maxPattern)
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return err.Error()
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return err.Error()
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return err.Error()
	}
	if len(program.Inst) > maxProgram {
		return fmt.Sprintf("the regular expression repeats too much: it compiles to %d instructions; the limit is %d", len(program.Inst), maxProgram)
	}
	return ""
}

// level are the steps of one flow, and the level around it: nil for a document or a part.
type level struct {
	steps  []Step
	around *level
}

// checkConditions checks the steps that the conditions of one flow name.
func (r *reader) checkConditions(at *level, places []*table, pattern Pattern) {
	steps := at.steps
	for i := range steps {
		if len(steps[i].When) == 0 {
			continue
		}
		if pattern != Graph {
			places[i].fault("when", "only steps of a graph can have conditions, and this flow is %s", pattern)
			continue
		}
		for _, c := range testsOf(steps[i].When) {
			if c.Otherwise != "" {
				checkAlternative(steps, places[i], i, c)
			}
			if c.Step == "" {
				continue
			}
			step := r.asked(at, c.Step)
			switch child, found := holder(steps, r.flows, c.Step); {
			case found && child == i:
				places[i].fault("when", "a step cannot test itself")
			case step != nil && (c.Failed != nil || c.Failure != "") && step.OnFailure != ignoreFailure:
				places[i].fault("when", "a failure of step %s is not ignored, so no later step can test it: add on_failure = \"ignore\" to that step", quoted(c.Step))
			case step != nil:
			case isEach(steps, c.Step):
				places[i].fault("when", "%s is a loop, which has no single result", quoted(c.Step))
			case isFlow(steps, c.Step):
				places[i].fault("when", "%s is a flow, which has no result: test one of its steps", quoted(c.Step))
			default:
				places[i].fault("when", "there is no step %s in the same graph, inside it or around it; to test a value, use input%s", quoted(c.Step), meant.Hint(c.Step, stepNames(steps)))
			}
		}
	}
}

// asked is the step with a given name in a flow or in the flows around it; nil if there is none. Compile
// checks that a step around the flow comes first.
func (r *reader) asked(at *level, name string) *Step {
	for ; at != nil; at = at.around {
		if _, found := holder(at.steps, r.flows, name); found {
			return asked(at.steps, r.flows, name)
		}
	}
	return nil
}

// holder is the index of the step with a given name, or of the nested flow that contains that
// step.
func holder(steps []Step, flows map[string]Part, name string) (int, bool) {
	for i := range steps {
		found := false
		switch s := &steps[i]; {
		case s.Each != nil: // its steps have several results
		case s.Nested():
			_, found = holder(s.Steps, flows, name)
		case s.Flow != "":
			if rest, inside := strings.CutPrefix(name, s.Name+"."); inside {
				_, found = holder(flows[s.Flow].Steps, flows, rest)
			}
		default:
			found = s.Name == name
		}
		if found {
			return i, true
		}
	}
	return 0, false
}

// asked is the step with a given name, for which there is a holder.
func asked(steps []Step, flows map[string]Part, name string) *Step {
	child, found := holder(steps, flows, name)
	if !found {
		return &Step{}
	}
	switch s := &steps[child]; {
	case s.Nested():
		return asked(s.Steps, flows, name)
	case s.Flow != "":
		return asked(flows[s.Flow].Steps, flows, strings.TrimPrefix(name, s.Name+"."))
	default:
		return s
	}
}

func isEach(steps []Step, name string) bool {
	return slices.ContainsFunc(steps, func(s Step) bool {
		return s.Each != nil && (s.Name == name || strings.HasPrefix(name, s.Name+".") || nestedIn(s.Steps, name))
	})
}

func nestedIn(steps []Step, name string) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.Name == name || nestedIn(s.Steps, name) })
}

func isFlow(steps []Step, name string) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return (s.Nested() || s.Flow != "") && s.Name == name })
}

func stepNames(steps []Step) []string {
	names := map[string]bool{}
	for i := range steps {
		if !steps[i].Nested() && steps[i].Flow == "" {
			names[steps[i].Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
