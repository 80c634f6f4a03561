package flow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	flowcmd "github.com/conductord/conductord/cmd/conductord/cli/flow"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestBooks(t *testing.T) {
	cluster := clitest.Open(t)
	clitest.Expect(t, clitest.Run(t, cluster, "book", "list", "-o", "json"), 0, "{\n \"books\": []\n}\n", "")
	id := clitest.PostHello(t, cluster)
	job, err := cluster.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	clitest.Expect(t, clitest.Run(t, cluster, "book", "list"), 0, "ID NAME CREATED\nID hello AGO\n", "")
	clitest.Expect(t, clitest.Run(t, cluster, "book", "get", job.Book.String()), 0,
		"id: ID\nname: hello\ncreated: TIME\nupdated: TIME\nflows: 1\n\nFLOW NAME FACTORY STATE UPDATED\nID hello document pending AGO\n", "")
	if got := clitest.Run(t, cluster, "book", "get", jobs.NewJobID().String()); got.Code != cli.ExitNotFound {
		t.Errorf("an unknown book: %+v", got)
	}
	if err := cluster.SaveBook(t.Context(), logbook.Book{ID: logbook.NewBookID(), Name: "later"}); err != nil {
		t.Fatal(err)
	}
	clitest.Expect(t, clitest.Run(t, cluster, "book", "list"), 0, "ID NAME CREATED\nID later AGO\nID hello AGO\n", "")
}

func TestFlowShow(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.PostHello(t, cluster)
	tree := func(state string, steps ...string) string {
		return fmt.Sprintf("flow: ID\nname: hello\nbook: ID\nfactory: document\nstate: %s\nSTOREupdated: TIME\n\n%s\n", state, strings.Join(steps, "\n"))
	}
	show := func(id string) clitest.Said {
		got := clitest.Run(t, cluster, "flow", "show", id)
		got.Out = regexp.MustCompile(`(?m)^store: (.*\n)(?:  +.*\n)*`).ReplaceAllString(got.Out, "STORE")
		if !strings.Contains(got.Out, "STORE") {
			got.Out = strings.Replace(got.Out, "updated:", "STOREupdated:", 1)
		}
		return got
	}
	clitest.Expect(t, show(id.String()), 0, tree("pending",
		"hello pending [░░░░░░░░░░░░░░░░░░░░] 0/2 steps", " · make-greeting pending", " · say-greeting pending"), "")
	clitest.NewWorker(t, cluster, id).Succeed()
	done := tree("success", "hello success [████████████████████] 2/2 steps",
		" ✓ make-greeting success TOOK → {\"greeting\":\"Hello\"}", " ✓ say-greeting success TOOK")
	clitest.Expect(t, show(id.String()), 0, done, "")
	job, err := cluster.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	clitest.Expect(t, show(job.Flow.String()), 0, done, "")

	got := clitest.Run(t, cluster, "flow", "show", "-o", "json", id.String())
	if detail := clitest.ReadJSON(t, got.Out, &v1.FlowDetail{}, command.FlowDetailFromProto); detail.ID != job.Flow || len(detail.Atoms) != 2 || !strings.Contains(got.Out, `"ended_token": "`) {
		t.Errorf("got %+v", got)
	}
	if got := clitest.Run(t, cluster, "flow", "show", jobs.NewJobID().String()); got.Code != cli.ExitNotFound {
		t.Errorf("unknown: %+v", got)
	}
	if got := clitest.Run(t, cluster, "flow", "show", clitest.Post(t, cluster, "--kind", "k").String()); got.Code != cli.ExitNotFound || !strings.Contains(got.Err, "has no flow") {
		t.Errorf("a job without a flow: %+v", got)
	}
}

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
		{"examples", []string{clitest.Examples + "travel.toml", clitest.Examples + "hello.toml"}, 0,
			clitest.Examples + "travel.toml: flow \"travel\", 5 steps: good\n" + clitest.Examples + "hello.toml: flow \"hello\", 2 steps: good\n", nil},
		{"two faults", []string{file("a.toml", "name = \"a\"\ncolour = 1\n[[steps]]\nname = \"s\"\ntimeout = \"soon\"\n")}, 2, "", []string{"colour", "timeout"}},
		{"a requirement that nobody provides", []string{file("b.toml", "name = \"b\"\n[[steps]]\nname = \"s\"\nrequires = [\"x\"]\n")}, 2, "", []string{"x"}},
		{"one step", []string{file("one.toml", "name = \"one\"\n[[steps]]\nname = \"s\"\n")}, 0, filepath.Join(dir, "one.toml") + ": flow \"one\", 1 step: good\n", nil},
		{"a bad and a good one", []string{file("c.toml", "="), clitest.Examples + "hello.toml"}, 2, clitest.Examples + "hello.toml: flow \"hello\", 2 steps: good\n", []string{"c.toml"}},
		{"a missing one", []string{filepath.Join(dir, "none.toml")}, 2, "", []string{"no such file"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := clitest.Run(t, nil, append([]string{"flow", "check"}, row.files...)...)
			if got.Code != row.code || got.Out != row.out {
				t.Errorf("got %+v", got)
			}
			for _, want := range row.err {
				if !strings.Contains(got.Err, want) {
					t.Errorf("no %q in %s", want, got.Err)
				}
			}
		})
	}
}

