package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestAnyDetail loads arbitrary records of a flow with retries and choices. The engine refuses
// a record or ends its flow. It never hangs or panics, and never writes an update that a
// logbook would refuse.
func TestAnyDetail(t *testing.T) {
	idle := func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }
	undo := func(context.Context, struct{}, *struct{}) error { return nil }
	no := func(logbook.Values) (bool, error) { return false, nil }
	inner := flow.Graph("g", flow.FuncRevert("b", idle, undo), flow.Func("c", idle), flow.FuncRevert("d", idle, undo)).
		Link("b", "c", flow.Decide("no", no), flow.Reaching(flow.DepthAtom)).Link("c", "d").WithRetry(flow.Times("r2", 2))
	each := flow.Each("each", "list", "x", flow.Linear("i", flow.FuncRevert("k", idle, undo)).WithRetry(flow.Times("r3", 2)))
	plan, err := flow.Compile(flow.Linear("f", flow.FuncRevert("a", idle, undo),
		flow.Linear("h", inner, each, flow.Func("e", idle)).WithRetry(flow.Times("r1", 3))), "list")
	if err != nil {
		t.Fatal(err)
	}
	// The list has two elements, so that the third instance is one of a round before.
	grown, err := plan.Grown(map[string]int{"each": 3})
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	rapid.Check(t, func(rt *rapid.T) {
		detail := newDetail()
		detail.State = rapid.SampledFrom([]logbook.FlowState{logbook.FlowRunning, logbook.FlowSuspended, logbook.FlowReverting}).Draw(rt, "flow")
		// A step is as in a flow that came so far, but for a few that are as chance has it.
		reached := rapid.IntRange(0, grown.Len()).Draw(rt, "reached")
		odd := rapid.SliceOfNDistinct(rapid.IntRange(0, grown.Len()-1), 0, grown.Len(), rapid.ID).Draw(rt, "odd")
		for number, step := range grown.Steps() {
			atom := logbook.NewAtom(step.Name(), step.Kind())
			switch {
			case slices.Contains(odd, number):
				drawAtom(rt, &atom)
			case number >= reached, strings.HasSuffix(step.Name(), "[2]"):
				continue
			case step.Name() == "c":
				atom.State, atom.Intention = logbook.AtomIgnored, logbook.IntendIgnore
			default:
				atom.State = logbook.AtomSuccess
				atom.Attempts = []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, StartedAt: time.Unix(1, 0), EndedAt: time.Unix(2, 0), Result: json.RawMessage("[1, 2]")}}
			}
			detail.Atoms = append(detail.Atoms, atom)
		}
		j := newJournal(detail)
		end, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: detail, Journal: j, Token: logbook.Token{Index: 1},
			Store: logbook.Values{"list": json.RawMessage("[1, 2]")}})
		if err != nil {
			if len(j.trace()) > 0 {
				rt.Fatalf("it has begun, and then: %v", err)
			}
			return
		}
		if ended++; end.Update != nil {
			if err := j.apply(*end.Update); err != nil {
				rt.Fatal(err)
			}
		}
	})
	if ended == 0 {
		t.Error("all were refused")
	}
}

func drawAtom(rt *rapid.T, atom *logbook.AtomDetail) {
	atom.State = rapid.SampledFrom([]logbook.AtomState{logbook.AtomPending, logbook.AtomRunning, logbook.AtomSuccess, logbook.AtomFailure,
		logbook.AtomReverting, logbook.AtomReverted, logbook.AtomRetrying, logbook.AtomIgnored}).Draw(rt, "state")
	atom.Intention = rapid.SampledFrom([]logbook.Intention{logbook.IntendExecute, logbook.IntendRevert, logbook.IntendRetry,
		logbook.IntendIgnore}).Draw(rt, "intention")
	numbers := make(map[logbook.Action]int)
	for range rapid.IntRange(0, 3).Draw(rt, "attempts") {
		attempt := logbook.Attempt{Action: logbook.ActionExecute, StartedAt: time.Unix(1, 0)}
		if rapid.IntRange(0, 2).Draw(rt, "revert") == 0 {
			attempt.Action = logbook.ActionRevert
		}
		numbers[attempt.Action]++
		attempt.Number = numbers[attempt.Action]
		switch rapid.SampledFrom([]string{"ok", "failed", "open"}).Draw(rt, "outcome") {
		case "ok":
			attempt.EndedAt, attempt.Result = time.Unix(2, 0), json.RawMessage(rapid.SampledFrom([]string{"[1, 2]", "[]", "[1]", "1"}).Draw(rt, "result"))
		case "failed":
			attempt.EndedAt, attempt.Failure = time.Unix(2, 0), &logbook.Failure{Kind: "error", Message: "woot"}
		}
		atom.Attempts = append(atom.Attempts, attempt)
	}
}
