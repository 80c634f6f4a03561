package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

// gives is a step that provides a value.
func gives(name, value string, options ...flow.StepOption) *flow.Step {
	return flow.NewStep(name, rawTask(value), options...)
}

// undoing is a step that succeeds; its revert ends as configured.
func undoing(name string, revert error) *flow.Step {
	return flow.FuncRevert(name, func(context.Context, none) (none, error) { return none{}, nil },
		func(context.Context, none, *none) error { return revert })
}

func failing(name string) *flow.Step {
	return act(name, func(context.Context) error { return flow.Fail("weather", errors.New("it rains")) })
}

func TestLocalTellsHowItEnded(t *testing.T) {
	for _, row := range []struct {
		name  string
		root  flow.Node
		state logbook.FlowState
		err   string // without it: none
		kind  string
		steps string
	}{
		{"success", flow.Linear("f", gives("a", "1"), gives("b", `"x"`)), logbook.FlowSuccess, "", "", "a=1 b=\"x\""},
		{"a step alone", gives("a", "1"), logbook.FlowSuccess, "", "", "a=1"},
		{"nothing to do", flow.Linear("f"), logbook.FlowSuccess, "", "", ""},
		{"reverted", flow.Linear("f", undoing("a", nil), failing("b")), logbook.FlowReverted,
			`flow "f": reverted after a failure: step b: it rains`, "weather", ""},
		{"not to be undone", flow.Linear("f", gives("z", "1"), undoing("a", errors.New("stuck")), failing("b")), logbook.FlowFailure,
			`flow "f": failed, and not all steps are reverted: step a: stuck`, "weather", "z=1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			result, err := engine.RunLocal(t.Context(), row.root, nil)
			if fmt.Sprint(err) != row.err && (err != nil || row.err != "") || result.State != row.state {
				t.Errorf("got %s, %v; want %s, %s", result.State, err, row.state, row.err)
			}
			var failure *logbook.Failure
			if errors.As(err, &failure) != (row.kind != "") || row.kind != "" && !failure.Matches(row.kind) {
				t.Errorf("the failure is %+v, want one of kind %q", failure, row.kind)
			}
			if got := listed(result.Steps); got != row.steps {
				t.Errorf("got the results %s, want %s", got, row.steps)
			}
			if result.Detail.State != row.state || result.Detail.ID != result.Flow || result.Flow.IsZero() {
				t.Errorf("flow %s has the record %+v", result.Flow, result.Detail)
			}
		})
	}
}

// listed is values as text, in the order of their names.
func listed(values logbook.Values) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, name+"="+string(values[name]))
	}
	return strings.Join(parts, " ")
}

