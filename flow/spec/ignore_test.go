package spec_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// TestIgnoredFailures: the plan says which failures are ignored, who gets them, and which step is left out
// then.
func TestIgnoredFailures(t *testing.T) {
	plan, err := parse(t, "testdata/good/ignore.toml").Compile()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/good/ignore.plan", plan.Outline())
	const want = `[step "pages.print" is skipped if step "pages.draw" fails, because it requires "pages.picture" and there is no default result]`
	if got := fmt.Sprint(plan.Omissions()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if number, _ := plan.Find("fetch"); string(plan.Step(number).DefaultResult()) != `{"found":[]}` {
		t.Errorf("the default result is %s", plan.Step(number).DefaultResult())
	}
}

// TestConditionsOfFailures: the results of a step that has failed, and of one that has not.
func TestConditionsOfFailures(t *testing.T) {
	failed := logbook.Values{"check": json.RawMessage(`{"kind": "a default"}`), "check.failure": json.RawMessage(`{"kind": "timeout", "message": "it took long", "code": 75, "details": {"at": [3]}}`)}
	for _, row := range []struct {
		condition      string
		failed, passed bool
	}{
		{`"failed": true`, true, false},
		{`"failed": false`, false, true},
		{`"failure": "kind", "is": "equals", "value": "timeout"`, true, false},
		{`"failure": "kind", "is": "missing"`, false, true},
		{`"failure": "message", "is": "matches", "value": "long$"`, true, false},
		{`"failure": "code", "is": "over", "value": 70`, true, false},
		{`"failure": "details.at.0", "is": "equals", "value": 3`, true, false},
		{`"field": "kind", "is": "equals", "value": "a default"`, true, false},
		{`"not": {"step": "check", "failed": true}`, false, true},
		{`"all": [{"step": "check", "failed": true}, {"step": "check", "failure": "code", "is": "under", "value": 70}]`, false, false},
		{`"any": [{"step": "check", "failed": false}, {"step": "check", "failure": "kind", "is": "equals", "value": "timeout"}]`, true, true},
	} {
		if !strings.Contains(row.condition, "{") {
			row.condition = `"step": "check", ` + row.condition
		}
		text := `{"name": "x", "steps": [{"name": "check", "on_failure": "ignore"}, {"name": "then", "when": {` + row.condition + `}}]}`
		document, err := spec.Parse([]byte(text), "condition.json")
		if err != nil {
			t.Fatal(err)
		}
		plan, err := document.Compile()
		if err != nil {
			t.Fatal(err)
		}
		ask := plan.Choices()[0].Deciders[0].Ask
		first, err := ask(flow.Found{Steps: failed})
		second, errToo := ask(flow.Found{Steps: logbook.Values{"check": json.RawMessage(`{}`)}})
		if err != nil || errToo != nil || first != row.failed || second != row.passed {
			t.Errorf("%s: %v and %v (%v, %v), want %v and %v", row.condition, first, second, err, errToo, row.failed, row.passed)
		}
	}
}
