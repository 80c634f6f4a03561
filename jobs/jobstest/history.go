package jobstest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var historyRows = []row{
	{"a trashed job can be restored", trashedRestored},
	{"a restored flow continues from its record", restoredGoesOn},
	{"a finished job can be purged", finishedPurged},
	{"errors are kept, the latest first", errorsKept},
	{"errors are found by job, board, key and kind", errorsFound},
	{"errors are listed by pages", errorsByPages},
	{"jobs are found by their outcome", jobsFound},
	{"the same is done to many jobs, page by page", bulkDone},
	{"failed jobs are retried in bulk", bulkRetries},
	{"all kinds of failed jobs are retried by one verb", retriedAlike},
	{"a finished job is posted again", postedAgain},
	{"a bulk that makes no sense is refused", senselessBulks},
	{"restoring and purging are refused where they make no sense", senselessCorrections},
}

// aside posts a job, claims it and trashes it.
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
	k.wants("Retry", k.Board.Retry(k.ctx, command(job.ID)), nil)
	claimed := k.wakes("ClaimNext", asleep)
	if claimed.Job.ID != job.ID || claimed.Job.Reason != "" || claimed.Job.Failure != nil || !claimed.Job.FinishedAt.IsZero() {
		k.Errorf("got %s", render(claimed.Job))
	}
	if claimed.Job.Token.Compare(job.Token) <= 0 {
		k.Errorf("claimed under %s after %s", claimed.Job.Token, job.Token)
	}
	k.wants("Retry of an unfinished job", k.Board.Retry(k.ctx, command(job.ID)), nil)
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
	k.wants("Retry", k.Board.Retry(k.ctx, command(claimed.Job.ID)), nil)
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
	k.wants("Purge", k.Board.Purge(k.ctx, command(claimed.Job.ID)), nil)
	_, err := k.Board.Job(k.ctx, claimed.Job.ID)
	k.wants("Job", err, jobs.ErrNotFound)
	_, err = k.Logbook.Book(k.ctx, claimed.Job.Book)
	k.wants("Book", err, jobs.ErrNotFound)
	k.wants("Purge again", k.Board.Purge(k.ctx, command(claimed.Job.ID)), jobs.ErrNotFound)
}

func senselessCorrections(k *kit) {
	session := k.session("worker")
	done := k.owned(session, "done")
	k.wants("Purge of a claimed job", k.Board.Purge(k.ctx, command(done.Job.ID)), jobs.ErrConflict)
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	k.wants("Retry of a success", k.Board.Retry(k.ctx, command(done.Job.ID)), jobs.ErrConflict)
	k.wants("Retry of an unknown job", k.Board.Retry(k.ctx, command(jobs.NewJobID())), jobs.ErrNotFound)
	revert := command(done.Job.ID)
	revert.Revert = true
	k.wantsInvalid("Retry with Revert", k.Board.Retry(k.ctx, revert))
	k.wantsInvalid("Purge of nothing", k.Board.Purge(k.ctx, jobs.JobCommand{}))
	k.wants("Purge", k.Board.Purge(k.ctx, command(done.Job.ID)), nil)
}

// errors reads all errors that a query selects, in pages of a size, and formats each as "job
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
		if size > 0 && len(page.Items) > size {
			k.Fatalf("a page of %d errors, and %d were asked for", len(page.Items), size)
		}
		for i := range page.Items {
			e := &page.Items[i]
			listed = append(listed, e.Name+" "+string(e.How)+" "+e.Failure.Kind)
		}
		if page.Next == "" {
			return listed
		}
		query.After = page.Next
	}
}

