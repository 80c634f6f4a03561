package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestInjectedValuesReachTheirStep: execution and revert of the step get the injected values,
// and no other step does. They replace values of earlier steps and of the store.
func TestInjectedValuesReachTheirStep(t *testing.T) {
	type given struct {
		X int `json:"x"`
		Y int `json:"y"`
	}
	var seen []string
	see := func(what string) func(context.Context, given) (none, error) {
		return func(_ context.Context, in given) (none, error) {
			seen = append(seen, fmt.Sprintf("%s %d %d", what, in.X, in.Y))
			if what == "last" {
				return none{}, errors.New("woot")
			}
			return none{}, nil
		}
	}
	root := flow.Linear("f", flow.NewStep("make", rawTask(`{"x": 1}`), flow.ProvidesFields("x")),
		flow.FuncRevert("own", see("own"), func(ctx context.Context, in given, _ *none) error {
			_, err := see("undo")(ctx, in)
			return err
		}, flow.Inject(map[string]any{"x": 10, "y": 20})),
		flow.Func("last", see("last")))
	end, _, err := runAll(t, t.Context(), engine.Options{Plan: compile(t, root, "y"), Store: logbook.Values{"y": json.RawMessage("2")}, Workers: 1})
	if err != nil || end.State != logbook.FlowReverted {
		t.Fatal(end, err)
	}
	if got, want := fmt.Sprint(seen), "[own 10 20 last 1 2 undo 10 20]"; got != want {
		t.Errorf("seen: %s, wanted %s", got, want)
	}
}

// TestDrawnDelaysAreRecorded: the random delay is recorded, and the step waits for the
// recorded time.
func TestDrawnDelaysAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := flow.Retry(flow.Backoff{Attempts: 2, Delay: time.Hour, JitterPercent: 90})
		began, tries := time.Now(), []time.Duration(nil)
		step := act("a", func(context.Context) error {
			tries = append(tries, time.Since(began))
			return errors.New("woot")
		}, policy)
		j := newJournal(newDetail())
		if _, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, step), Detail: newDetail(), Journal: j}); err != nil {
			t.Fatal(err)
		}
		var recorded time.Duration
		for _, update := range j.trace() {
			for _, change := range update.Atoms {
				if !change.RetryAt.IsZero() {
					recorded = change.RetryAt.Sub(began)
				}
			}
		}
		if len(tries) != 2 || tries[1] != recorded || recorded > time.Hour || recorded < time.Hour/10 {
			t.Errorf("tried at %v, and recorded %s", tries, recorded)
		}
	})
}

// TestRoundsAreHeldToTheirPause: if a machine with a clock far ahead recorded the time of a
// round, the wait is limited to the retry's longest delay.
func TestRoundsAreHeldToTheirPause(t *testing.T) {
	pause := flow.Pause(flow.Backoff{Delay: time.Minute, BackoffPercent: 300, JitterPercent: 50})
	for _, row := range []struct {
		name    string
		options []flow.RetryOption
		ahead   time.Duration
		want    time.Duration
	}{
		{"by far", []flow.RetryOption{pause}, 1 << 62, time.Minute},
		{"soon", []flow.RetryOption{pause}, time.Second, time.Second},
		{"over", []flow.RetryOption{pause}, -time.Second, 0},
		{"by far, and nobody knows the pause", nil, 1 << 62, flow.MaxPause},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				detail := newDetail()
				detail.State = logbook.FlowRunning
				ended := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, EndedAt: time.Now(), Result: json.RawMessage("1")}
				retry := logbook.NewAtom("r", logbook.KindRetry)
				retry.State, retry.Intention, retry.RetryAt = logbook.AtomSuccess, logbook.IntendRetry, time.Now().Add(row.ahead)
				retry.Attempts = []logbook.Attempt{ended}
				detail.Atoms = []logbook.AtomDetail{retry}
				root := flow.Linear("f", act("a", fine)).WithRetry(flow.Times("r", 3, row.options...))
				began := time.Now()
				end, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, root), Detail: detail, Journal: newJournal(detail)})
				if took := time.Since(began); err != nil || end.State != logbook.FlowSuccess || took != row.want {
					t.Errorf("it took %s, not %s: %v, %v", took, row.want, end, err)
				}
			})
		})
	}
}

// patient returns "not yet" for a number of calls.
type patient struct {
	times int
	calls []string
}

func (a *patient) Execute(_ context.Context, call *flow.Call) (any, error) {
	a.calls = append(a.calls, fmt.Sprintf("%s %d asked %d", call.Action, call.Attempt, call.Asked))
	if call.Asked < a.times {
		return nil, flow.NotYet(time.Minute, map[string]int{"asked": call.Asked})
	}
	return "done", nil
}

func TestNotYetIsRecordedWithItsDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := &patient{times: 2}
		root := flow.NewStep("a", task, flow.Timeout(time.Second)) // of each call, and not of the wait
		end, detail, err := runAll(t, t.Context(), engine.Options{Plan: compile(t, root)})
		if err != nil || end.State != logbook.FlowSuccess {
			t.Fatal(end, err)
		}
		if got := fmt.Sprint(task.calls); got != "[execute 1 asked 0 execute 1 asked 1 execute 1 asked 2]" {
			t.Error(got)
		}
		atom := detail.Atoms[0]
		if n := len(atom.Attempts); n != 1 || atom.Attempts[0].Asked != 2 || atom.Attempts[0].EndedAt.Sub(atom.Attempts[0].StartedAt) != 2*time.Minute {
			t.Errorf("the attempts are %+v", atom.Attempts)
		}
		if atom.Progress == nil || string(atom.Progress.Details) != `{"asked":1}` {
			t.Errorf("the progress is %+v", atom.Progress)
		}
	})
}

