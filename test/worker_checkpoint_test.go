package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/valuekeys"
)

// handWorker is a worker without a program: the test makes its calls.
type handWorker struct {
	*field
	ctx     context.Context
	session jobs.SessionID
}

// byHand registers a worker for steps of the type "import".
func (f *field) byHand(ctx context.Context, name string) *handWorker {
	f.Helper()
	w := &handWorker{f, ctx, jobs.NewSessionID()}
	if _, err := f.client.OpenSession(ctx, jobs.Opening{ID: w.session, Name: name, TTL: time.Minute}); err != nil {
		f.Fatal(err)
	}
	if err := f.client.Register(ctx, w.session, jobs.Entity{Kind: jobs.EntityWorker, Name: name, JobKinds: []string{"import"}}); err != nil {
		f.Fatal(err)
	}
	return w
}

// pull waits for an attempt.
func (w *handWorker) pull() steps.Work {
	w.Helper()
	for {
		pulled, err := w.client.PullSteps(w.ctx, steps.Pull{Session: w.session, Slots: 1, Wait: 10 * time.Second})
		if err != nil {
			w.Fatal(err)
		}
		if len(pulled.Work) > 0 {
			return pulled.Work[0]
		}
	}
}

func checkpointOf(id steps.ID, number int, name, value string) steps.Outcome {
	return steps.Outcome{ID: id, Checkpoint: &logbook.Checkpoint{Name: name, Value: []byte(value), Number: number}}
}

// records reports until the answer is recorded. At that moment the cluster has the value.
func (w *handWorker) records(o steps.Outcome, want string) {
	w.Helper()
	for recorded := false; !recorded; {
		var err error
		if recorded, err = w.client.ReportStep(w.ctx, w.session, o, 10*time.Second); err != nil {
			w.Fatal(err)
		}
	}
	w.has(o.ID, o.Checkpoint.Name, want)
}

func (w *handWorker) has(id steps.ID, name, want string) {
	w.Helper()
	values, err := w.client.Checkpoints(w.ctx, id.Flow, id.Step)
	if got := string(values[name]); err != nil || got != want {
		w.Errorf("the cluster has the checkpoint %s=%s, want %s: %v", name, got, want, err)
	}
}

// refused checks that a report is refused with an error that contains a text.
func (w *handWorker) refused(o steps.Outcome, want error, text string) {
	w.Helper()
	if recorded, err := w.client.ReportStep(w.ctx, w.session, o, 10*time.Second); recorded || !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		w.Errorf("the checkpoint %.40s: recorded %t, %v; want %v with %q", o.Checkpoint.Name, recorded, err, want, text)
	}
}