func errorsKept(k *kit) {
	session, mortal := k.session("worker"), k.mortal("mortal")
	job := k.posted("a")
	k.claim(mortal, job.ID)
	k.lapse(mortal)
	claimed := k.soon(session)
	ending := release(claimed)
	ending.Reason = "no flights today"
	ending.Failure = &logbook.Failure{
		Kind: "weather", Message: "snow", Step: "fly", Code: 7, Stack: "sky.go:1",
		Details: logbook.Values{"wind": json.RawMessage("12.50"), "airport": json.RawMessage(`{"code":"ZRH"}`)},
		Causes:  []logbook.Failure{{Kind: "winter", Message: "it is January"}},
	}
	k.wants("Abandon", k.Board.Abandon(k.ctx, ending), nil)
	k.wants("Abandon again", k.Board.Abandon(k.ctx, ending), nil)
	failed := success(k.claim(session, job.ID))
	failed.Outcome, failed.Reason = jobs.OutcomeFailed, "that was it"
	k.wants("Consume", k.Board.Consume(k.ctx, failed), nil)
	k.same("errors", k.errors(jobs.ErrorQuery{Job: job.ID}, 0), []string{"a failed error", "a abandoned weather", "a crashed crash"})
	page, err := k.Board.Errors(k.ctx, jobs.ErrorQuery{Job: job.ID, Type: "weather"})
	if err != nil || len(page.Items) != 1 || page.Scans {
		k.Fatalf("Errors: %s, %v", render(page), err)
	}
	e := page.Items[0]
	k.same("evidence", &e.Failure, ending.Failure)
	if e.Job != job.ID || e.Board != k.board || e.Kind != k.kind || e.Owner != "worker" || e.Token != claimed.Job.Token || e.Reason != ending.Reason || e.Abridged {
		k.Errorf("got %s", render(e))
	}
	_, err = k.Board.Errors(k.ctx, jobs.ErrorQuery{Job: jobs.NewJobID()})
	k.wants("Errors of an unknown job", err, jobs.ErrNotFound)
	_, err = k.Board.Errors(k.ctx, jobs.ErrorQuery{How: "somehow"})
	k.wantsInvalid("Errors of no kind", err)
	k.wants("Purge", k.Board.Purge(k.ctx, command(job.ID)), nil)
	k.same("errors of what is gone", k.errors(jobs.ErrorQuery{Board: k.board}, 0), []string{})
}

// wrong releases a claimed job with a failure.
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
	if err != nil || len(page.Items) != 1 {
		k.Fatalf("Errors: %s, %v", render(page), err)
	}
	at, two := page.Items[0].At, 2
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
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
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

func jobsFound(k *kit) {
	session := k.session("worker")
	mark := k.board
	a, b := k.posting("paint the shed"), k.posting("paint the barn")
	a.Key, a.Tags, b.Tags = "key of "+mark, []string{"wet " + mark, "red"}, []string{"wet " + mark}
	other := k.posting("mow")
	other.Board += " 2"
	other.Tags = b.Tags
	posted := k.post(a, b, other)
	k.wants("Consume", k.Board.Consume(k.ctx, success(k.claim(session, posted[0].ID))), nil)
	ending := release(k.claim(session, posted[1].ID))
	ending.Failure = &logbook.Failure{Kind: "snow " + mark, Message: "x"}
	k.wants("Trash", k.Board.Trash(k.ctx, ending), nil)
	done := k.job(posted[0].ID)
	trashed := []jobs.State{jobs.StateTrashed}
	for _, row := range []struct {
		name  string
		query jobs.Query
		want  []string
		scans bool
	}{
		{"a key", jobs.Query{Key: a.Key}, []string{a.Name}, false},
		{"a tag", jobs.Query{Tags: []string{"wet " + mark}}, []string{a.Name, b.Name, other.Name}, false},
		{"two tags", jobs.Query{Tags: []string{"wet " + mark, "red"}}, []string{a.Name}, true},
		{"a tag on a board", jobs.Query{Tags: []string{"wet " + mark}, Board: k.board}, []string{a.Name, b.Name}, true},
		{"a part of the name", jobs.Query{Name: "barn", Board: k.board}, []string{b.Name}, true},
		{"an outcome", jobs.Query{Outcomes: []jobs.Outcome{jobs.OutcomeSuccess}, Board: k.board}, []string{a.Name}, true},
		{"a type of error", jobs.Query{ErrorType: "snow " + mark}, []string{b.Name}, false},
		{"a type of error with another key", jobs.Query{ErrorType: "snow " + mark, Key: a.Key}, []string{}, true},
		{"the trash", jobs.Query{States: trashed, Board: k.board}, []string{b.Name}, true},
		{"posted since", jobs.Query{PostedFrom: done.PostedAt, Board: k.board}, []string{a.Name, b.Name}, true},
		{"posted before", jobs.Query{PostedTo: done.PostedAt, Board: k.board}, []string{}, true},
		{"finished in a time", jobs.Query{FinishedFrom: done.FinishedAt, FinishedTo: done.FinishedAt.Add(time.Nanosecond), Key: a.Key}, []string{a.Name}, true},
		{"finished before", jobs.Query{FinishedTo: done.FinishedAt, Board: k.board}, []string{}, true},
		{"nothing", jobs.Query{Key: "no " + a.Key}, []string{}, false},
	} {
		for _, size := range []int{0, 1} {
			k.same("jobs by "+row.name, k.list(row.query, size), row.want)
		}
		if page, err := k.Board.Jobs(k.ctx, row.query); err != nil || page.Scans != row.scans {
			k.Errorf("%s: scans %t, %v", row.name, page.Scans, err)
		}
	}
	k.wants("Purge", k.Board.Purge(k.ctx, command(posted[0].ID)), nil)
	k.same("jobs by the key of one that is gone", k.list(jobs.Query{Key: a.Key}, 0), []string{})
}

