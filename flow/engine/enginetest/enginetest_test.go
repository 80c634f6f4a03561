package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine/enginetest"
	"github.com/conductord/conductord/logbook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// judged is a test that records its errors instead of failing.
type judged struct {
	testing.TB
	faults []string
}

func (j *judged) Helper()                   {}
func (j *judged) Error(arguments ...any)    { j.faults = append(j.faults, fmt.Sprint(arguments...)) }
func (j *judged) Errorf(f string, a ...any) { j.faults = append(j.faults, fmt.Sprintf(f, a...)) }

var errWoot = errors.New("woot")

func stub(name string, task *enginetest.Stub, options ...flow.StepOption) *flow.Step {
	return flow.NewStep(name, task, options...)
}

func retry(attempts int, delay time.Duration) flow.StepOption {
	return flow.Retry(flow.Backoff{Attempts: attempts, Delay: delay})
}

func TestTraces(t *testing.T) {
	for _, row := range []struct {
		name    string
		root    flow.Node
		options []enginetest.Option
		want    string
	}{
		{"a success", flow.Linear("f", stub("a", enginetest.Succeed(1)), stub("b", enginetest.Succeed(2))), nil, `
			1: flow running, a running E1?
			2: a success E1+, b running E1?
			3: flow success, b success E1+
			end: success`},
		{"a target", flow.Linear("f", stub("a", enginetest.Succeed(1)), stub("b", enginetest.Fail(errWoot))), []enginetest.Option{enginetest.Targets("a")}, `
			1: flow running, a running E1?
			2: flow success, a success E1+
			end: success`},
		{"time passes, and nobody waits", flow.Linear("f", stub("a", enginetest.Succeed(1).Takes(24*time.Hour))), nil, `
			1: flow running, a running E1?
			2: flow success, a success E1+
			took: 24h0m0s
			end: success`},
		{"a timeout", flow.Linear("f", stub("a", enginetest.Succeed(1).Takes(time.Hour), flow.Timeout(time.Minute), retry(2, time.Second))), nil, `
			1: flow running, a running E1?
			2: a pending E1-[timeout] again in 1s
			3: a running E2?
			4: flow reverting (a: timeout), a failure (to revert) E2-[timeout], a reverting R1?
			5: a reverting R1-[timeout] again in 1s
			6: a reverting R2?
			7: flow failure (a: timeout) after (a: timeout), a revert_failure R2-[timeout]
			took: 4m2s
			end: failure (a: timeout) after (a: timeout)`},
		{"an undo that fails", flow.Linear("f", stub("a", enginetest.Fail(flow.Fail("weather", errWoot)).UndoFails(1, errWoot))), nil, `
			1: flow running, a running E1?
			2: flow reverting (a: weather), a failure (to revert) E1-[weather], a reverting R1?
			3: flow failure (a: error) after (a: weather), a revert_failure R1-
			end: failure (a: error) after (a: weather)`},
		{"at the same time", flow.Unordered("f", stub("a", enginetest.Succeed(1).Takes(time.Second)), stub("b", enginetest.Succeed(1).Takes(time.Minute))),
			[]enginetest.Option{enginetest.Workers(2)}, `
			1: flow running, a running E1?, b running E1?
			2: a success E1+
			3: flow success, b success E1+
			took: 1m0s
			end: success`},
	} {
		t.Run(row.name, func(t *testing.T) {
			enginetest.Run(t, row.root, nil, row.options...).Want(t, row.want)
		})
	}
}

func TestWantTellsTheFirstDifference(t *testing.T) {
	trace := enginetest.Run(t, stub("a", enginetest.Succeed(1)), nil)
	text := trace.String()
	for _, row := range []struct {
		name string
		want string
		told string // empty: nothing
	}{
		{"the same", text, ""},
		{"blanks do not count", "\n\n  " + strings.ReplaceAll(text, "\n", "\n\t\n  "), ""},
		{"another line", strings.ReplaceAll(text, "E1+", "E2+"), "line 2 of the trace"},
		{"a line too many", text + "more", "line 4 of the trace"},
		{"a line too few", strings.ReplaceAll(text, "end: success\n", ""), "line 3 of the trace"},
		{"nothing", "", "line 1 of the trace"},
	} {
		t.Run(row.name, func(t *testing.T) {
			test := &judged{TB: t}
			trace.Want(test, row.want)
			got := strings.Join(test.faults, "\n")
			if (got == "") != (row.told == "") || !strings.Contains(got, row.told) {
				t.Errorf("told %q, want %q", got, row.told)
			}
		})
	}
}

