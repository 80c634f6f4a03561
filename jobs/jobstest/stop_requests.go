package jobstest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var stopRows = []row{
	{"a suspended job waits until it is resumed", suspendedWaits},
	{"the owner of a job is notified of stop requests", ownerIsTold},
	{"a suspended job stays suspended after its release", letGoSuspended},
	{"a job that has not begun is cancelled at once", cancelledAtOnce},
	{"started work is reverted before the job ends", undoneFirst},
	{"a flow can be left unchanged, and continued by another job", leftAsItStands},
	{"an owner that vanishes leaves a cancelled job cancelled", vanishedUnderOrder},
	{"stop requests are refused where they make no sense", senselessCommands},
	{"a claimable job is transferred to a conductor", transferredAtOnce},
	{"a claimed job is transferred when its owner releases it", transferredByOwner},
	{"a job that ends or is cancelled first is not transferred", transferredTooLate},
	{"a reservation ends by itself, and wakes others", reservationEnds},
	{"a reservation ends on request", unreserved},
	{"steps that wait for their next attempts start on request", retriedNow},
	{"a transfer names a conductor that could claim the job", senselessTransfers},
	{"a watch of claims starts with its position and sends no other events", watchClaims},
}

// command is an operator's command about a job.
func command(id jobs.JobID) jobs.JobCommand {
	return jobs.JobCommand{Job: id, By: "ann", Reason: "so it is to be"}
}

func undo(id jobs.JobID) jobs.JobCommand {
	o := command(id)
	o.Revert = true
	return o
}

// under checks the state of a job, and its stop request.
func (k *kit) under(id jobs.JobID, state jobs.State, kind jobs.RequestKind) jobs.Job {
	k.Helper()
	job := k.job(id)
	var got jobs.RequestKind
	if job.StopRequest != nil {
		got = job.StopRequest.Kind
		if job.StopRequest.By != "ann" || job.StopRequest.Reason != "so it is to be" || job.StopRequest.At.IsZero() {
			k.Errorf("the order is kept as %s", render(job.StopRequest))
		}
	}
	if job.State != state || got != kind {
		k.Errorf("job is %s under %q, want %s under %q", job.State, got, state, kind)
	}
	return job
}

// begun starts the flow of a claimed job, so that there is something to revert.
func (k *kit) begun(claimed jobs.Claimed) {
	k.Helper()
	first := change(claimed, 1, logbook.FlowRunning)
	first.Atoms = []logbook.AtomChange{{Name: "fly", Kind: logbook.KindTask, State: logbook.AtomRunning}}
	k.wants("Update", k.update(first), nil)
}

func suspendedWaits(k *kit) {
	session := k.session("worker")
	job := k.posted("a")
	for range 2 {
		k.wants("Suspend", k.Board.Suspend(k.ctx, command(job.ID)), nil)
		k.under(job.ID, jobs.StateSuspended, jobs.RequestSuspend)
	}
	_, err := k.Board.Claim(k.ctx, session, job.ID, jobs.NewNonce())
	k.wants("Claim", err, jobs.ErrUnclaimable)
	k.same("jobs to be had", names(k.next(k.request(session))), []string{})
	page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board, States: []jobs.State{jobs.StateSuspended}})
	if k.wants("Jobs", err, nil); len(page.Items) != 1 {
		k.Errorf("%d jobs are listed as suspended", len(page.Items))
	}
	asleep := k.asleep(session)
	k.linger(session)
	for range 2 {
		k.wants("Resume", k.Board.Resume(k.ctx, command(job.ID)), nil)
	}
	if got := k.wakes("ClaimNext", asleep); got.Job.ID != job.ID || got.Job.StopRequest != nil {
		k.Errorf("got %s", render(got.Job))
	}
	delayed := k.posting("later")
	delayed.NotBefore = time.Now().Add(time.Hour)
	due := k.post(delayed)[0]
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(due.ID)), nil)
	k.wants("Resume", k.Board.Resume(k.ctx, command(due.ID)), nil)
	if got := k.under(due.ID, jobs.StateDelayed, ""); !got.DueAt.Equal(due.DueAt) {
		k.Errorf("resumed, the job is due at %v, want %v", got.DueAt, due.DueAt)
	}
}