// many performs a bulk on all jobs that a query selects, in pages of a size.
func (k *kit) many(bulk jobs.Bulk, size int) (total jobs.BulkReport) {
	k.Helper()
	bulk.Query.Limit = size
	for {
		report, err := k.Board.Bulk(k.ctx, bulk)
		if err != nil {
			k.Fatalf("Bulk: %v", err)
		}
		total.Matched, total.Done, total.Refused = total.Matched+report.Matched, total.Done+report.Done, append(total.Refused, report.Refused...)
		if report.Next == "" {
			return total
		}
		bulk.Query.After = report.Next
	}
}

func bulkDone(k *kit) {
	session := k.session("worker")
	for i := range 5 {
		k.posted(fmt.Sprint("job ", i))
	}
	done := k.owned(session, "done")
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	all := jobs.Query{Board: k.board}
	step := func(action jobs.Action, dry bool, matched int, state jobs.State, want int) {
		k.Helper()
		report := k.many(jobs.Bulk{Action: action, Query: all, By: "ann", Reason: "so it is to be", DryRun: dry}, 2)
		wantDone := matched
		if dry {
			wantDone = 0
		}
		if report.Matched != matched || report.Done != wantDone || len(report.Refused) != 0 {
			k.Errorf("%s: %+v", action, report)
		}
		k.same(string(action), len(k.list(jobs.Query{Board: k.board, States: []jobs.State{state}}, 0)), want)
	}
	step(jobs.ActionSuspend, true, 5, jobs.StateSuspended, 0)
	step(jobs.ActionSuspend, false, 5, jobs.StateSuspended, 5)
	step(jobs.ActionResume, false, 5, jobs.StateClaimable, 5)
	held := k.next(k.request(session))[0]
	k.wants("Trash", k.Board.Trash(k.ctx, release(held)), nil)
	step(jobs.ActionRetry, false, 1, jobs.StateClaimable, 5)
	step(jobs.ActionCancel, false, 5, jobs.StateCompleted, 6)
	step(jobs.ActionCancel, false, 0, jobs.StateCompleted, 6)
	if order := k.job(held.Job.ID).StopRequest; order == nil || order.By != "ann" || order.Reason != "so it is to be" {
		k.Errorf("the order is %s", render(order))
	}
	step(jobs.ActionPurge, true, 6, jobs.StateCompleted, 6)
	step(jobs.ActionPurge, false, 6, jobs.StateCompleted, 0)
}

func bulkRetries(k *kit) {
	session := k.session("worker")
	plain := success(k.owned(session, "plain"))
	plain.Outcome = jobs.OutcomeFailed
	k.wants("Consume", k.Board.Consume(k.ctx, plain), nil)
	k.wants("Consume", k.Board.Consume(k.ctx, success(k.owned(session, "done"))), nil)
	claimed := k.claim(session, k.post(k.withFlow("trip"))[0].ID)
	k.wants("Consume", k.Board.Consume(k.ctx, k.failing(claimed)), nil)
	gone := k.claim(session, k.post(k.withFlow("gone"))[0].ID)
	k.wants("Consume", k.Board.Consume(k.ctx, k.failing(gone)), nil)
	k.wants("DestroyBook", k.Logbook.DestroyBook(k.ctx, gone.Job.Book), nil)
	toPark, held := k.posting("parked"), k.posting("held")
	toPark.Retry, held.Hold = &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 1}, OnFailure: jobs.FailureParks}, true
	parked := success(k.claim(session, k.post(toPark)[0].ID))
	parked.Outcome = jobs.OutcomeFailed
	k.wants("Consume", k.Board.Consume(k.ctx, parked), nil)
	waits, aside := k.post(held)[0].ID, k.aside(session, "aside").ID
	report := k.many(jobs.Bulk{Action: jobs.ActionRetry, Query: jobs.Query{Board: k.board}, By: "ann"}, 0)
	if report.Matched != 5 || report.Done != 4 || len(report.Refused) != 1 || report.Refused[0].Job != gone.Job.ID {
		k.Fatalf("retried: %+v", report)
	}
	k.wants("the refusal", report.Refused[0].Err, jobs.ErrNotFound)
	for _, id := range []jobs.JobID{plain.Job, claimed.Job.ID, parked.Job, aside} {
		k.stands(id, jobs.StateClaimable)
	}
	k.stands(waits, jobs.StateHeld)
	again := k.claim(session, claimed.Job.ID)
	if pending := again.Flow.Pending(); len(pending) != 1 || pending[0].Kind != logbook.InterveneRerun || pending[0].By != "ann" {
		k.Errorf("pending is %s", render(pending))
	}
}

