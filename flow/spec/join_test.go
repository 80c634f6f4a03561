//go:build unix

package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// scripts is a set of handlers that are shell scripts.
func scripts(t *testing.T, texts map[string]string) *handler.Set {
	t.Helper()
	directory := t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	set, err := handler.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// spareMachine provides one value in two ways, one of them in place of the other.
const spareMachine = `
	name    = "machine"
	pattern = "linear"
	store   = {spare = "m-7"}

	[[steps]]
	name = "get-machine"

	[[steps.steps]]
	name     = "take-spare"
	requires = ["spare"]
	provides = "machine"

	[[steps.steps]]
	name     = "make-new"
	when     = {step = "take-spare", is = "missing", depth = "DEPTH"}
	provides = "machine"

	[[steps]]
	name     = "use-machine"
	requires = ["machine"]
	provides = "used"`

// parcel provides one value in two ways that exclude each other.
const parcel = `
	name  = "parcel"
	store = {express = true}

	[[steps]]
	name     = "which-way"
	requires = ["express"]

	[[steps]]
	name     = "by-air"
	when     = {step = "which-way", is = "equals", value = true, depth = "DEPTH"}
	provides = "parcel"

	[[steps]]
	name     = "by-road"
	when     = {step = "which-way", is = "equals", value = false, depth = "DEPTH"}
	provides = "parcel"

	[[steps]]
	name     = "track"
	requires = ["parcel"]
	provides = "used"`

// parcelOtherwise is parcel with an alternative, in a part.
var parcelOtherwise = `
	name  = "parcel"
	store = {express = true}

	[[steps]]
	name = "one"
	flow = "send"
	with = {used = "used"}

	[flows.send]` + strings.ReplaceAll(strings.Replace(strings.SplitN(parcel, "store = {express = true}", 2)[1],
	`when     = {step = "which-way", is = "equals", value = false, depth = "DEPTH"}`, `when     = {otherwise = "by-air", depth = "DEPTH"}`, 1), "[[steps]]", "[[flows.send.steps]]")

func TestJoinsOfDocuments(t *testing.T) {
	set := scripts(t, map[string]string{
		"take-spare": `sed 's/.*"spare":\(.*\)}/\1/'`, "make-new": `echo '"m-new"'`, "use-machine": `sed 's/.*"machine":\(.*\)}/\1/'`,
		"which-way": `sed 's/.*"express":\(.*\)}/\1/'`, "by-air": `echo '"air"'`, "by-road": `echo '"road"'`, "track": `sed 's/.*"parcel":\(.*\)}/\1/'`,
	})
	for _, row := range []struct {
		name, text, depths string
		store              string // a value
		plan               string
		used               string // the value; empty: the last step is skipped
		fails              string
	}{
		{name: "a spare machine", text: spareMachine, depths: "all flow neighbors atom", plan: "machine ← take-spare or make-new", used: `"m-7"`},
		{name: "no spare machine", text: spareMachine, depths: "all flow neighbors atom", store: `null`, used: `"m-new"`},
		{name: "one way", text: parcel, depths: "all flow neighbors atom", plan: "parcel ← by-air or by-road", used: `"air"`},
		{name: "the other way", text: parcel, depths: "all flow neighbors atom", store: `false`, used: `"road"`},
		{name: "a way", text: parcelOtherwise, depths: "all flow neighbors atom", plan: "by-road: after one.which-way; only if not (one.which-way equals true)", used: `"air"`},
		{name: "or else the other", text: parcelOtherwise, depths: "all flow neighbors atom", store: `"by sea"`, used: `"road"`},
		{name: "no way, and all behind it is skipped", text: parcel, depths: "all flow neighbors", store: `"by sea"`},
		{name: "no way", text: parcel, depths: "atom", store: `"by sea"`, fails: `its argument "parcel" has no value: the steps by-air and by-road provide it and were skipped`},
	} {
		for _, depth := range strings.Fields(row.depths) {
			t.Run(row.name+"/"+depth, func(t *testing.T) {
				document, err := spec.Parse([]byte(strings.ReplaceAll(row.text, "DEPTH", depth)), "x.toml")
				if err != nil {
					t.Fatal(err)
				}
				plan, err := document.Compile()
				if err != nil {
					t.Fatal(err)
				}
				if outline := plan.Outline(); !strings.Contains(outline, row.plan) {
					t.Errorf("the plan lacks %s:\n%s", row.plan, outline)
				}
				given := logbook.Values{}
				if row.store != "" {
					given[document.Symbols()[0]] = json.RawMessage(row.store)
				}
				store, err := document.Fill(given)
				if err != nil {
					t.Fatal(err)
				}
				built, err := document.Build(set)
				if err != nil {
					t.Fatal(err)
				}
				result, err := engine.Local{}.Run(t.Context(), built, store)
				if row.fails != "" {
					if err == nil || !strings.Contains(err.Error(), row.fails) {
						t.Errorf("it ends with %v, and should with %s", err, row.fails)
					}
					return
				}
				if got := string(result.Values["used"]); err != nil || got != row.used {
					t.Errorf("it used %s, %v, and should %s", got, err, row.used)
				}
			})
		}
	}
}

// TestFaultsOfAlternatives: an otherwise needs a step of the same graph with a condition.
func TestFaultsOfAlternatives(t *testing.T) {
	for _, row := range []struct{ when, want string }{
		{`{otherwise = "which-way"}`, `the step "which-way" has no condition`},
		{`{otherwise = "by-road"}`, "a step cannot be the alternative to itself"},
		{`{otherwise = "by-ai"}`, `there is no step "by-ai" in the same graph; did you mean "by-air"?`},
		{`{otherwise = "by-air", step = "which-way"}`, "otherwise has the conditions of the other step"},
		{`{otherwise = "by-air", depth = "atoms"}`, `must be one of all, flow, neighbors, atom, not "atoms"`},
		{`{otherwise = 1}`, "must be a string, not a number"},
		{"{otherwise = \"by-air\"}\n\t[[steps]]\n\tname = \"by-sea\"\n\twhen = {otherwise = \"by-road\"}",
			`x.toml:19:2: step "by-sea", when: the step "by-road" has no condition except otherwise, so both steps would run: add a condition to "by-road", or copy its when to run both`},
	} {
		text := strings.Replace(strings.ReplaceAll(parcel, "DEPTH", "atom"), `{step = "which-way", is = "equals", value = false, depth = "atom"}`, row.when, 1)
		_, err := spec.Parse([]byte(text), "x.toml")
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want …%s…", row.when, err, row.want)
		}
	}
}

// TestSkippableProviders: a document with a required value that can be missing is refused.
func TestSkippableProviders(t *testing.T) {
	text := strings.Replace(strings.ReplaceAll(parcel, "DEPTH", "atom"), `provides = "parcel"`, `provides = "letter"`, 1)
	document, err := spec.Parse([]byte(text), "x.toml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = document.Compile()
	want := `x.toml:20:2: missing requirement: step "track" requires "parcel", which conditions can leave without a provider (by-road): add a provider, or make the argument optional; name it in inputs if the job supplies it, or give it a default in store`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// TestReleasedKeys: a step says in the document whether its key is released while it waits.
func TestReleasedKeys(t *testing.T) {
	for text, want := range map[string]bool{`{key = "k", limit = 1}`: true, `{key = "k", limit = 1, release_while_waiting = true}`: false} {
		document, err := spec.Parse([]byte("name = \"x\"\n[[steps]]\nname = \"a\"\nconcurrency = "+text), "x.toml")
		if err != nil {
			t.Fatal(err)
		}
		plan, err := document.Compile()
		if err != nil || plan.Step(0).KeepsKey() != want || strings.Contains(plan.Outline(), "released while it waits") == want {
			t.Errorf("%s: %v, %v", text, plan, err)
		}
	}
}