func TestFlowPlan(t *testing.T) {
	got := clitest.Run(t, nil, "flow", "plan", "-o", "json", clitest.Examples+"travel.toml")
	var plan flowcmd.Plan
	if err := json.Unmarshal([]byte(got.Out), &plan); err != nil || got.Code != 0 || got.Err != "" {
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
	car := plan.Steps[slices.IndexFunc(plan.Steps, func(s flowcmd.PlanStep) bool { return s.Name == "book-car" })]
	if car.Arguments["city"] != "store.to" || car.Arguments["account"] != "check-customer" || !slices.Equal(car.Provides, []string{"car", "car_price"}) || !slices.Contains(car.Notes, "can be undone") {
		t.Errorf("got %+v", car)
	}
	path := filepath.Join(t.TempDir(), "f.toml")
	text := "name = \"f\"\n[[steps]]\nname = \"g\"\non_takeover = \"undo_last\"\n[[steps.steps]]\nname = \"a\"\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := clitest.Run(t, nil, "flow", "plan", path); !strings.Contains(got.Out, "g (graph): undoes its last steps at a takeover") {
		t.Errorf("a takeover policy: %+v", got)
	}
	if got := clitest.Run(t, nil, "flow", "plan", clitest.Examples+"travel.toml"); got.Code != 0 || !strings.Contains(got.Out, "charge-card") {
		t.Errorf("as text: %+v", got)
	}
}

// TestFlowPlanHasFacts: the text and the JSON of a plan have the order, the condition, the worker and the
// ignored failure of a step.
func TestFlowPlanHasFacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "release.toml")
	text := `name = "release"
[[steps]]
name = "publish"
after = ["docs", "lint"]
when = {step = "lint", is = "exists", depth = "neighbors"}
[[steps]]
name = "tell"
after = ["publish"]
on_failure = "ignore"
[[steps]]
name = "docs"
after = ["build"]
[[steps]]
name = "build"
worker = true
worker_labels = ["linux"]
[[steps]]
name = "lint"
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := `release (graph)
  1. build: needs a worker of type build with labels linux
  1. lint
  2. docs: after build
  3. publish: after docs, lint; only if lint exists; if not, the steps that wait directly for publish are skipped too
  4. tell: after publish; its failure is ignored
