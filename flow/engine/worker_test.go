package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestAdoption: the next owner of a flow handles a worker's step, for each point at which the
// previous owner died. A row has the offers that it makes, and the record at the end.
func TestAdoption(t *testing.T) {
	died := errors.New("the conductor dies")
	lost := &logbook.Failure{Kind: logbook.FailureWorkerLost, Message: "gone"}
	for _, row := range []struct {
		name    string
		taken   bool // the first owner dies after the worker was recorded, and not before
		options []flow.StepOption
		undone  bool               // it was cancelled since
		answers []*logbook.Failure // of the worker, to the next owner; nil: success
		offers  string
		atoms   string
	}{
		{"no worker was recorded", false, nil, false, []*logbook.Failure{nil}, "execute 1 of none", "a success e1\n"},
		{"no worker, and at most once", false, []flow.StepOption{flow.AtMostOnce()}, false, []*logbook.Failure{nil}, "execute 1 of none", "a success e1\n"},
		{"a worker has it", true, nil, false, []*logbook.Failure{nil}, "execute 1 of w", "a success e1\n"},
		{"a worker has it, and at most once", true, []flow.StepOption{flow.AtMostOnce()}, false, []*logbook.Failure{nil}, "execute 1 of w", "a success e1\n"},
		{"the worker is lost", true, nil, false, []*logbook.Failure{lost, nil}, "execute 1 of w, execute 2 of none", "a success e1-gone e2\n"},
		{"the worker is lost, and at most once", true, []flow.StepOption{flow.AtMostOnce()}, false, []*logbook.Failure{lost, nil}, "execute 1 of w, revert 1 of none",
			"a reverted e1-its worker was lost while the step ran, and the step must not be started twice r1\n"},
		{"workers are lost for ever", true, nil, false, []*logbook.Failure{lost, lost, lost, lost, lost, lost, nil},
			"execute 1 of w, execute 2 of none, execute 3 of none, execute 4 of none, execute 5 of none, execute 6 of none, revert 1 of none",
			"a reverted e1-gone e2-gone e3-gone e4-gone e5-gone e6-gone r1\n"},
		{"a worker has it, and it is to be undone", true, nil, true, []*logbook.Failure{lost, nil}, "execute 1 of w, interrupted, revert 1 of none", "a reverted e1-it was interrupted: the flow is undone r1\n"},
		{"no worker has it, and it is to be undone", false, nil, true, nil, "", "a reverted e1 r1\n"},
	} {
		for _, policy := range flow.TakeoverPolicies { // they make no difference: no attempt is cut off
			t.Run(row.name+", "+string(policy), func(t *testing.T) {
				plan := compile(t, flow.Linear("f", flow.NewStep("a", flow.OnWorker(flow.WorkerStep{Type: "do", Revert: "undo"}), row.options...)).OnTakeover(policy))
				j := newJournal(newDetail())
				ctx, die := context.WithCancelCause(t.Context())
				first := func(ctx context.Context, call *flow.Call, _ flow.WorkerStep) (json.RawMessage, error) {
					if row.taken {
						if err := call.Taken(ctx, flow.WorkerID{Session: "w", Name: "name"}); err != nil {
							t.Error(err)
						}
					}
					die(died)
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				o := engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Begins: true, Token: logbook.Token{Index: 5}, Offer: first}
				if _, err := engine.Run(ctx, o); !errors.Is(err, died) {
					t.Fatal(err)
				}
				answers := row.answers
				var offers []string
				next := o
				next.Detail, next.Token = j.snapshot(), logbook.Token{Index: 7}
				if row.undone {
					next.Detail.State, next.Detail.Cause = logbook.FlowReverting, &logbook.Failure{Kind: logbook.FailureOperator, Message: "no"}
					j.detail.State, j.detail.Cause = next.Detail.State, next.Detail.Cause
				}
				next.Offer = func(ctx context.Context, call *flow.Call, _ flow.WorkerStep) (json.RawMessage, error) {
					worker := call.Worker
					if worker == "" {
						worker = "none"
					}
					offers = append(offers, fmt.Sprintf("%s %d of %s", call.Action, call.Attempt, worker))
					if row.undone && call.Action == logbook.ActionExecute {
						<-ctx.Done()
						if flow.InterruptionOf(ctx) != nil {
							offers = append(offers, "interrupted")
						}
					}
					answer := answers[0]
					answers = answers[1:]
					if answer != nil {
						return nil, answer
					}
					return json.RawMessage("1"), nil
				}
				end, err := engine.Run(t.Context(), next)
				if err == nil && end.Update != nil {
					err = j.apply(*end.Update)
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(offers, ", "); got != row.offers || dump(j.snapshot()) != row.atoms {
					t.Errorf("offers: %s; want %s\nrecord:\n%swant\n%s", got, row.offers, dump(j.snapshot()), row.atoms)
				}
			})
		}
	}
}

// TestTimeOfAWorker: a step's timeout counts from the moment when a worker gets the attempt, and the
// flow's next owner continues with the remaining time. When it is over, the failure is the timeout,
// whatever the worker reports.
func TestTimeOfAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		died := errors.New("the conductor dies")
		plan := compile(t, flow.NewStep("a", flow.OnWorker(flow.WorkerStep{Type: "do"}), flow.Timeout(10*time.Minute)))
		j := newJournal(newDetail())
		ctx, die := context.WithCancelCause(t.Context())
		left := func(ctx context.Context) string {
			until, bounded := ctx.Deadline()
			return fmt.Sprint(bounded, " ", time.Until(until).Round(time.Minute))
		}
		o := engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Begins: true, Token: logbook.Token{Index: 5}}
		o.Offer = func(ctx context.Context, call *flow.Call, _ flow.WorkerStep) (json.RawMessage, error) {
			time.Sleep(time.Hour) // no worker is free
			if _, bounded := ctx.Deadline(); bounded || ctx.Err() != nil {
				t.Errorf("the wait for a worker is bounded, or over: %v", ctx.Err())
			}
			if err := call.Taken(ctx, flow.WorkerID{Session: "w", Name: "name"}); err != nil {
				t.Error(err)
			}
			if ctx = call.Bound(ctx); left(ctx) != "true 10m0s" {
				t.Errorf("time of the worker: %s", left(ctx))
			}
			time.Sleep(4 * time.Minute)
			die(died)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		if _, err := engine.Run(ctx, o); !errors.Is(err, died) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // until another has the flow
		o.Detail, o.Token = j.snapshot(), logbook.Token{Index: 7}
		o.Offer = func(ctx context.Context, call *flow.Call, _ flow.WorkerStep) (json.RawMessage, error) {
			if ctx = call.Bound(ctx); call.Worker != "w" || left(ctx) != "true 5m0s" {
				t.Errorf("time of the worker %q with the next owner: %s", call.Worker, left(ctx))
			}
			<-ctx.Done()
			return nil, &logbook.Failure{Kind: logbook.FailureError, Message: "stopped"}
		}
		end, err := engine.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if end.Cause == nil || end.Cause.Kind != logbook.FailureTimeout || !strings.Contains(end.Cause.Message, "it took longer than 10m0s: stopped") {
			t.Errorf("the flow ends with %+v", end.Cause)
		}
	})
}

