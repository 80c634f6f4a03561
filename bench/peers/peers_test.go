package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/measure"
)

// TestRun measures every installed peer briefly. The figures do not matter.
func TestRun(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "conductord")
	if err := local.Build(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			if missing := p.missing(); missing != "" {
				t.Skipf("%s is not on the PATH; to get it: %s", missing, p.get)
			}
			dir := t.TempDir()
			if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // servers may run as another user
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			only := p.name + "/flow3-1"
			if p.postsOnly {
				only = p.name + "/post-1"
			}
			// The time is enough for one flow on a busy machine.
			err := run(t.Context(), []string{"-pairs", "1", "-warm", "100ms", "-window", "3s", "-only", only, "-dir", dir, "-binary", binary}, &out)
			if err != nil {
				t.Fatal(err)
			}
			if line := "| " + strings.Replace(only, "/", " | ", 1); strings.Count(out.String(), line) != 2 {
				t.Errorf("%s is not in both tables:\n%s", only, out.String())
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for _, row := range []struct{ args, fault string }{
		{"-only dbos,etcd/post-* -pairs 2 -window 1s", ""},
		{"-only etcd/job-1", `-only has "etcd/job-1", which matches no peer/work`},
		{"-only nats", `-only has "nats/*"`},
		{"-pairs 0", "-pairs is 0; it must be 1 to 100"},
		{"-window 2m", "at most 1m0s"},
		{"more", `"more" is no flag`},
		{"-help", flag.ErrHelp.Error()},
	} {
		_, err := parseOptions(strings.Fields(row.args))
		if row.fault == "" && err != nil || row.fault != "" && (err == nil || !strings.Contains(err.Error(), row.fault)) {
			t.Errorf("%s: %v", row.args, err)
		}
	}
}

// TestTable checks that the ratios are computed within rounds, and not from the medians.
func TestTable(t *testing.T) {
	at := func(perSecond float64) result {
		return result{Run: measure.Run{PerSecond: perSecond, P50: time.Millisecond, P99: 2 * time.Millisecond}, cpu: 30 * time.Microsecond}
	}
	r := report{rows: []row{{peer: "etcd", work: "post-1"}, {peer: "etcd", work: "post-64"}}}
	r.rows[0].add([3]result{at(100), at(200), at(50)})
	r.rows[0].add([3]result{at(1000), at(1000), at(250)})
	r.note("dbos: skipped")
	for _, want := range []string{
		"| etcd | post-1 | 550 | 600 | 1.50 (1.00 to 2.00) | 150 | 0.38 (0.25 to 0.50) |\n",
		"| etcd | post-1 | 1.00, 2.00 | 1.00, 2.00 | 1.00, 2.00 | 30.0, 30.0, 30.0 |\n",
		"- dbos: skipped\n",
	} {
		if !strings.Contains(r.markdown(), want) {
			t.Errorf("%q is not in\n%s", want, r.markdown())
		}
	}
	if strings.Contains(r.markdown(), "post-64") {
		t.Error("a work without rounds has a line")
	}
}
