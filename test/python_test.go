package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

// needPython is the path of the Python client, or skips the test.
func needPython(t *testing.T) (folder string) {
	t.Helper()
	if err := exec.Command("python3", "-c", "import sys; sys.exit(sys.version_info < (3, 9))").Run(); err != nil {
		t.Skip("needs python3, 3.9 or later: ", err)
	}
	folder, err := filepath.Abs("../clients/python")
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
	return folder
}

// TestPythonClientAlone runs the client's own tests.
func TestPythonClientAlone(t *testing.T) {
	t.Parallel()
	unit := exec.CommandContext(within(t), "python3", "-B", "-W", "error", "-m", "unittest")
	unit.Dir = filepath.Join(needPython(t), "tests")
	if output, err := unit.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestPythonConformance checks that a worker in Python keeps all rules for step workers.
func TestPythonConformance(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	keepsRules(t, "python3", "-B", filepath.Join(needPython(t), "examples", "conformance.py"))
}

// hands is a worker in Python with the steps of the conformance tests, and with steps that record
// their starts like the handlers of a field.
const hands = `
import os, sys, logging
from conformance import worker
from conductord import Context, OverLimit

starts, free = sys.argv[1:3]
worker.ttl = 5

def note(context):
    with open(starts, "a") as file:
        file.write("%s %s %d %s\n" % (context.step, context.action, context.attempt, context.key))

@worker.step("quick")
def quick(context: Context, **arguments):
    note(context)
    return arguments

@quick.revert("undo")
def undo(context: Context, result: dict):
    note(context)

@worker.step("slow")
def slow(context: Context, **arguments):
    note(context)
    while not os.path.exists(free):
        context.log("at it")
        context.sleep(0.1)
    return "done"

@worker.step("deaf")
def deaf(context: Context):
    note(context)
    while True:
        pass

@worker.step("large")
def large(context: Context):
    try:
        context.checkpoint("large", "x" * (64 << 10))
    except OverLimit as error:
        context.checkpoint("small", 1)
        return [str(error), context.checkpoints]

logging.basicConfig(level=logging.INFO)
worker.run()
`

// poster posts a flow by the client, and prints its results.
const poster = `
import json, sys
from conductord import Client, Conflict, NotFound, new_id

def step(name, *requires, **more):
    return dict(name=name, handler="test." + name, worker=True, requires=list(requires), provides=name, **more)

document = {"name": "all", "pattern": "linear", "store": {"times": 1}, "steps": [
    step("echo", "value", "times"), step("keep", "value", revert="test.unkeep"), step("later", "times"), step("progress")]}
client = Client()
posting = {"id": new_id(), "store": {"value": json.loads(sys.argv[1]), "times": 2}, "tags": ["python"]}
assert not client.post_flow(document, **posting).existed
job = client.post_flow(document, **posting)
assert job.existed
for event in client.watch(after="1-0", job=job.id):
    last = event["kind"]
    if last == "completed":
        break
job = client.wait(job.id, timeout=30)
assert job.outcome == "success", job
assert [j.id for j in client.list(tags=["python"])] == [job.id]
for kind, call in [(NotFound, lambda: client.get(new_id())), (Conflict, lambda: client.post("other", kind="x", id=job.id))]:
    try:
        call()
        raise AssertionError(kind)
    except kind as error:
        assert error.message
held = client.post("held", kind="nobody", hold=True, deadline=3600.0, retention=60)
client.cancel(held.id, reason="no")
assert client.wait(held.id).outcome == "cancelled"
results = client.results(job)
results["echo"], results["last"] = results["echo"]["arguments"], last
print(json.dumps(results, ensure_ascii=False))
`

// pythonField is a field whose workers are written in Python.
func pythonField(t *testing.T) (f *field, worker func() *following) {
	t.Helper()
	folder, dir := needPython(t), t.TempDir()
	f = &field{T: t, starts: filepath.Join(dir, "starts"), free: filepath.Join(dir, "free")}
	script := filepath.Join(dir, "hands.py")
	for path, text := range map[string]string{f.starts: "", script: hands} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.cluster, f.client = startCluster(t, func(*config.Config) {})
	f.all = "--server=" + strings.Join(f.cluster.Endpoints(), ",")
	return f, func() *following {
		t.Helper()
		w := &following{Cmd: exec.CommandContext(within(t), "python3", "-B", script, f.starts, f.free)}
		w.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(folder, "examples")+":"+folder, "CONDUCTORD_SERVER="+strings.Join(f.cluster.Endpoints(), ","))
		w.Stdout, w.Stderr = w, w
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the worker said:\n%s", w.said())
			}
		})
		return w
	}
}

