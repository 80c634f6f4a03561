package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// Condition is a test of an earlier step's result or of a value, or a combination of conditions. The
// set of tests is closed, because a document has no code.
//
// A value is absent if its step was ignored, it lacks the field, or it is null. Every
// test but missing is false for an absent value. A value of the wrong type, such as a text for
// over 100, fails the step with the condition: a meaningless answer must not decide.
type Condition struct {
	// Name is the condition's name for display.
	Name string `json:"name,omitempty"`
	// Step is the step whose result is tested: in the same graph, in a flow of it, or outside it and
	// always earlier.
	Step string `json:"step,omitempty"`
	// Input is the value to test, instead of a Step: a symbol, as the step could require it.
	Input string `json:"input,omitempty"`
	// All, Any and Not combine conditions, instead of a test.
	All []Condition `json:"all,omitempty"`
	Any []Condition `json:"any,omitempty"`
	Not *Condition  `json:"not,omitempty"`
	// Field is the path of the value in the result: see flow.CheckPath. Empty: the whole result.
	Field string `json:"field,omitempty"`
	// Failure is a path like Field, in the failure of a step that ignores it: kind, message, code or
	// details.
	Failure string `json:"failure,omitempty"`
	// Failed tests whether the step has failed, instead of Is.
	Failed *bool `json:"failed,omitempty"`
	Is     Test  `json:"is,omitempty"`
	// Value is the operand of the test.
	Value json.RawMessage `json:"value,omitempty"`
	// Depth limits the steps that a no excludes: the name of a flow.Depth. Empty: all.
	Depth string `json:"depth,omitempty"`
	// Otherwise is a step of the same graph with a condition: see flow.Otherwise. Only Depth can be combined with it.
	Otherwise string `json:"otherwise,omitempty"`
}

// Test is the kind of a condition.
type Test string

// The tests.
const (
	Equals  Test = "equals"   // the same JSON value; numbers compare by value: 1 equals 1.0
	Not     Test = "not"      // present, and not the same
	Over    Test = "over"     // a number above
	Under   Test = "under"    // a number below
	AtLeast Test = "at_least" // a number above, or equal
	AtMost  Test = "at_most"  // a number below, or equal
	In      Test = "in"       // one of a list
	NotIn   Test = "not_in"   // present, and none of a list
	Matches Test = "matches"  // a text that contains a match of a regular expression
	Exists  Test = "exists"   // present, and not null
	Missing Test = "missing"  // absent, or null
)

// tests are all tests, for the error about a misspelt one.
var tests = []string{
	string(Equals), string(Not), string(Over), string(Under), string(AtLeast), string(AtMost),
	string(In), string(NotIn), string(Matches), string(Exists), string(Missing),
}

const (
	// maxPattern and maxProgram bound a regular expression, and maxSubject bounds the text to
	// search. The loop that drives the flow evaluates conditions, and the product of the
	// bounds limits the cost.
	maxPattern = 200      // bytes
	maxProgram = 2_000    // instructions
	maxSubject = 16 << 10 // bytes
)

// depths are the names of the depths.
var depths = map[string]flow.Depth{
	flow.DepthAll.String(): flow.DepthAll, flow.DepthFlow.String(): flow.DepthFlow,
	flow.DepthNeighbors.String(): flow.DepthNeighbors, flow.DepthAtom.String(): flow.DepthAtom,
}

// String is the condition in words: its name, if it has one.
func (c *Condition) String() string {
	if c.Name != "" {
		return c.Name
	}
	return c.question()
}

// maxWords keeps a condition readable, and its name within the limit of names.
const maxWords = 80

// words are the condition as text, in parentheses if it combines others.
func (c *Condition) words() string {
	switch {
	case c.Not != nil:
		return "not " + c.Not.words()
	case len(c.All)+len(c.Any) > 0:
		parts := make([]string, 0, len(c.All)+len(c.Any))
		for _, part := range slices.Concat(c.All, c.Any) {
			parts = append(parts, part.words())
		}
		return "(" + strings.Join(parts, map[bool]string{true: " and ", false: " or "}[len(c.All) > 0]) + ")"
	}
	words := c.Step + c.Input
	switch {
	case c.Failed != nil && *c.Failed:
		words += " has failed"
	case c.Failed != nil:
		words += " has not failed"
	case c.Failure != "":
		words = flow.FailureName(words) + "." + c.Failure
	case c.Field != "":
		words += "." + c.Field
	}
	if c.Is != "" {
		words += " " + strings.ReplaceAll(string(c.Is), "_", " ")
	}
	if len(c.Value) > 0 {
		words += " " + string(c.Value)
	}
	return words
}

