package tree_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// noon is the current time in the pictures.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// drawn is a document in some state.
func drawn(t *testing.T, document string, state logbook.FlowState, atoms ...logbook.AtomDetail) *logbook.FlowDetail {
	t.Helper()
	parsed, err := spec.Parse([]byte(document), "tree.toml")
	if err != nil {
		t.Fatal(err)
	}
	detail := parsed.Detail(logbook.NewFlowID(), logbook.NewBookID(), nil)
	detail.State, detail.Atoms, detail.UpdatedAt = state, atoms, noon
	return &detail
}

// atom is a step that started two seconds before noon. If it is finished, it ended one second
// before noon.
func atom(name string, state logbook.AtomState, result string, change ...func(*logbook.AtomDetail)) logbook.AtomDetail {
	a := logbook.AtomDetail{Name: name, Kind: logbook.KindTask, State: state, Intention: logbook.IntendExecute}
	attempt := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, StartedAt: noon.Add(-2 * time.Second), Result: json.RawMessage(result)}
	if state != logbook.AtomRunning {
		attempt.EndedAt = noon.Add(-time.Second)
	}
	if state != logbook.AtomIgnored && state != logbook.AtomPending {
		a.Attempts = append(a.Attempts, attempt)
	}
	for _, c := range change {
		c(&a)
	}
	return a
}

// failed makes the last attempt a failure; the step waits for the next one.
func failed(number int, again time.Duration) func(*logbook.AtomDetail) {
	return func(a *logbook.AtomDetail) {
		a.Attempts = []logbook.Attempt{{
			Action: logbook.ActionExecute, Number: number, StartedAt: noon.Add(-1500 * time.Millisecond), EndedAt: noon.Add(-time.Second),
			Failure: &logbook.Failure{Kind: logbook.FailureExit, Message: "exit status 1"},
		}}
		if again > 0 {
			a.RetryAt = noon.Add(again)
		}
	}
}

func ignoring(a *logbook.AtomDetail) { a.Intention = logbook.IntendIgnore }

func notYet(asked int, again time.Duration) func(*logbook.AtomDetail) {
	return func(a *logbook.AtomDetail) {
		a.Attempts = []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, StartedAt: noon.Add(-time.Hour), Asked: asked}}
		a.RetryAt = noon.Add(again)
	}
}

// awaiting makes a step wait for signals, or sleep without signals.
func awaiting(signals ...string) func(*logbook.AtomDetail) {
	return func(a *logbook.AtomDetail) {
		notYet(1, time.Hour)(a)
		a.Attempts[0].Wait = &logbook.Wait{Signals: signals, Since: noon, Until: noon.Add(time.Hour)}
	}
}

func progress(done, total int64, details string) func(*logbook.AtomDetail) {
	return func(a *logbook.AtomDetail) {
		a.Progress = &logbook.Progress{Done: done, Total: total, Details: json.RawMessage(details)}
	}
}

func checkpoints(count int, last string) func(*logbook.AtomDetail) {
	return func(a *logbook.AtomDetail) { a.Checkpoints = &logbook.Checkpoints{Count: count, Last: last} }
}

// rounds turns an atom into a retry's atom.
func rounds(number int, after string, change ...func(*logbook.AtomDetail)) func(*logbook.AtomDetail) {
	return func(a *logbook.AtomDetail) {
		a.Kind = logbook.KindRetry
		a.Attempts[0].Number = number
		if after != "" {
			a.Attempts[0].Failures = []logbook.Failure{{Step: after, Message: "there is no room"}}
		}
		for _, c := range change {
			c(a)
		}
	}
}

const placing = `
name = "place-machine"
pattern = "linear"
retry = {times = 3}
store = {regions = []}

[[steps]]
name = "place"
retry = {for_each = "regions", provides = "region", delay = "20s"}

[[steps.steps]]
name = "reserve"

[[steps.steps]]
name = "start"
retry = {attempts = 3, delay = "30s"}

[[steps]]
name = "announce"
`

