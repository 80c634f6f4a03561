package flow_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
)

// TestAgainRefused: places and options that a step that continues the job cannot have.
func TestAgainRefused(t *testing.T) {
	work := func(name string) *flow.Step {
		return flow.Func(name, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	}
	for _, row := range []struct {
		name string
		root flow.Node
		want string
	}{
		{"alone", flow.Again("next"), "is the only step"},
		{"in a nested flow", flow.Linear("f", work("a"), flow.Linear("inner", flow.Again("next"))), `is in flow "inner"`},
		{"in a finally step", flow.Linear("f", work("a")).Finally(flow.Again("next")), "cannot be a finally step"},
		{"in a flow with enough", flow.Unordered("f", work("a"), flow.Again("next")).Enough(1), "does not need all members"},
		{"twice", flow.Linear("f", flow.Again("one"), flow.Again("two")), "both continue the job"},
		{"with a result", flow.Linear("f", work("a"), flow.Again("next", flow.Provides("x"))), "cannot provide values"},
		{"at most once", flow.Linear("f", work("a"), flow.Again("next", flow.AtMostOnce())), "the option AtMostOnce"},
		{"too late", flow.Linear("f", work("a"), flow.Again("next", flow.AgainAfter(401*24*time.Hour))), "the limit is 9600h"},
		{"at no time", flow.Linear("f", work("a"), flow.Again("next", flow.AgainAt("noon"))), "not a time of day"},
		{"two delays", flow.Linear("f", work("a"), flow.Again("next", flow.AgainAfter(time.Hour), flow.AgainAt("08:00"))), "both a delay and a time of day"},
		{"the option elsewhere", flow.Linear("f", flow.Sleep("a", time.Hour, flow.AgainAfter(time.Hour))), "create the step with flow.Again"},
	} {
		if _, err := flow.Compile(row.root); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}