func (c *Condition) question() string {
	words := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError // control characters are refused in names
		}
		return r
	}, c.words())
	if runes := []rune(words); len(runes) > maxWords {
		words = string(runes[:maxWords-1]) + "…"
	}
	return words
}

// eachTest visits the tests of the condition.
func (c *Condition) eachTest(visit func(test *Condition)) {
	switch {
	case c.Not != nil:
		c.Not.eachTest(visit)
	case len(c.All)+len(c.Any) > 0:
		for i := range c.All {
			c.All[i].eachTest(visit)
		}
		for i := range c.Any {
			c.Any[i].eachTest(visit)
		}
	default:
		visit(c)
	}
}

// tests are the tests of several conditions.
func testsOf(conditions []Condition) []*Condition {
	var found []*Condition
	for i := range conditions {
		conditions[i].eachTest(func(test *Condition) { found = append(found, test) })
	}
	return found
}

// copied is the condition with copies of all conditions in it, changed.
func (c Condition) copied(change func(*Condition)) Condition {
	c.All, c.Any = slices.Clone(c.All), slices.Clone(c.Any)
	for i := range c.All {
		c.All[i] = c.All[i].copied(change)
	}
	for i := range c.Any {
		c.Any[i] = c.Any[i].copied(change)
	}
	if c.Not != nil {
		inner := c.Not.copied(change)
		c.Not = &inner
	}
	change(&c)
	return c
}

// put puts the condition before a child of a graph. node returns the child that holds a step; it
// returns false for a step outside the graph.
func (c *Condition) put(graph *flow.Flow, child string, node func(step string) (string, bool)) {
	depth := depths[c.Depth]
	if c.Otherwise != "" {
		graph.Link(c.Otherwise, child, flow.Otherwise(), flow.Reaching(depth))
		return
	}
	if c.Step != "" {
		if from, inGraph := node(c.Step); inGraph {
			graph.Link(from, child, flow.Reaching(depth),
				flow.Decide(c.String(), func(results logbook.Values) (bool, error) { return c.decide(flow.Found{Steps: results}) }))
			return
		}
	}
	question := flow.Question{Name: c.String(), Depth: depth, Decide: c.decide}
	c.eachTest(func(test *Condition) {
		from, inGraph := node(test.Step)
		switch {
		case test.Input != "" && (test.Is == Exists || test.Is == Missing):
			question.Optional = append(question.Optional, test.Input)
		case test.Input != "":
			question.Values = append(question.Values, test.Input)
		case inGraph:
			question.Steps = append(question.Steps, from)
		default:
			question.Steps = append(question.Steps, test.Step)
		}
	})
	graph.Ask(child, question)
}

func (c *Condition) decide(found flow.Found) (bool, error) {
	yes, err := c.ask(found)
	if err != nil {
		return false, flow.Permanent(flow.Fail(logbook.FailureArgument, fmt.Errorf("cannot evaluate the condition %s: %w", c.question(), err)))
	}
	return yes, nil
}

// ask evaluates the condition, and conditions in it until one decides.
func (c *Condition) ask(found flow.Found) (bool, error) {
	if c.Not != nil {
		yes, err := c.Not.ask(found)
		return !yes && err == nil, err
	}
	if parts := slices.Concat(c.All, c.Any); len(parts) > 0 {
		decisive := len(c.Any) > 0
		for i := range parts {
			if yes, err := parts[i].ask(found); err != nil || yes == decisive {
				return yes && err == nil, err
			}
		}
		return !decisive, nil
	}
	return c.test(found)
}

