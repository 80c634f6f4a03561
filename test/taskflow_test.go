package test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
)

// noTaskFlow is the exit status of the tests' runner without TaskFlow.
const noTaskFlow = 75

// taskFlowTime limits one run of TaskFlow's tests; the tests of faults take five minutes on a busy machine with two cores.
const taskFlowTime = 8 * time.Minute

// ranTests is the number of tests in the output of Python's unittest.
var ranTests = regexp.MustCompile(`\nRan (\d+) tests`)

// TestTaskFlowBoards runs TaskFlow's own tests of jobboards and logbooks on a real node.
func TestTaskFlowBoards(t *testing.T) {
	t.Parallel()
	runTaskFlow(t, "test_board", "test_logbook")
}

// TestTaskFlowPrograms runs TaskFlow's own tests of conductors and engines on a real node.
func TestTaskFlowPrograms(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	runTaskFlow(t, "test_conductors", "test_engines")
}

// TestTaskFlowFaults checks the faults that TaskFlow's boards have had in production: lost claims, long
// steps, logbooks that cannot be written, bad postings, killed conductors. It also moves jobs from Redis
// and back.
func TestTaskFlowFaults(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	runTaskFlow(t, "test_faults", "test_chaos", "test_move")
}

// runTaskFlow runs modules of clients/taskflow/tests on a node of their own.
func runTaskFlow(t *testing.T, modules ...string) {
	t.Helper()
	needPython(t)
	folder, err := filepath.Abs("../clients/taskflow")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*", "*.py"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no Python in %s: %v", folder, err)
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil { // go test runs again when the file changes
			t.Fatal(err)
		}
	}
	python := taskFlowPython(t)
	cluster := newClusterOf(t, 1, func(*config.Config) {})
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), taskFlowTime)
	defer cancel()
	run := exec.CommandContext(ctx, python, append([]string{"-B", "run.py"}, modules...)...)
	run.Dir = filepath.Join(folder, "tests")
	run.Env = append(os.Environ(), "CONDUCTORD_SERVER="+cluster.Nodes[0].API)
	if longtest.All() {
		run.Env = append(run.Env, longtest.Variable+"=all")
	}
	output, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	found := ranTests.FindSubmatch(output)
	if found == nil {
		t.Fatalf("no test ran:\n%s", output)
	}
	t.Logf("%s of TaskFlow's and our tests passed", found[1])
}

// taskFlowPython is a Python with TaskFlow, or skips the test. Debian's TaskFlow belongs to Debian's
// Python, which need not be the first one.
func taskFlowPython(t *testing.T) string {
	t.Helper()
	said := "needs TaskFlow: apt-get install python3-taskflow python3-oslotest python3-testscenarios"
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		err := exec.Command(python, "-c", "import sys\ntry: import taskflow.test, testscenarios\nexcept ImportError: sys.exit(75)").Run()
		if err == nil {
			return python
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() != noTaskFlow {
			said = python + " cannot import TaskFlow: " + err.Error()
		}
	}
	t.Skip(said)
	return ""
}