const remote = `
name = "album"

[[steps]]
name = "list"
provides = "photos"
worker = true

[[steps]]
name = "photos"
each = {over = "photos", as = "photo"}

[[steps.steps]]
name = "resize"
handler = "scale"
revert = "unscale"
worker = true
worker_labels = ["gpu", "large"]
`

// forWorker makes the last attempt an attempt for a step worker; empty: no worker has taken it.
func forWorker(worker string) func(*logbook.AtomDetail) {
	return func(a *logbook.AtomDetail) {
		last := &a.Attempts[len(a.Attempts)-1]
		last.Offered, last.Worker, last.WorkerName = true, worker, worker
	}
}

const limited = `
name = "parcels"

inputs = ["parcels"]

[[steps]]
name  = "ship"
each  = {over = "parcels", as = "parcel", at_once = 2}
steps = [{name = "pack", requires = ["parcel"]}]
`

const keyed = `
name = "disks"
pattern = "linear"

[[steps]]
name = "find"

[[steps]]
name = "copy"
concurrency = {key = "disk", limit = 2}

[[steps]]
name = "verify"
concurrency = {key = "disk", limit = 2}
`

const deciding = `
name = "order"

[[steps]]
name = "price"
provides = "total"

[[steps]]
name = "approve"
when = {step = "price", is = "over", value = 100}

[[steps]]
name = "pack"
after = ["approve"]

[[steps]]
name = "a-step-with-quite-a-long-name-beyond-the-column"
`

