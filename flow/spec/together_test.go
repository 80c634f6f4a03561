package spec_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

func parsed(t *testing.T, text string) *spec.Document {
	t.Helper()
	document, err := spec.Parse([]byte(text), "flow.toml")
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// TestTogether: the flows of one job stand one behind the other or side by side, and see none of
// each other's values.
func TestTogether(t *testing.T) {
	build := parsed(t, `name = "build"
inputs = ["commit"]
[store]
region = "eu"
[[steps]]
name = "compile"
requires = ["commit", "region"]
provides = "image"
[[steps]]
name = "test"
flow = "check"
with = {what = "image"}
[flows.check]
[[flows.check.steps]]
name = "run"
handler = "run-tests"
requires = ["what"]`)
	deploy := parsed(t, `name = "deploy"
inputs = ["region", "image"]
on_takeover = "undo_last"
on_failure = "hold"
[flows.check]
[[flows.check.steps]]
name = "ping"
requires = ["image"]
[[steps]]
name = "start"
flow = "check"`)
	for _, row := range []struct {
		order spec.Pattern
		after string
	}{{spec.Linear, "build.test.run"}, {spec.Unordered, ""}} {
		whole, err := spec.Together(row.order, build, deploy)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := whole.Compile()
		if err != nil {
			t.Fatal(err)
		}
		ping, _ := plan.Find("deploy.start.ping")
		var after []string
		for _, step := range plan.Predecessors(ping) {
			after = append(after, plan.Step(step).Name())
		}
		if whole.Name != "build+deploy" || strings.Join(after, " ") != row.after || plan.Source(plan.Arguments(ping)[0]) != "store" {
			t.Errorf("%s:\n%s", row.order, plan.Outline())
		}
		if !slices.Equal(whole.Inputs, []string{"commit", "image"}) || !slices.Equal(whole.Handlers(), []string{"compile", "ping", "run-tests"}) {
			t.Errorf("inputs %v, handlers %v", whole.Inputs, whole.Handlers())
		}
		if compile, _ := plan.Find("build.compile"); !plan.UndoesLast(ping) || plan.UndoesLast(compile) || !plan.Holds(ping) || plan.Holds(compile) {
			t.Error("each flow keeps its policies")
		}
	}
}

// TestNotTogether: what several flows of one job cannot be.
func TestNotTogether(t *testing.T) {
	const step = "\n[[steps]]\nname = \"s\"\n"
	for name, texts := range map[string][2]string{
		"the same name":    {"name = \"a\"" + step, "name = \"a\"" + step},
		"has targets":      {"name = \"a\"" + step, "name = \"b\"\ntargets = [\"s\"]" + step},
		"its on_change is": {"name = \"a\"\non_change = \"pin\"" + step, "name = \"b\"" + step},
		"its default of":   {"name = \"a\"\nstore = {x = 1}" + step, "name = \"b\"\nstore = {x = 2}" + step},
	} {
		_, err := spec.Together(spec.Linear, parsed(t, texts[0]), parsed(t, texts[1]))
		if !errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
