package jobstest

import (
	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var renameRows = []row{
	{"a rename takes effect at once, in a stopped job", renamesAtOnce},
	{"a rename keeps a failed job completed, and a repair uses the new name", renamedThenRepaired},
	{"renames are refused where they make no sense", senselessRenames},
}

// renaming makes a rename in a claimed job's flow.
func renaming(claimed jobs.Claimed, step, to string) logbook.Intervention {
	i := said(claimed, logbook.InterveneRename, step)
	i.To = to
	return i
}

// stopped suspends a job with the finished steps fly, each[0] and each[1].
func (k *kit) stopped(session jobs.SessionID) jobs.Claimed {
	k.Helper()
	claimed := k.travelling(session, "travel")
	k.begun(claimed)
	next := change(claimed, 2, "")
	next.Atoms = []logbook.AtomChange{{Name: "fly", State: logbook.AtomSuccess}}
	for _, name := range []string{"each[0]", "each[1]"} {
		next.Atoms = append(next.Atoms, logbook.AtomChange{Name: name, Kind: logbook.KindTask, State: logbook.AtomRunning}, logbook.AtomChange{Name: name, State: logbook.AtomSuccess})
	}
	k.wants("Update", k.update(next), nil)
	k.wants("Rename in a claimed job", k.intervene(renaming(claimed, "fly", "soar")), jobs.ErrConflict)
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(claimed.Job.ID)), nil)
	k.wants("Abandon", k.Board.Abandon(k.ctx, jobs.Ending{Job: claimed.Job.ID, Token: claimed.Job.Token}), nil)
	return claimed
}

// atoms are the names of a flow's atoms.
func (k *kit) atoms(id logbook.FlowID) map[string]logbook.AtomState {
	k.Helper()
	states, flow := make(map[string]logbook.AtomState), k.flow(id)
	for i := range flow.Atoms {
		states[flow.Atoms[i].Name] = flow.Atoms[i].State
	}
	return states
}

func renamesAtOnce(k *kit) {
	session := k.session("worker")
	claimed := k.stopped(session)
	before := k.job(claimed.Job.ID)
	first := renaming(claimed, "fly", "soar")
	for range 2 {
		k.wants("Intervene", k.intervene(first), nil)
	}
	k.wants("Intervene", k.intervene(renaming(claimed, "each", "every")), nil)
	k.same("atoms", k.atoms(claimed.Job.Flow), map[string]logbook.AtomState{"soar": logbook.AtomSuccess, "every[0]": logbook.AtomSuccess, "every[1]": logbook.AtomSuccess})
	k.same("job", k.job(claimed.Job.ID), before)
	if flow := k.flow(claimed.Job.Flow); len(flow.Interventions) != 2 || len(flow.Pending()) != 0 || flow.Interventions[0].To != "soar" || flow.Interventions[0].At.IsZero() {
		k.Errorf("the flow is %s", render(flow))
	}
	k.wants("Resume", k.Board.Resume(k.ctx, command(claimed.Job.ID)), nil)
	again := k.soon(session)
	if again.Flow == nil {
		k.Fatalf("claimed %s", render(again))
	}
	k.same("what the owner is told", *again.Flow, k.flow(claimed.Job.Flow))
	last := change(again, 1, logbook.FlowReverting)
	last.Atoms = []logbook.AtomChange{{Name: "soar", State: logbook.AtomReverting}}
	k.wants("update with the new name", k.update(last), nil)
}

func renamedThenRepaired(k *kit) {
	session := k.session("worker")
	claimed := k.travelling(session, "travel")
	k.failing(claimed)
	k.wants("Intervene", k.intervene(renaming(claimed, "stay", "sleep")), nil)
	k.same("atoms", k.atoms(claimed.Job.Flow), map[string]logbook.AtomState{"fly": logbook.AtomRevertFailure, "sleep": logbook.AtomFailure})
	k.same("state", k.job(claimed.Job.ID).State, jobs.StateCompleted)
	k.wants("rerun", k.intervene(said(claimed, logbook.InterveneRerun, "sleep")), nil)
	k.same("state", k.job(claimed.Job.ID).State, jobs.StateClaimable)
	again := k.soon(session)
	if pending := again.Flow.Pending(); len(pending) != 1 || pending[0].Step != "sleep" {
		k.Errorf("pending are %s", render(pending))
	}
}

func senselessRenames(k *kit) {
	session := k.session("worker")
	claimed := k.stopped(session)
	k.wants("Intervene", k.intervene(renaming(claimed, "fly", "soar")), nil)
	failed := k.travelling(session, "failed")
	k.failing(failed)
	nobody := renaming(claimed, "soar", "glide")
	nobody.By = ""
	again := renaming(claimed, "soar", "glide")
	again.ID = uuid.Nil
	before := k.flow(claimed.Job.Flow)
	for _, r := range []struct {
		name string
		word logbook.Intervention
		want error
	}{
		{"a step that is gone", renaming(claimed, "fly", "glide"), logbook.ErrNotFound},
		{"a step that has not started", renaming(claimed, "stay", "sleep"), logbook.ErrNotFound},
		{"the name of another step", renaming(claimed, "soar", "each"), logbook.ErrConflict},
		{"the former name of another step", renaming(claimed, "each", "fly"), logbook.ErrConflict},
		{"an instance", renaming(claimed, "each[0]", "every"), logbook.ErrInvalid},
		{"no step", renaming(claimed, "", "glide"), logbook.ErrInvalid},
		{"no name", renaming(claimed, "soar", ""), logbook.ErrInvalid},
		{"nobody", nobody, logbook.ErrInvalid},
		{"no id", again, logbook.ErrInvalid},
		{"a step whose revert failed", renaming(failed, "fly", "soar"), logbook.ErrConflict},
	} {
		k.wants(r.name, k.intervene(r.word), r.want)
	}
	k.same("flow", k.flow(claimed.Job.Flow), before)
	k.wants("back to its former name", k.intervene(renaming(claimed, "soar", "fly")), nil)
	k.same("atoms", k.atoms(claimed.Job.Flow), map[string]logbook.AtomState{"fly": logbook.AtomSuccess, "each[0]": logbook.AtomSuccess, "each[1]": logbook.AtomSuccess})
}
