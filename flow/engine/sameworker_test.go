package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestSameWorker: to which worker each attempt is bound, also under the next owner of the flow, in
// reverts, and after a retry has done the earlier step again on another worker.
func TestSameWorker(t *testing.T) {
	on := func(name string, options ...flow.StepOption) *flow.Step {
		return flow.NewStep(name, flow.OnWorker(flow.WorkerStep{Type: "do", Revert: "undo"}), options...)
	}
	same := on("b", flow.SameWorkerAs("a"))
	never := flow.Decide("never", func(logbook.Values) (bool, error) { return false, nil })
	bad := &logbook.Failure{Kind: logbook.FailureError, Message: "bad", Permanent: true}
	for _, row := range []struct {
		name    string
		root    flow.Node
		workers string // a word for each attempt: the worker that gets it; a dash means that it fails;
		// none takes it; or it is lost
		handed int // the attempt at which the owner dies, after the worker was recorded; from 1
		want   string
	}{
		{"one worker", flow.Linear("f", on("a"), same), "v v", 0, "a execute for any, b execute for v/name-v"},
		{"the next owner", flow.Linear("f", on("a"), same), "v v v", 2, "a execute for any, b execute for v/name-v, b execute for v/name-v"},
		{"a revert", flow.Linear("f", on("a"), same, on("c")), "v v -w w v x", 0,
			"a execute for any, b execute for v/name-v, c execute for any, c revert for any, b revert for v/name-v, a revert for any"},
		{"it fails itself", flow.Linear("f", on("a"), same), "v -v v v", 0, "a execute for any, b execute for v/name-v, b revert for v/name-v, a revert for any"},
		{"again on another worker", flow.Linear("f", on("a"), same).WithRetry(flow.Times("again", 2, flow.RetryPermanent())), "v -v v v w w", 0,
			"a execute for any, b execute for v/name-v, b revert for v/name-v, a revert for any, a execute for any, b execute for w/name-w"},
		{"no worker takes it", flow.Linear("f", on("a"), same), "v none v", 0, "a execute for any, b execute for v/name-v, a revert for any"},
		{"no worker takes it, after one was lost", flow.Linear("f", on("a"), same), "v lost none v v", 0,
			"a execute for any, b execute for v/name-v, b execute for v/name-v, b revert for v/name-v, a revert for any"},
		{"it was ignored", flow.Graph("f", flow.NewStep("z", nothing{}), on("a"), same).Link("z", "a", never, flow.Reaching(flow.DepthAtom)).Link("a", "b"), "v", 0, "b execute for any"},
	} {
		t.Run(row.name, func(t *testing.T) {
			j, workers := newJournal(newDetail()), strings.Fields(row.workers)
			ctx, die := context.WithCancelCause(t.Context())
			died := errors.New("the conductor dies")
			var got []string
			offer := func(ctx context.Context, call *flow.Call, _ flow.WorkerStep) (json.RawMessage, error) {
				only := "any"
				if call.Only != (flow.WorkerID{}) {
					only = call.Only.Session + "/" + call.Only.Name
				}
				got = append(got, call.Step+" "+string(call.Action)+" for "+only)
				worker, fails := strings.CutPrefix(workers[0], "-")
				workers = workers[1:]
				if worker == "none" {
					return nil, &logbook.Failure{Kind: logbook.FailureNoWorker, Message: "none", Permanent: true}
				}
				if call.Worker == "" {
					if err := call.Taken(ctx, flow.WorkerID{Session: worker, Name: "name-" + worker}); err != nil {
						return nil, err
					}
				}
				if len(got) == row.handed {
					die(died)
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				if worker == "lost" {
					return nil, &logbook.Failure{Kind: logbook.FailureWorkerLost, Message: "lost"}
				}
				if fails {
					return nil, bad
				}
				return json.RawMessage("1"), nil
			}
			o := engine.Options{Plan: compile(t, row.root), Detail: j.snapshot(), Journal: j, Begins: true, Token: logbook.Token{Index: 5}, Offer: offer}
			_, err := engine.Run(ctx, o)
			if row.handed > 0 && errors.Is(err, died) {
				o.Detail, o.Token = j.snapshot(), logbook.Token{Index: 7}
				_, err = engine.Run(t.Context(), o)
			}
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(got, ", "); text != row.want {
				t.Errorf("offered: %s\nwant %s", text, row.want)
			}
			detail := j.snapshot()
			if a, _ := detail.Atom("a"); a != nil && len(a.Attempts) > 0 && !slices.ContainsFunc(a.Attempts, func(a logbook.Attempt) bool { return a.WorkerName == "name-v" }) {
				t.Errorf("no attempt at a has kept the name of its worker: %+v", a.Attempts)
			}
		})
	}
}
