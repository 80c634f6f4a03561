package jobstest

import (
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var historyRows = []row{
	{"a trashed job can be restored", trashedRestored},
	{"a restored flow goes on where it stood", restoredGoesOn},
	{"a finished job can be purged", finishedPurged},
	{"restoring and purging are refused where they make no sense", senselessCorrections},
}

// aside posts a job, claims it and puts it aside.
func (k *kit) aside(session jobs.SessionID, name string) jobs.Job {
	k.Helper()
	ending := release(k.owned(session, name))
	ending.Reason, ending.Failure = "no flights today", &logbook.Failure{Kind: "weather", Message: "snow"}
	k.wants("Trash", k.Board.Trash(k.ctx, ending), nil)
	return k.stands(ending.Job, jobs.StateTrashed)
}

func trashedRestored(k *kit) {
	session := k.session("worker")
	job := k.aside(session, "a")
	asleep := k.asleep(session)
	k.linger(session)
	k.wants("Restore", k.Board.Restore(k.ctx, order(job.ID)), nil)
	claimed := k.wakes("ClaimNext", asleep)
	if claimed.Job.ID != job.ID || claimed.Job.Reason != "" || claimed.Job.Failure != nil || !claimed.Job.FinishedAt.IsZero() {
		k.Errorf("got %s", render(claimed.Job))
	}
	if claimed.Job.Token.Compare(job.Token) <= 0 {
		k.Errorf("claimed under %s after %s", claimed.Job.Token, job.Token)
	}
	k.wants("Restore of an unfinished job", k.Board.Restore(k.ctx, order(job.ID)), nil)
	k.stands(job.ID, jobs.StateClaimed)
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
}

func restoredGoesOn(k *kit) {
	session := k.session("worker")
	claimed := k.claim(session, k.post(k.withFlow("trip"))[0].ID)
	first := change(claimed, 1, logbook.FlowRunning)
	first.Atoms = []logbook.AtomChange{
		{Name: "fly", Kind: logbook.KindTask, State: logbook.AtomRunning}, {Name: "fly", State: logbook.AtomSuccess},
	}
	k.wants("Update", k.update(first), nil)
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	k.wants("Restore", k.Board.Restore(k.ctx, order(claimed.Job.ID)), nil)
	again := k.claim(session, claimed.Job.ID)
	if atom, ok := again.Flow.Atom("fly"); !ok || atom.State != logbook.AtomSuccess || again.Flow.State != logbook.FlowRunning {
		k.Errorf("the flow is %s", render(again.Flow))
	}
	ending := success(again)
	last := change(again, 1, logbook.FlowSuccess)
	ending.Update = &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
}

func finishedPurged(k *kit) {
	session := k.session("worker")
	claimed := k.claim(session, k.post(k.withFlow("trip"))[0].ID)
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	k.wants("Purge", k.Board.Purge(k.ctx, order(claimed.Job.ID)), nil)
	_, err := k.Board.Job(k.ctx, claimed.Job.ID)
	k.wants("Job", err, jobs.ErrNotFound)
	_, err = k.Logbook.Book(k.ctx, claimed.Job.Book)
	k.wants("Book", err, jobs.ErrNotFound)
	k.wants("Purge again", k.Board.Purge(k.ctx, order(claimed.Job.ID)), jobs.ErrNotFound)
}

func senselessCorrections(k *kit) {
	session := k.session("worker")
	done := k.owned(session, "done")
	k.wants("Purge of a claimed job", k.Board.Purge(k.ctx, order(done.Job.ID)), jobs.ErrConflict)
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	k.wants("Restore of a success", k.Board.Restore(k.ctx, order(done.Job.ID)), jobs.ErrConflict)
	k.wants("Restore of an unknown job", k.Board.Restore(k.ctx, order(jobs.NewJobID())), jobs.ErrNotFound)
	revert := order(done.Job.ID)
	revert.Revert = true
	k.wantsInvalid("Restore with Revert", k.Board.Restore(k.ctx, revert))
	k.wantsInvalid("Purge of nothing", k.Board.Purge(k.ctx, jobs.Order{}))
	k.wants("Purge", k.Board.Purge(k.ctx, order(done.Job.ID)), nil)
}