// TestTree compares pictures of flows in all states. No picture is wider than a page.
func TestTree(t *testing.T) {
	const success, pending, running = logbook.AtomSuccess, logbook.AtomPending, logbook.AtomRunning
	many := []logbook.AtomDetail{atom("list", success, "[]")}
	for i := range 40 {
		state := []logbook.AtomState{success, success, running, pending}[i%4]
		if i == 33 {
			state = logbook.AtomFailure
		}
		many = append(many, atom(fmt.Sprintf("ship[%d]", i), state, "1"))
	}
	for _, row := range []struct {
		name     string
		detail   *logbook.FlowDetail
		terminal bool
		want     string
	}{
		{"nothing has begun", drawn(t, placing, logbook.FlowPending), false, `
place-machine  pending  [░░░░░░░░░░░░░░░░░░░░] 0/3 steps
  · place-machine-retry  pending
  ▾ place (graph)
    · place-retry        pending
    · reserve            pending
    · start              pending
  · announce             pending`},
		{"the second round waits for a step", drawn(t, placing, logbook.FlowRunning,
			atom("place-machine-retry", success, "1", rounds(1, "")), atom("place-retry", success, `"us"`, rounds(2, "start")),
			atom("reserve", success, `"10.0.0.5"`), atom("start", pending, "", failed(2, 11200*time.Millisecond))), false, `
place-machine  running  [██████░░░░░░░░░░░░░░] 1/3 steps
  ✓ place-machine-retry  success    round 1
  ▾ place (graph)
    ✓ place-retry        success    round 2: "us", after start: there is no room
    ✓ reserve            success    1s  → "10.0.0.5"
    · start              pending    500ms  attempt 2  tries again in 12 s
        handler.exit: exit status 1
  · announce             pending`},
		{"a round is undone, and the next one waits", drawn(t, placing, logbook.FlowRunning,
			atom("place-machine-retry", success, "1", rounds(1, "")),
			atom("place-retry", success, `"eu"`, rounds(1, "", func(a *logbook.AtomDetail) {
				a.Intention, a.RetryAt = logbook.IntendRetry, noon.Add(90*time.Second)
			})),
			atom("reserve", logbook.AtomReverted, `"10.0.0.5"`), atom("start", logbook.AtomReverted, "", failed(1, 0))), true, `
place-machine  running  [█████████████░░░░░░░] 2/3 steps
  ✓ place-machine-retry  success    round 1
  ▾ place (graph)
    ✓ place-retry        success    round 1 is reverted; the next is in 1m30s
    - reserve            nothing to undo
    - start              nothing to undo
  · announce             pending`},
		{"a no, and a long name", drawn(t, deciding, logbook.FlowRunning,
			atom("price", success, "99"), atom("approve", logbook.AtomIgnored, ""), atom("pack", logbook.AtomIgnored, ""),
			atom("a-step-with-quite-a-long-name-beyond-the-column", running, "", progress(3, 10, `{"file":"a"}`))), false, `
order  running  [███████████████░░░░░] 3/4 steps
  ✓ price                     success    1s  → 99
  - approve                   ignore     not run: only if price over 100
  - pack                      ignore     not run
  ▶ a-step-with-quite-a-long-name-beyond-the-column  running    2s  [███░░░░░░░] 3/10 {"file":"a"}`},
		{"a failure is ignored", drawn(t, deciding, logbook.FlowRunning,
			atom("price", logbook.AtomFailure, "", failed(2, 0), ignoring), atom("approve", logbook.AtomIgnored, ""), atom("pack", running, "")), false, `
order  running  [██████████░░░░░░░░░░] 2/4 steps
  ✗ price                     failure ignored  500ms  attempt 2
      handler.exit: exit status 1
  - approve                   ignore     not run: only if price over 100
  ▶ pack                      running    2s
  · a-step-with-quite-a-long-name-beyond-the-column  pending`},
		{"not yet", drawn(t, deciding, logbook.FlowRunning, atom("price", pending, "", notYet(3, 30*time.Second), progress(7, 0, `null`))), true, `
order  running  [░░░░░░░░░░░░░░░░░░░░] 0/4 steps
  · price                     pending    1h  not yet (3×), again in 30 s  7
  · approve                   pending
  · pack                      pending
  · a-step-with-quite-a-long-name-beyond-the-column  pending`},
		{"checkpoints", drawn(t, deciding, logbook.FlowRunning, atom("price", running, "", checkpoints(2, "row")), atom("approve", running, "", checkpoints(1, "page"))), true, `
order  running  [░░░░░░░░░░░░░░░░░░░░] 0/4 steps
  ▶ price                     running    2s  2 checkpoints, last: row
  ▶ approve                   running    2s  1 checkpoint, last: page
  · pack                      pending
  · a-step-with-quite-a-long-name-beyond-the-column  pending`},
		{"waits for signals, and sleeps", drawn(t, deciding, logbook.FlowRunning, atom("price", pending, "", awaiting("paid", "waived")), atom("approve", pending, "", awaiting())), true, `
order  running  [░░░░░░░░░░░░░░░░░░░░] 0/4 steps
  · price                     pending    1h  waits for signal paid or waived un
  · approve                   pending    1h  sleeps until 2026-01-02T13:00:00Z
  · pack                      pending
  · a-step-with-quite-a-long-name-beyond-the-column  pending`},
		{"a step waits for a worker", drawn(t, remote, logbook.FlowRunning, atom("list", running, "", forWorker(""))), true, `
album  running  [░░░░░░░░░░░░░░░░░░░░] 0/2 steps
  · list      waits for a worker  2s  list
  ▾ photos (each)
    · photos  pending
    · resize  pending`},
		{"a worker has the step", drawn(t, remote, logbook.FlowRunning, atom("list", running, "", forWorker("w1"))), true, `
album  running  [░░░░░░░░░░░░░░░░░░░░] 0/2 steps
  ▶ list      running    2s
  ▾ photos (each)
    · photos  pending
    · resize  pending`},
		{"instances wait for workers", drawn(t, remote, logbook.FlowReverting, atom("list", success, "[1,2,3]", forWorker("w1")), atom("resize[0]", running, "", forWorker("")),
			atom("resize[1]", running, "", forWorker("w1")), atom("resize[2]", logbook.AtomReverting, "", func(a *logbook.AtomDetail) {
				a.Attempts = []logbook.Attempt{{Action: logbook.ActionRevert, Number: 1, StartedAt: noon.Add(-time.Minute), Offered: true}}
			})), true, `
album  reverting  [█████░░░░░░░░░░░░░░░] 1/4 steps
  ✓ list           success    1s
  ▾ photos (each)
    · photos       pending
    ▾ resize ×3  1 running, 2 waits for a worker
      · resize[0]  waits for a worker  2s  scale + gpu + large
      ▶ resize[1]  running    2s
      · resize[2]  waits for a worker  1m  unscale + gpu + large`},
		{"a flow of code, whose types are not known", &logbook.FlowDetail{Name: "code", State: logbook.FlowRunning, Atoms: []logbook.AtomDetail{atom("s", running, "", forWorker(""))}}, true, `
code  running  [░░░░░░░░░░░░░░░░░░░░] 0/1 steps
  · s  waits for a worker  2s`},
		{"two have failed, and were undone", &logbook.FlowDetail{Name: "both", State: logbook.FlowReverted, Atoms: []logbook.AtomDetail{
			tried("a", logbook.AtomReverted, logbook.Attempt{Action: logbook.ActionExecute}, logbook.Attempt{Action: logbook.ActionRevert}),
			tried("p", logbook.AtomReverted, fails(logbook.ActionExecute, "no room", ""), logbook.Attempt{Action: logbook.ActionRevert}),
			tried("q", logbook.AtomReverted, fails(logbook.ActionExecute, "no air", ""))}}, false, `
both  reverted  [████████████████████] 3/3 steps
  ↺ a  reverted   0s  attempt 2
  ↺ p  reverted   0s  attempt 2  handler.exit: no room
  - q  nothing to undo  handler.exit: no air`},
		{"soon", &logbook.FlowDetail{Name: "soon", State: logbook.FlowRunning, Atoms: []logbook.AtomDetail{
			atom("s", pending, "", failed(1, 100*time.Millisecond))}}, true, `
soon  running  [░░░░░░░░░░░░░░░░░░░░] 0/1 steps
  · s  pending    500ms  tries again in 100 ms  handler.exit: exit status 1`},
		{"a takeover undoes", &logbook.FlowDetail{Name: "soon", State: logbook.FlowRunning, Atoms: []logbook.AtomDetail{
			atom("s", logbook.AtomReverting, "1", func(a *logbook.AtomDetail) { a.Intention = logbook.IntendRetry })}}, true, `
soon  running  [░░░░░░░░░░░░░░░░░░░░] 0/1 steps
  ↶ s  reverting  1s  reverted at a takeover, then executed again`},
		{"instances", &logbook.FlowDetail{Name: "shipping", State: logbook.FlowRunning, Atoms: many}, false, `
shipping  running  [██████████░░░░░░░░░░] 21/41 steps
  ✓ list        success    1s  → []
  ▾ ship ×40  19 success, 10 running, 10 pending, 1 failure
    ✗ ship[33]  failure    1s
    ▶ ship[2]   running    2s
    ▶ ship[6]   running    2s`},
		{"an each in an each, and its lists are no steps", &logbook.FlowDetail{Name: "parcels", State: logbook.FlowSuccess, Atoms: []logbook.AtomDetail{
			kind(logbook.KindEach, atom("ship-all", success, "[1,2]")), kind(logbook.KindEach, atom("units[0]", success, "[1]")), kind(logbook.KindEach, atom("units[1]", success, "[1]")),
			atom("label[0][0]", success, ""), atom("label[1][0]", success, "")}}, true, `
parcels  success  [████████████████████] 2/2 steps
  ✓ ship-all       success    1s
  ▾ units ×2  2 success
    ✓ units[0]     success    1s
    ✓ units[1]     success    1s
  ▾ label ×2  2 success
    ✓ label[0][0]  success    1s
    ✓ label[1][0]  success    1s`},
		{"a step waits for a key, and one behind it does not yet", drawn(t, keyed, logbook.FlowRunning, atom("find", success, "1")), true, `
disks  running  [██████░░░░░░░░░░░░░░] 1/3 steps
  ✓ find    success    1s
  · copy    pending    waits for key disk (limit 2) or a step slot
  · verify  pending`},
		{"elements wait for a place", drawn(t, limited, logbook.FlowRunning, kind(logbook.KindEach, atom("ship", success, "[1,2,3,4]")), atom("pack[0]", running, ""), atom("pack[1]", running, "")), true, `
parcels  running  [░░░░░░░░░░░░░░░░░░░░] 0/2 steps
  ▾ ship (each)
    ✓ ship       success    1s  2 elements wait; [0] and [1] hold the 2 places
    ▾ pack ×2  2 running
      ▶ pack[0]  running    2s
      ▶ pack[1]  running    2s`},
		{"a place is free: the next element waits for a step slot", drawn(t, limited, logbook.FlowRunning, kind(logbook.KindEach, atom("ship", success, "[1,2,3]")), atom("pack[0]", running, ""), atom("pack[1]", success, "1")), true, `
parcels  running  [██████████░░░░░░░░░░] 1/2 steps
  ▾ ship (each)
    ✓ ship       success    1s
    ▾ pack ×2  1 success, 1 running
      ▶ pack[0]  running    2s
      ✓ pack[1]  success    1s`},
		{"a held flow waits for no key", drawn(t, keyed, logbook.FlowFailure, atom("find", success, "1")), true, `
disks  failure  [██████░░░░░░░░░░░░░░] 1/3 steps
  ✓ find    success    1s
  · copy    pending
  · verify  pending`},
		{"a few instances, nested", &logbook.FlowDetail{Name: "shipping", State: logbook.FlowRunning, Atoms: []logbook.AtomDetail{
			atom("pack[0][10]", running, ""), atom("pack[0][2]", success, "1"), atom("odd]", success, ""), atom("even[x]", success, "")}}, true, `
shipping  running  [███████████████░░░░░] 3/4 steps
  ▾ pack ×2  1 success, 1 running
    ✓ pack[0][2]   success    1s
    ▶ pack[0][10]  running    2s
  ✓ odd]           success    1s
  ✓ even[x]        success    1s`},
	} {
		t.Run(row.name, func(t *testing.T) {
			lines := tree.DrawTree(row.detail, noon, row.terminal)
			if got := "\n" + strings.Join(lines, "\n"); got != row.want {
				t.Errorf("drew%s\nwant%s", got, row.want)
			}
			for _, line := range lines {
				if row.terminal && utf8.RuneCountInString(line) >= 80 {
					t.Errorf("a line of %d characters: %s", utf8.RuneCountInString(line), line)
				}
			}
		})
	}
}

func kind(kind logbook.AtomKind, atom logbook.AtomDetail) logbook.AtomDetail {
	atom.Kind = kind
	return atom
}

// TestTreeOfTargets: steps that targets exclude are not shown.
func TestTreeOfTargets(t *testing.T) {
	detail := drawn(t, placing, logbook.FlowPending)
	detail.Targets = []string{"announce"}
	if got := tree.DrawTree(detail, noon, false); len(got) != 7 {
		t.Errorf("%q", got) // the expected picture is before this comment
	}
	detail.Targets = []string{"reserve"}
	want := []string{
		"place-machine  pending  [░░░░░░░░░░░░░░░░░░░░] 0/1 steps", "  · place-machine-retry  pending",
		"  ▾ place (graph)", "    · place-retry        pending", "    · reserve            pending",
	}
	if got := tree.DrawTree(detail, noon, false); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}
