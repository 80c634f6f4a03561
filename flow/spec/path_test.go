//go:build unix

package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

func TestPathsOfDocuments(t *testing.T) {
	plan, err := parse(t, "testdata/good/paths.toml").Compile()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/good/paths.plan", plan.Outline())
}

// TestQuestionsOfDocuments: conditions on values and on steps outside the graph, and combined ones.
func TestQuestionsOfDocuments(t *testing.T) {
	plan, err := parse(t, "testdata/good/questions.toml").Compile()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/good/questions.plan", plan.Outline())

	const text = `
		name = "order"
		[store]
		env = "ENV"
		[[steps]]
		name = "approve"
		when = {input = "env", is = "equals", value = "prod"}
		provides = "approved"
		[[steps]]
		name = "offer"
		[[steps]]
		name = "delivery"
		when = {step = "offer", field = "accepted", is = "equals", value = true}
		[[steps.steps]]
		name = "insure"
		when = {step = "offer", field = "tier", is = "equals", value = "full"}
		provides = "insured"
		[[steps.steps]]
		name = "wrap"
		when = {any = [{not = {step = "offer", field = "tier", is = "equals", value = "full"}}, {input = "env", is = "equals", value = "prod"}]}
		provides = "wrapped"
		[[steps.steps]]
		name = "check"
		when = {all = [{step = "offer", field = "tier", is = "exists"}, {input = "env", is = "not", value = "prod"}]}
		provides = "checked"`
	for _, row := range []struct{ env, tier, want string }{
		{"prod", "full", "approved insured wrapped"},
		{"prod", "none", "approved wrapped"},
		{"test", "full", "insured checked"},
		{"test", "none", "wrapped checked"},
	} {
		scripts := map[string]string{"offer": `echo '{"accepted": true, "tier": "` + row.tier + `"}'`}
		for _, name := range []string{"approve", "insure", "wrap", "check"} {
			scripts[name] = "echo 1"
		}
		result, err := runDocument(t, strings.ReplaceAll(text, "ENV", row.env), scripts)
		var got []string
		for _, name := range []string{"approved", "insured", "wrapped", "checked"} {
			if _, ok := result.Values[name]; ok {
				got = append(got, name)
			}
		}
		if err != nil || strings.Join(got, " ") != row.want {
			t.Errorf("%s, %s: %v, %v; want %s", row.env, row.tier, got, err, row.want)
		}
	}
}

// runDocument runs a document whose handlers are scripts.
func runDocument(t *testing.T, text string, scripts map[string]string) (engine.Result, error) {
	t.Helper()
	directory := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	set, err := handler.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	document, err := spec.Parse([]byte(text), "x.toml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := document.Compile(); err != nil {
		t.Fatal(err)
	}
	built, err := document.Build(set)
	if err != nil {
		t.Fatal(err)
	}
	store, err := document.Fill(nil)
	if err != nil {
		t.Fatal(err)
	}
	return engine.RunLocal(t.Context(), built, store)
}

// TestInnerValuesOfDocuments: the steps of loops get the fields of their elements, on stdin and on
// the command line.
func TestInnerValuesOfDocuments(t *testing.T) {
	const text = `
		name = "orders"
		[store]
		orders = [{id = "o1", weight = 4, items = ["a", "b"]}, {id = "o2", weight = 10, items = ["c"]}]
		[[steps]]
		name = "per-order"
		each = {over = "orders", as = "order", gather = ["packed", "labels"]}
		[[steps.steps]]
		name     = "pack"
		argv     = ["{order.id}"]
		requires = ["order"]
		provides = "packed"
		[[steps.steps]]
		name = "per-item"
		each = {over = "order.items", as = "item", gather = {label = "labels"}}
		[[steps.steps.steps]]
		name     = "label"
		requires = {item = "item", who = "order.id"}
		provides = "label"`
	result, err := runDocument(t, text, map[string]string{"pack": `printf '"%s"' "$1"`, "label": "cat"})
	if packed, labels := string(result.Values["packed"]), string(result.Values["labels"]); err != nil || packed != `["o1","o2"]` ||
		labels != `[[{"item":"a","who":"o1"},{"item":"b","who":"o1"}],[{"item":"c","who":"o2"}]]` {
		t.Errorf("packed %s, labels %s, %v", packed, labels, err)
	}
	result, err = runDocument(t, strings.ReplaceAll(text, "{order.id}", "{order.number}"), map[string]string{"pack": "exit 1", "label": "cat"})
	if err == nil || !result.Detail.Cause.Matches(logbook.FailureArgument) || !strings.Contains(err.Error(), `cannot fill argv[0]: there is no "order.number": "order" is an object`) {
		t.Errorf("without the field: %v", err)
	}
	optional := strings.ReplaceAll(strings.ReplaceAll(text, "{order.id}", "{order.number}"), `requires = ["order"]`, `optional = ["order"]`)
	if result, err = runDocument(t, optional, map[string]string{"pack": `printf '"%s"' "$#"`, "label": "cat"}); err != nil || string(result.Values["packed"]) != `["0","0"]` {
		t.Errorf("without the field of an optional argument: %s, %v", result.Values["packed"], err)
	}
}
