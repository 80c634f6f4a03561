package spec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// asked compiles a graph of two steps, one with the condition, and returns the
// decider's answer about a result. No result: the step was ignored.
func asked(t *testing.T, condition, result string) (bool, error) {
	t.Helper()
	text := fmt.Sprintf(`{"name": "x", "steps": [{"name": "check"}, {"name": "then", "when": {"step": "check", %s}}]}`, condition)
	document, err := spec.Parse([]byte(text), "condition.json")
	if err != nil {
		t.Fatalf("%s: %v", condition, err)
	}
	plan, err := document.Compile()
	if err != nil {
		t.Fatal(err)
	}
	results := logbook.Values{}
	if result != "" {
		results["check"] = json.RawMessage(result)
	}
	return plan.Choices()[0].Deciders[0].Ask(flow.Found{Steps: results})
}

// TestConditions evaluates every test for present values, absent values, and values of the
// wrong type.
func TestConditions(t *testing.T) {
	const total = `"field": "total", `
	rows := []struct {
		condition, result string
		want              string
	}{
		{total + `"is": "equals", "value": 100`, `{"total": 100}`, "yes"},
		{total + `"is": "equals", "value": 100`, `{"total": 1.00e2}`, "yes"},
		{total + `"is": "equals", "value": 100`, `{"total": "100"}`, "no"},
		{total + `"is": "equals", "value": 9007199254740993`, `{"total": 9007199254740992}`, "no"},
		{total + `"is": "equals", "value": 0`, `{"total": -0.00}`, "yes"},
		{total + `"is": "equals", "value": {"a": [1, {"b": true}], "c": "x"}`, `{"total": {"c": "x", "a": [1.0, {"b": true}]}}`, "yes"},
		{total + `"is": "equals", "value": {"a": [1]}`, `{"total": {"a": [1, 2]}}`, "no"},
		{total + `"is": "equals", "value": {"a": 1}`, `{"total": {"b": 1}}`, "no"},
		{total + `"is": "equals", "value": true`, `{"total": [true]}`, "no"},
		{total + `"is": "equals", "value": [true]`, `{"total": true}`, "no"},
		{total + `"is": "not", "value": 100`, `{"total": 101}`, "yes"},
		{total + `"is": "not", "value": 100`, `{"total": "100"}`, "yes"},
		{total + `"is": "not", "value": 100`, `{"total": 100}`, "no"},

		{total + `"is": "over", "value": 0.3`, `{"total": 0.30000000000000000001}`, "yes"},
		{total + `"is": "over", "value": 0.3`, `{"total": 0.30}`, "no"},
		{total + `"is": "over", "value": -5`, `{"total": -4.9}`, "yes"},
		{total + `"is": "over", "value": -5`, `{"total": -50}`, "no"},
		{total + `"is": "over", "value": 99`, `{"total": 1e3}`, "yes"},
		{total + `"is": "under", "value": 1e308`, `{"total": 9e307}`, "yes"},
		{total + `"is": "under", "value": 0`, `{"total": 0}`, "no"},
		{total + `"is": "under", "value": 0.001`, `{"total": 0.00099}`, "yes"},
		{total + `"is": "at_least", "value": 5`, `{"total": 5}`, "yes"},
		{total + `"is": "at_least", "value": 5`, `{"total": 4}`, "no"},
		{total + `"is": "at_most", "value": 5`, `{"total": 5.0}`, "yes"},
		{total + `"is": "at_most", "value": 5`, `{"total": 6}`, "no"},
		{total + `"is": "over", "value": 5`, `{"total": "6"}`, "the value is a string"},
		{total + `"is": "over", "value": 5`, `{"total": {"sum": 6}}`, "the value is a table"},
		{total + `"is": "equals", "value": 5`, `{"total": 1e99999999999}`, "too large to compare"},

		{total + `"is": "in", "value": ["a", 2]`, `{"total": 2.0}`, "yes"},
		{total + `"is": "in", "value": ["a", 2]`, `{"total": "2"}`, "no"},
		{total + `"is": "not_in", "value": ["a", 2]`, `{"total": "b"}`, "yes"},
		{total + `"is": "not_in", "value": ["a", 2]`, `{"total": "a"}`, "no"},
		{total + `"is": "matches", "value": "^AT-[0-9]+$"`, `{"total": "AT-12"}`, "yes"},
		{total + `"is": "matches", "value": "T-"`, `{"total": "AT-12"}`, "yes"},
		{total + `"is": "matches", "value": "^T-"`, `{"total": "AT-12"}`, "no"},
		{total + `"is": "matches", "value": "1"`, `{"total": 1}`, "the value is a number"},
		{total + `"is": "matches", "value": "a"`, `{"total": "` + strings.Repeat("a", 16<<10) + `"}`, "yes"},
		{total + `"is": "matches", "value": "a"`, `{"total": "` + strings.Repeat("a", 16<<10+1) + `"}`, "the limit of matches is 16384"},

		// An absent value says no to everything but missing.
		{total + `"is": "equals", "value": 1`, `{}`, "no"},
		{total + `"is": "not", "value": 1`, `{}`, "no"},
		{total + `"is": "over", "value": 1`, `{"total": null}`, "no"},
		{total + `"is": "at_most", "value": 1`, `7`, "no"},
		{total + `"is": "in", "value": [1]`, ``, "no"},
		{total + `"is": "not_in", "value": [1]`, ``, "no"},
		{total + `"is": "matches", "value": ""`, `null`, "no"},
		{total + `"is": "exists"`, `{"total": false}`, "yes"},
		{total + `"is": "exists"`, `{"total": null}`, "no"},
		{total + `"is": "exists"`, `{"sum": 1}`, "no"},
		{total + `"is": "missing"`, `{"total": null}`, "yes"},
		{total + `"is": "missing"`, ``, "yes"},
		{total + `"is": "missing"`, `{"total": 0}`, "no"},

		{`"is": "equals", "value": "done"`, `"done"`, "yes"},
		{`"is": "exists"`, `null`, "no"},
		{`"field": "items.1.price", "is": "under", "value": 10`, `{"items": [{"price": 20}, {"price": 9}]}`, "yes"},
		{`"field": "items.2", "is": "missing"`, `{"items": [1, 2]}`, "yes"},
		{`"field": "items.-1", "is": "missing"`, `{"items": [1, 2]}`, "yes"},
		{`"field": "items.first", "is": "missing"`, `{"items": [1, 2]}`, "yes"},
		{`"field": "1", "is": "exists"`, `{"1": "a name"}`, "yes"},
		{`"field": "items.01", "is": "exists"`, `{"items": [1, 2]}`, "no"},
	}
	for _, row := range rows {
		yes, err := asked(t, row.condition, row.result)
		got := map[bool]string{true: "yes", false: "no"}[yes]
		if row.want != "yes" && row.want != "no" {
			var failure *logbook.Failure
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s of %.80s: error %v, want one that says %q", row.condition, row.result, err, row.want)
			} else if failure = flow.FailureOf(err); !failure.Permanent || failure.Kind != logbook.FailureArgument {
				t.Errorf("%s of %.80s: %+v", row.condition, row.result, failure)
			}
			continue
		}
		if err != nil || got != row.want {
			t.Errorf("%s of %.80s: %s, %v; want %s", row.condition, row.result, got, err, row.want)
		}
	}
}

