package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

func TestJobPostFrom(t *testing.T) {
	cluster := openCluster(t)
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
	got := run(t, cluster, "job", "post", "--from", file(many...))
	if ids := strings.Fields(got.out); got.code != 0 || len(ids) != 2_500 || !strings.Contains(many[2_499], ids[2_499]) {
		t.Fatalf("posted %d jobs: code %d, %s", len(ids), got.code, got.err)
	}
	got = run(t, cluster, "job", "post", "--from", file(many[:3]...))
	if strings.Count(got.out, " existed\n") != 3 {
		t.Errorf("posted again: %+v", got)
	}
	again := strings.Replace(many[0], "job 0", "another job", 1)
	got = run(t, cluster, "job", "post", "--from", file(`{"name": "a", "kind": "k"}`, "", again, `{"name": "b", "kind": "k"}`))
	if lines := strings.Split(got.out, "\n"); got.code != cli.ExitConflict || len(lines) != 4 || !strings.HasPrefix(lines[1], "line 3: ") {
		t.Errorf("one of three refused: %+v", got)
	}
	got = run(t, cluster, "-o", "json", "job", "post", "--from", file(again))
	if got.code != cli.ExitConflict || !strings.Contains(got.out, `"code": "conflict"`) || strings.Contains(got.out, `"existed"`) {
		t.Errorf("refused as JSON: %+v", got)
	}
	for lines, want := range map[string]string{
		"":                                   "holds no posting",
		`{"name": "c", "kind": "k"}` + "\n{": "line 2",
		`{"nam": "c"}`:                       "line 1",
		`{"name": "c", "id": "7"}`:           "line 1",
	} {
		if got := run(t, cluster, "job", "post", "--from", file(lines)); got.code != cli.ExitUsage || !strings.Contains(got.err, want) || got.out != "" {
			t.Errorf("%q: %+v", lines, got)
		}
	}
	if got := run(t, cluster, "job", "post", "--from", path, "--kind", "k"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--kind cannot stand beside --from") {
		t.Errorf("two ways to say it: %+v", got)
	}
	if got := run(t, cluster, "job", "list", "--limit", "0", "-o", "json"); strings.Count(got.out, `"name": "c"`) != 0 || strings.Count(got.out, `"sequence"`) != 2_502 {
		t.Errorf("%d jobs are there", strings.Count(got.out, `"sequence"`))
	}
}
