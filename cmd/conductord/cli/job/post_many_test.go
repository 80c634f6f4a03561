package job_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

func TestJobPostFrom(t *testing.T) {
	cluster := clitest.Open(t)
	path := filepath.Join(t.TempDir(), "postings.jsonl")
	file := func(lines ...string) string {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var many []string
	for i := range 2_500 {
		many = append(many, fmt.Sprintf(`{"id": %q, "name": "job %d", "kind": "k", "store": {"n": %d}}`, jobs.NewJobID(), i, i))
	}
	got := clitest.Run(t, cluster, "job", "post", "--from", file(many...))
	if ids := strings.Fields(got.Out); got.Code != 0 || len(ids) != 2_500 || !strings.Contains(many[2_499], ids[2_499]) {
		t.Fatalf("posted %d jobs: code %d, %s", len(ids), got.Code, got.Err)
	}
	got = clitest.Run(t, cluster, "job", "post", "--from", file(many[:3]...))
	if strings.Count(got.Out, " existed\n") != 3 {
		t.Errorf("posted again: %+v", got)
	}
	again := strings.Replace(many[0], "job 0", "another job", 1)
	got = clitest.Run(t, cluster, "job", "post", "--from", file(`{"name": "a", "kind": "k"}`, "", again, `{"name": "b", "kind": "k"}`))
	if lines := strings.Split(got.Out, "\n"); got.Code != cli.ExitConflict || len(lines) != 4 || !strings.HasPrefix(lines[1], "line 3: ") {
		t.Errorf("one of three refused: %+v", got)
	}
	got = clitest.Run(t, cluster, "-o", "json", "job", "post", "--from", file(again))
	if got.Code != cli.ExitConflict || !strings.Contains(got.Out, `"code": "conflict"`) || strings.Contains(got.Out, `"existed"`) {
		t.Errorf("refused as JSON: %+v", got)
	}
	for lines, want := range map[string]string{
		"":                                   "contains no postings",
		`{"name": "c", "kind": "k"}` + "\n{": "line 2",
		`{"nam": "c"}`:                       "line 1",
		`{"name": "c", "id": "7"}`:           "line 1",
	} {
		if got := clitest.Run(t, cluster, "job", "post", "--from", file(lines)); got.Code != cli.ExitUsage || !strings.Contains(got.Err, want) || got.Out != "" {
			t.Errorf("%q: %+v", lines, got)
		}
	}
	if got := clitest.Run(t, cluster, "job", "post", "--from", path, "--key", "k"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "--key does not apply to --from") {
		t.Errorf("one key for all lines: %+v", got)
	}
	if got := clitest.Run(t, cluster, "job", "list", "--limit", "0", "-o", "json"); strings.Count(got.Out, `"name": "c"`) != 0 || strings.Count(got.Out, `"sequence"`) != 2_502 {
		t.Errorf("%d jobs are there", strings.Count(got.Out, `"sequence"`))
	}
}

// TestJobPostFlowsFrom: a file can mix flow documents and plain postings.
func TestJobPostFlowsFrom(t *testing.T) {
	cluster := clitest.Open(t)
	hello := `{"name": "hello", "pattern": "linear", "store": {"guest": "world"}, "steps": [{"name": "greet", "requires": ["guest"]}]}`
	needy := strings.Replace(hello, `"store": {"guest": "world"}`, `"inputs": ["guest"]`, 1)
	line := func(flow, more string) string { return fmt.Sprintf(`{"flow": %s%s}`, flow, more) }
	for _, row := range []struct {
		name  string
		lines []string
		code  int
		err   string // part of stderr
	}{
		{"flows beside a kind", []string{line(hello, ""), `{"kind": "k"}`, line(needy, `, "name": "mine", "store": {"guest": "Grace"}, "tags": ["x"]`)}, 0, ""},
		{"not a document", []string{`{"name": "a", "kind": "k"}`, line(`{"name": "hello"}`, "")}, cli.ExitUsage, "line 2: cannot read the flow line 2:"},
		{"an undeclared input", []string{line(strings.Replace(needy, `"inputs": ["guest"], `, "", 1), `, "store": {"guest": "Grace"}`)}, cli.ExitUsage,
			"which no earlier step provides and the store does not have; name it in inputs"},
		{"a wrong key", []string{line(strings.Replace(hello, `"requires"`, `"requirs"`, 1), "")}, cli.ExitUsage, `did you mean "requires"`},
		{"a missing value", []string{line(hello, ""), line(needy, "")}, cli.ExitUsage, "line 2: "},
		{"a flow and a kind", []string{line(hello, `, "kind": "k"`)}, cli.ExitUsage, "line 1: flow is invalid: a line with a flow document cannot have kind"},
		{"a line that is too long", []string{line(hello, ""), `{"name": "` + strings.Repeat("x", 4<<20) + `"}`}, cli.ExitUsage, "line 2 (the limit is 4194304 bytes)"},
		{"too many lines", []string{strings.Repeat("{\"name\": \"a\", \"kind\": \"k\"}\n", 100_001)}, cli.ExitUsage, "line 100001: file is too large"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "postings.jsonl")
			if err := os.WriteFile(path, []byte(strings.Join(row.lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			got := clitest.Run(t, cluster, "job", "post", "--from", path)
			if got.Code != row.code || !strings.Contains(got.Err, row.err) || len(strings.Fields(got.Out)) > 0 != (row.code == 0) {
				t.Fatalf("got %+v", got)
			}
			if row.code != 0 {
				return
			}
			ids := strings.Fields(got.Out)
			for i, want := range []string{"hello", "k", "mine"} {
				id, _ := jobs.ParseJobID(ids[i])
				job, err := cluster.Job(t.Context(), id)
				if err != nil || job.Name != want {
					t.Errorf("line %d: %+v, %v", i+1, job, err)
				}
				if want == "mine" {
					detail, err := cluster.FlowDetail(t.Context(), job.Flow)
					if err != nil || string(detail.Store["guest"])+string(job.Store["guest"]) != `"Grace""Grace"` {
						t.Errorf("the store is %v, that of the job %v, %v", detail.Store, job.Store, err)
					}
				}
			}
		})
	}
}

// Flags with --from are defaults for lines without the field.
func TestJobPostFromWithDefaults(t *testing.T) {
	cluster := clitest.Open(t)
	path := filepath.Join(t.TempDir(), "postings.jsonl")
	lines := `{"name": "a"}
{"name": "b", "kind": "own", "priority": -1, "tags": ["x"], "store": {"n": 1}}
{"name": "c", "flow": {"name": "c", "steps": [{"name": "s"}]}}`
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t, cluster, "job", "post", "--from", path, "--kind", "mail", "--priority", "high", "--tag", "night", "--set", "n=7", "--hold")
	ids := strings.Fields(got.Out)
	if got.Code != 0 || len(ids) != 3 {
		t.Fatalf("%+v", got)
	}
	high, err := jobs.ParsePriority("high")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []jobs.Job{
		{Kind: "mail", Priority: high, Tags: []string{"night"}}, {Kind: "own", Priority: -1, Tags: []string{"x"}}, {Kind: "document", Priority: high, Tags: []string{"night"}},
	} {
		id, err := jobs.ParseJobID(ids[i])
		if err != nil {
			t.Fatal(err)
		}
		job, err := cluster.Job(t.Context(), id)
		if err != nil || job.Kind != want.Kind || job.State != jobs.StateHeld || job.Priority != want.Priority || !slices.Equal(job.Tags, want.Tags) {
			t.Errorf("line %d: %v, %+v", i+1, err, job)
		}
	}
}
