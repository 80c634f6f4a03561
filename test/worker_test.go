package test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// field is a cluster of three nodes without handlers, and a directory of handlers for workers.
// Each start of a handler writes a line to starts.
type field struct {
	*testing.T
	cluster                *local.Cluster
	client                 *raftboard.Client
	all                    string // flag with the servers
	handlers, starts, free string
}

func openField(t *testing.T) *field {
	t.Helper()
	return openFieldWith(t, func(*config.Config) {})
}

func openFieldWith(t *testing.T, configure func(*config.Config)) *field {
	t.Helper()
	dir := t.TempDir()
	f := &field{T: t, handlers: filepath.Join(dir, "handlers"), starts: filepath.Join(dir, "starts"), free: filepath.Join(dir, "free")}
	note := `read -r line; echo "$CONDUCTORD_STEP $CONDUCTORD_ACTION $CONDUCTORD_ATTEMPT $CONDUCTORD_KEY try $CONDUCTORD_TRY of $CONDUCTORD_TRIES" >> '` + f.starts + `'; `
	writeHandler(t, f.handlers, "quick", note+`echo "$line"`)
	writeHandler(t, f.handlers, "slow", note+`while [ ! -e '`+f.free+`' ]; do echo "at it" >&2; sleep 0.1; done; echo '"done"'`)
	writeHandler(t, f.handlers, "fails", note+`exit 65`)
	writeHandler(t, f.handlers, "undo", note)
	if err := os.WriteFile(f.starts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.cluster, f.client = startCluster(t, configure)
	f.all = "--server=" + strings.Join(f.cluster.Endpoints(), ",")
	return f
}

// worker runs a worker as a process.
func (f *field) worker(more ...string) *following {
	f.Helper()
	return follow(f.T, append([]string{"worker", "--handlers", f.handlers, "--ttl", "3s", f.all}, more...)...)
}

// run posts a flow of steps for workers, one after the other.
func (f *field) run(steps ...string) (job string) {
	f.Helper()
	text := ""
	for _, step := range steps {
		text += "[[steps]]\nworker = true\n" + step + "\n"
	}
	return f.runFlow(text)
}

// runFlow posts a flow of these steps, one after the other.
func (f *field) runFlow(steps string, more ...string) (job string) {
	f.Helper()
	path := filepath.Join(f.TempDir(), "flow.toml")
	if err := os.WriteFile(path, []byte("name = \"f\"\npattern = \"linear\"\n"+steps), 0o600); err != nil {
		f.Fatal(err)
	}
	job, _, _ = strings.Cut(ran(f.T, append([]string{"flow", "run", path, f.all}, more...)...), "\n")
	return job
}

// started are the lines of the handlers so far, without the flow's id in the key.
func (f *field) started() string {
	f.Helper()
	data, err := os.ReadFile(f.starts)
	if err != nil {
		f.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		lines = append(lines, strings.Join(words[:3], " "))
	}
	return strings.Join(lines, ", ")
}

func (f *field) release() {
	if err := os.WriteFile(f.free, nil, 0o600); err != nil {
		f.Fatal(err)
	}
}

func (f *field) ends(job string, outcome jobs.Outcome) {
	f.Helper()
	id, err := jobs.ParseJobID(job)
	if err != nil {
		f.Fatal(err)
	}
	finished, err := f.client.Wait(within(f.T), id)
	if err != nil || finished.Outcome != outcome {
		f.Fatalf("the job ended %s (%v), want %s: %s", finished.Outcome, err, outcome, ran(f.T, "flow", "show", finished.Flow.String(), f.all))
	}
}

const threeSteps = "name = \"one\"\nhandler = \"quick\"\n[[steps]]\nworker = true\nname = \"two\"\nhandler = \"slow\"\nat_most_once = true\n[[steps]]\nworker = true\nname = \"three\"\nhandler = \"quick\""

// TestWorkerOutlivesConductors checks that a step continues when the node of its conductor is
// killed twice, although it must run at most once, and that the flow ends.
func TestWorkerOutlivesConductors(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f := openField(t)
	f.worker()
	job := f.run(threeSteps)
	eventually(t, "the second step runs", func() bool { return strings.Contains(f.started(), "two execute 1") })
	holder, _ := runsAt(t, f.cluster, job, f.all)
	for range 2 {
		holder.Kill()
		before := holder
		eventually(t, "another conductor has the job", func() bool {
			holder, _ = runsAt(t, f.cluster, job, f.all)
			return holder != before
		})
		if err := before.Start(); err != nil {
			t.Fatal(err)
		}
		if err := before.WaitReady(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	f.release()
	f.ends(job, jobs.OutcomeSuccess)
	if got, want := f.started(), "one execute 1, two execute 1, three execute 1"; got != want {
		t.Errorf("started: %s; want %s", got, want)
	}
}

// TestWorkerDies checks that another worker gets the step of a killed worker soon after its TTL. A
// step that must run at most once fails then, and the flow is reverted.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	f := openField(t)
	first := f.worker()
	job := f.run("name = \"two\"\nhandler = \"slow\"\nretry = {attempts = 3}")
	eventually(t, "the step runs", func() bool { return strings.Contains(f.started(), "two execute 1") })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.worker()
	died := time.Now()
	eventually(t, "another worker has the step", func() bool { return strings.Contains(f.started(), "two execute 2") })
	if took := time.Since(died); took > 20*time.Second {
		t.Errorf("the next worker got the step after %s", took)
	}
	f.release()
	f.ends(job, jobs.OutcomeSuccess)
	starts, err := os.ReadFile(f.starts)
	if n := strings.Count(string(starts), " try 1 of 3\n"); err != nil || n != 2 {
		t.Errorf("%d of 2 starts are the first try, for a lost worker counts as none: %v\n%s", n, err, starts)
	}
}

func TestWorkerDiesAtMostOnce(t *testing.T) {
	t.Parallel()
	f := openField(t)
	first := f.worker()
	job := f.run("name = \"one\"\nhandler = \"quick\"\nrevert = \"undo\"", "name = \"two\"\nhandler = \"slow\"\nat_most_once = true")
	eventually(t, "the step runs", func() bool { return strings.Contains(f.started(), "two execute 1") })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.worker()
	f.ends(job, jobs.OutcomeReverted)
	if got, want := f.started(), "one execute 1, two execute 1, one revert 1"; got != want {
		t.Errorf("started: %s; want %s", got, want)
	}
}

// TestBadWorker: a worker that sends false or repeated reports, or that does not have the attempt, is
// refused with the reason and changes nothing. After a lost answer, the same attempts are given again.
// A waiting call gets the slot of an attempt when the attempt's end is recorded. A step whose worker
// never answers ends at its timeout.
func TestBadWorker(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	f, ctx := openField(t), within(t)
	register := func(types ...string) jobs.SessionID {
		session := jobs.Opening{ID: jobs.NewSessionID(), Name: "bad", TTL: time.Minute}
		if _, err := f.client.OpenSession(ctx, session); err != nil {
			t.Fatal(err)
		}
		if err := f.client.Register(ctx, session.ID, jobs.Entity{Kind: jobs.EntityWorker, Name: "bad", JobKinds: types}); err != nil {
			t.Fatal(err)
		}
		return session.ID
	}
	job := f.run("name = \"a\"\nhandler = \"odd\"\nworker_labels = [\"x\"]\nno_worker_timeout = \"3s\"\nretry = {attempts = 1}")
	eventually(t, "explain says what it waits for", func() bool {
		said := ran(t, "job", "explain", job, f.all)
		return strings.Contains(said, `for a worker of the type "odd" with the labels "x", and no live worker runs it`) &&
			strings.Contains(said, "conductord worker --handlers DIRECTORY --types odd --labels x")
	})
	one, other := register("odd"), register("even")
	f.ends(job, jobs.OutcomeReverted)
	job = f.run("name = \"a\"\nhandler = \"odd\"\n[[steps]]\nworker = true\nname = \"b\"\nhandler = \"odd\"\ntimeout = \"1s\"")
	pull := func() steps.ID {
		for {
			pulled, err := f.client.PullSteps(ctx, steps.Pull{Session: one, Slots: 1, Wait: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if len(pulled.Work) > 0 {
				return pulled.Work[0].ID
			}
		}
	}
	id := pull()
	if again := pull(); again != id {
		t.Errorf("a lost answer is followed by %s, want %s", again, id)
	}
	if pulled, err := f.client.PullSteps(ctx, steps.Pull{Session: other, Slots: 9, Wait: time.Second}); err != nil || len(pulled.Work) > 0 {
		t.Errorf("a worker of another type gets %v, %v", pulled, err)
	}
	good, later := steps.Outcome{ID: id, Done: true, Result: []byte("1")}, steps.Outcome{ID: id, Done: true, Result: []byte("1")}
	later.Attempt++
	for _, bad := range []struct {
		name    string
		worker  jobs.SessionID
		outcome steps.Outcome
		want    error
	}{
		{"another worker's", other, good, jobs.ErrFenced},
		{"of an attempt that is none", one, later, jobs.ErrFenced},
		{"of a session that is none", jobs.NewSessionID(), good, jobs.ErrSessionExpired},
		{"without an end", one, steps.Outcome{ID: id, Done: true}, jobs.ErrInvalid},
		{"too many lines", one, steps.Outcome{ID: id, Output: strings.Repeat("x", steps.MaxOutput+1)}, jobs.ErrLimit},
		{"too large", one, steps.Outcome{ID: id, Done: true, Result: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}, jobs.ErrLimit},
	} {
		if _, err := f.client.ReportStep(ctx, bad.worker, bad.outcome, time.Second); !errors.Is(err, bad.want) {
			t.Errorf("a report that is %s: %v, want %v", bad.name, err, bad.want)
		}
	}
	next := make(chan steps.Pulled, 1)
	go func() { // ends with its call
		pulled, _ := f.client.PullSteps(ctx, steps.Pull{Session: one, Refill: true, Holds: []steps.Held{{ID: id, Stopping: true}}, Wait: time.Minute})
		next <- pulled
	}()
	for range 2 {
		if recorded, err := f.client.ReportStep(ctx, one, good, 10*time.Second); err != nil || !recorded {
			t.Errorf("a good report, and its repeat: %t, %v", recorded, err)
		}
	}
	if pulled := <-next; len(pulled.Work) != 1 || pulled.Work[0].Step != "b" {
		t.Errorf("the slot of a recorded attempt is not given to the call that waits: it got %v", pulled)
	}
	contrary := steps.Outcome{ID: id, Done: true, Failure: &logbook.Failure{Kind: "error", Message: "no"}}
	if _, err := f.client.ReportStep(ctx, one, contrary, time.Second); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("another end of the same attempt: %v", err)
	}
	id = pull() // and never answers
	f.ends(job, jobs.OutcomeReverted)
	if _, err := f.client.ReportStep(ctx, one, steps.Outcome{ID: id, Done: true, Result: []byte("1")}, time.Second); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("a late report: %v", err)
	}
	f.run("name = \"a\"\nhandler = \"odd\"\nretry = {attempts = 2, delay = \"10ms\"}")
	failed := steps.Outcome{ID: pull(), Done: true, Failure: &logbook.Failure{Kind: "error", Message: "no"}}
	for range 2 {
		if recorded, err := f.client.ReportStep(ctx, one, failed, 10*time.Second); err != nil || !recorded {
			t.Errorf("a report, and its repeat when the next attempt has begun: %t, %v", recorded, err)
		}
		if next := pull(); next.Attempt != 2 {
			t.Errorf("after the failure comes %s", next)
		}
	}
}

// TestRetryElsewhere checks that an attempt after a failure goes to another worker. Without another
// worker, the same worker gets it.
func TestRetryElsewhere(t *testing.T) {
	t.Parallel()
	f, ctx := openField(t), within(t)
	register := func(name string) jobs.SessionID {
		session := jobs.Opening{ID: jobs.NewSessionID(), Name: name, TTL: time.Minute}
		if _, err := f.client.OpenSession(ctx, session); err != nil {
			t.Fatal(err)
		}
		if err := f.client.Register(ctx, session.ID, jobs.Entity{Kind: jobs.EntityWorker, Name: name, JobKinds: []string{"odd"}}); err != nil {
			t.Fatal(err)
		}
		return session.ID
	}
	pull := func(worker jobs.SessionID, wait time.Duration) []steps.Work {
		pulled, err := f.client.PullSteps(ctx, steps.Pull{Session: worker, Slots: 1, Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
		return pulled.Work
	}
	report := func(worker jobs.SessionID, outcome steps.Outcome) {
		outcome.Done = true
		if recorded, err := f.client.ReportStep(ctx, worker, outcome, 30*time.Second); !recorded {
			t.Fatalf("a report is recorded: %t, %v", recorded, err)
		}
	}
	broken := &logbook.Failure{Kind: "error", Message: "no"}
	one := register("one")
	job := f.run("name = \"a\"\nhandler = \"odd\"\nretry = {attempts = 3}")
	work := pull(one, 30*time.Second)
	if len(work) != 1 {
		t.Fatal("no worker got the first attempt")
	}
	report(one, steps.Outcome{ID: work[0].ID, Failure: broken})
	if work = pull(one, 30*time.Second); len(work) != 1 || work[0].Attempt != 2 {
		t.Fatalf("the only worker got %v, want the second attempt", work)
	}
	report(one, steps.Outcome{ID: work[0].ID, Failure: broken})
	two := register("two")
	if work = pull(two, 30*time.Second); len(work) != 1 || work[0].Attempt != 3 {
		t.Fatalf("the other worker got %v, want the third attempt", work)
	}
	report(two, steps.Outcome{ID: work[0].ID, Result: []byte("1")})
	f.ends(job, jobs.OutcomeSuccess)
}

// TestWorkerIsSetAside checks that a worker on which all steps fail is set aside and shown as such,
// and that the flow ends on another worker.
func TestWorkerIsSetAside(t *testing.T) {
	t.Parallel()
	f := openField(t)
	broken, sound := filepath.Join(f.TempDir(), "broken"), filepath.Join(f.TempDir(), "sound")
	writeHandler(t, broken, "job", "exit 1")
	writeHandler(t, sound, "job", "echo 1")
	follow(t, "worker", "--handlers", broken, "--name", "broken", "--slots", "5", f.all)
	var flow strings.Builder
	flow.WriteString("name = \"f\"\npattern = \"unordered\"\n")
	for _, step := range []string{"a", "b", "c", "d", "e"} {
		flow.WriteString("[[steps]]\nworker = true\nhandler = \"job\"\nretry = {attempts = 50}\nname = \"" + step + "\"\n")
	}
	path := filepath.Join(f.TempDir(), "flow.toml")
	if err := os.WriteFile(path, []byte(flow.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	job, _, _ := strings.Cut(ran(t, "flow", "run", path, f.all), "\n")
	eventually(t, "the worker is set aside", func() bool {
		return strings.Contains(ran(t, "worker", "list", f.all), ": 5 steps failed")
	})
	follow(t, "worker", "--handlers", sound, "--name", "sound", f.all)
	f.ends(job, jobs.OutcomeSuccess)
	workers := ran(t, "worker", "list", "--board", "default", f.all)
	if !strings.Contains(workers, "sound") || strings.Count(workers, "aside ") != 1 {
		t.Errorf("the list of workers is\n%s", workers)
	}
	if other := ran(t, "worker", "list", "-o", "json", f.all); !strings.Contains(other, `"failed": 5`) {
		t.Errorf("as JSON it is\n%s", other)
	}
}

// TestWorkerStops checks that a stopping worker finishes its step, and that its lines can be read
// at any node.
func TestWorkerStops(t *testing.T) {
	t.Parallel()
	f := openField(t)
	worker := f.worker()
	job := f.run("name = \"two\"\nhandler = \"slow\"", "name = \"no\"\nhandler = \"absent\"\nno_worker_timeout = \"500ms\"")
	eventually(t, "lines are read", func() bool {
		return strings.Contains(ran(t, "job", "logs", job, "--server", f.cluster.Nodes[0].API), "at it")
	})
	if err := worker.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	f.release()
	if err := worker.Wait(); err != nil {
		t.Errorf("%v: %s", err, worker.said())
	}
	f.ends(job, jobs.OutcomeReverted)
	if got, want := f.started(), "two execute 1"; got != want {
		t.Errorf("started: %s; want %s", got, want)
	}
}

// TestWorkerLimits checks that a worker takes no more attempts than its limits allow, finishes
// its attempts, and ends with exit code 0. It refuses an unknown type, and names the types that
// it has.
func TestWorkerLimits(t *testing.T) {
	t.Parallel()
	f := openField(t)
	one := f.worker("--max-steps", "1", "--types", "quick,slow")
	job := f.run("name = \"a\"\nhandler = \"slow\"", "name = \"b\"\nhandler = \"quick\"")
	eventually(t, "the first step runs", func() bool { return f.started() == "a execute 1" })
	f.release()
	if err := one.Wait(); err != nil {
		t.Errorf("with --max-steps: %v: %s", err, one.said())
	}
	if got := f.started(); got != "a execute 1" {
		t.Errorf("started with --max-steps 1: %s", got)
	}
	if spent := f.worker("--max-duration", "1s", "--types", "fails"); spent.Wait() != nil {
		t.Errorf("with --max-duration: %s", spent.said())
	}
	f.worker("--handlers-open-files", "64", "--steps-dir", t.TempDir())
	f.ends(job, jobs.OutcomeSuccess)
	if got, want := f.started(), "a execute 1, b execute 1"; got != want {
		t.Errorf("started: %s; want %s", got, want)
	}
	wrong := f.worker("--types", "quik")
	if err := wrong.Wait(); err == nil || !strings.Contains(wrong.said(), "the handlers are fails, quick, slow, undo; did you mean") {
		t.Errorf("a type that is none: %v: %s", err, wrong.said())
	}
}

// TestCausesReachWorkers: a handler of a worker gets the reason of a revert.
func TestCausesReachWorkers(t *testing.T) {
	t.Parallel()
	f := openField(t)
	f.worker()
	told := filepath.Join(t.TempDir(), "told")
	writeHandler(t, f.handlers, "told", `echo "$CONDUCTORD_STEP: $CONDUCTORD_CAUSE, ${CONDUCTORD_CAUSE_BY:+by somebody}, $CONDUCTORD_CAUSE_REASON" >> '`+told+"'\n")
	worker := "[[steps]]\nworker = true\nname = "
	step, slow, fails := worker+"\"quick\"\nrevert = \"told\"\n", worker+"\"slow\"\n", worker+"\"fails\"\n"
	job := f.runFlow(step + slow)
	eventually(t, "the last step runs", func() bool { return strings.Contains(f.started(), "slow execute 1") })
	ran(t, "job", "cancel", job, "--reason", "the customer called", f.all)
	f.ends(job, jobs.OutcomeCancelled)
	f.ends(f.runFlow(step+slow, "--deadline", "2s"), jobs.OutcomeCancelled)
	f.ends(f.runFlow(step+fails), jobs.OutcomeReverted)
	data, err := os.ReadFile(told)
	if err != nil {
		t.Fatal(err)
	}
	var want string
	for _, cause := range []string{"cancel, by somebody, the customer called", "deadline, , its deadline, TIME, has passed",
		"failure, , step fails: handler fails ended with status 65, which forbids another attempt"} {
		want += "quick: " + cause + "\n"
	}
	if got := regexp.MustCompile(`deadline, [0-9]\S*,`).ReplaceAllString(string(data), "deadline, TIME,"); got != want {
		t.Errorf("the reverts were told\n%swant\n%s", got, want)
	}
}
