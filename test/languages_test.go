package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// trips is a node with workers in four languages, for the trip in examples/languages.
type trips struct {
	*testing.T
	client  *raftboard.Client
	servers string
	workers map[string]worker // by the step that it runs
}

// worker is a command, and the process that runs it.
type worker struct {
	command []string
	process *following
}

// startTrips starts a node and the workers.
func startTrips(t *testing.T) *trips {
	t.Helper()
	python, scripts := needPython(t), openScripts(t)
	goWorker := filepath.Join(t.TempDir(), "languages")
	if out, err := exec.CommandContext(within(t), "go", "build", "-o", goWorker, modulePath+"/examples/languages").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the worker in Go: %v\n%s", err, out)
	}
	cluster := newClusterOf(t, 1, func(*config.Config) {})
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	client, err := raftboard.Dial(within(t), cluster.Endpoints()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	server := cluster.Endpoints()[0]
	f := &trips{T: t, client: client, servers: server, workers: map[string]worker{
		"book-flight": {command: []string{goWorker}},
		"book-hotel":  {command: []string{binary, "worker", "--handlers", filepath.Join("..", "examples", "languages", "handlers"), "--name", "shell", "--ttl", "3s"}},
		"book-car":    {command: []string{"python3", "-B", filepath.Join(python, "examples", "languages.py")}},
		"charge-card": {command: []string{"node", filepath.Join(scripts.dir, "dist", "examples", "languages.js")}},
	}}
	for step := range f.workers {
		f.start(step)
	}
	return f
}

// start starts the worker of a step.
func (f *trips) start(step string) {
	f.Helper()
	w := f.workers[step]
	w.process = &following{Cmd: exec.CommandContext(within(f.T), w.command[0], w.command[1:]...)}
	w.process.Env = append(os.Environ(), "CONDUCTORD_SERVER="+f.servers)
	w.process.Stdout, w.process.Stderr = w.process, w.process
	if err := w.process.Start(); err != nil {
		f.Fatal(err)
	}
	f.workers[step] = w
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("the worker of %s said:\n%s", step, w.process.said())
		}
	})
}

// post posts a trip whose steps write into a directory.
func (f *trips) post(dir string, more ...string) (job jobs.JobID) {
	f.Helper()
	args := []string{"flow", "run", filepath.Join("..", "examples", "languages", "trip.toml"), "--server", f.servers, "--set", "dir=" + dir}
	id, _, _ := strings.Cut(ran(f.T, append(args, more...)...), "\n")
	job, err := jobs.ParseJobID(id)
	if err != nil {
		f.Fatal(err)
	}
	return job
}

// ends waits for the end of a job, and returns the record of its flow.
func (f *trips) ends(job jobs.JobID, outcome jobs.Outcome) *logbook.FlowDetail {
	f.Helper()
	ended, err := f.client.Wait(within(f.T), job)
	if err != nil || ended.Outcome != outcome {
		f.Fatalf("the trip ended %s (%v), want %s: %s", ended.Outcome, err, outcome, ran(f.T, "flow", "show", ended.Flow.String(), "--server", f.servers))
	}
	flow, err := f.client.FlowDetail(within(f.T), ended.Flow)
	if err != nil {
		f.Fatal(err)
	}
	return &flow
}

// effects are the lines that the steps of a trip have written: step, action, attempt, key and effect.
func (f *trips) effects(dir string) (lines [][]string) {
	f.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil && !os.IsNotExist(err) {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// TestFourLanguages kills a worker in each of four languages in the middle of a step, each in its
// own trip. After the worker's restart, the step runs again with the same key, and everything is
// booked. Then a trip fails at its last step, and each worker undoes its own steps.
func TestFourLanguages(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := startTrips(t)
	steps := []string{"book-flight", "book-hotel", "book-car", "charge-card"}
	busy := func(dir, step string) string { return filepath.Join(dir, step+".busy") }
	dirs, posted := map[string]string{}, map[string]jobs.JobID{} // by the step whose worker is killed
	for _, step := range steps {
		dirs[step] = t.TempDir()
		if err := os.WriteFile(busy(dirs[step], step), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		posted[step] = f.post(dirs[step])
	}
	for _, step := range steps {
		eventually(t, step+" begins", func() bool {
			return slices.ContainsFunc(f.effects(dirs[step]), func(words []string) bool { return words[0] == step })
		})
	}
	for _, step := range steps {
		_ = f.workers[step].process.Process.Kill()
		_ = f.workers[step].process.Wait()
	}
	for _, step := range steps {
		if err := os.Remove(busy(dirs[step], step)); err != nil {
			t.Fatal(err)
		}
		f.start(step)
	}
	for _, step := range steps {
		booked := f.ends(posted[step], jobs.OutcomeSuccess)
		for i := range booked.Atoms {
			f.checkAtom(dirs[step], booked, &booked.Atoms[i], booked.Atoms[i].Name == step)
		}
	}

	dir := t.TempDir()
	f.ends(f.post(dir, "--set", "fail_at=charge-card"), jobs.OutcomeReverted)
	var undone []string
	for _, words := range f.effects(dir) {
		if words[4] == "cancels" {
			undone = append(undone, words[0])
		} else if len(undone) > 0 {
			t.Errorf("%v after %v", words, undone)
		}
	}
	if slices.Reverse(steps); !slices.Equal(undone, steps) {
		t.Errorf("undone were %v, want %v", undone, steps)
	}
}

// checkAtom checks that the effects of a step match its attempts: each starts with the same key,
// all except the last have lost their worker, and only the last one books.
func (f *trips) checkAtom(dir string, flow *logbook.FlowDetail, atom *logbook.AtomDetail, killed bool) {
	f.Helper()
	var got, want []string
	for _, words := range f.effects(dir) {
		if words[0] == atom.Name {
			got = append(got, strings.Join(words[1:], " "))
		}
	}
	key := fmt.Sprintf("%s/%s/execute", flow.ID, atom.Name)
	for i := range atom.Attempts {
		attempt, last := &atom.Attempts[i], i == len(atom.Attempts)-1
		if begins := fmt.Sprintf("execute %d %s begins", attempt.Number, key); last || slices.Contains(got, begins) {
			want = append(want, begins) // a worker can be lost before it starts
		}
		if !last && (attempt.Failure == nil || attempt.Failure.Kind != logbook.FailureWorkerLost) {
			f.Errorf("attempt %d at %s is not the last, and its failure is %v", attempt.Number, atom.Name, attempt.Failure)
		}
		if last {
			want = append(want, fmt.Sprintf("execute %d %s books", attempt.Number, key))
		}
	}
	if killed && len(atom.Attempts) < 2 || !slices.Equal(got, want) {
		f.Errorf("the effects of %s are\n%s\nand its attempts say\n%s", atom.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
