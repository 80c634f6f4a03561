package fsm_test

import (
	"fmt"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

func drainConductor(name string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_DrainConductor{DrainConductor: &v1.DrainCommand{Conductor: name, By: "ann", Absent: true}}}
}

func undrainConductor(name string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_UndrainConductor{UndrainConductor: &v1.DrainCommand{Conductor: name}}}
}

// TestDrainsAreBounded: one drain more than the limit is refused; changes of existing drains are
// accepted.
func TestDrainsAreBounded(t *testing.T) {
	longtest.Skip(t)
	r := newRig(t)
	for i := range jobs.MaxDrains {
		r.ok(drainConductor(fmt.Sprint("c ", i)))
	}
	r.refused(drainConductor("one more"), "over_limit")
	finish := drainConductor("c 7")
	finish.GetDrainConductor().Finish = true
	r.ok(finish)
	r.ok(undrainConductor("c 8"))
	r.ok(drainConductor("one more"))
	drains, err := r.Drains()
	if err != nil || len(drains) != jobs.MaxDrains || !drains[0].At.Equal(start) {
		t.Errorf("%d drains, %v", len(drains), err)
	}
}

// TestDrainKeepsItsReason: a repeat of a drain with another value of finish keeps the reason, unless the
// repeat has a reason.
func TestDrainKeepsItsReason(t *testing.T) {
	r := newRig(t)
	for _, row := range []struct {
		reason, want string
		finish       bool
	}{{"a new kernel", "a new kernel", false}, {"", "a new kernel", true}, {"a new disk", "a new disk", false}} {
		c := drainConductor("c1")
		c.GetDrainConductor().Reason, c.GetDrainConductor().Finish = row.reason, row.finish
		r.ok(c)
		if drains, err := r.Drains(); err != nil || len(drains) != 1 || drains[0].Reason != row.want || drains[0].Finish != row.finish {
			t.Errorf("drains %+v after %+v, %v", drains, row, err)
		}
	}
}

// TestUndrainTellsWhoWaits: the end of a drain wakes waiting claims. Its repeat and a new drain do
// not.
func TestUndrainTellsWhoWaits(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(register("ann", &v1.Entity{Kind: "conductor", Name: "c1"}))
	told := func() bool { return r.changes[len(r.changes)-1].Undrained }
	r.ok(drainConductor("c1"))
	if told() {
		t.Error("a drain")
	}
	r.harmless(drainConductor("c1"))
	r.ok(undrainConductor("c1"))
	if !told() {
		t.Error("no waiter was woken at the end of the drain")
	}
	r.harmless(undrainConductor("c1"))
	r.refused(undrainConductor("c2"), "not_found")
}
