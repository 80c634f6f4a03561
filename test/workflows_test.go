package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// workflows is a node with the handlers of testdata/workflows: rebuilt workflows from other
// systems. Handlers write their calls to NAME.log beside the directory of the handlers.
type workflows struct{ address, dir string }

func startWorkflows(t *testing.T) *workflows {
	t.Helper()
	w := &workflows{address: freeAddress(t), dir: t.TempDir()}
	handlers := filepath.Join(w.dir, "handlers")
	if err := os.CopyFS(handlers, os.DirFS("testdata/workflows/handlers")); err != nil {
		t.Fatal(err)
	}
	runDev(t, w.address, "--data-dir", t.TempDir(), "--handlers", handlers)
	return w
}

// does runs a command of the command line on the node.
func (w *workflows) does(t *testing.T, args ...string) said {
	t.Helper()
	return command(t, "", append(args, "--server", w.address)...)
}

func workflowFile(name string) string { return filepath.Join("testdata", "workflows", name+".toml") }

// posts posts a document and returns the job's id.
func (w *workflows) posts(t *testing.T, name string, args ...string) string {
	t.Helper()
	got := w.does(t, append([]string{"flow", "run", workflowFile(name)}, args...)...)
	if got.code != 0 {
		t.Fatalf("%s: %+v", name, got)
	}
	return strings.TrimSpace(got.out)
}

// log returns the lines that handlers wrote, and clears the file.
func (w *workflows) log(t *testing.T, name string) []string {
	t.Helper()
	path := filepath.Join(w.dir, name+".log")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// mend makes the file for which a handler waits.
func (w *workflows) mend(t *testing.T, handler string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, handler+".mended"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantLog(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the handlers wrote %q, want %q", got, want)
	}
}

// TestWorkflowsOfTheField: workflows that people run with other systems have their expected results, also
// after a failure and a repair.
func TestWorkflowsOfTheField(t *testing.T) {
	t.Parallel()
	w := startWorkflows(t)
	for _, row := range []struct {
		name, document string
		args           []string
		code           int
		want           []string // expressions for stdout and stderr
		log            []string // of the handlers, sorted; nil: not compared
	}{
		{name: "a spare machine", document: "machine", want: []string{`used = \{"machine":"m-7"\}`}},
		{name: "no spare machine", document: "machine", args: []string{"--set", "spare=null"}, want: []string{`used = \{"machine":"m-new"\}`}},
		{name: "the one way", document: "parcel", want: []string{`used = \{"parcel":"air"\}`}},
		{name: "the other way", document: "parcel", args: []string{"--set", "express=false"}, want: []string{`used = \{"parcel":"road"\}`}},
		{name: "no host can use the image", document: "volume", code: 1, want: []string{`image.unacceptable: this image can be used nowhere`}, log: []string{"create on a"}},
		{name: "an input decides", document: "deploy"},
		{name: "a step outside the graph decides", document: "delivery", want: []string{`insure ignore not run`}},
		{name: "fields of elements", document: "orders", log: []string{"pack o1", "pack o2"}},
		{name: "one of three mirrors fails", document: "fetches", want: []string{
			`summary = \{"failures":\[null,\{"kind":"handler.exit",.*\},null\],"results":\[\{"files":7\},null,\{"files":7\}\]\}`}},
		{name: "a try knows its number", document: "train", log: []string{"try 1 of 2: 8 GB", "try 2 of 2: 16 GB"}},
		{name: "a graph", document: "release"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := w.does(t, append([]string{"flow", "run", "--wait", workflowFile(row.document)}, row.args...)...)
			if got.code != row.code {
				t.Errorf("got %+v", got)
			}
			for _, want := range row.want {
				if !regexp.MustCompile(want).MatchString(got.out + got.err) {
					t.Errorf("no %s in %+v", want, got)
				}
			}
			if row.log != nil {
				lines := w.log(t, row.document)
				slices.Sort(lines)
				wantLog(t, lines, row.log...)
			}
		})
	}
	for name, run := range map[string]func(*testing.T, *workflows){
		"a step that waits is told to try now":           retryNow,
		"a held flow continues":                          continueHeld,
		"a repair does not repeat a point of no return":  repairBehindPoint,
		"an element of a loop starts when any has ended": nextElement,
		"a waiting step keeps its key":                   keepKey,
		"a revert knows its cause":                       causes,
		"a label names the element":                      labels,
		"a loop in a loop":                               nestedLoop,
	} {
		t.Run(name, func(t *testing.T) { run(t, w) })
	}
}