// TestWorkerCheckpoints: the answer to a worker's checkpoint comes after its record, across a takeover. A late repeat of an
// earlier report changes nothing. The limits are refused by name, and so are the checkpoints of an attempt that is over. The
// next attempt, on another worker, gets all checkpoints and the last progress.
func TestWorkerCheckpoints(t *testing.T) {
	t.Parallel()
	f, ctx := openField(t), within(t)
	one := f.byHand(ctx, "one")
	job := f.run("name = \"rows\"\nhandler = \"import\"\nretry = {attempts = 3}")
	work := one.pull()
	if work.Checkpoints != nil || work.LastProgress != nil {
		t.Errorf("the first attempt gets %v and %v", work.Checkpoints, work.LastProgress)
	}
	first := checkpointOf(work.ID, 1, "row", "1")
	first.Progress = &logbook.Progress{Done: 1, Total: 3}
	one.records(first, "1")
	one.records(checkpointOf(work.ID, 2, "row", "2"), "2")
	one.records(first, "2") // its late repeat

	one.refused(checkpointOf(work.ID, 0, "row", "9"), jobs.ErrInvalid, "number")
	one.refused(checkpointOf(work.ID, 3, "", "9"), jobs.ErrInvalid, "checkpoint name")
	one.refused(checkpointOf(work.ID, 3, "row", `"`+strings.Repeat("x", logbook.MaxCheckpoint)+`"`), jobs.ErrLimit, fmt.Sprint(logbook.MaxCheckpoint))
	ends := checkpointOf(work.ID, 3, "row", "9")
	ends.Done, ends.Result = true, []byte("1")
	one.refused(ends, jobs.ErrInvalid, "before the end")
	other := f.byHand(ctx, "two")
	other.refused(checkpointOf(work.ID, 3, "row", "9"), jobs.ErrFenced, "does not belong")

	holder, _ := runsAt(t, f.cluster, job, f.all)
	holder.Kill()
	one.records(checkpointOf(work.ID, 3, "row", "3"), "3") // by the next conductor
	one.records(first, "3")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if err := f.client.CloseSession(ctx, one.session); err != nil {
		t.Fatal(err)
	}
	next := other.pull()
	if got := string(next.Checkpoints["row"]); next.Attempt != 2 || got != "3" || next.LastProgress == nil || next.LastProgress.Done != 1 {
		t.Errorf("attempt %d gets the row %s and the progress %+v", next.Attempt, got, next.LastProgress)
	}
	one.refused(checkpointOf(work.ID, 4, "row", "9"), jobs.ErrSessionExpired, "")
	other.records(checkpointOf(next.ID, 1, "row", "4"), "4") // the numbers of an attempt begin at 1
	for recorded := false; !recorded; {
		var err error
		if recorded, err = f.client.ReportStep(ctx, other.session, steps.Outcome{ID: next.ID, Done: true, Failure: &logbook.Failure{Kind: "error", Message: "no"}}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	other.refused(checkpointOf(next.ID, 2, "row", "9"), jobs.ErrFenced, "has ended")
	if last := other.pull(); string(last.Checkpoints["row"]) != "4" || last.Try != 2 {
		t.Errorf("try %d gets %s", last.Try, last.Checkpoints)
	}
}

// TestWorkerCheckpointsAreLimited: the conductor counts the checkpoints of a step, and the worker gets the refusal. The attempt
// continues, and further checkpoints that fit are recorded.
func TestWorkerCheckpointsAreLimited(t *testing.T) {
	t.Parallel()
	f, ctx := openField(t), within(t)
	w := f.byHand(ctx, "one")
	job := f.run("name = \"rows\"\nhandler = \"import\"")
	id, value := w.pull().ID, `"`+strings.Repeat("x", logbook.MaxCheckpoint-2)+`"`
	most := logbook.MaxCheckpointBytes / (logbook.MaxCheckpoint + 2)
	for i := range most {
		w.records(checkpointOf(id, i+1, fmt.Sprintf("%02d", i), value), value)
	}
	w.refused(checkpointOf(id, most+1, "more", value), jobs.ErrLimit, fmt.Sprintf("checkpoints of the step is too large: %d bytes, and the limit is %d", most*(logbook.MaxCheckpoint+2)+logbook.MaxCheckpoint+4, logbook.MaxCheckpointBytes))
	w.refused(checkpointOf(id, most+1, "more", value), jobs.ErrLimit, "the limit is")
	w.records(checkpointOf(id, most+2, "00", "1"), "1")
	if again := w.pull(); again.ID != id || len(again.Checkpoints) != most || string(again.Checkpoints["00"]) != "1" {
		t.Errorf("after a lost answer, the worker gets %d checkpoints of %s", len(again.Checkpoints), again.ID)
	}
	if recorded, err := f.client.ReportStep(ctx, w.session, steps.Outcome{ID: id, Done: true, Result: []byte("1")}, 10*time.Second); err != nil || !recorded {
		t.Fatal(recorded, err)
	}
	f.ends(job, jobs.OutcomeSuccess)
	w.has(id, "00", "")
}

// importedRows is the number of rows of an import.
const importedRows = 60

// importContinues kills a worker with a step "import-rows" in an import of rows. The next worker continues after the last recorded
// row, and repeats at most the row of the kill. The next attempt gets the last progress, and does not run the function of once again.
func (f *field) importContinues(worker func() *exec.Cmd) {
	f.Helper()
	dir, text := f.TempDir(), ""
	for row := range importedRows {
		text += fmt.Sprintln("row", row)
	}
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "target")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
	imported := func() []string {
		data, _ := os.ReadFile(target)
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
	start := func() *following {
		w := &following{Cmd: worker()}
		w.Env = append(os.Environ(), "CONDUCTORD_SERVER="+strings.Join(f.cluster.Endpoints(), ","))
		w.Stdout, w.Stderr = w, w
		if err := w.Start(); err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() {
			if f.Failed() {
				f.Logf("the worker said:\n%s", w.said())
			}
		})
		return w
	}
	first := start()
	job := f.run(fmt.Sprintf("name = \"import\"\nhandler = \"import-rows\"\nrequires = [\"source\", \"target\"]\n[store]\nsource = %q\ntarget = %q", source, target))
	eventually(f.T, "ten rows are imported", func() bool { return len(imported()) > 10 })
	if err := first.Process.Kill(); err != nil {
		f.Fatal(err)
	}
	start()
	f.ends(job, jobs.OutcomeSuccess)
	seen := map[string]int{}
	for _, row := range imported() {
		seen[row]++
	}
	if got := imported(); len(seen) != importedRows || len(got) > importedRows+1 {
		f.Errorf("%d rows are imported in %d imports: %v", len(seen), len(got), got)
	}
	if got, want := ran(f.T, "step", "wait", job+"/import", f.all), fmt.Sprintf(`{"rows": %d, "begun": 1, "of": %[1]d}`, importedRows); !sameJSON(f.T, got, want) {
		f.Errorf("the result is %s, want %s", got, want)
	}
}

// TestKilledImportContinues kills a worker in Go whose handler imports rows.
func TestKilledImportContinues(t *testing.T) {
	t.Parallel()
	f := openField(t)
	writeHandler(t, f.handlers, "import-rows", `line=$(cat)
text() { printf '%s' "$line" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
number() { printf '%s' "$line" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }
record() { echo '{"checkpoint": {"name": "'$1'", "value": '$2'}}' >&3; read -r answer <&4; case $answer in *error*) echo "$answer" >&2; exit 1;; esac; }
begun=$(number begun); of=$(number total); row=$(number row); row=${row:-0}
[ "$begun" ] || { begun=$CONDUCTORD_ATTEMPT; record begun $begun; }
while [ "$row" -lt `+fmt.Sprint(importedRows)+` ]; do
  row=$((row + 1)); sed -n "${row}p" "$(text source)" >> "$(text target)"; sleep 0.05
  echo '{"done": '$row', "total": `+fmt.Sprint(importedRows)+`}' >&3; record row $row
done; echo '{"rows": '$row', "begun": '$begun', "of": '${of:-null}'}'`)
	f.importContinues(func() *exec.Cmd {
		return exec.CommandContext(within(t), binary, "worker", "--handlers", f.handlers, "--ttl", "3s", f.all)
	})
}

// TestWorkerCheckpointsAreHidden: the value of a worker's checkpoint is recorded like a result. Keys encrypt the value, also for a
// worker without keys, and a mark replaces a secret. The next worker with the key gets the plain value.
func TestWorkerCheckpointsAreHidden(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	ran(t, "value-key", "add", keys, "first")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "secrets"), 0o700), os.WriteFile(filepath.Join(dir, "secrets", "db"), []byte("secret-of-the-test-5512"), 0o600)); err != nil {
		t.Fatal(err)
	}
	f, ctx := openFieldWith(t, func(c *config.Config) {
		c.Conductor.ValueKeys, c.Secrets = keys, config.Secrets{Directory: filepath.Join(dir, "secrets")}
	}), within(t)
	loaded, err := valuekeys.Open(keys)
	if err != nil {
		t.Fatal(err)
	}
	with, err := raftboard.Open(ctx, raftboard.Options{Endpoints: f.cluster.Endpoints(), ValueKeys: loaded})
	if err != nil {
		t.Fatal(err)
	}
	defer with.Close()
	one := f.byHand(ctx, "one")
	f.run("name = \"rows\"\nhandler = \"import\"\nrequires = [\"db\"]\n[store]\ndb = {secret = \"db\"}")
	id := one.pull().ID
	for i, w := range []*raftboard.Client{f.client, with} {
		o := checkpointOf(id, i+1, fmt.Sprintf("row%d", i+1), `"`+canary+` with secret-of-the-test-5512"`)
		if recorded, err := w.ReportStep(ctx, one.session, o, 30*time.Second); err != nil || !recorded {
			t.Fatal(recorded, err)
		}
	}
	stored, err := f.client.Checkpoints(ctx, id.Flow, id.Step)
	for _, name := range []string{"row1", "row2"} {
		if key, encrypted := valuekeys.KeyID(stored[name]); err != nil || !encrypted || key != "first" {
			t.Errorf("the cluster has %s=%s, %v", name, stored[name], err)
		}
	}
	pulled, err := with.PullSteps(ctx, steps.Pull{Session: one.session, Slots: 1, Wait: 10 * time.Second})
	if err != nil || len(pulled.Work) != 1 {
		t.Fatal(pulled, err)
	}
	for _, name := range []string{"row1", "row2"} {
		if got, want := string(pulled.Work[0].Checkpoints[name]), `"`+canary+` with [secret db]"`; got != want {
			t.Errorf("the worker with the key gets %s=%s, want %s", name, got, want)
		}
	}
}
