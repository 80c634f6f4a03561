package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

// tardyJournal makes each update durable a second after it was recorded. A step begins no earlier, so
// there is a second in which its attempt can be ended before it has begun.
type tardyJournal struct{ *journal }

func (j tardyJournal) Record(update logbook.Update) <-chan error {
	err, done := j.apply(update), make(chan error, 1)
	time.AfterFunc(time.Second, func() { done <- err })
	return done
}

// TestNothingIsUndoneThatNeverBegan ends attempts before they begin, in each way in which that can
// happen. Such a step is reverted, without a call of its revert.
func TestNothingIsUndoneThatNeverBegan(t *testing.T) {
	var mu sync.Mutex
	var calls []string // of the row
	call := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, what)
	}
	step := func(name string, takes time.Duration, err error, options ...flow.StepOption) *flow.Step {
		return flow.FuncRevert(name, func(ctx context.Context, _ logbook.Values) (int, error) {
			call(name)
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(takes):
				return 1, err
			}
		}, func(context.Context, logbook.Values, *int) error { call("undo " + name); return nil }, options...)
	}
	offered := flow.NewStep("late", flow.OnWorker(flow.WorkerStep{Type: "do", Revert: "undo"}))
	missing := func() *handler.Set {
		set, err := handler.Open()
		if err != nil {
			t.Fatal(err)
		}
		return set
	}()
	quick, woot := 200*time.Millisecond, errors.New("woot")
	fails := step("fails", quick, woot)
	late := func(options ...flow.StepOption) *flow.Step { return step("late", quick, nil, options...) }
	after := func(before flow.Node, nodes ...flow.Node) flow.Node {
		return flow.Linear("f", append([]flow.Node{before}, nodes...)...)
	}
	first := step("first", quick, nil)
	for _, row := range []struct {
		name            string
		root            flow.Node
		suspend, cancel time.Duration // after the start; 0: never
		calls           string        // in the end, in any order
		kind            string        // of the failure of late
	}{
		{name: "cancelled", root: after(first, late()), cancel: 1500 * time.Millisecond, calls: "first, undo first", kind: logbook.FailureInterrupted},
		{name: "suspended, and cancelled then", root: after(first, late()), suspend: 1500 * time.Millisecond, calls: "first, undo first", kind: logbook.FailureInterrupted},
		{name: "a step beside it fails", root: flow.Unordered("f", step("beside", 500*time.Millisecond, woot), after(first, late())),
			calls: "beside, first, undo beside, undo first", kind: logbook.FailureInterrupted},
		{name: "in an each", root: after(first, flow.Each("e", "list", "x", late())), cancel: 1500 * time.Millisecond, calls: "first, undo first", kind: logbook.FailureInterrupted},
		{name: "in a nested flow, in each round of its retry", calls: "beside, first, undo beside, undo first, beside, first, undo beside, undo first", kind: logbook.FailureInterrupted,
			root: flow.Linear("g", flow.Unordered("h", step("beside", 500*time.Millisecond, woot), flow.Linear("i", first, late())).WithRetry(flow.Times("r", 2)))},
		{name: "its deadline passes", root: after(first, late(flow.Deadline(100*time.Millisecond))), calls: "first, undo first", kind: logbook.FailureTimeout},
		{name: "with tries that are left", root: after(first, late(flow.Deadline(100*time.Millisecond), flow.Retry(flow.Backoff{Attempts: 3}))), calls: "first, undo first", kind: logbook.FailureTimeout},
		{name: "it has begun before", root: after(first, step("late", quick, woot, flow.Retry(flow.Backoff{Attempts: 2}))), cancel: 2500 * time.Millisecond,
			calls: "first, late, undo late, undo first", kind: logbook.FailureInterrupted},
		{name: "a secret is missing", root: after(first, late(flow.Requires("password"))), calls: "first, undo first", kind: logbook.FailureSecret},
		{name: "an argument is missing", calls: "first, undo first", kind: logbook.FailureArgument,
			root: flow.Graph("f", first, step("one", quick, nil, flow.Provides("value")), step("other", quick, nil, flow.Provides("value")), late(flow.Requires("value"))).
				Link("first", "one", flow.Reaching(flow.DepthAtom), flow.Decide("d", func(logbook.Values) (bool, error) { return false, nil })).
				Link("first", "other", flow.Reaching(flow.DepthAtom), flow.Decide("d", func(logbook.Values) (bool, error) { return false, nil }))},
		{name: "no worker takes it", root: after(first, flow.Unordered("g", offered, step("beside", 1500*time.Millisecond, woot))), calls: "first, beside, undo beside, undo first", kind: logbook.FailureInterrupted},
		{name: "there is no handler", root: after(first, flow.NewStep("late", missing.Task("none", "none"))), calls: "first, undo first", kind: logbook.FailureHandler},
		{name: "its decider fails", root: flow.Graph("f", first, late()).Link("first", "late", flow.Decide("d", func(logbook.Values) (bool, error) { return false, woot })), calls: "first, undo first", kind: logbook.FailureError},
		{name: "what has begun is undone", root: after(first, late(), fails), calls: "first, late, fails, undo fails, undo late, undo first"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls = nil
				j := newJournal(newDetail())
				suspend, cancel, interrupt := make(chan struct{}), make(chan struct{}), make(chan time.Duration, 1)
				o := engine.Options{Plan: compile(t, row.root, "list", "password"), Journal: tardyJournal{j}, Suspend: suspend, Revert: cancel, Interrupt: interrupt,
					Store: logbook.Values{"list": json.RawMessage("[1]"), "password": json.RawMessage(`{"secret":"none"}`)}, Secrets: func(context.Context, string) (string, error) { return "", logbook.ErrNotFound },
					Offer: func(ctx context.Context, _ *flow.Call, _ flow.WorkerStep) (json.RawMessage, error) {
						<-ctx.Done()
						return nil, context.Cause(ctx)
					}}
				for channel, at := range map[chan struct{}]time.Duration{suspend: row.suspend, cancel: row.cancel} {
					if at > 0 {
						time.AfterFunc(at, func() { close(channel); interrupt <- 0 })
					}
				}
				end := engine.End{State: logbook.FlowPending}
				for claim := uint64(1); !end.State.Finished(); claim++ {
					o.Detail, o.Token = j.snapshot(), logbook.Token{Index: claim}
					if end.State == logbook.FlowSuspended {
						o.Suspend = nil
						close(cancel)
					}
					var err error
					if end, err = engine.Run(t.Context(), o); err != nil {
						t.Fatal(err)
					}
					if end.Update != nil {
						if err := j.apply(*end.Update); err != nil {
							t.Fatal(err)
						}
					}
				}
				detail := j.snapshot()
				atom, found := detail.Atom("late")
				if !found {
					atom, found = detail.Atom("late[0]")
				}
				want := strings.Split(row.calls, ", ")
				slices.Sort(want)
				slices.Sort(calls)
				if !slices.Equal(calls, want) || end.State != logbook.FlowReverted || !found || atom.State != logbook.AtomReverted {
					t.Errorf("%s; called: %s; want %s\n%s", end.State, calls, want, dump(detail))
				}
				kind := ""
				if failure := atom.Failure(); failure != nil {
					kind = failure.Kind
				}
				if kind != row.kind {
					t.Errorf("late failed with %q, and should with %q\n%s", kind, row.kind, dump(detail))
				}
			})
		})
	}
}