steps with the same number do not wait for each other
`
	if got := clitest.Run(t, nil, "flow", "plan", path); got.Out != want {
		t.Errorf("got\n%s\nwant\n%s", got.Out, want)
	}
	var plan flowcmd.Plan
	if got := clitest.Run(t, nil, "flow", "plan", "-o", "json", path); json.Unmarshal([]byte(got.Out), &plan) != nil || len(plan.Steps) != 5 || len(plan.Flows) != 1 {
		t.Fatalf("got %+v", got)
	}
	build, publish, tell := plan.Steps[0], plan.Steps[3], plan.Steps[4]
	if build.Level != 1 || build.Worker == nil || build.Worker.Type != "build" || !slices.Equal(build.Worker.Labels, []string{"linux"}) {
		t.Errorf("build: got %+v", build)
	}
	if publish.Level != 3 || !strings.HasPrefix(publish.OnlyIf, "only if lint exists; if not, ") || publish.Worker != nil || publish.In != "release" {
		t.Errorf("publish: got %+v", publish)
	}
	if tell.Level != 4 || !tell.Ignored || build.Ignored {
		t.Errorf("tell: got %+v", tell)
	}
}

func TestFlowGraph(t *testing.T) {
	for format, want := range map[string][]string{
		"dot":     {"digraph", `"make-greeting"`, `label="greeting"`},
		"mermaid": {"flowchart", `"make-greeting"`, `|"greeting"|`},
	} {
		got := clitest.Run(t, nil, "flow", "graph", "--format", format, clitest.Examples+"hello.toml")
		for _, part := range want {
			if got.Code != 0 || !strings.Contains(got.Out, part) {
				t.Errorf("%s: no %q in %+v", format, part, got)
			}
		}
	}
}

// TestFlowFromStdin reads the document from a pipe.
func TestFlowFromStdin(t *testing.T) {
	text, err := os.Open(clitest.Examples + "hello.toml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	got := clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) { p.In = text }, "flow", "check", "-")
	if got.Code != 0 || got.Out != "-: flow \"hello\", 2 steps: good\n" {
		t.Errorf("got %+v", got)
	}
}

// Wherever a document is read, the command warns of a value that no step gets because an
// earlier step provides the name.
func TestFlowWarnsOfShadows(t *testing.T) {
	text := "name = \"f\"\npattern = \"linear\"\nstore = {room = 1}\n" +
		"[[steps]]\nname = \"a\"\nprovides = \"room\"\n[[steps]]\nname = \"b\"\nrequires = [\"room\"]\n"
	for _, verb := range []string{"check", "plan"} {
		got := clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) { p.In = strings.NewReader(text) }, "flow", verb, "-")
		if want := `warning: the store has "room", but step "b" gets the value of step "a"`; got.Code != 0 || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v", verb, got)
		}
	}
}

func TestFlowWarnsOfOmissions(t *testing.T) {
	text := "name = \"f\"\n[[steps]]\nname = \"a\"\nprovides = \"room\"\non_failure = \"ignore\"\n[[steps]]\nname = \"b\"\nrequires = [\"room\"]\n"
	for _, verb := range []string{"check", "plan"} {
		got := clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) { p.In = strings.NewReader(text) }, "flow", verb, "-")
		want := `warning: step "b" is skipped if step "a" fails, because it requires "room" and there is no default result`
		if got.Code != 0 || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v", verb, got)
		}
	}
}

// A value whose name no step takes may be misspelt. The job keeps it anyway.
func TestFlowRunWarnsOfUntakenValues(t *testing.T) {
	text := "name = \"f\"\ninputs = [\"guest\"]\nstore = {room = 1}\n" +
		"[[steps]]\nname = \"a\"\nrequires = [\"guest\", \"room\"]\noptional = {language = \"language\", tier = \"member.tier\"}\nprovides = \"greeting\"\nwhen = {input = \"season\", is = \"missing\"}\n"
	path := filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := clitest.Open(t)
	for _, row := range []struct{ set, want string }{
		{"room=2", ""},
		{"language=en", ""},
		{"member={}", ""},
		{"season=high", ""},
		{"langage=en", `warning: no step of the flow takes the value "langage"; did you mean "language"?` + "\n"},
		{"greeting=x", `warning: no step of the flow takes the value "greeting"` + "\n"},
	} {
		for _, command := range []string{"flow run " + path, "job post --flow " + path} {
			got := clitest.Run(t, cluster, append(strings.Fields(command), "--set", "guest=Grace", "--set", row.set)...)
			if got.Code != 0 || strings.Contains(got.Err, "no step of the flow takes") != (row.want != "") || !strings.Contains(got.Err, row.want) {
				t.Errorf("%s --set %s: %+v", command, row.set, got)
			}
		}
	}
}

// TestFlowPlanShowsDefaults: the plan of a document marks inputs that have a default.
func TestFlowPlanShowsDefaults(t *testing.T) {
	if got := clitest.Run(t, nil, "flow", "plan", clitest.Examples+"hello.toml"); got.Code != 0 || !strings.HasSuffix(got.Out, "inputs: guest\ndefaults: guest = \"world\"\n") {
		t.Errorf("got %+v", got)
	}
}

// TestAttemptsThatAreNotShown: folded attempts are counted, and an omitted result is not shown
// as missing.
func TestAttemptsThatAreNotShown(t *testing.T) {
	atom := logbook.AtomDetail{Name: "a", Kind: logbook.KindTask, State: logbook.AtomSuccess}
	for i, shortened := range []bool{true, false} {
		now := time.Now()
		atom.Attempts = append(atom.Attempts, logbook.Attempt{Action: logbook.ActionExecute, Number: i + 1, StartedAt: now, EndedAt: now, Shortened: shortened})
	}
	atom.Attempts[1].Sends = []logbook.Sending{{Key: "order-7", Signal: &logbook.Signal{Name: "paid"}, Answer: "taken"}}
	atom.Folded = logbook.Folded{Executions: 300, Reverts: 2}
	got := flowcmd.Attempts(&logbook.FlowDetail{Atoms: []logbook.AtomDetail{atom}})
	for _, want := range []string{"no longer kept: 300 executions, 2 reverts, 0 resets\n", "done; this answer omits the result\n", "done\n", "  signal paid to key \"order-7\": taken\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestPlanIsNotCheck: plan does not have the name of another verb as an alias.
func TestPlanIsNotCheck(t *testing.T) {
	if got := clitest.Run(t, nil, "flow", "plan", "--help"); got.Code != 0 || strings.Contains(got.Out, "check") {
		t.Errorf("%+v", got)
	}
}