func TestLocalValuesAreThoseOfTheLastProvider(t *testing.T) {
	var many []flow.Node
	for i := range logbook.MaxBeside + 2 {
		many = append(many, gives(fmt.Sprint("s", i), "1", flow.Provides("v")))
	}
	for _, row := range []struct {
		name string
		root flow.Node
		want string
	}{
		{"a whole result", gives("a", `{"x":1}`, flow.Provides("all")), `all={"x":1}`},
		{"fields", gives("a", `{"x":1,"y":2,"z":3}`, flow.ProvidesFields("x", "y")), "x=1 y=2"},
		{"a field that the result lacks", gives("a", `{"x":1}`, flow.ProvidesFields("x", "y")), "x=1"},
		{"fields of what is no object", gives("a", `7`, flow.ProvidesFields("x")), ""},
		{"one after the other", flow.Linear("f", gives("a", "1", flow.Provides("v")), gives("b", "2", flow.Provides("v"))), "v=2"},
		{"beside each other", flow.Unordered("f", gives("a", "1", flow.Provides("v")), gives("b", "2", flow.Provides("v"))), ""},
		{"after both", flow.Linear("f", flow.Unordered("g", gives("a", "1", flow.Provides("v")), gives("b", "2", flow.Provides("v"))),
			gives("c", "3", flow.Provides("v"))), "v=3"},
		{"after one of them", flow.Unordered("f", flow.Linear("g", gives("a", "1", flow.Provides("v")), gives("b", "2", flow.Provides("v"))),
			gives("c", "3", flow.Provides("v"))), ""},
		{"after the one that was run", flow.Graph("f", gives("a", "1", flow.Provides("v")), gives("b", "2", flow.Provides("v")), gives("c", "3", flow.Provides("v"))).
			Link("a", "b", flow.Decide("no", func(logbook.Values) (bool, error) { return false, nil })).Link("a", "c"), "v=3"},
		{"beside many", flow.Unordered("f", many...), ""},
		{"of a retry", flow.Linear("f", gives("a", "1", flow.Requires("v"))).WithRetry(flow.ForEach("r", []int{7, 8}, flow.Provides("v"))), "v=7"},
		{"nothing of a flow that was undone", flow.Linear("f", gives("a", "1", flow.Provides("v")), failing("b")), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			result, _ := engine.RunLocal(t.Context(), row.root, nil)
			if result.Steps["r"] != nil {
				t.Error("a retry counts as a step")
			}
			if got := listed(result.Values); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
}

func TestLocalDecodes(t *testing.T) {
	result, err := engine.RunLocal(t.Context(), gives("a", `{"x":1}`, flow.ProvidesFields("x")), nil)
	var number int
	if err := errors.Join(err, result.Decode("x", &number)); err != nil || number != 1 {
		t.Errorf("got %d, %v", number, err)
	}
	if err := result.Decode("y", &number); !errors.Is(err, logbook.ErrNotFound) {
		t.Errorf("what nobody provides: got %v", err)
	}
	var text string
	if err := result.Decode("x", &text); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("of another type: got %v", err)
	}
}

// TestLocalGoesOn interrupts a flow in its second step, each time for another reason, and
// continues it.
func TestLocalGoesOn(t *testing.T) {
	for _, row := range []struct {
		name  string
		stop  func(cancel context.CancelCauseFunc, suspend chan struct{}, book *failingBook)
		want  error
		state logbook.FlowState
		calls string
	}{
		{"the context ends", func(cancel context.CancelCauseFunc, _ chan struct{}, _ *failingBook) { cancel(errLost) },
			errLost, logbook.FlowRunning, "a b b"},
		{"suspended", func(_ context.CancelCauseFunc, suspend chan struct{}, _ *failingBook) { close(suspend) },
			engine.ErrSuspended, logbook.FlowSuspended, "a b c"},
		{"the logbook fails", func(_ context.CancelCauseFunc, _ chan struct{}, book *failingBook) { book.fail(errCrash) },
			errCrash, logbook.FlowRunning, "a b b"},
	} {
		t.Run(row.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			suspend := make(chan struct{})
			book := &failingBook{Connection: memory.New(logbook.MaxLimits)}
			var calls []string
			interrupt := true
			step := func(name string, inner func()) *flow.Step {
				return flow.Func(name, func(ctx context.Context, _ logbook.Values) (string, error) {
					calls = append(calls, name)
					inner()
					return name, ctx.Err()
				}, flow.Requires("input"))
			}
			root := flow.Linear("f", step("a", func() {}), step("b", func() {
				if interrupt {
					interrupt = false
					row.stop(cancel, suspend, book)
				}
			}), step("c", func() {}))
			local := engine.Local{Logbook: book, Flow: logbook.NewFlowID(), Suspend: suspend}
			result, err := local.Run(ctx, root, logbook.Values{"input": json.RawMessage("1")})
			if !errors.Is(err, row.want) || result.State != row.state || result.Flow != local.Flow {
				t.Fatalf("got %s, %v; want %s, %v", result.State, err, row.state, row.want)
			}
			book.fail(nil)
			local.Suspend = nil
			result, err = local.Run(t.Context(), root, nil)
			if err != nil || result.State != logbook.FlowSuccess || listed(result.Steps) != `a="a" b="b" c="c"` {
				t.Errorf("gone on with: %s, %v, %s", result.State, err, listed(result.Steps))
			}
			if got := strings.Join(calls, " "); !strings.HasPrefix(got, row.calls) || strings.Count(got, "a") != 1 {
				t.Errorf("the calls were %s", got)
			}
			before := len(calls)
			if again, err := local.Run(t.Context(), root, nil); err != nil || again.State != logbook.FlowSuccess || len(calls) != before {
				t.Errorf("what has ended: %s, %v, calls %v", again.State, err, calls[before:])
			}
		})
	}
}

// TestLocalKeepsItsTargets: a later run of a flow need not name the targets again, and cannot
// name others.
func TestLocalKeepsItsTargets(t *testing.T) {
	suspend := make(chan struct{})
	root := flow.Linear("f", act("a", func(context.Context) error { close(suspend); return nil }), gives("b", "1"), gives("c", "2"))
	local := engine.Local{Logbook: memory.New(logbook.MaxLimits), Flow: logbook.NewFlowID(), Targets: []string{"b"}, Suspend: suspend}
	if result, err := local.Run(t.Context(), root, nil); !errors.Is(err, engine.ErrSuspended) {
		t.Fatalf("got %s, %v", result.State, err)
	}
	local.Suspend, local.Targets = nil, []string{"c"}
	if _, err := local.Run(t.Context(), root, nil); !errors.Is(err, logbook.ErrConflict) {
		t.Errorf("with other targets: %v", err)
	}
	local.Targets = nil
	result, err := local.Run(t.Context(), root, nil)
	if err != nil || listed(result.Steps) != "a={} b=1" {
		t.Errorf("got %v and the results %s", err, listed(result.Steps))
	}
}