// TestWhatNotYetDoesNotExcuse: a step whose time was up, and details that the
// logbook does not take.
func TestWhatNotYetDoesNotExcuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := act("a", func(ctx context.Context) error { <-ctx.Done(); return flow.NotYet(time.Minute) }, flow.Timeout(time.Second))
		large := act("a", func(context.Context) error { return flow.NotYet(time.Minute, make([]int, 1000)) })
		for kind, step := range map[string]*flow.Step{logbook.FailureTimeout: late, logbook.FailureResult: large} {
			end, _, err := runAll(t, t.Context(), engine.Options{Plan: compile(t, step), Limits: logbook.Limits{Value: 1000}})
			if err != nil || !end.Cause.Matches(kind) {
				t.Errorf("%s: %+v, %v", kind, end.Cause, err)
			}
		}
	})
}

// TestTimesToAskAreHeldToTheirBounds: a time that a clock far ahead of ours has
// recorded is held to what can have been meant.
func TestTimesToAskAreHeldToTheirBounds(t *testing.T) {
	for _, row := range []struct {
		name  string
		began time.Duration // of the attempt, before now
		ahead time.Duration
		most  time.Duration
		want  time.Duration
	}{
		{"soon", 0, time.Second, 0, time.Second},
		{"over", 0, -time.Second, 0, 0},
		{"by far", 0, 1 << 62, 0, flow.MaxAsk},
		{"by far, and it waits no longer than so", 30 * time.Second, 1 << 62, time.Minute, 30 * time.Second},
		{"it began in the future", -time.Hour, 1 << 62, time.Minute, time.Minute},
		{"it has waited long enough", time.Hour, time.Hour, time.Minute, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				atom := logbook.NewAtom("a", logbook.KindTask)
				atom.RetryAt = now.Add(row.ahead)
				atom.Attempts = []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, StartedAt: now.Add(-row.began), Asked: 1}}
				detail := newDetail()
				detail.State, detail.Atoms = logbook.FlowRunning, []logbook.AtomDetail{atom}
				plan := compile(t, flow.NewStep("a", &patient{times: 1}, flow.WaitAtMost(row.most)))
				end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: detail, Journal: newJournal(detail)})
				if took := time.Since(now); err != nil || end.State != logbook.FlowSuccess || took != row.want {
					t.Errorf("it took %s, not %s: %v, %v", took, row.want, end, err)
				}
			})
		})
	}
}

// TestDeadlineSurvivesTheConductor: the next conductor gives a step the remaining time until
// its deadline, and does not start it again after that, whatever its clock.
func TestDeadlineSurvivesTheConductor(t *testing.T) {
	for _, row := range []struct {
		name  string
		began []time.Duration // of its attempts, before now
		reset bool            // before the last one
		want  time.Duration
		calls int
	}{
		{"some is left", []time.Duration{40 * time.Second}, false, 20 * time.Second, 1},
		{"it counts from the first attempt", []time.Duration{50 * time.Second, time.Second}, false, 10 * time.Second, 1},
		{"a person had it begin again", []time.Duration{50 * time.Second, time.Second}, true, 59 * time.Second, 1},
		{"over", []time.Duration{time.Minute}, false, 0, 0},
		{"it began in the future", []time.Duration{-time.Hour}, false, time.Minute, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				atom := logbook.NewAtom("a", logbook.KindTask)
				atom.State = logbook.AtomRunning
				for i, began := range row.began {
					attempt := logbook.Attempt{Action: logbook.ActionExecute, Number: i + 1, StartedAt: now.Add(-began)}
					if i < len(row.began)-1 {
						attempt.EndedAt, attempt.Failure = attempt.StartedAt, &logbook.Failure{Kind: logbook.FailureError, Message: "it broke"}
					}
					if i > 0 && row.reset {
						atom.Attempts = append(atom.Attempts, logbook.Attempt{Action: logbook.ActionReset, Number: 1, StartedAt: attempt.StartedAt, EndedAt: attempt.StartedAt})
					}
					atom.Attempts = append(atom.Attempts, attempt)
				}
				detail := newDetail()
				detail.State, detail.Atoms = logbook.FlowRunning, []logbook.AtomDetail{atom}
				calls := 0
				plan := compile(t, flow.Func("a", func(ctx context.Context, _ none) (none, error) {
					calls++
					<-ctx.Done()
					return none{}, ctx.Err()
				}, flow.Deadline(time.Minute), flow.Timeout(time.Hour), flow.Retry(flow.Backoff{Attempts: 9})))
				end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: detail, Journal: newJournal(detail)})
				if took := time.Since(now); err != nil || took != row.want || calls != row.calls {
					t.Errorf("%d calls in %s, not %d in %s: %v", calls, took, row.calls, row.want, err)
				}
				if end.State != logbook.FlowReverted || end.Cause.Kind != logbook.FailureTimeout || !strings.Contains(end.Cause.Message, "deadline") {
					t.Errorf("it ends %s: %+v", end.State, end.Cause)
				}
			})
		})
	}
}