// TestWantStateAndResult: results belong to symbols, and blanks in JSON do not count.
func TestWantStateAndResult(t *testing.T) {
	done := enginetest.Run(t, flow.Linear("f", stub("a", enginetest.Succeed(json.RawMessage(`{"room": 7}`)), flow.Provides("booking")),
		stub("b", enginetest.Succeed(2))), nil)
	undone := enginetest.Run(t, flow.Linear("f", stub("a", enginetest.Succeed(1), flow.Provides("x")), stub("b", enginetest.Fail(errWoot))), nil)
	for _, row := range []struct {
		name  string
		check func(testing.TB)
		told  string // empty: nothing
	}{
		{"its state", func(tb testing.TB) { undone.WantState(tb, "reverted") }, ""},
		{"another state", func(tb testing.TB) { undone.WantState(tb, logbook.FlowSuccess) }, "the flow is reverted and should be success."},
		{"its result", func(tb testing.TB) { done.WantResult(tb, "booking", map[string]int{"room": 7}) }, ""},
		{"another result", func(tb testing.TB) { done.WantResult(tb, "booking", 8) }, `the result "booking" is {"room":7} and should be 8`},
		{"the name of a step", func(tb testing.TB) { done.WantResult(tb, "b", 2) }, `the result "b" is missing and should be 2`},
		{"a result that was undone", func(tb testing.TB) { undone.WantResult(tb, "x", 1) }, `the result "x" is missing`},
		{"no JSON", func(tb testing.TB) { done.WantResult(tb, "booking", make(chan int)) }, "unsupported type"},
	} {
		test := &judged{TB: t}
		row.check(test)
		if got := strings.Join(test.faults, "\n"); (got == "") != (row.told == "") || !strings.Contains(got, row.told) {
			t.Errorf("%s: told %q, want %q", row.name, got, row.told)
		}
	}
}

func TestRunFindsFaults(t *testing.T) {
	for _, row := range []struct {
		name    string
		root    flow.Node
		options []enginetest.Option
		want    string
	}{
		{"a flow that cannot be run", stub("a", enginetest.Succeed(1), flow.Requires("x")), nil, "missing requirement"},
		{"what a check finds", stub("a", enginetest.Succeed(1)), []enginetest.Option{enginetest.Check(func(*enginetest.Trace) error { return errWoot })}, "woot"},
		{"a flow that fails is none", stub("a", enginetest.Fail(nil)), nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			test := &judged{TB: t}
			trace := enginetest.Run(test, row.root, nil, row.options...)
			got := strings.Join(test.faults, "\n")
			if (got == "") != (row.want == "") || !strings.Contains(got, row.want) || trace == nil {
				t.Errorf("told %q, want %q", got, row.want)
			}
		})
	}
}

func TestRunUsesTheCallersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		trace := enginetest.Run(t, stub("a", enginetest.Succeed(1).Takes(time.Hour)), nil, enginetest.CallersClock())
		if took := time.Since(began); took != time.Hour || trace.Took != took {
			t.Errorf("%s passed here, and %s there", took, trace.Took)
		}
	})
}

// liking is a step that takes one color only.
func liking(_ context.Context, in struct {
	Color string `json:"color"`
}) (string, error) {
	if in.Color != "green" {
		return "", errors.New("not " + in.Color)
	}
	return in.Color, nil
}