func retryNow(t *testing.T, w *workflows) {
	job := w.posts(t, "push")
	eventually(t, "the step waits", func() bool { return strings.Contains(w.does(t, "flow", "show", job).out, "tries again in") })
	w.mend(t, "push")
	if got := w.does(t, "flow", "retry-now", job); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if got := w.does(t, "job", "wait", job); got.code != 0 {
		t.Errorf("got %+v", got)
	}
}

func continueHeld(t *testing.T, w *workflows) {
	job := w.posts(t, "publish")
	if got := w.does(t, "job", "wait", job); got.code != 1 {
		t.Errorf("got %+v", got)
	}
	wantLog(t, w.log(t, "publish"), "build", "upload")
	w.mend(t, "announce")
	if got := w.does(t, "flow", "rerun", job, "--from", "announce", "--reason", "mended", "--wait"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	wantLog(t, w.log(t, "publish"), "announce")
}

func repairBehindPoint(t *testing.T, w *workflows) {
	job := w.posts(t, "switch-over")
	if got := w.does(t, "job", "wait", job); got.code != 1 {
		t.Errorf("got %+v", got)
	}
	wantLog(t, w.log(t, "switch-over")[:2], "copy execute", "switch execute")
	if shown := w.does(t, "flow", "show", job).out; !strings.Contains(shown, "step switch is a point of no return and has succeeded") || strings.Contains(shown, "flow revert") {
		t.Errorf("the flow is shown as\n%s", shown)
	}
	w.mend(t, "tell-others")
	if got := w.does(t, "flow", "rerun", job, "--from", "tell-others", "--reason", "mended", "--wait"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	wantLog(t, w.log(t, "switch-over"), "tell-others execute")
}

func nextElement(t *testing.T, w *workflows) {
	job := w.posts(t, "convert")
	if got := w.does(t, "job", "wait", job); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	lines := w.log(t, "convert")
	if slices.Index(lines, "convert[5] ends") > slices.Index(lines, "convert[0] ends") {
		t.Errorf("the slow element delays others: %q", lines)
	}
	runs := 0
	for _, line := range lines {
		if runs++; strings.HasSuffix(line, " ends") {
			runs -= 2
		}
		if runs > 2 {
			t.Errorf("more than two elements run at once: %q", lines)
		}
	}
}

func keepKey(t *testing.T, w *workflows) {
	job := w.posts(t, "rebuild")
	if got := w.does(t, "job", "wait", job); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	wantLog(t, w.log(t, "rebuild"), "begins", "ends", "begins", "ends", "begins", "ends")
}

func causes(t *testing.T, w *workflows) {
	job := w.posts(t, "order")
	eventually(t, "the step runs", func() bool { return strings.Contains(w.does(t, "flow", "show", job).out, "ship              running") })
	if got := w.does(t, "job", "cancel", job, "--reason", "the customer called"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	w.does(t, "job", "wait", job)
	w.does(t, "flow", "run", workflowFile("order"), "--deadline", "1s", "--wait")
	lines := w.log(t, "order")
	if len(lines) != 2 || lines[0] != "cancel: the customer called" || !strings.HasPrefix(lines[1], "deadline: ") {
		t.Errorf("the reverts got the causes %q", lines)
	}
}

func labels(t *testing.T, w *workflows) {
	job := w.posts(t, "platforms")
	eventually(t, "both elements wait", func() bool {
		return strings.Contains(w.does(t, "flow", "show", job).out, "compile ×2  2 waits for a worker")
	})
	if shown := w.does(t, "flow", "show", job).out; !regexp.MustCompile(`· compile\[1\] +waits for a worker +\S+ +compile \+ macos\n`).MatchString(shown) {
		t.Errorf("the flow is shown as\n%s", shown)
	}
	for _, platform := range []string{"linux", "macos"} {
		worker := exec.Command(binary, "worker", "--server", w.address, "--handlers", filepath.Join(w.dir, "handlers"), "--types", "compile", "--labels", platform)
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = worker.Process.Kill()
			_ = worker.Wait()
		})
	}
	if got := w.does(t, "job", "wait", job); got.code != 0 {
		t.Errorf("got %+v", got)
	}
}

func nestedLoop(t *testing.T, w *workflows) {
	job := w.posts(t, "parcels")
	w.does(t, "job", "wait", job)
	shown := w.does(t, "flow", "show", job).out
	for _, want := range []string{"6/6 steps", "ship-units ×2  2 success", "label ×6  6 success"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
}
