package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// scripts is a cluster of three nodes, and workers in TypeScript.
type scripts struct {
	*testing.T
	dir     string // of the compiled client
	cluster *local.Cluster
	client  *raftboard.Client
	servers string
}

// openScripts returns the compiled client. The compiler runs once for all tests, because it can
// take half a minute on a busy machine.
func openScripts(t *testing.T) *scripts {
	t.Helper()
	_, err := os.Stat(typescriptCompiler)
	if _, missing := exec.LookPath("node"); missing != nil || err != nil {
		t.Skip("node or the TypeScript compiler is not installed: npm ci --prefix clients/typescript")
	}
	dir, err := compiledScripts()
	if err != nil {
		t.Fatal(err)
	}
	return &scripts{T: t, dir: dir}
}

var (
	typescriptSource   = filepath.Join("..", "clients", "typescript")
	typescriptCompiler = filepath.Join(typescriptSource, "node_modules", "typescript", "bin", "tsc")
)

// compiledScripts compiles the client beside the binary, which TestMain removes.
var compiledScripts = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(filepath.Dir(binary), "typescript")
	compile := exec.Command("node", typescriptCompiler, "--project", typescriptSource, "--outDir", filepath.Join(dir, "dist"), "--declaration", "false")
	if out, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot compile: %w: %s", err, out)
	}
	manifest, err := os.ReadFile(filepath.Join(typescriptSource, "package.json"))
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o600)
})

// node runs a compiled script.
func (s *scripts) node(args ...string) *following {
	s.Helper()
	f := &following{Cmd: exec.CommandContext(within(s.T), "node", args...)}
	f.Dir, f.Stdout, f.Stderr = s.dir, f, f
	f.Env = append(os.Environ(), "CONDUCTORD_SERVER="+s.servers)
	if err := f.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("%v said:\n%s", args, f.said())
		}
	})
	return f
}

func (s *scripts) worker() *following {
	s.Helper()
	return s.node("dist/examples/conformance.js")
}