func TestCrashEverywherePasses(t *testing.T) {
	for _, row := range []struct {
		name    string
		root    func() *flow.Flow
		options []enginetest.Option
		want    logbook.FlowState
	}{
		{"a success", func() *flow.Flow {
			return flow.Linear("f", stub("a", enginetest.Succeed(1), flow.Provides("x")), stub("b", enginetest.Succeed("two"), flow.Requires("x")))
		}, nil, logbook.FlowSuccess},
		{"tries and delays", func() *flow.Flow {
			return flow.Linear("f", stub("a", enginetest.FailTimes(2, errWoot).Then(1), retry(4, time.Hour)), stub("b", enginetest.Succeed(2).Takes(time.Hour)))
		}, nil, logbook.FlowSuccess},
		{"an undo", func() *flow.Flow {
			return flow.Linear("f", stub("a", enginetest.Succeed(1)), stub("b", enginetest.Fail(errWoot).UndoFails(1, errWoot), retry(3, time.Minute)))
		}, nil, logbook.FlowReverted},
		{"an undo that fails", func() *flow.Flow {
			return flow.Linear("f", stub("a", enginetest.Succeed(1).UndoFails(9, errWoot)), stub("b", enginetest.Fail(errWoot)))
		}, nil, logbook.FlowFailure},
		{"many at once", func() *flow.Flow {
			return flow.Unordered("f", stub("a", enginetest.Succeed(1).Takes(1*time.Second)), stub("b", enginetest.Succeed(2).Takes(2*time.Second)),
				stub("c", enginetest.Succeed(3)), stub("d", enginetest.Succeed(4)))
		}, []enginetest.Option{enginetest.Workers(3)}, logbook.FlowSuccess},
		{"at most once", func() *flow.Flow {
			return flow.Linear("f", stub("a", enginetest.Succeed(1)), stub("b", enginetest.Succeed(2), flow.AtMostOnce()))
		}, nil, logbook.FlowSuccess},
		{"a retry over a flow", func() *flow.Flow {
			return flow.Linear("f", stub("a", enginetest.Succeed(1)), flow.Linear("g", stub("b", enginetest.Succeed(2)), flow.Func("c", liking)).
				WithRetry(flow.ForEach("each", []string{"red", "blue", "green"}, flow.Provides("color"))))
		}, nil, logbook.FlowSuccess},
		{"a result that is the key", func() *flow.Flow {
			return flow.Linear("f", flow.Func("pay", func(ctx context.Context, _ struct{}) (string, error) { return flow.CallFrom(ctx).Key(), nil }))
		}, nil, logbook.FlowSuccess},
		{"nothing to do", func() *flow.Flow { return flow.Linear("f") }, nil, logbook.FlowSuccess},
	} {
		t.Run(row.name, func(t *testing.T) {
			crashes := make(map[int]bool) // by the updates before them
			count := enginetest.Check(func(trace *enginetest.Trace) error {
				if before, _, crashed := strings.Cut(trace.String(), "-- crash --"); crashed {
					crashes[strings.Count(before, "\n")] = true
				}
				return nil
			})
			trace := enginetest.CrashEverywhere(t, row.root, nil, append(row.options, count)...)
			if trace.Result.State != row.want || len(crashes) != len(trace.Updates) {
				t.Errorf("crashes after %v updates of\n%s", crashes, trace)
			}
		})
	}
}

// TestCrashEverywhereFinds are flows that come to the right end, unless the
// process dies.
func TestCrashEverywhereFinds(t *testing.T) {
	var calls int // of the outside world, which outlives a crash
	counted := func(context.Context, struct{}) (int, error) { calls++; return calls, nil }
	for _, row := range []struct {
		name  string
		build func() *flow.Flow
		check func(*enginetest.Trace) error
		want  string
	}{
		{"a result that differs", func() *flow.Flow { return flow.Linear("f", flow.Func("a", counted)) }, nil,
			`the result of step "a" is 2, and without the crash 1`},
		{"harm that is done twice", func() *flow.Flow {
			return flow.Linear("f", flow.Func("a", func(ctx context.Context, _ struct{}) (int, error) {
				_, err := counted(ctx, struct{}{})
				return 0, err
			}))
		}, func(*enginetest.Trace) error {
			if calls != 1 {
				return fmt.Errorf("called %d times", calls)
			}
			return nil
		}, "called 2 times"},
		{"a step with another name", func() *flow.Flow {
			calls++
			return flow.Linear("f", stub(fmt.Sprintf("a%d", calls), enginetest.Succeed(1)))
		}, nil, "the flow has no such step"},
		{"a step more", func() *flow.Flow {
			calls++
			steps := flow.Linear("f", stub("a", enginetest.Succeed(1)))
			if calls > 1 {
				steps.Add(stub("b", enginetest.Succeed(1)))
			}
			return steps
		}, nil, `the result of step "b" is 1, and without the crash missing`},
		{"a step that only succeeds the second time", func() *flow.Flow {
			return flow.Linear("f", stub("a", enginetest.FailTimes(1, errWoot)))
		}, nil, "the flow is success, and without the crash reverted"},
		{"an undo that is not repeatable", func() *flow.Flow {
			return flow.Linear("f", stub("a", enginetest.Succeed(1)), flow.FuncRevert("b",
				func(context.Context, struct{}) (struct{}, error) { return struct{}{}, errWoot },
				func(context.Context, struct{}, *struct{}) error {
					if calls++; calls > 1 {
						return errors.New("it is gone already")
					}
					return nil
				}))
		}, nil, "the flow is failure, and without the crash reverted"},
		{"a fault without any crash", func() *flow.Flow { return flow.Linear("f", stub("a", enginetest.Succeed(1), flow.Requires("x"))) }, nil,
			"without a crash: the flow has not ended"},
	} {
		t.Run(row.name, func(t *testing.T) {
			test := &judged{TB: t}
			options := []enginetest.Option{enginetest.Before(func() { calls = 0 })}
			if row.check != nil {
				options = append(options, enginetest.Check(row.check))
			}
			enginetest.CrashEverywhere(test, row.build, nil, options...)
			if got := strings.Join(test.faults, "\n"); !strings.Contains(got, row.want) {
				t.Errorf("told %q, want %q", got, row.want)
			}
		})
	}
}

