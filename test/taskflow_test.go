package test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	accesscmd "github.com/conductord/conductord/cmd/conductord/cli/access"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
)

// noTaskFlow is the exit status of the tests' runner without TaskFlow.
const noTaskFlow = 75

// taskFlowTime limits one run of TaskFlow's tests.
const taskFlowTime = 8 * time.Minute

// ranTests is the number of tests in the output of Python's unittest.
var ranTests = regexp.MustCompile(`\nRan (\d+) tests?`)

// TestTaskFlowBoards runs TaskFlow's own tests of jobboards and logbooks on a real node.
func TestTaskFlowBoards(t *testing.T) {
	t.Parallel()
	runTaskFlow(t, "test_board", "test_logbook")
}

// TestTaskFlowPrograms runs TaskFlow's own tests of conductors and engines on a real node.
func TestTaskFlowPrograms(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	runTaskFlows(t, "test_conductors", "test_engines.threads", "test_engines.processes", "test_engines.workers")
}

// TestTaskFlowFaults checks the faults that TaskFlow's boards have had in production: lost claims, long
// steps, logbooks that cannot be written, bad postings, killed conductors. It also moves jobs between
// Redis or ZooKeeper and conductord.
func TestTaskFlowFaults(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	runTaskFlows(t, "test_faults.FaultTest", "test_faults.LongStepTest", "test_faults.TakeoverTest", "test_chaos.CutTest",
		"test_chaos.ChaosTest", "test_move")
}

// TestTaskFlowCluster runs TaskFlow programs with access tokens on three nodes with TLS, and kills the
// leader while a conductor works.
func TestTaskFlowCluster(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	python := taskFlowPython(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	var made accesscmd.MadeFiles
	printed(t, &made, "cert", "init", "--dir", dir)
	printed(t, &made, "cert", "issue", "client", "ann", "--dir", dir)
	cluster := newCluster(t, func(c *config.Config) {
		printed(t, &made, "cert", "issue", "node", c.Node, "--cluster", "local", "--host", "127.0.0.1,localhost", "--dir", dir)
		c.TLS = config.TLS{CA: file("ca.pem"), Cert: made.Cert, Key: made.Key}
	})
	if err := errors.Join(cluster.Start(), cluster.WaitReady(within(t))); err != nil {
		t.Fatal(err)
	}
	servers := strings.Join(cluster.Endpoints(), ",")
	ran(t, "access", "save", "ann", "--grant", "administrator", "--server", "unix://"+filepath.Join(cluster.Nodes[0].DataDir, "api.sock"))
	for name, board := range map[string]string{"orders": "orders", "other": "elsewhere"} {
		ran(t, "token", "create", name, "--grant", "poster="+board+",worker="+board, "--out", file(name), "--server="+servers,
			"--ca-file="+file("ca.pem"), "--cert-file="+file("ann.pem"), "--key-file="+file("ann.key"))
	}
	store, err := credentials.Open(credentials.Files{CA: file("ca.pem"), Cert: file("ann.pem"), Key: file("ann.key")}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	client, err := raftboard.Open(within(t), raftboard.Options{Endpoints: cluster.Endpoints(), Credentials: store})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	leader, killed := leaderOf(t, cluster, client), make(chan struct{})
	go func() { // ends with the test, or when the leader is dead
		defer close(killed)
		for t.Context().Err() == nil {
			if _, err := os.Stat(file("kill")); err == nil {
				leader.Kill()
				_ = os.Remove(file("kill"))
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	runPython(t, python, servers, []string{"CONDUCTORD_CA=" + file("ca.pem"), "CONDUCTORD_TOKENS=" + dir, "CONDUCTORD_KILL=" + file("kill")}, "test_cluster")
	select {
	case <-killed:
	default:
		t.Error("no leader was killed")
	}
}

// runTaskFlows runs each of several tests of clients/taskflow/tests in parallel, because they mostly wait.
func runTaskFlows(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runTaskFlow(t, name)
		})
	}
}

// runTaskFlow runs modules of clients/taskflow/tests on a node of their own.
func runTaskFlow(t *testing.T, modules ...string) {
	t.Helper()
	python := taskFlowPython(t)
	cluster := newClusterOf(t, 1, func(*config.Config) {})
	if err := errors.Join(cluster.Start(), cluster.WaitReady(within(t))); err != nil {
		t.Fatal(err)
	}
	runPython(t, python, cluster.Nodes[0].API, nil, modules...)
}

// runPython runs modules of clients/taskflow/tests on given nodes.
func runPython(t *testing.T, python, servers string, environ []string, modules ...string) {
	t.Helper()
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
	ctx, cancel := context.WithTimeout(t.Context(), taskFlowTime)
	defer cancel()
	run := exec.CommandContext(ctx, python, append([]string{"-B", "run.py"}, modules...)...)
	run.Dir = filepath.Join(folder, "tests")
	run.Env = append(append(os.Environ(), "CONDUCTORD_SERVER="+servers), environ...)
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
	t.Logf("tests of TaskFlow and of the driver that passed: %s", found[1])
}

// taskFlowPython is a Python with TaskFlow, or skips the test. Debian's TaskFlow belongs to Debian's
// Python, which need not be the first one.
func taskFlowPython(t *testing.T) string {
	t.Helper()
	needPython(t)
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