// run posts a flow whose steps a worker runs. Each step is TOML, and so is the store.
func (s *scripts) run(store string, steps ...string) (job string) {
	s.Helper()
	text := "name = \"f\"\npattern = \"linear\"\n[store]\n" + store + "\n"
	for _, step := range steps {
		text += "[[steps]]\nworker = true\n" + step + "\n"
	}
	path := filepath.Join(s.TempDir(), "flow.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	job, _, _ = strings.Cut(ran(s.T, "flow", "run", path, "--server", s.servers), "\n")
	return job
}

// last waits for the end of a job, and returns the latest attempt at a step of its flow.
func (s *scripts) last(job string, outcome jobs.Outcome, step string) logbook.Attempt {
	s.Helper()
	id, err := jobs.ParseJobID(job)
	if err != nil {
		s.Fatal(err)
	}
	finished, err := s.client.Wait(within(s.T), id)
	if err != nil {
		s.Fatalf("no end of the job: %v: %s", err, ran(s.T, "job", "explain", job, "--server", s.servers))
	}
	if finished.Outcome != outcome {
		s.Fatalf("the job ended %s, want %s: %s", finished.Outcome, outcome, ran(s.T, "flow", "show", finished.Flow.String(), "--server", s.servers))
	}
	flow, err := s.client.FlowDetail(within(s.T), finished.Flow)
	if err != nil {
		s.Fatal(err)
	}
	for _, atom := range flow.Atoms {
		if atom.Name == step && len(atom.Attempts) > 0 {
			return atom.Attempts[len(atom.Attempts)-1]
		}
	}
	s.Fatalf("step %s has no attempt", step)
	return logbook.Attempt{}
}

// gives checks that a step has the given result.
func (s *scripts) gives(job, step, want string) {
	s.Helper()
	var short bytes.Buffer
	if err := json.Compact(&short, s.last(job, jobs.OutcomeSuccess, step).Result); err != nil || short.String() != want {
		s.Errorf("step %s gives %s (%v), want %s", step, short.String(), err, want)
	}
}

// fails checks that a step has failed in the given way, and that the flow was reverted.
func (s *scripts) fails(job, step, kind, message string, permanent bool) {
	s.Helper()
	id, err := jobs.ParseJobID(job)
	if err != nil {
		s.Fatal(err)
	}
	finished, err := s.client.Wait(within(s.T), id)
	if err != nil {
		s.Fatal(err)
	}
	failure := s.last(job, jobs.OutcomeReverted, step).Failure
	if failure == nil {
		failure = finished.Failure
	}
	if failure == nil || failure.Kind != kind || !strings.Contains(failure.Message, message) || failure.Permanent != permanent {
		s.Errorf("step %s has failed with %+v, want %s: %s (permanent: %t)", step, failure, kind, message, permanent)
	}
}

func (s *scripts) runs(job, step string) {
	s.Helper()
	eventually(s.T, step+" runs", func() bool {
		id, err := jobs.ParseJobID(job)
		if err != nil {
			s.Fatal(err)
		}
		found, err := s.client.Job(within(s.T), id)
		if err != nil {
			return false
		}
		flow, err := s.client.FlowDetail(within(s.T), found.Flow)
		return err == nil && len(flow.Atoms) > 0 && len(flow.Atoms[0].Attempts) > 0 && flow.Atoms[0].Attempts[0].Worker != ""
	})
}

// stops stops a worker, and checks that it ends cleanly.
func (s *scripts) stops(worker *following) {
	s.Helper()
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	if err := worker.Wait(); err != nil {
		s.Errorf("the worker ended with %v: %s", err, worker.said())
	}
}

// TestTypeScript checks that workers in TypeScript follow the protocol, and continue when nodes
// and other workers die.
func TestTypeScript(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	s := openScripts(t)
	parts := s.node("--test", "dist/test/")
	s.cluster, s.client = startCluster(t, func(*config.Config) {})
	s.servers = strings.Join(s.cluster.Endpoints(), ",")
	if err := parts.Wait(); err != nil {
		t.Errorf("the tests of its parts: %v: %s", err, parts.said())
	}
	first := s.worker()
	s.answers()
	s.cancels()

	// If a worker is killed, another one gets its step. A stopped worker finishes its step.
	lost := s.run("seconds = 3", "name = \"sleep\"\nhandler = \"test.sleep\"\nrequires = [\"seconds\"]")
	s.runs(lost, "sleep")
	_ = first.Process.Kill()
	var killed *exec.ExitError
	if err := first.Wait(); !errors.As(err, &killed) {
		t.Fatal(err)
	}
	second := s.worker()
	kept := s.run("seconds = 6", "name = \"once\"\nhandler = \"test.sleep\"\nrequires = [\"seconds\"]\nat_most_once = true")
	s.runs(kept, "once")
	holder, _ := runsAt(t, s.cluster, kept, "--server="+s.servers)
	holder.Kill()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	s.gives(kept, "once", `{"slept":6,"attempt":1}`)
	s.gives(lost, "sleep", `{"slept":3,"attempt":2}`)

	drained := s.run("seconds = 2", "name = \"sleep\"\nhandler = \"test.sleep\"\nrequires = [\"seconds\"]")
	s.runs(drained, "sleep")
	s.stops(second)
	s.gives(drained, "sleep", `{"slept":2,"attempt":1}`)

	trip := s.node("dist/examples/travel.js", "run", "charge-card")
	if err := trip.Wait(); err != nil || !strings.Contains(trip.said(), "reverted the card was declined") {
		t.Errorf("the trip: %v: %s", err, trip.said())
	}
}

// TestTypeScriptCheckpoints kills the worker of the example in an import of rows.
func TestTypeScriptCheckpoints(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	s, f := openScripts(t), openField(t)
	f.importContinues(func() *exec.Cmd {
		return exec.CommandContext(within(t), "node", filepath.Join(s.dir, "dist", "examples", "import-rows.js"))
	})
}

// TestTypeScriptConformance checks that a worker in TypeScript keeps all rules for step workers.
func TestTypeScriptConformance(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	keepsRules(t, "node", filepath.Join(openScripts(t).dir, "dist", "examples", "conformance.js"))
}

// answers runs a step of each kind of end.
func (s *scripts) answers() {
	s.Helper()
	const value = "Grüße 😀 \\ \u2028"
	echo := s.run("v = '"+value+"'\nbig = [9007199254740993]", "name = \"echo\"\nhandler = \"test.echo\"\nrequires = [\"v\", \"big\"]")
	broken := s.run("message = \"nö\"\nkind = \"mine\"\npermanent = false", "name = \"broken\"\nhandler = \"test.fail\"\nrequires = [\"message\", \"kind\", \"permanent\"]\nretry = {attempts = 2, delay = \"100ms\"}")
	keep := s.run("value = [1, \"ü\"]\nmessage = \"no\"\nkind = \"mine\"\npermanent = true",
		"name = \"keep\"\nhandler = \"test.keep\"\nrevert = \"test.unkeep\"\nrequires = [\"value\"]",
		"name = \"broken\"\nhandler = \"test.fail\"\nrequires = [\"message\", \"kind\", \"permanent\"]")
	progress := s.run("pause = 3000", "name = \"progress\"\nhandler = \"test.progress\"\nrequires = [\"pause\"]")
	eventually(s.T, "the lines are there", func() bool { // while the step runs: it continues for 3 s after its last line
		return strings.Contains(ran(s.T, "job", "logs", progress, "--server", s.servers), "line 3")
	})
	later := s.run("times = 2", "name = \"later\"\nhandler = \"test.later\"\nrequires = [\"times\"]")
	big := s.run("bytes = 400000", "name = \"big\"\nhandler = \"test.big\"\nrequires = [\"bytes\"]")
	garbage := s.run("", "name = \"garbage\"\nhandler = \"test.garbage\"")
	crash := s.run("", "name = \"crash\"\nhandler = \"test.crash\"\nretry = {attempts = 1}")

	s.gives(progress, "progress", `{"reported":3}`)
	s.gives(later, "later", `{"asked":2}`)
	var echoed struct {
		Arguments struct {
			V   string
			Big []int64
		}
		Attempt int
		Key     string
	}
	if err := json.Unmarshal(s.last(echo, jobs.OutcomeSuccess, "echo").Result, &echoed); err != nil || echoed.Arguments.V != value || len(echoed.Arguments.Big) != 1 || echoed.Arguments.Big[0] != 9007199254740993 || echoed.Attempt != 1 || echoed.Key == "" {
		s.Errorf("echoed %+v (%v), want %s", echoed, err, value)
	}
	s.fails(broken, "broken", "mine", "nö", false)
	if got := s.last(broken, jobs.OutcomeReverted, "broken").Number; got != 2 {
		s.Errorf("the failing step was tried %d times, want 2", got)
	}
	if got := s.last(keep, jobs.OutcomeReverted, "keep"); got.Action != logbook.ActionRevert || got.Failure != nil {
		s.Errorf("the last attempt at the step that was kept is %+v", got)
	}
	s.fails(big, "big", "over_limit", "result", true)
	s.fails(garbage, "garbage", "error", "a function", true)
	s.fails(crash, "crash", "error", "unforeseen", false)
}

// cancels checks that a long sleeping step ends when its job is cancelled.
func (s *scripts) cancels() {
	s.Helper()
	long := s.run("seconds = 600", "name = \"sleep\"\nhandler = \"test.sleep\"\nrequires = [\"seconds\"]")
	s.runs(long, "sleep")
	ran(s.T, "job", "cancel", long, "--revert", "--server", s.servers)
	s.last(long, jobs.OutcomeCancelled, "sleep")
}
