package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// Condition is a test of an earlier step's result. The set of tests is closed, because a document
// has no code.
//
// A value is absent if its step was ignored, its result lacks the field, or it is null. Every
// test but missing is false for an absent value. A value of the wrong type, such as a text for
// over 100, fails the step with the condition: a meaningless answer must not decide.
type Condition struct {
	// Name is the condition's name for display.
	Name string `json:"name,omitempty"`
	// Step is the step whose result is tested. It is in the same graph, or in a flow of it.
	Step string `json:"step,omitempty"`
	// Field is the path of the value in the result: names of fields and, in lists, indexes from
	// 0, with dots between. Empty: the whole result.
	Field string `json:"field,omitempty"`
	// Failure is a path like Field, in the failure of a step that ignores it: kind, message, code or
	// details.
	Failure string `json:"failure,omitempty"`
	// Failed asks whether the step has failed, instead of Is.
	Failed *bool `json:"failed,omitempty"`
	Is     Test  `json:"is,omitempty"`
	// Value is the operand of the test.
	Value json.RawMessage `json:"value,omitempty"`
	// Depth is how far a no reaches: the name of a flow.Depth. Empty: all.
	Depth string `json:"depth,omitempty"`
	// Otherwise is a step of the same graph with a condition: see flow.Otherwise. Only Depth can stand
	// beside it.
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
	maxPattern = 200       // bytes
	maxProgram = 2_000     // instructions
	maxSubject = 16 << 10  // bytes
	maxField   = 10 * 1000 // bytes; deeper than values can be
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

func (c *Condition) question() string {
	words := c.Step
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
	words = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError // control characters are refused in names
		}
		return r
	}, words)
	if runes := []rune(words); len(runes) > maxWords {
		words = string(runes[:maxWords-1]) + "…"
	}
	return words
}

// decider is the condition as a decider of a graph.
func (c *Condition) decider() flow.Decider {
	return func(results logbook.Values) (bool, error) {
		yes, err := c.ask(results)
		if err != nil {
			return false, flow.Permanent(flow.Fail(logbook.FailureArgument, fmt.Errorf("cannot say whether %s: %w", c.question(), err)))
		}
		return yes, nil
	}
}

func (c *Condition) ask(results logbook.Values) (bool, error) {
	if c.Failed != nil {
		_, failed := results[flow.FailureName(c.Step)]
		return failed == *c.Failed, nil
	}
	value, err := c.find(results)
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
	return false, fmt.Errorf("there is no test %q", c.Is)
}

// find follows the path to the value; nil if there is none.
func (c *Condition) find(results logbook.Values) (any, error) {
	result, path := results[c.Step], c.Field
	if c.Failure != "" {
		result, path = results[flow.FailureName(c.Step)], c.Failure
	}
	if len(result) == 0 {
		return nil, nil
	}
	value, err := logbook.DecodeJSON(result)
	if err != nil || path == "" {
		return value, err
	}
	for _, part := range strings.Split(path, ".") {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[part]
		case []any:
			place, err := strconv.Atoi(part)
			if err != nil || place < 0 || place >= len(inner) {
				return nil, nil
			}
			value = inner[place]
		default:
			return nil, nil
		}
	}
	return value, nil
}

func (c *Condition) matches(value any) (bool, error) {
	text, ok := value.(string)
	switch {
	case !ok:
		return false, fmt.Errorf("it is %s, and matches is asked of texts", kindOf(value))
	case len(text) > maxSubject:
		return false, fmt.Errorf("it is a text of %d bytes, and matches is asked of %d at most", len(text), maxSubject)
	}
	var pattern string
	if err := json.Unmarshal(c.Value, &pattern); err != nil {
		return false, fmt.Errorf("the pattern is no text: %w", err)
	}
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return false, fmt.Errorf("the pattern is none: %w", err)
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
		return false, fmt.Errorf("it is compared with %s where a list belongs", kindOf(list))
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
		return decimal{}, fmt.Errorf("it is %s, and only numbers are compared so", kindOf(value))
	}
	exact, ok := decimalOf(text.String())
	if !ok {
		return decimal{}, fmt.Errorf("the exponent of %.40s is beyond what is compared", text)
	}
	return exact, nil
}