func TestCrashEverywhereTellsTheFirstFaults(t *testing.T) {
	calls := 0
	build := func() *flow.Flow {
		root := flow.Linear("f")
		for i := range 10 {
			root.Add(flow.Func(fmt.Sprintf("s%d", i), func(context.Context, struct{}) (int, error) { calls++; return calls, nil }))
		}
		return root
	}
	test := &judged{TB: t}
	enginetest.CrashEverywhere(test, build, nil)
	if n := len(test.faults); n != 6 || !strings.Contains(test.faults[n-1], "more faults") {
		t.Errorf("told %d faults, the last one %q", n, test.faults[n-1])
	}
}

func TestRepeatedReadsTheRecord(t *testing.T) {
	execution := func(number int, ended bool, failure *logbook.Failure) []logbook.Attempt {
		a := logbook.Attempt{Action: logbook.ActionExecute, Number: number, Failure: failure}
		if ended {
			a.EndedAt = time.Unix(1, 0)
		}
		return []logbook.Attempt{a}
	}
	begun := logbook.AtomChange{Name: "a", State: logbook.AtomRunning, Attempts: execution(1, false, nil)}
	succeeded := logbook.AtomChange{Name: "a", State: logbook.AtomSuccess, Attempts: execution(1, true, nil)}
	failed := logbook.AtomChange{Name: "a", State: logbook.AtomPending, Attempts: execution(1, true, &logbook.Failure{Kind: "error"})}
	retrying := logbook.AtomChange{Name: "a", State: logbook.AtomRetrying}
	undone := logbook.AtomChange{Name: "a", State: logbook.AtomReverted,
		Attempts: []logbook.Attempt{{Action: logbook.ActionRevert, Number: 1, EndedAt: time.Unix(2, 0)}}}
	again := logbook.AtomChange{Name: "a", State: logbook.AtomRunning, Attempts: execution(2, false, nil)}
	whole := logbook.AtomChange{Name: "a", State: logbook.AtomSuccess, Attempts: execution(2, true, nil)}
	for _, row := range []struct {
		name    string
		changes []logbook.AtomChange
		want    string
	}{
		{"mark and end in one", []logbook.AtomChange{begun, whole}, ""},
		{"the same after its result", []logbook.AtomChange{begun, succeeded, whole}, "a"},
		{"once", []logbook.AtomChange{begun, succeeded}, ""},
		{"outcome unknown", []logbook.AtomChange{begun, again}, ""},
		{"after a failure", []logbook.AtomChange{begun, failed, again}, ""},
		{"after an undo", []logbook.AtomChange{begun, succeeded, undone, again}, ""},
		{"the next round of a retry", []logbook.AtomChange{begun, succeeded, retrying, again}, ""},
		{"after its result", []logbook.AtomChange{begun, succeeded, again}, "a"},
	} {
		var updates []logbook.Update
		for _, change := range row.changes {
			updates = append(updates, logbook.Update{Atoms: []logbook.AtomChange{change}})
		}
		if got := strings.Join(enginetest.Repeated(updates), " "); got != row.want {
			t.Errorf("%s: got %q, want %q", row.name, got, row.want)
		}
	}
}

func TestStubsDoWhatTheyAreTold(t *testing.T) {
	failing := enginetest.FailTimes(1, errWoot).Then("done").UndoFails(1, nil)
	root := flow.Linear("f", stub("a", failing, retry(2, 0), flow.Requires("x")), stub("b", enginetest.Fail(nil)))
	trace := enginetest.Run(t, root, logbook.Values{"x": json.RawMessage("17")})
	var calls []string
	for _, call := range failing.Calls() {
		calls = append(calls, fmt.Sprintf("%s %d %s %s", call.Action, call.Attempt, call.Arguments["x"], call.Result))
	}
	want := "execute 1 17 ; execute 2 17 ; revert 1 17 \"done\"; revert 2 17 \"done\""
	if got := strings.Join(calls, "; "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var failure *logbook.Failure
	if !errors.As(trace.Err, &failure) || failure.Step != "b" || failure.Message != "the stub fails on purpose" {
		t.Errorf("the flow ended with %v", trace.Err)
	}
}