// FuzzConditions: for any result of a step, an accepted condition is true, false, or an error
// with the reason. Opposite conditions are never both true.
func FuzzConditions(f *testing.F) {
	for _, seed := range []struct{ value, field, result string }{
		{"100", "total", `{"total": 1e2}`}, {`["a", 2]`, "", "2.0"}, {`"^a"`, "items.0", `{"items": ["ab"]}`},
		{"-0.1", "a.b", `{"a": {"b": -1e-1}}`}, {`{"a": [true]}`, "", `{"a": [true]}`}, {"1e999999999", "", "1e-999999999"},
	} {
		f.Add(seed.value, seed.field, seed.result)
	}
	f.Fuzz(func(t *testing.T, value, field, result string) {
		if !json.Valid([]byte(result)) {
			return
		}
		ask := func(is string) (string, bool) {
			where, _ := json.Marshal(field)
			text := fmt.Sprintf(`{"name": "x", "steps": [{"name": "check"}, {"name": "then", "when": {"step": "check", "field": %s, "is": %q, "value": %s}}]}`, where, is, value)
			document, err := spec.Parse([]byte(text), "condition.json")
			if err != nil {
				return "", false
			}
			plan, err := document.Compile()
			if err != nil {
				return "", false
			}
			yes, err := plan.Choices()[0].Deciders[0].Ask(flow.Found{Steps: logbook.Values{"check": json.RawMessage(result)}})
			return fmt.Sprint(yes), err == nil
		}
		for _, opposite := range [][2]string{{"equals", "not"}, {"over", "at_most"}, {"under", "at_least"}, {"in", "not_in"}} {
			first, told := ask(opposite[0])
			second, toldToo := ask(opposite[1])
			if told != toldToo || told && first == "true" && second == "true" {
				t.Errorf("%s is %s, %s is %s", opposite[0], first, opposite[1], second)
			}
		}
		ask("matches")
	})
}