func ownerIsTold(k *kit) {
	claimed := k.owned(k.session("worker 8"), "a")
	k.wants("Suspend", k.Board.Suspend(k.ctx, command(claimed.Job.ID)), nil)
	k.wants("Suspend again", k.Board.Suspend(k.ctx, command(claimed.Job.ID)), nil)
	interrupting := command(claimed.Job.ID)
	interrupting.Steps, interrupting.Grace = jobs.StepsInterrupt, time.Minute
	for range 2 {
		k.wants("Suspend and interrupt", k.Board.Suspend(k.ctx, interrupting), nil)
	}
	k.under(claimed.Job.ID, jobs.StateClaimed, jobs.RequestSuspend)
	k.wants("Resume", k.Board.Resume(k.ctx, command(claimed.Job.ID)), nil)
	k.under(claimed.Job.ID, jobs.StateClaimed, "")
	k.wants("Cancel", k.Board.Cancel(k.ctx, undo(claimed.Job.ID)), nil)
	patient := undo(claimed.Job.ID)
	patient.Steps = jobs.StepsFinish
	k.wants("Cancel when its steps have finished", k.Board.Cancel(k.ctx, patient), nil)
	k.wants("Cancel otherwise", k.Board.Cancel(k.ctx, command(claimed.Job.ID)), nil)
	k.under(claimed.Job.ID, jobs.StateClaimed, jobs.RequestCancel)
	events := k.events(jobs.Watch{Job: claimed.Job.ID}, 8)
	k.same("events", stories(events), []string{
		"posted a claimable", "claimed a claimed", "stop_requested a claimed", "stop_requested a claimed", "resumed a claimed",
		"stop_requested a claimed", "stop_requested a claimed", "stop_requested a claimed",
	})
	for i, want := range []jobs.OperatorRequest{
		{Kind: jobs.RequestSuspend}, {Kind: jobs.RequestSuspend, Steps: jobs.StepsInterrupt, Grace: time.Minute}, {Kind: jobs.RequestResume},
		{Kind: jobs.RequestCancel, Revert: true}, {Kind: jobs.RequestCancel, Revert: true, Steps: jobs.StepsFinish}, {Kind: jobs.RequestCancel},
	} {
		event := events[i+2]
		if got := event.Request; got == nil || got.Kind != want.Kind || got.Revert != want.Revert || got.By != "ann" || got.Steps != want.Steps || got.Grace != want.Grace {
			k.Errorf("event %d contains the stop request %s", i+2, render(event.Request))
		}
		if event.Owner != "worker 8" || event.Token != claimed.Job.Token || event.Reason != "so it is to be" {
			k.Errorf("event %d is %s", i+2, render(event))
		}
	}
}

func letGoSuspended(k *kit) {
	for how, lose := range k.losses() {
		session := k.doomed(how, "worker")
		claimed := k.owned(session, how)
		k.wants("Suspend", k.Board.Suspend(k.ctx, command(claimed.Job.ID)), nil)
		lose(session, claimed)
		k.under(claimed.Job.ID, jobs.StateSuspended, jobs.RequestSuspend)
		k.wants("Resume", k.Board.Resume(k.ctx, command(claimed.Job.ID)), nil)
		if again := k.soon(k.session("heir")); again.Job.ID != claimed.Job.ID {
			k.Errorf("got %s", render(again.Job))
		}
	}
}

