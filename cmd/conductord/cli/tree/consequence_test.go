package tree_test

import (
	"context"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// TestRecordedConsequence: on_error steps run only after another failure, so no intervention lists them.
func TestRecordedConsequence(t *testing.T) {
	step := func(name string) *flow.Step {
		return flow.Func(name, func(context.Context, struct{}) (int, error) { return 0, nil })
	}
	plan, err := flow.Compile(flow.Linear("f", step("a"), step("b")).OnError(step("tell")).Finally(step("close")))
	if err != nil {
		t.Fatal(err)
	}
	definition := plan.Definition()
	detail := logbook.FlowDetail{State: logbook.FlowFailure, Definition: &definition, Atoms: []logbook.AtomDetail{
		{Name: "a", Kind: logbook.KindTask, State: logbook.AtomSuccess, Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, EndedAt: time.Now()}}},
		{Name: "b", Kind: logbook.KindTask, State: logbook.AtomFailure},
	}}
	got := tree.RecordedConsequence(&detail, logbook.Intervention{Kind: logbook.InterveneRerun, Step: "b"}).String()
	if want := "runs: b, close; runs all steps that wait for b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
