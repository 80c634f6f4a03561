//go:build linux

package cluster_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/test/cluster"
)

// TestOnlyRepeatableStepsRunAhead cuts off one owner of flows after another. The ledger must
// find steps that used results missing from the record, and all of them must be repeatable.
func TestOnlyRepeatableStepsRunAhead(t *testing.T) {
	longtest.Skip(t)
	dir, err := os.MkdirTemp(memory(), "conductord-ahead-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	synctest.Test(t, func(t *testing.T) {
		const second = time.Second
		three := newNodes(dir, 3, func(int) hclog.Logger { return nil })
		plan := cluster.Plan{Size: three.Size(), Round: 150 * second, Fixed: [][]cluster.Fault{nil}}
		for i := range 9 {
			plan.Fixed[0] = append(plan.Fixed[0], cluster.Fault{
				At: time.Duration(5+15*i) * second, Lasts: 10 * second, Nemesis: cluster.NemesisIsolate, Node: i % 3,
			})
		}
		runner := &cluster.Runner{
			Cluster: three, Plan: plan, Command: "go test ./test/cluster -run TestOnlyRepeatableStepsRunAhead",
			Workers: 1, Think: 10 * second, FlowEvery: 150 * time.Millisecond, Work: 3 * second,
		}
		if err := runner.Run(t.Context(), func(round int) bool { return round == 0 }); err != nil {
			t.Error(err)
		}
		if err := three.Close(); err != nil {
			t.Error(err)
		}
		if counted := runner.Report.Repeatable; !t.Failed() && (counted.Ahead == 0 || counted.OtherInputs == 0) {
			t.Errorf("nothing ran ahead of what was lost: %v", counted)
		}
		t.Log(runner.Report.Flows, "flows,", runner.Report.Repeatable)
	})
}
