package fsm_test

import (
	"reflect"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func rename(step, to string) *v1.Command {
	i := asked("rename", step)
	i.Id, i.To = id("rename "+step+" "+to), to
	return intervene(i)
}

// TestRename: a rename moves the atoms of a step and of its instances, with their attempts, in one entry. It
// changes neither the job nor the state of the flow.
func TestRename(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	token := r.begin(flowPosting("a"), "flow of a")
	r.ok(updateFlow(update("flow of a", token, 2, "running", task("x", "success", executed(1, "17")), task("p[0]", "running", executing(1)), task("p[10]", "running", executing(1)))))
	if said := r.refused(rename("x", "y"), "conflict"); !strings.Contains(said, "bob holds its job") {
		t.Errorf("the refusal of a claimed job says %q", said)
	}
	r.ok(updateFlow(update("flow of a", token, 3, "running", task("p[0]", "success", executed(1, "1")), task("p[10]", "success", executed(1, "2")))))
	r.ok(abandon(ending("a", token)))
	if said := r.refused(rename("x", "y"), "conflict"); !strings.Contains(said, "suspend the job first") {
		t.Errorf("the refusal of a claimable job says %q", said)
	}
	r.ok(suspend(&v1.JobCommand{Job: id("a"), By: "eve"}))
	job, before := r.job(id("a")), r.flow("flow of a")

	r.ok(rename("x", "y"))
	r.harmless(rename("x", "y"))
	r.ok(rename("p", "wrapped"))
	r.refused(rename("y", "wrapped"), "conflict")
	r.refused(rename("wrapped", "x"), "conflict") // a former name
	r.refused(rename("p", "q"), "not_found")
	after := r.flow("flow of a")
	names := map[string]string{"x": "y", "p[0]": "wrapped[0]", "p[10]": "wrapped[10]"}
	if len(after.Atoms) != len(names) || len(after.Pending()) != 0 || after.State != before.State || after.Fence != before.Fence {
		t.Fatalf("the flow is %+v", after)
	}
	for old, name := range names {
		was, _ := before.Atom(old)
		is, found := after.Atom(name)
		if !found {
			t.Fatalf("atom %s is gone: %+v", name, after.Atoms)
		}
		expected := *was
		expected.Name = name
		if !reflect.DeepEqual(*is, expected) {
			t.Errorf("atom %s is\n%+v, not\n%+v", name, *is, expected)
		}
	}
	if got := r.job(id("a")); whole(got) != whole(job) {
		t.Errorf("the job is\n%+v, not\n%+v", got, job)
	}
	if i := after.Interventions[1]; i.Kind != logbook.InterveneRename || i.Step != "p" || i.To != "wrapped" || i.At.IsZero() {
		t.Errorf("recorded as %+v", i)
	}
	events, err := r.Events(jobs.Position{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if last := events[len(events)-1]; last.Kind != jobs.EventIntervened || !strings.HasPrefix(last.Reason, "rename p to wrapped") {
		t.Errorf("the event is %+v", last)
	}
	r.ok(resume(&v1.JobCommand{Job: id("a"), By: "eve"}))
	next := r.claimedAgain("bob", id("a"))
	r.ok(updateFlow(update("flow of a", next, 1, "running", task("y", "reverting"))))
	if atom, _ := ptr(r.flow("flow of a")).Atom("y"); atom.State != logbook.AtomReverting || len(atom.Attempts) == 0 {
		t.Errorf("the next owner finds %+v", atom)
	}
}

func ptr[T any](value T) *T { return &value }