// TestPythonCheckpoints kills the worker of the example in an import of rows. A checkpoint that is too large is refused by name,
// and the step continues.
func TestPythonCheckpoints(t *testing.T) {
	t.Parallel()
	f, start := pythonField(t)
	example := filepath.Join(needPython(t), "examples", "import_rows.py")
	f.importContinues(func() *exec.Cmd { return exec.CommandContext(within(t), "python3", "-B", example) })
	start()
	job := f.run("name = \"large\"")
	f.ends(job, jobs.OutcomeSuccess)
	if got, want := ran(t, "step", "wait", job+"/large", f.all), `["checkpoint is too large: 65538 bytes, and the limit is 65536", {"small": 1}]`; !sameJSON(t, got, want) {
		t.Errorf("the result is %s, want %s", got, want)
	}
}

// TestPythonSteps checks steps in Python: they pass values unchanged, fail, are retried,
// return "not yet", are undone, report progress while they run, and end when they must. The
// worker ends cleanly.
func TestPythonSteps(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f, start := pythonField(t)
	worker := start()
	// The client posts, waits, watches and reads the results.
	const value = `{"big":123456789012345678901234567890,"float":0.1,"null":null,"text":"ü😀\n"}`
	client := exec.CommandContext(within(t), "python3", "-B", "-c", poster, value)
	client.Env = worker.Env
	output, err := client.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	want := `{"echo": {"value": V, "times": 2}, "keep": {"kept": V}, "later": {"asked": 2}, "progress": {"reported": 3}, "last": "completed"}`
	if want = strings.ReplaceAll(want, "V", value); !sameJSON(t, string(output), want) || strings.Count(string(output), "123456789012345678901234567890") != 2 {
		t.Errorf("the results are %s, want %s", output, want)
	}

	job := f.run(
		"name = \"keep\"\nhandler = \"test.keep\"\nrevert = \"test.unkeep\"\nrequires = {value = \"name\"}",
		"name = \"quick\"\nhandler = \"quick\"\nrevert = \"undo\"\nrequires = [\"name\"]",
		"name = \"crash\"\nhandler = \"test.crash\"\nretry = {attempts = 3, delay = \"100ms\"}\n[store]\nname = \"ü\"",
	)
	f.ends(job, jobs.OutcomeReverted)
	if got, want := f.started(), "quick execute 1, quick revert 1"; got != want {
		t.Errorf("started: %s; want %s", got, want)
	}
	if got := ran(t, "flow", "show", job, f.all); !strings.Contains(got, "ZeroDivisionError") || !strings.Contains(got, "attempt 3") {
		t.Errorf("the failure with its attempts is not shown:\n%s", got)
	}
	for step, want := range map[string]string{
		"handler = \"test.garbage\"":                               "cannot be written as JSON",
		"handler = \"test.sleep\"\nrequires = [\"seconds\"]":       `the argument "seconds" of "test.sleep" is of the type str, and must be float`,
		"handler = \"test.big\"\nrequires = [\"bytes\"]":           "over_limit",
		"handler = \"test.fail\"\nrequires = {kind = \"seconds\"}": "long",
	} {
		job := f.run("name = \"a\"\nretry = {attempts = 1}\n" + step + "\n[store]\nseconds = \"long\"\nbytes = 300000")
		f.ends(job, jobs.OutcomeReverted)
		if got := ran(t, "flow", "show", job, f.all); !strings.Contains(got, want) {
			t.Errorf("%s: want %q in\n%s", step, want, got)
		}
	}

	// A step that checks its event, and a step that loops without checking.
	for _, step := range []string{"slow", "deaf"} {
		job := f.run("name = \"" + step + "\"\nhandler = \"" + step + "\"")
		eventually(t, step+" runs", func() bool { return strings.Contains(f.started(), step+" execute 1") })
		if step == "slow" {
			eventually(t, "its lines are read", func() bool { return strings.Contains(ran(t, "job", "logs", job, f.all), "at it") })
		}
		ran(t, "job", "cancel", job, f.all)
		f.ends(job, jobs.OutcomeCancelled)
	}

	job = f.run("name = \"last\"\nhandler = \"slow\"")
	eventually(t, "the last step runs", func() bool { return strings.Contains(f.started(), "last execute 1") })
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	f.release()
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker ended with %v: %s", err, worker.said())
	}
	f.ends(job, jobs.OutcomeSuccess)
}

