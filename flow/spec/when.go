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
		t.fault("when", "%d conditions are not between 1 and %d", len(tables), MaxConditions)
		return nil
	}
	return r.counted(t, r.listed(t, "when", tables, true))
}

// counted refuses too many conditions in others.
func (r *reader) counted(t *table, conditions []Condition) []Condition {
	if n := len(testsOf(conditions)); n > MaxConditions {
		t.fault("when", "%d conditions are not between 1 and %d", n, MaxConditions)
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

// subjects are the keys of a condition of which it has one.
var subjects = []string{"step", "input", "all", "any", "not"}

// condition reads a condition. Only the outermost one has a name and a depth.
func (r *reader) condition(t *table, outermost bool) Condition {
	var c Condition
	if outermost {
		c.Name = t.text("name")
		c.Depth = t.choice("depth", []string{
			flow.DepthAll.String(), flow.DepthFlow.String(), flow.DepthNeighbors.String(), flow.DepthAtom.String(),
		})
		if t.has("name") && !t.failed("name") {
			r.checkSymbol(t, "name", c.Name)
		}
	}
	given := slices.DeleteFunc(slices.Clone(subjects), func(key string) bool { return !t.has(key) })
	if len(given) > 1 {
		t.fault(given[1], "a condition has one of %s, and this has %s already", strings.Join(subjects, ", "), given[0])
	}
	t.elsewhere = map[string]string{}
	if len(given) == 0 {
		t.fault("", "it asks nothing; give it one of %s", strings.Join(subjects, ", "))
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
			t.fault(subject, "empty; list the conditions")
		}
		if list := r.listed(t, subject, tables, false); subject == "all" {
			c.All = list
		} else {
			c.Any = list
		}
	}
	switch {
	case c.Input != "":
		t.elsewhere["field"] = "write the path behind the name: input = \"order.total\""
	case c.Step == "":
		for _, key := range []string{"field", "is", "value"} {
			t.elsewhere[key] = "it belongs to a condition with step or input"
		}
	}
	if !outermost {
		t.elsewhere["name"], t.elsewhere["depth"] = "it belongs to the condition around this one", "it belongs to the condition around this one"
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
			r.checkField(t, c.Field)
		}
	}
	c.Is = Test(t.choice("is", tests))
	if !t.has("is") {
		t.fault("is", "missing; it says what is asked, such as equals or over")
	}
	r.compared(t, c)
}

func (r *reader) checkField(t *table, field string) {
	if field == "" {
		t.fault("field", "empty; leave it out to ask about the whole result")
	} else if err := flow.CheckPath(field); err != nil {
		t.fault("field", "%v", err)
	}
}

// compared reads the operand of a condition.
func (r *reader) compared(t *table, c *Condition) {
	value, given := t.values["value"], t.has("value")
	switch {
	case c.Is == "":
		return // already a fault: the type of its value is unknown
	case c.Is == Exists || c.Is == Missing:
		if given {
			t.fault("value", "%s takes none", c.Is)
		}
		return
	case !given:
		t.fault("value", "missing; %s compares with it", c.Is)
		return
	case value == nil:
		t.fault("value", "null; whether something is there is asked by exists and missing")
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
			return fmt.Sprintf("%s where a number belongs, for %s", kindOf(value), c.Is)
		}
	case In, NotIn:
		list, ok := exact.([]any)
		if !ok || len(list) == 0 {
			return fmt.Sprintf("%s where a list of one or more values belongs, for %s", kindOf(value), c.Is)
		}
		if slices.Contains(list, nil) {
			return "null in the list; whether something is there is asked by exists and missing"
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
		return kindOf(value) + " where a regular expression belongs, for matches"
	case len(pattern) > maxPattern:
		return fmt.Sprintf("a regular expression of %d bytes, and the limit is %d", len(pattern), maxPattern)
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
		return fmt.Sprintf("the regular expression repeats too much: it makes %d instructions, and the limit is %d", len(program.Inst), maxProgram)
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
			places[i].fault("when", "only steps of a graph have conditions, and this flow is %s", pattern)
			continue
		}
		for _, c := range testsOf(steps[i].When) {
			if c.Step == "" {
				continue
			}
			switch child, found := holder(steps, r.flows, c.Step); {
			case found && child == i:
				places[i].fault("when", "a step cannot ask itself")
			case found || r.isAround(at.around, c.Step):
			case isEach(steps, c.Step):
				places[i].fault("when", "%s is run once for each element of a list, and has no one result", quoted(c.Step))
			case isFlow(steps, c.Step):
				places[i].fault("when", "%s is a flow, which has no result; ask one of its steps", quoted(c.Step))
			default:
				places[i].fault("when", "there is no step %s in the same graph, nor in a flow of it or around it; input asks for a value%s", quoted(c.Step), meant.Hint(c.Step, stepNames(steps)))
			}
		}
	}
}

// isAround reports whether a step is in one of the flows around a flow. Compile checks that it comes
// first.
func (r *reader) isAround(at *level, name string) bool {
	for ; at != nil; at = at.around {
		if _, found := holder(at.steps, r.flows, name); found {
			return true
		}
	}
	return false
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
