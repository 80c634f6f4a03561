package jobstest

import (
	"fmt"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var historyRows = []row{
	{"a trashed job can be restored", trashedRestored},
	{"a restored flow goes on where it stood", restoredGoesOn},
	{"a finished job can be purged", finishedPurged},
	{"what went wrong is kept, the latest first", errorsKept},
	{"errors are found by what they are of", errorsFound},
	{"errors are listed by pages", errorsByPages},
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

// errors reads all errors that a query selects, by pages of a size, as "job
// how type".
func (k *kit) errors(query jobs.ErrorQuery, size int) []string {
	k.Helper()
	listed := []string{}
	query.Limit = size
	for {
		page, err := k.Board.Errors(k.ctx, query)
		if err != nil {
			k.Fatalf("Errors: %v", err)
		}
		if size > 0 && len(page.Errors) > size {
			k.Fatalf("a page of %d errors, and %d were asked for", len(page.Errors), size)
		}
		for i := range page.Errors {
			e := &page.Errors[i]
			listed = append(listed, e.Name+" "+string(e.How)+" "+e.Failure.Kind)
		}
		if page.Next == nil {
			return listed
		}
		query.Before = page.Next
	}
}

func errorsKept(k *kit) {
	session, mortal := k.session("worker"), k.session("mortal")
	job := k.posted("a")
	k.claim(mortal, job.ID)
	k.lapse(mortal)
	claimed := k.soon(session)
	ending := release(claimed)
	ending.Reason = "no flights today"
	ending.Failure = &logbook.Failure{
		Kind: "weather", Message: "snow", Step: "fly", Code: 7, Stack: "sky.go:1",
		Causes: []logbook.Failure{{Kind: "winter", Message: "it is January"}},
	}
	k.wants("Abandon", k.Board.Abandon(k.ctx, ending), nil)
	k.wants("Abandon again", k.Board.Abandon(k.ctx, ending), nil)
	failed := success(k.claim(session, job.ID))
	failed.Outcome, failed.Reason = jobs.OutcomeFailed, "that was it"
	k.wants("Consume", k.Board.Consume(k.ctx, failed), nil)
	k.same("errors", k.errors(jobs.ErrorQuery{Job: job.ID}, 0), []string{"a failed error", "a abandoned weather", "a crashed crash"})
	page, err := k.Board.Errors(k.ctx, jobs.ErrorQuery{Job: job.ID, Type: "weather"})
	if err != nil || len(page.Errors) != 1 || page.Scans {
		k.Fatalf("Errors: %s, %v", render(page), err)
	}
	e := page.Errors[0]
	k.same("evidence", &e.Failure, ending.Failure)
	if e.Job != job.ID || e.Board != k.board || e.Kind != k.kind || e.Owner != "worker" || e.Token != claimed.Job.Token || e.Reason != ending.Reason || e.Abridged {
		k.Errorf("got %s", render(e))
	}
	_, err = k.Board.Errors(k.ctx, jobs.ErrorQuery{Job: jobs.NewJobID()})
	k.wants("Errors of an unknown job", err, jobs.ErrNotFound)
	_, err = k.Board.Errors(k.ctx, jobs.ErrorQuery{How: "somehow"})
	k.wantsInvalid("Errors of no kind", err)
	k.wants("Purge", k.Board.Purge(k.ctx, order(job.ID)), nil)
	k.same("errors of what is gone", k.errors(jobs.ErrorQuery{Board: k.board}, 0), []string{})
}

// wrong gives a claimed job back with a failure.
func (k *kit) wrong(session jobs.SessionID, posting jobs.Posting, failure logbook.Failure) jobs.Job {
	k.Helper()
	ending := release(k.claim(session, k.post(posting)[0].ID))
	ending.Failure = &failure
	k.wants("Abandon", k.Board.Abandon(k.ctx, ending), nil)
	return k.job(ending.Job)
}

func errorsFound(k *kit) {
	session := k.session("worker")
	a, b, c := k.posting("a"), k.posting("b"), k.posting("c")
	a.Key = "key of " + k.board
	b.Kind += " 2"
	c.Board += " 2"
	first := k.wrong(session, a, logbook.Failure{Kind: "snow " + k.board, Message: "x", Code: 1})
	k.wrong(session, b, logbook.Failure{Kind: "snow " + k.board, Message: "x", Code: 2})
	k.wrong(session, c, logbook.Failure{Kind: "rain " + k.board, Message: "x", Code: 2})
	page, err := k.Board.Errors(k.ctx, jobs.ErrorQuery{Job: first.ID})
	if err != nil || len(page.Errors) != 1 {
		k.Fatalf("Errors: %s, %v", render(page), err)
	}
	at, two := page.Errors[0].At, 2
	for _, row := range []struct {
		name  string
		query jobs.ErrorQuery
		want  []string // the jobs
		scans bool
	}{
		{"a job", jobs.ErrorQuery{Job: first.ID}, []string{"a"}, false},
		{"a board", jobs.ErrorQuery{Board: k.board}, []string{"b", "a"}, false},
		{"a key", jobs.ErrorQuery{Key: a.Key}, []string{"a"}, false},
		{"a kind", jobs.ErrorQuery{Kind: k.kind}, []string{"c", "a"}, false},
		{"a type", jobs.ErrorQuery{Type: "snow " + k.board}, []string{"b", "a"}, false},
		{"a type on a board", jobs.ErrorQuery{Type: "rain " + k.board, Board: k.board}, []string{}, true},
		{"a code", jobs.ErrorQuery{Code: &two, Board: k.board}, []string{"b"}, true},
		{"a way to end", jobs.ErrorQuery{How: jobs.HowCrashed, Board: k.board}, []string{}, true},
		{"from a time", jobs.ErrorQuery{From: at, Board: k.board}, []string{"b", "a"}, false},
		{"before a time", jobs.ErrorQuery{To: at, Board: k.board}, []string{}, false},
		{"in a time", jobs.ErrorQuery{From: at, To: at.Add(time.Nanosecond), Key: a.Key}, []string{"a"}, false},
	} {
		page, err := k.Board.Errors(k.ctx, row.query)
		names := []string{}
		for i := range page.Errors {
			names = append(names, page.Errors[i].Name)
		}
		if err != nil || page.Scans != row.scans {
			k.Errorf("%s: scans %t, %v", row.name, page.Scans, err)
		}
		k.same("errors of "+row.name, names, row.want)
	}
}

func errorsByPages(k *kit) {
	session, want := k.session("worker"), []string{}
	for i := range 7 {
		name := fmt.Sprint("job ", i)
		k.wrong(session, k.posting(name), logbook.Failure{Kind: "snow", Message: "x"})
		want = append([]string{name + " abandoned snow"}, want...)
	}
	for _, size := range []int{1, 2, 3, 6, 7, 8, 0, logbook.MaxPage + 1} {
		k.same(fmt.Sprint("errors by pages of ", size), k.errors(jobs.ErrorQuery{Board: k.board}, size), want)
	}
}