func TestLocalReverts(t *testing.T) {
	revert := make(chan struct{})
	undone := false
	root := flow.Linear("f", flow.FuncRevert("a", func(context.Context, none) (none, error) { close(revert); return none{}, nil },
		func(context.Context, none, *none) error { undone = true; return nil }))
	result, err := engine.Local{Revert: revert}.Run(t.Context(), flow.Linear("g", root, act("b", fine)), nil)
	var failure *logbook.Failure
	if result.State != logbook.FlowReverted || !errors.As(err, &failure) || failure.Kind != logbook.FailureOperator || !undone {
		t.Errorf("got %s, %v; undone: %t", result.State, err, undone)
	}
}

// TestLocalHasNoResultOfWhatIsBeingUndone breaks off in a revert.
func TestLocalHasNoResultOfWhatIsBeingUndone(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	a := flow.FuncRevert("a", func(context.Context, none) (string, error) { return "done", nil },
		func(ctx context.Context, _ none, _ *string) error { cancel(errLost); return ctx.Err() }, flow.Provides("v"))
	result, err := engine.RunLocal(ctx, flow.Linear("f", a, failing("b")), nil)
	if !errors.Is(err, errLost) || result.State != logbook.FlowReverting || len(result.Steps)+len(result.Values) != 0 {
		t.Errorf("got %s, %v, with the results %s", result.State, err, listed(result.Steps))
	}
}

// failingBook refuses or blocks updates on request.
type failingBook struct {
	logbook.Connection
	mu    sync.Mutex
	err   error
	hangs bool
}

func (b *failingBook) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *failingBook) Update(ctx context.Context, updates ...logbook.Update) ([]error, error) {
	b.mu.Lock()
	err, hangs := b.err, b.hangs
	b.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return b.Connection.Update(ctx, updates...)
}

func TestLocalRefuses(t *testing.T) {
	book := memory.New(logbook.MaxLimits)
	known := engine.Local{Logbook: book, Flow: logbook.NewFlowID()}
	store := logbook.Values{"x": json.RawMessage("1")}
	root := flow.Linear("f", gives("a", "1", flow.Requires("x")))
	if _, err := known.Run(t.Context(), root, store); err != nil {
		t.Fatal(err)
	}
	other := maps.Clone(store)
	other["x"] = json.RawMessage("2")
	for _, row := range []struct {
		name  string
		local engine.Local
		root  flow.Node
		store logbook.Values
		want  error
	}{
		{"the same store", known, root, store, nil},
		{"another store", known, root, other, logbook.ErrConflict},
		{"another flow", known, flow.Linear("g"), nil, engine.ErrMismatch},
		{"a requirement that is missing", engine.Local{}, root, nil, flow.ErrMissing},
		{"no flow", engine.Local{}, nil, nil, flow.ErrInvalid},
		{"too many steps", engine.Local{Limits: logbook.Limits{Steps: 1}}, flow.Linear("f", gives("a", "1"), gives("b", "1")), nil, flow.ErrTooLarge},
		{"a store that is too large", engine.Local{Limits: logbook.Limits{Value: 8}}, root,
			logbook.Values{"x": json.RawMessage(`"123456789"`)}, logbook.ErrLimit},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := row.local.Run(t.Context(), row.root, row.store); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
	if _, err := (engine.Local{Workers: -1}).Run(t.Context(), root, store); err == nil {
		t.Error("a negative number of workers was taken")
	}
	empty := memory.New(logbook.MaxLimits)
	if _, err := (engine.Local{Logbook: empty}).Run(t.Context(), root, nil); err == nil {
		t.Error("a flow with faults was run")
	}
	if books, err := empty.Books(t.Context(), "", 0); err != nil || len(books.Items) != 0 {
		t.Errorf("a flow with faults has left %v, %v", books, err)
	}
}

// TestLocalGivesUpOnALogbookThatHangs would not end if Run waited for it.
func TestLocalGivesUpOnALogbookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		book := &failingBook{Connection: memory.New(logbook.MaxLimits), hangs: true}
		done := make(chan error, 1)
		go func() {
			_, err := engine.Local{Logbook: book}.Run(ctx, flow.Linear("f", gives("a", "1")), nil)
			done <- err
		}()
		synctest.Wait()
		cancel(errLost)
		if err := <-done; !errors.Is(err, errLost) {
			t.Errorf("got %v, want %v", err, errLost)
		}
	})
}

func TestLocalTellsListeners(t *testing.T) {
	var seen []string
	local := engine.Local{Observe: func(e engine.Event) {
		seen = append(seen, strings.TrimSpace(fmt.Sprintf("%s %s", e.Step, e.State)+" "+string(e.Flow)))
	}}
	if _, err := local.Run(t.Context(), gives("a", "1"), nil); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(seen, ", "), "running, a running running, a success running, success"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