// TestOfferedStepsKeepOnlyTheirKeys: an offered step takes no worker of the pool, and keeps its key
// until it ends. Options.Untaken is called when the run waits only for workers.
func TestOfferedStepsKeepOnlyTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var at atomic.Int64
		began, pool := time.Now(), engine.NewPool(1)
		note := func(what string) { told = append(told, fmt.Sprintf("%d s %s", int(time.Since(began).Seconds()), what)) }
		offered := func(name string) flow.Node {
			return flow.NewStep(name, flow.OnWorker(flow.WorkerStep{Type: "do"}), flow.Concurrency("disk", 1))
		}
		offer := func(ctx context.Context, call *flow.Call, _ flow.WorkerStep) (json.RawMessage, error) {
			if at.Add(1) > 1 {
				t.Error("two have the key")
			}
			defer at.Add(-1)
			time.Sleep(3 * time.Second)
			err := call.Taken(ctx, flow.WorkerID{Session: "w", Name: "name"})
			time.Sleep(time.Second)
			return json.RawMessage("1"), err
		}
		plan := compile(t, flow.Unordered("f", offered("a"), offered("b"), newFloor().step("c", "", 0)))
		o := engine.Options{Plan: plan, Detail: newDetail(), Journal: newJournal(newDetail()), Pool: pool, Workers: 9, Offer: offer,
			Untaken: func(only bool) { note(fmt.Sprint(only)) }}
		if end, err := engine.Run(t.Context(), o); err != nil || end.State != logbook.FlowSuccess {
			t.Error(end, err)
		}
		if got, want := strings.Join(told, ", "), "0 s true, 0 s false, 1 s true, 3 s false, 4 s true, 7 s false"; got != want || pool.InUse() != 0 {
			t.Errorf("told %s; want %s; %d in use", got, want, pool.InUse())
		}
	})
}
