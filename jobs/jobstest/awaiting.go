package jobstest

import (
	"context"
	"fmt"
	"slices"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
	"github.com/conductord/conductord/logbook"
)

var awaitRows = []row{
	{"a board is waited for until it is empty", boardAwaited},
	{"named jobs are waited for, and no others", jobsAwaited},
	{"jobs that are posted meanwhile are waited for too", laterJobsAwaited},
	{"a board is waited for until no job can be claimed, or until one can", claimableAwaited},
	{"a wait ends when only held, parked and suspended jobs are left", stoppedAwaited},
	{"waiting for nothing ends at once", nothingAwaited},
	{"all jobs, claims, errors, boards and books are gone through", allGoneThrough},
}

// awaited is the outcome of a wait in a goroutine.
type awaited struct {
	status await.Status
	err    error
}

// await waits in its own goroutine. first is the status at the start.
func (k *kit) await(waiting await.Waiting) (first <-chan await.Status, end <-chan awaited) {
	begun, done := make(chan await.Status, 1), make(chan awaited, 1)
	waiting.Progress = func(status await.Status) {
		select {
		case begun <- status:
		default:
		}
	}
	go func() { // ends with the row
		status, err := await.Jobs(k.ctx, k.Board, waiting)
		done <- awaited{status, err}
	}()
	return begun, done
}

func boardAwaited(k *kit) {
	session := k.session("worker")
	first, second, third := k.owned(session, "a"), k.owned(session, "b"), k.owned(session, "c")
	k.wants("Consume", k.Board.Consume(k.ctx, success(third)), nil) // before the wait
	begun, end := k.await(await.Waiting{Board: k.board})
	if status := answer(k, "Await", begun); status.Left != 2 || status.Finished != 0 {
		k.Errorf("began with %+v", status)
	}
	k.wants("Consume", k.Board.Consume(k.ctx, success(first)), nil)
	k.wants("Trash", k.Board.Trash(k.ctx, release(second)), nil)
	got := answer(k, "Await", end)
	k.wants("Await", got.err, nil)
	if got.status.Left != 0 || got.status.Finished != 2 || got.status.Trashed != 1 || got.status.Outcomes[jobs.OutcomeSuccess] != 1 {
		k.Errorf("ended with %+v", got.status)
	}
}

func jobsAwaited(k *kit) {
	session := k.session("worker")
	first, other := k.owned(session, "a"), k.posted("other")
	begun, end := k.await(await.Waiting{Jobs: []jobs.JobID{first.Job.ID}})
	answer(k, "Await", begun)
	k.wants("Consume", k.Board.Consume(k.ctx, success(first)), nil)
	got := answer(k, "Await", end)
	if got.err != nil || got.status.Finished != 1 {
		k.Errorf("ended with %+v, %v", got.status, got.err)
	}
	_, err := await.Jobs(k.ctx, k.Board, await.Waiting{Jobs: []jobs.JobID{first.Job.ID, jobs.NewJobID()}})
	k.wants("Await of an unknown job", err, jobs.ErrNotFound)
	ctx, cancel := context.WithCancel(k.ctx)
	status, err := await.Jobs(ctx, k.Board, await.Waiting{
		Jobs: []jobs.JobID{first.Job.ID, other.ID}, Progress: func(await.Status) { cancel() },
	})
	k.wants("Await that is given up", err, context.Canceled)
	if status.Left != 1 {
		k.Errorf("given up with %+v", status)
	}
}

func laterJobsAwaited(k *kit) {
	session := k.session("worker")
	early := k.owned(session, "early")
	tagged := k.posting("late")
	tagged.Tags = []string{"eu"}
	begun, end := k.await(await.Waiting{Board: k.board, Kind: k.kind})
	answer(k, "Await", begun)
	late := k.post(tagged)[0]
	k.wants("Consume", k.Board.Consume(k.ctx, success(early)), nil)
	k.wants("Consume", k.Board.Consume(k.ctx, success(k.claim(session, late.ID))), nil)
	got := answer(k, "Await", end)
	if got.err != nil || got.status.Finished != 2 || got.status.Outcomes[jobs.OutcomeSuccess] != 2 {
		k.Errorf("ended with %+v, %v", got.status, got.err)
	}
}

func claimableAwaited(k *kit) {
	session := k.session("worker")
	first, second := k.posted("a"), k.owned(session, "b")
	claimable := await.Waiting{Board: k.board, States: []jobs.State{jobs.StateClaimable}}
	begun, end := k.await(claimable)
	if status := answer(k, "Await", begun); status.Left != 1 {
		k.Errorf("began with %+v", status)
	}
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(second)), nil)
	k.claim(session, second.Job.ID)
	claimed := k.claim(session, first.ID)
	got := answer(k, "Await", end)
	k.wants("Await", got.err, nil)
	if got.status.Left != 0 || got.status.Gone != 2 || got.status.Finished != 0 {
		k.Errorf("ended with %+v", got.status)
	}

	claimable.Some = true
	begun, end = k.await(claimable)
	if status := answer(k, "Await", begun); status.Left != 0 {
		k.Errorf("began again with %+v", status)
	}
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
	if got := answer(k, "Await", end); got.err != nil || got.status.Left != 1 {
		k.Errorf("ended again with %+v, %v", got.status, got.err)
	}
	_, err := await.Jobs(k.ctx, k.Board, await.Waiting{Board: k.board, States: []jobs.State{jobs.StateTrashed}})
	k.wants("Await of finished jobs", err, jobs.ErrInvalid)
}