// TestPythonOutlivesConductors: an at-most-once step in Python continues when its conductor's
// node is killed, and is reported to the flow's next owner. If a worker is killed, another
// worker gets its step.
func TestPythonOutlivesConductors(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f, start := pythonField(t)
	first := start()
	job := f.run(threeSteps)
	eventually(t, "the second step runs", func() bool { return strings.Contains(f.started(), "two execute 1") })
	holder, _ := runsAt(t, f.cluster, job, f.all)
	holder.Kill()
	killed := time.Now()
	before := holder
	eventually(t, "another conductor has the job", func() bool {
		holder, _ = runsAt(t, f.cluster, job, f.all)
		return holder != before
	})
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("another conductor had the job after %s", time.Since(killed))
	f.release()
	f.ends(job, jobs.OutcomeSuccess)
	if got, want := f.started(), "one execute 1, two execute 1, three execute 1"; got != want {
		t.Errorf("started: %s; want %s", got, want)
	}

	if err := os.Remove(f.free); err != nil {
		t.Fatal(err)
	}
	job = f.run("name = \"four\"\nhandler = \"slow\"")
	eventually(t, "the fourth step runs", func() bool { return strings.Contains(f.started(), "four execute 1") })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	start()
	eventually(t, "another worker has the step", func() bool { return strings.Contains(f.started(), "four execute 2") })
	f.release()
	f.ends(job, jobs.OutcomeSuccess)
}

// TestPythonSpeaksTLS checks that client and worker get their certificates from the variables of
// the command line, and that a waiting call on such a connection can be interrupted.
func TestPythonSpeaksTLS(t *testing.T) {
	t.Parallel()
	folder, dir := needPython(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ran(t, "cert", "init", "--dir", dir)
	cluster := newClusterOf(t, 1, func(c *config.Config) {
		ran(t, "cert", "issue", "node", c.Node, "--cluster", "local", "--host", "127.0.0.1,localhost", "--dir", dir)
		c.TLS = config.TLS{CA: file("ca.pem"), Cert: file(c.Node + ".pem"), Key: file(c.Node + ".key")}
	})
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	script := file("tls.py")
	if err := os.WriteFile(script, []byte(overTLS), 0o600); err != nil {
		t.Fatal(err)
	}
	one := cluster.Nodes[0]
	worker := exec.CommandContext(within(t), "python3", "-B", script)
	worker.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(folder, "examples")+":"+folder, "CONDUCTORD_SERVER="+one.API,
		"CONDUCTORD_CA_FILE="+file("ca.pem"), "CONDUCTORD_CERT_FILE="+file(one.Name+".pem"), "CONDUCTORD_KEY_FILE="+file(one.Name+".key"))
	if output, err := worker.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// overTLS runs a worker until its own flow has ended.
const overTLS = `
import threading
from conformance import worker
from conductord import Client, Unavailable

job = worker.client.post_flow({"name": "f", "pattern": "unordered", "steps": [
    {"name": "s%d" % i, "handler": "test.keep", "worker": True, "inject": {"value": i}} for i in range(10)]})
ended = []

def wait():
    ended.append(worker.client.wait(job.id, timeout=60).outcome)
    worker.stop()

threading.Thread(target=wait, daemon=True).start()
worker.run()
assert ended == ["success"], ended
`

func sameJSON(t *testing.T, got, want string) bool {
	t.Helper()
	var values [2]any
	for i, text := range []string{got, want} {
		if err := json.Unmarshal([]byte(text), &values[i]); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
