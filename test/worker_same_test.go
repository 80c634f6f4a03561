package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

// sameWorker runs a worker whose step fetch leaves a file in the worker's directory. Its step cut
// needs the file, and fails permanently without it; the revert of cut removes the file.
func (f *field) sameWorker(name, dir string) *following {
	f.Helper()
	file := `read -r line; echo "$CONDUCTORD_STEP $CONDUCTORD_ACTION ` + name + `" >> '` + f.starts + `'; file='` + dir + `'/"$CONDUCTORD_FLOW"; `
	handlers := filepath.Join(dir, "handlers")
	writeHandler(f.T, handlers, "fetch", file+`: > "$file"`)
	writeHandler(f.T, handlers, "cut", file+`[ -e "$file" ] || exit 65`)
	writeHandler(f.T, handlers, "remove", file+`rm "$file" || exit 65`)
	return follow(f.T, "worker", "--handlers", handlers, "--ttl", "3s", "--name", name, f.all)
}

const fetchAndCut = "[[steps]]\nworker = true\nname = \"fetch\"\n%s[[steps]]\nworker = true\nname = \"cut\"\nrevert = \"remove\"\nsame_worker_as = \"fetch\"\n"

// TestSameWorker checks that a step with same_worker_as, and its revert, run where the named step
// ran, for any other workers.
func TestSameWorker(t *testing.T) {
	t.Parallel()
	f := openField(t)
	one, two := t.TempDir(), t.TempDir()
	f.sameWorker("one", one)
	f.sameWorker("two", two)
	flow := strings.Replace(fetchAndCut, "%s", "", 1)
	var done, undone []string
	for range 6 {
		done = append(done, f.runFlow(flow))
		undone = append(undone, f.runFlow(flow+"[[steps]]\nworker = true\nname = \"last\"\nhandler = \"absent\"\nno_worker_timeout = \"100ms\"\n"))
	}
	for i := range done {
		f.ends(done[i], jobs.OutcomeSuccess)
		f.ends(undone[i], jobs.OutcomeReverted)
	}
	left := 0
	for _, dir := range []string{one, two} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		left += len(entries) - 1 // besides the handlers
	}
	if left != len(done) {
		t.Errorf("%d files are left; want the files of the %d flows without a revert", left, len(done))
	}
}

// TestSameWorkerRestarts: a step that is bound to a worker waits when that worker is killed, even
// under another leader and while another worker is free. explain names the worker, no_worker_timeout
// bounds the wait, and a new worker with the same name gets the step.
func TestSameWorkerRestarts(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := openField(t)
	one := t.TempDir()
	first := f.sameWorker("one", one)
	f.worker() // runs slow, between the two steps
	flow := strings.Replace(fetchAndCut, "%s", "[[steps]]\nworker = true\nname = \"between\"\nhandler = \"slow\"\n", 1)
	waits, gives := f.runFlow(flow), f.runFlow(flow+"no_worker_timeout = \"1s\"\n")
	eventually(t, "the steps between run", func() bool { return strings.Count(f.started(), "between execute 1") == 2 })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.sameWorker("two", t.TempDir())
	leader := leaderOf(t, f.cluster, f.client)
	leader.Kill()
	f.release()
	eventually(t, "explain names the worker", func() bool {
		said := ran(t, "job", "explain", waits, f.all)
		return strings.Contains(said, `step "cut" has waited`) && strings.Contains(said, `same_worker_as binds it to worker "one", session `) &&
			strings.Contains(said, "which has ended; no live worker of this name runs this type") && strings.Contains(said, "--types cut --name one")
	})
	f.ends(gives, jobs.OutcomeReverted)
	f.sameWorker("one", one)
	f.ends(waits, jobs.OutcomeSuccess)
	if said := f.started(); strings.Contains(said, "cut execute two") || !strings.Contains(said, "cut execute one") {
		t.Errorf("started: %s", said)
	}
}
