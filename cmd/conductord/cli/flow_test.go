package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
)

const examples = "../../../examples/"

func TestFlowValidate(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, row := range []struct {
		name  string
		files []string
		code  int
		out   string
		err   []string
	}{
		{"examples", []string{examples + "travel.toml", examples + "hello.toml"}, 0,
			examples + "travel.toml: flow \"travel\", 5 steps: good\n" + examples + "hello.toml: flow \"hello\", 2 steps: good\n", nil},
		{"two faults", []string{file("a.toml", "name = \"a\"\ncolour = 1\n[[steps]]\nname = \"s\"\ntimeout = \"soon\"\n")}, 2, "", []string{"colour", "timeout"}},
		{"a requirement that nobody provides", []string{file("b.toml", "name = \"b\"\n[[steps]]\nname = \"s\"\nrequires = [\"x\"]\n")}, 2, "", []string{"x"}},
		{"one step", []string{file("one.toml", "name = \"one\"\n[[steps]]\nname = \"s\"\n")}, 0, filepath.Join(dir, "one.toml") + ": flow \"one\", 1 step: good\n", nil},
		{"a bad and a good one", []string{file("c.toml", "="), examples + "hello.toml"}, 2, examples + "hello.toml: flow \"hello\", 2 steps: good\n", []string{"c.toml"}},
		{"a missing one", []string{filepath.Join(dir, "none.toml")}, 2, "", []string{"no such file"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := run(t, nil, append([]string{"flow", "validate"}, row.files...)...)
			if got.code != row.code || got.out != row.out {
				t.Errorf("got %+v", got)
			}
			for _, want := range row.err {
				if !strings.Contains(got.err, want) {
					t.Errorf("no %q in %s", want, got.err)
				}
			}
		})
	}
}

func TestFlowPlan(t *testing.T) {
	got := run(t, nil, "flow", "plan", "-o", "json", examples+"travel.toml")
	var plan cli.Plan
	if err := json.Unmarshal([]byte(got.out), &plan); err != nil || got.code != 0 || got.err != "" {
		t.Fatalf("%v: %+v", err, got)
	}
	after := make(map[string]string)
	for _, step := range plan.Steps {
		after[step.Name] = strings.Join(step.After, " ")
	}
	for name, want := range map[string]string{
		"check-customer": "",
		"book-flight":    "check-customer",
		"charge-card":    "check-customer book-flight book-hotel book-car",
	} {
		if after[name] != want {
			t.Errorf("%s waits for %q, want %q", name, after[name], want)
		}
	}
	car := plan.Steps[slices.IndexFunc(plan.Steps, func(s cli.PlanStep) bool { return s.Name == "book-car" })]
	if car.Arguments["city"] != "store.to" || car.Arguments["account"] != "check-customer" || !slices.Equal(car.Provides, []string{"car", "car_price"}) || !slices.Contains(car.Notes, "can be undone") {
		t.Errorf("got %+v", car)
	}
	path := filepath.Join(t.TempDir(), "f.toml")
	text := "name = \"f\"\n[[steps]]\nname = \"g\"\non_takeover = \"undo_last\"\n[[steps.steps]]\nname = \"a\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, nil, "flow", "plan", path); !strings.Contains(got.out, "g (graph); undoes its last steps at a takeover") {
		t.Errorf("a takeover policy: %+v", got)
	}
	if got := run(t, nil, "flow", "plan", examples+"travel.toml"); got.code != 0 || !strings.Contains(got.out, "charge-card") {
		t.Errorf("as text: %+v", got)
	}
}

func TestFlowGraph(t *testing.T) {
	for format, want := range map[string][]string{
		"dot":     {"digraph", `"make-greeting"`, `label="greeting"`},
		"mermaid": {"flowchart", `"make-greeting"`, `|"greeting"|`},
	} {
		got := run(t, nil, "flow", "graph", "--format", format, examples+"hello.toml")
		for _, part := range want {
			if got.code != 0 || !strings.Contains(got.out, part) {
				t.Errorf("%s: no %q in %+v", format, part, got)
			}
		}
	}
}

// TestFlowFromStdin reads the document from a pipe.
func TestFlowFromStdin(t *testing.T) {
	text, err := os.Open(examples + "hello.toml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	got := runWith(t, t.Context(), nil, func(p *cli.Program) { p.In = text }, "flow", "validate", "-")
	if got.code != 0 || got.out != "-: flow \"hello\", 2 steps: good\n" {
		t.Errorf("got %+v", got)
	}
}

// A value that no step is given, because a step before provides the name, is
// told of wherever a document is read.
func TestFlowWarnsOfShadows(t *testing.T) {
	text := "name = \"f\"\npattern = \"linear\"\nstore = {room = 1}\n" +
		"[[steps]]\nname = \"a\"\nprovides = \"room\"\n[[steps]]\nname = \"b\"\nrequires = [\"room\"]\n"
	for _, verb := range []string{"validate", "plan"} {
		got := runWith(t, t.Context(), nil, func(p *cli.Program) { p.In = strings.NewReader(text) }, "flow", verb, "-")
		if want := `warning: the store has "room", and step "b" is given that of step "a"`; got.code != 0 || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v", verb, got)
		}
	}
}

// A value whose name no step takes is perhaps misspelt. It is kept all the same.
func TestFlowRunWarnsOfUntakenValues(t *testing.T) {
	text := "name = \"f\"\ninputs = [\"guest\"]\nstore = {room = 1}\n" +
		"[[steps]]\nname = \"a\"\nrequires = [\"guest\", \"room\"]\noptional = [\"language\"]\nprovides = \"greeting\"\n"
	path := filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := openCluster(t)
	for _, row := range []struct{ set, want string }{
		{"room=2", ""},
		{"language=en", ""},
		{"langage=en", `warning: no step of the flow takes the value "langage"; did you mean "language"?` + "\n"},
		{"greeting=x", `warning: no step of the flow takes the value "greeting"` + "\n"},
	} {
		for _, command := range []string{"flow run " + path, "job post --flow " + path} {
			got := run(t, cluster, append(strings.Fields(command), "--set", "guest=Grace", "--set", row.set)...)
			if got.code != 0 || strings.Contains(got.err, "no step of the flow takes") != (row.want != "") || !strings.Contains(got.err, row.want) {
				t.Errorf("%s --set %s: %+v", command, row.set, got)
			}
		}
	}
}

// TestFlowPlanShowsDefaults holds that the plan of a document tells inputs with a default from others.
func TestFlowPlanShowsDefaults(t *testing.T) {
	if got := run(t, nil, "flow", "plan", examples+"hello.toml"); got.code != 0 || !strings.HasSuffix(got.out, "inputs: guest\ndefaults: guest = \"world\"\n") {
		t.Errorf("got %+v", got)
	}
}