func (c *Condition) test(found flow.Found) (bool, error) {
	if c.Failed != nil {
		_, failed := found.Steps[flow.FailureName(c.Step)]
		return failed == *c.Failed, nil
	}
	value, err := c.find(found)
	if err != nil {
		return false, err
	}
	if value == nil {
		return c.Is == Missing, nil
	}
	switch c.Is {
	case Exists:
		return true, nil
	case Missing:
		return false, nil
	case Matches:
		return c.matches(value)
	}
	given, err := logbook.DecodeJSON(c.Value)
	if err != nil {
		return false, err
	}
	switch c.Is {
	case Equals, Not:
		same, err := equal(value, given)
		return same == (c.Is == Equals), err
	case In, NotIn:
		among, err := among(value, given)
		return among == (c.Is == In), err
	}
	order, err := compareNumbers(value, given)
	if err != nil {
		return false, err
	}
	switch c.Is {
	case Over:
		return order > 0, nil
	case Under:
		return order < 0, nil
	case AtLeast:
		return order >= 0, nil
	case AtMost:
		return order <= 0, nil
	}
	return false, fmt.Errorf("the test %q is unknown", c.Is)
}

// find follows the path to the value; nil if there is none.
func (c *Condition) find(found flow.Found) (any, error) {
	result, path := found.Steps[c.Step], c.Field
	switch {
	case c.Input != "":
		result = found.Values[c.Input]
	case c.Failure != "":
		result, path = found.Steps[flow.FailureName(c.Step)], c.Failure
	}
	if len(result) == 0 {
		return nil, nil
	}
	inner, err := flow.Inner(c.Step, result, path)
	if err != nil {
		return nil, nil
	}
	return logbook.DecodeJSON(inner)
}

func (c *Condition) matches(value any) (bool, error) {
	text, ok := value.(string)
	switch {
	case !ok:
		return false, fmt.Errorf("the value is %s, and matches tests only texts", kindOf(value))
	case len(text) > maxSubject:
		return false, fmt.Errorf("the text has %d bytes; the limit of matches is %d", len(text), maxSubject)
	}
	var pattern string
	if err := json.Unmarshal(c.Value, &pattern); err != nil {
		return false, fmt.Errorf("the pattern is not a text: %w", err)
	}
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return false, fmt.Errorf("the pattern is not a regular expression: %w", err)
	}
	return expression.MatchString(text), nil
}

// equal reports whether two values of JSON are the same. Values of two types are different,
// without an error.
func equal(a, b any) (bool, error) {
	switch a := a.(type) {
	case json.Number:
		if _, ok := b.(json.Number); !ok {
			return false, nil
		}
		order, err := compareNumbers(a, b)
		return order == 0 && err == nil, err
	case []any:
		list, ok := b.([]any)
		if !ok || len(a) != len(list) {
			return false, nil
		}
		for i := range a {
			if same, err := equal(a[i], list[i]); err != nil || !same {
				return false, err
			}
		}
		return true, nil
	case map[string]any:
		return equalObjects(a, b)
	}
	switch b.(type) {
	case []any, map[string]any:
		return false, nil
	}
	return a == b, nil
}

func equalObjects(a map[string]any, b any) (bool, error) {
	object, ok := b.(map[string]any)
	if !ok || len(a) != len(object) {
		return false, nil
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		other, ok := object[name]
		if !ok {
			return false, nil
		}
		if same, err := equal(a[name], other); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func among(value, list any) (bool, error) {
	values, ok := list.([]any)
	if !ok {
		return false, fmt.Errorf("the value to compare with is %s, and must be a list", kindOf(list))
	}
	for _, candidate := range values {
		if same, err := equal(value, candidate); err != nil || same {
			return same, err
		}
	}
	return false, nil
}

func compareNumbers(a, b any) (int, error) {
	left, err := number(a)
	if err != nil {
		return 0, err
	}
	right, err := number(b)
	if err != nil {
		return 0, err
	}
	return left.compare(right), nil
}

func number(value any) (decimal, error) {
	text, ok := value.(json.Number)
	if !ok {
		return decimal{}, fmt.Errorf("the value is %s, and this test compares only numbers", kindOf(value))
	}
	exact, ok := decimalOf(text.String())
	if !ok {
		return decimal{}, fmt.Errorf("the exponent of %.40s is too large to compare", text)
	}
	return exact, nil
}