func cancelledAtOnce(k *kit) {
	for _, cancellation := range []func(jobs.JobID) jobs.JobCommand{command, undo} {
		for _, suspended := range []bool{false, true} {
			job := k.post(k.withFlow(fmt.Sprint("suspended: ", suspended)))[0]
			if suspended {
				k.wants("Suspend", k.Board.Suspend(k.ctx, command(job.ID)), nil)
			}
			for range 2 {
				k.wants("Cancel", k.Board.Cancel(k.ctx, cancellation(job.ID)), nil)
			}
			got := k.under(job.ID, jobs.StateCompleted, jobs.RequestCancel)
			if got.Outcome != jobs.OutcomeCancelled || got.FinishedAt.IsZero() || got.Reason != "so it is to be" {
				k.Errorf("cancelled as %s", render(got))
			}
			waited, err := k.Board.Wait(k.ctx, job.ID)
			k.wants("Wait", err, nil)
			k.same("job that was waited for", waited, got)
			k.same("flow's state", k.flow(job.Flow).State, logbook.FlowPending)
			other := cancellation(job.ID)
			other.Revert = !other.Revert
			k.wants("another cancellation", k.Board.Cancel(k.ctx, other), jobs.ErrConflict)
		}
	}
}

func undoneFirst(k *kit) {
	session := k.session("worker")
	claimed := k.travelling(session, "travel")
	k.begun(claimed)
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
	k.wants("Cancel", k.Board.Cancel(k.ctx, undo(claimed.Job.ID)), nil)
	k.wants("Cancel again", k.Board.Cancel(k.ctx, undo(claimed.Job.ID)), nil)
	k.under(claimed.Job.ID, jobs.StateClaimable, jobs.RequestCancel)
	again := k.soon(session)
	if again.Job.StopRequest == nil || !again.Job.StopRequest.Revert {
		k.Errorf("the owner is not told: %s", render(again.Job))
	}
	ending := success(again)
	ending.Outcome = jobs.OutcomeCancelled
	k.wants("Consume while the flow runs", k.Board.Consume(k.ctx, ending), jobs.ErrInvalid)
	k.wants("Update", k.update(change(again, 1, logbook.FlowReverting)), nil)
	last := change(again, 2, logbook.FlowReverted)
	ending.Update = &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	k.wants("Consume again", k.Board.Consume(k.ctx, ending), nil)
	if job := k.under(claimed.Job.ID, jobs.StateCompleted, jobs.RequestCancel); job.Outcome != jobs.OutcomeCancelled || job.Reason != "so it is to be" {
		k.Errorf("cancelled as %s", render(job))
	}
}

func leftAsItStands(k *kit) {
	session := k.session("worker")
	claimed := k.travelling(session, "travel")
	k.begun(claimed)
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
	k.wants("Cancel", k.Board.Cancel(k.ctx, command(claimed.Job.ID)), nil)
	k.under(claimed.Job.ID, jobs.StateCompleted, jobs.RequestCancel)
	k.same("flow's state", k.flow(claimed.Job.Flow).State, logbook.FlowSuspended)
	k.wants("Update by the old owner", k.update(change(claimed, 2, logbook.FlowRunning)), jobs.ErrFenced)
	next := k.claim(session, k.post(jobs.Posting{Board: k.board, Name: "on", BookID: claimed.Job.Book, Flow: claimed.Job.Flow})[0].ID)
	k.wants("Update by the new one", k.update(change(next, 1, logbook.FlowRunning)), nil)
}

func vanishedUnderOrder(k *kit) {
	session := k.mortal("worker")
	plain, flow := k.owned(session, "plain"), k.travelling(session, "travel")
	k.begun(flow)
	k.wants("Cancel", k.Board.Cancel(k.ctx, undo(plain.Job.ID)), nil)
	k.wants("Cancel", k.Board.Cancel(k.ctx, undo(flow.Job.ID)), nil)
	k.lapse(session)
	k.under(plain.Job.ID, jobs.StateCompleted, jobs.RequestCancel)
	again := k.soon(k.session("heir"))
	if again.Job.ID != flow.Job.ID || again.Job.StopRequest == nil || !again.Job.StopRequest.Revert {
		k.Errorf("got %s", render(again.Job))
	}
}