func stoppedAwaited(k *kit) {
	session := k.session("worker")
	posting := k.posting("parked")
	posting.Retry = &jobs.RetryPolicy{OnFailure: jobs.FailureParks}
	parked := k.post(posting)[0]
	posting = k.posting("held")
	posting.Hold = true
	held := k.post(posting)[0]
	suspended, done := k.posted("suspended"), k.owned(session, "done")
	claimed := k.claim(session, parked.ID)
	begun, end := k.await(await.Waiting{Board: k.board})
	if status := answer(k, "Await", begun); status.Left != 3 {
		k.Errorf("began with %+v", status)
	}
	k.failed(claimed, nil)
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(suspended.ID)), nil)
	k.change(jobs.Change{Job: parked.ID, Release: true})
	k.failed(k.claim(session, parked.ID), nil)
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	got := answer(k, "Await", end)
	k.wants("Await", got.err, nil)
	k.same("finished", got.status.Finished, 1)
	k.same("stopped", ids(got.status.Stopped), ids([]jobs.JobID{parked.ID, held.ID, suspended.ID}))
	for _, id := range got.status.Stopped {
		job, err := k.Board.Wait(k.ctx, id)
		k.wants("Wait", err, nil)
		k.wants("Err of a stopped job", job.Err(), jobs.ErrNeedsOperator)
	}
	waited := make(chan jobs.Job, 1)
	k.change(jobs.Change{Job: held.ID, Release: true})
	go func() { // ends with the row
		job, _ := k.Board.Wait(k.ctx, held.ID)
		waited <- job
	}()
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(held.ID)), nil)
	k.same("state after Wait", answer(k, "Wait", waited).State, jobs.StateSuspended)
}

// ids are job ids as text, in order.
func ids(of []jobs.JobID) (text []string) {
	for _, id := range of {
		text = append(text, id.String())
	}
	slices.Sort(text)
	return text
}

func nothingAwaited(k *kit) {
	job := k.posted("a") // of a kind that is not awaited
	for what, waiting := range map[string]await.Waiting{
		"a kind":  {Board: k.board, Kind: "none"},
		"a tag":   {Board: k.board, Tags: []string{"none"}},
		"a key":   {Board: k.board, Key: "none"},
		"a board": {Board: k.board + " too"},
	} {
		status, err := await.Jobs(k.ctx, k.Board, waiting)
		if err != nil || status.Left != 0 || status.Finished != 0 {
			k.Errorf("%s that has no job: %+v, %v", what, status, err)
		}
	}
	k.same("the job", k.job(job.ID).State, jobs.StateClaimable)
}

func allGoneThrough(k *kit) {
	session := k.session("worker")
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprint(i))
		k.owned(session, fmt.Sprint(i))
	}
	var found []string
	for job, err := range jobs.All(k.ctx, k.Board, jobs.Query{Board: k.board, Limit: 2}) {
		k.wants("All", err, nil)
		found = append(found, job.Name)
	}
	k.same("jobs", found, want)
	found = nil
	for held, err := range jobs.AllClaims(k.ctx, k.Board, jobs.ClaimQuery{Session: session, Limit: 2}) {
		k.wants("AllClaims", err, nil)
		found = append(found, held.Name)
	}
	k.same("claims", found, want)
	for job, err := range jobs.All(k.ctx, k.Board, jobs.Query{Board: k.board}) {
		k.wants("All", err, nil)
		k.wants("Trash", k.Board.Trash(k.ctx, jobs.Ending{Job: job.ID, Token: job.Token}), nil)
	}
	found = nil
	for one, err := range jobs.AllErrors(k.ctx, k.Board, jobs.ErrorQuery{Board: k.board, Limit: 2}) {
		k.wants("AllErrors", err, nil)
		found = append(found, one.Name)
	}
	slices.Reverse(found)
	k.same("errors, the earliest first", found, want)
	boards := 0
	for board, err := range jobs.AllBoards(k.ctx, k.Board) {
		k.wants("AllBoards", err, nil)
		if board.Name == k.board {
			boards++
		}
	}
	k.same("how often the board is among all of them", boards, 1)
	book := journey("out")
	k.wants("SaveBook", k.Logbook.SaveBook(k.ctx, book), nil)
	seen := false
	for other, err := range logbook.AllBooks(k.ctx, k.Logbook) {
		k.wants("AllBooks", err, nil)
		seen = seen || other.ID == book.ID
	}
	if !seen {
		k.Errorf("the book is not among all of them")
	}
}