// TestConditionsInAPlan: a condition's step comes first, even if it is inside a nested flow.
// The plan shows the condition, and the depth of a no.
func TestConditionsInAPlan(t *testing.T) {
	plan, err := parse(t, "testdata/good/decisions.toml").Compile()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/good/decisions.plan", plan.Outline())
	long := `"field": "` + strings.Repeat("x", 300) + `", "is": "exists"`
	if _, err := asked(t, long, `{}`); err != nil {
		t.Errorf("a condition of many words: %v", err)
	}
}

// TestRetriesInAPlan: the flow has the retry of the document.
func TestRetriesInAPlan(t *testing.T) {
	plan, err := parse(t, "testdata/good/retries.toml").Compile()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/good/retries.plan", plan.Outline())

	failed := func(rounds ...string) *flow.History {
		history := &flow.History{Arguments: logbook.Values{"values": json.RawMessage(`["eu"]`)}}
		for _, value := range rounds {
			history.Rounds = append(history.Rounds, flow.Round{Value: json.RawMessage(value)})
		}
		return history
	}
	for _, row := range []struct {
		retry   string
		rounds  []string
		verdict flow.Verdict
		value   string // of the next round, if there is one
	}{
		{"retries-retry", []string{"1", "2"}, flow.VerdictRetry, "3"},
		{"retries-retry", []string{"1", "2", "3"}, flow.VerdictRevertAll, ""},
		{"each-size", []string{`"small"`}, flow.VerdictRetry, `{"gb":4.5}`},
		{"each-size", []string{`"small"`, `{"gb":4.5}`, "3"}, flow.VerdictRevert, ""},
		{"symbol-retry", nil, flow.VerdictRetry, `"eu"`},
		{"symbol-retry", []string{`"eu"`}, flow.VerdictRevert, ""},
		{"wall-retry", []string{"null"}, flow.VerdictRevertAll, ""},
		{"parent-retry", []string{"null"}, flow.VerdictRevert, ""},
	} {
		number, found := plan.Find(row.retry)
		if !found {
			t.Fatalf("there is no retry %s", row.retry)
		}
		step := plan.Step(number)
		decision, err := step.Decide(failed(row.rounds...))
		if err != nil || decision.Verdict != row.verdict {
			t.Errorf("%s after %s: %+v, %v", row.retry, row.rounds, decision, err)
		}
		if row.verdict != flow.VerdictRetry {
			continue
		}
		next, err := step.Next(failed(row.rounds...))
		if got, _ := json.Marshal(next); err != nil || string(got) != row.value {
			t.Errorf("%s after %s goes on with %s, %v; want %s", row.retry, row.rounds, got, err, row.value)
		}
	}
	number, _ := plan.Find("retries-retry")
	decision, _ := plan.Step(number).Decide(failed("1", "2"))
	const least, most = 1600e6, 2000e6 // 2 s after two rounds, a fifth of it left to chance
	if decision.Delay < least || decision.Delay > most {
		t.Errorf("the pause is %s", decision.Delay)
	}
}

// TestCompileFaultsAreWhatTheyAre: faults get a position in the document, and keep their
// errors for errors.Is.
func TestCompileFaultsAreWhatTheyAre(t *testing.T) {
	_, err := parse(t, "testdata/compile/missing.toml").Compile()
	if !errors.Is(err, flow.ErrAmbiguous) || !errors.Is(err, logbook.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