func senselessBulks(k *kit) {
	for name, bulk := range map[string]jobs.Bulk{
		"no action":                 {Query: jobs.Query{Board: k.board}},
		"an unknown action":         {Action: "paint"},
		"a suspension that reverts": {Action: jobs.ActionSuspend, Revert: true},
		"finished jobs cancelled":   {Action: jobs.ActionCancel, Query: jobs.Query{States: []jobs.State{jobs.StateCompleted}}},
		"claimable jobs purged":     {Action: jobs.ActionPurge, Query: jobs.Query{States: []jobs.State{jobs.StateClaimable}}},
	} {
		_, err := k.Board.Bulk(k.ctx, bulk)
		k.wantsInvalid(name, err)
	}
}

func retriedAlike(k *kit) {
	session := k.session("worker")
	plain := success(k.owned(session, "plain"))
	plain.Outcome = jobs.OutcomeFailed
	k.wants("Consume", k.Board.Consume(k.ctx, plain), nil)
	flow := k.claim(session, k.post(k.withFlow("trip"))[0].ID)
	k.wants("Consume", k.Board.Consume(k.ctx, k.failing(flow)), nil)
	posting, parkedTrip := k.posting("parked"), k.withFlow("parked trip")
	policy := &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 1}, OnFailure: jobs.FailureParks}
	posting.Retry, parkedTrip.Retry = policy, policy
	parked := success(k.claim(session, k.post(posting)[0].ID))
	parked.Outcome = jobs.OutcomeFailed
	k.wants("Consume", k.Board.Consume(k.ctx, parked), nil)
	parkedFlow := k.claim(session, k.post(parkedTrip)[0].ID)
	k.wants("Consume", k.Board.Consume(k.ctx, k.failing(parkedFlow)), nil)
	for state, id := range map[string]jobs.JobID{
		"trashed": k.aside(session, "aside").ID, "failed": plain.Job, "failed with a flow": flow.Job.ID,
		"parked": k.stands(parked.Job, jobs.StateHeld).ID, "parked with a flow": k.stands(parkedFlow.Job.ID, jobs.StateHeld).ID,
	} {
		for range 2 {
			k.wants("Retry of what is "+state, k.Board.Retry(k.ctx, command(id)), nil)
			if job := k.stands(id, jobs.StateClaimable); job.Attempts != 0 || job.Failure != nil {
				k.Errorf("%s: retried as %s", state, render(job))
			}
		}
	}
	again := k.claim(session, flow.Job.ID)
	if pending := again.Flow.Pending(); len(pending) != 1 || pending[0].Kind != logbook.InterveneRerun || pending[0].By != command(flow.Job.ID).By {
		k.Errorf("pending is %s", render(pending))
	}
	done := success(k.owned(session, "done"))
	k.wants("Consume", k.Board.Consume(k.ctx, done), nil)
	k.wants("Retry of what has succeeded", k.Board.Retry(k.ctx, command(done.Job)), jobs.ErrConflict)
	k.wants("Retry of no job", k.Board.Retry(k.ctx, command(jobs.NewJobID())), jobs.ErrNotFound)
}

func postedAgain(k *kit) {
	session := k.session("worker")
	posting := k.withFlow("trip")
	posting.Details, posting.Store = json.RawMessage(`{"to": "Wien"}`), logbook.Values{"seat": json.RawMessage(`7`)}
	posting.Tags, posting.Key, posting.Priority = []string{"far"}, "trip 7", jobs.High
	first := k.claim(session, k.post(posting)[0].ID)
	k.wants("Consume", k.Board.Consume(k.ctx, k.failing(first)), nil)
	detail, err := k.Logbook.FlowDetail(k.ctx, first.Job.Flow)
	k.wants("FlowDetail", err, nil)
	job := k.job(first.Job.ID)
	again := k.claim(session, k.post(job.Again(&detail))[0].ID)
	if again.Job.ID == job.ID || again.Flow.ID == detail.ID || again.Flow.State != logbook.FlowPending || len(again.Flow.Atoms) != 0 {
		k.Errorf("posted again as %s", render(again))
	}
	k.same("factory", again.Flow.Factory, detail.Factory)
	k.same("values", []any{again.Job.Details, again.Job.Store, again.Job.Tags, again.Job.Key, again.Job.Priority, again.Job.Kind},
		[]any{job.Details, job.Store, job.Tags, job.Key, job.Priority, job.Kind})
	k.stands(job.ID, jobs.StateCompleted)
}