func senselessCommands(k *kit) {
	session := k.session("worker")
	give := map[string]func(jobs.JobCommand) error{
		"Suspend": func(o jobs.JobCommand) error { return k.Board.Suspend(k.ctx, o) },
		"Resume":  func(o jobs.JobCommand) error { return k.Board.Resume(k.ctx, o) },
		"Cancel":  func(o jobs.JobCommand) error { return k.Board.Cancel(k.ctx, o) },
	}
	done := k.owned(session, "done")
	k.wants("Consume", k.Board.Consume(k.ctx, success(done)), nil)
	dying := k.owned(session, "dying")
	k.wants("Cancel", k.Board.Cancel(k.ctx, undo(dying.Job.ID)), nil)
	before, beforeDying := k.job(done.Job.ID), k.job(dying.Job.ID)
	for name, command := range give {
		k.wants(name+" of no job", command(jobs.JobCommand{Job: jobs.NewJobID()}), jobs.ErrNotFound)
		k.wantsInvalid(name+" without an id", command(jobs.JobCommand{}))
		k.wants(name+" of a finished job", command(jobs.JobCommand{Job: done.Job.ID}), jobs.ErrConflict)
		long := jobs.JobCommand{Job: dying.Job.ID, Reason: strings.Repeat("x", jobs.MaxReason+1)}
		k.wantsLimit(name+" with a long reason", command(long), jobs.MaxReason, jobs.MaxReason+1)
		k.wantsInvalid(name+" with steps that do what nobody knows", command(jobs.JobCommand{Job: dying.Job.ID, Steps: "stop"}))
		k.wantsInvalid(name+" with a long grace", command(jobs.JobCommand{Job: dying.Job.ID, Grace: jobs.MaxGrace + 1}))
		if name == "Resume" {
			k.wantsInvalid("Resume with steps", command(jobs.JobCommand{Job: dying.Job.ID, Steps: jobs.StepsFinish}))
		}
		if name == "Cancel" {
			continue
		}
		k.wantsInvalid(name+" that undoes", command(jobs.JobCommand{Job: dying.Job.ID, Revert: true}))
		k.wants(name+" of a job that is being cancelled", command(jobs.JobCommand{Job: dying.Job.ID}), jobs.ErrConflict)
	}
	k.same("finished job", k.job(done.Job.ID), before)
	k.same("cancelled job", k.job(dying.Job.ID), beforeDying)
	ending := success(k.owned(session, "not requested"))
	ending.Outcome = jobs.OutcomeCancelled
	k.wants("an outcome that nobody has requested", k.Board.Consume(k.ctx, ending), jobs.ErrInvalid)
}

func watchClaims(k *kit) {
	own, other := "worker "+k.board[6:], "other "+k.board[6:]
	mine, theirs := k.owned(k.session(own), "mine"), k.owned(k.session(other), "theirs")
	seen := make(chan []jobs.Event, 1)
	begun := make(chan struct{})
	go func() {
		var events []jobs.Event
		for event, err := range k.Board.Watch(k.ctx, jobs.Watch{Owner: own, Begin: true}) {
			if err != nil && !errors.Is(err, k.ctx.Err()) {
				k.Errorf("Watch: %v", err)
			}
			if events = append(events, event); len(events) == 1 {
				close(begun)
			}
			if err != nil || len(events) == 3 {
				break
			}
		}
		seen <- events
	}()
	answer(k, "the beginning of the watch", begun)
	for _, claimed := range []jobs.Claimed{theirs, mine} {
		k.wants("Suspend", k.Board.Suspend(k.ctx, command(claimed.Job.ID)), nil)
		k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
	}
	events := answer(k, "Watch", seen)
	k.same("events", stories(events), []string{"begun  ", "stop_requested mine claimed", "abandoned mine suspended"})
	if len(events) == 3 && comparePositions(events[0].Position, events[1].Position) >= 0 {
		k.Errorf("the watch begins at %v, and its first event is at %v", events[0].Position, events[1].Position)
	}
}
