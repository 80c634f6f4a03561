package jobstest

import (
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var beginRows = []row{
	{"a lost claim with Begins shows that its flow may have begun", lostClaimTells},
	{"a lost claim that does not tells nothing", lostClaimTellsNothing},
	{"a flow has not begun if its owner reports that everything is recorded", recordedHasNotBegun},
	{"the first update records what has begun", firstUpdateTells},
	{"a lost claim shows that a running flow may have gone on", lostClaimOfRunningFlowTells},
	{"a claim shows Begins, and so does its repeat", beginsIsSeen},
	{"a flow that may have begun keeps its plan", begunPlanIsKept},
}

// beginning posts a job with a flow, and claims the job for a session, with or without Begins.
func (k *kit) beginning(session jobs.SessionID, name string, begins bool) jobs.Claimed {
	k.Helper()
	k.post(k.withFlow(name))
	request := k.request(session)
	request.Begins = begins
	claimed := k.next(request)
	if len(claimed) != 1 || claimed[0].Job.Name != name {
		k.Fatalf("ClaimNext: got %q, want %q", names(claimed), name)
	}
	return claimed[0]
}

func lostClaimTells(k *kit) {
	heir := k.session("heir")
	for how, lose := range k.losses() {
		session := k.doomed(how, "worker")
		claimed := k.beginning(session, how, true)
		lose(session, claimed)
		if flow := k.flow(claimed.Job.Flow); flow.Begun != claimed.Job.Token || flow.State != logbook.FlowPending {
			k.Errorf("%s: the flow is %s and may have begun under %s, want %s", how, flow.State, flow.Begun, claimed.Job.Token)
		}
		k.wants("Cancel", k.Board.Cancel(k.ctx, undo(claimed.Job.ID)), nil)
		again := k.soon(heir)
		if again.Job.ID != claimed.Job.ID || again.Job.StopRequest == nil || again.Flow == nil || again.Flow.Begun != claimed.Job.Token {
			k.Errorf("%s: the next owner is given %s", how, render(again))
		}
		k.wants("Trash", k.Board.Trash(k.ctx, release(again)), nil)
	}
}

func lostClaimTellsNothing(k *kit) {
	for how, lose := range k.losses() {
		session := k.doomed(how, "worker")
		claimed := k.beginning(session, how, false)
		lose(session, claimed)
		k.wants("Cancel", k.Board.Cancel(k.ctx, undo(claimed.Job.ID)), nil)
		k.under(claimed.Job.ID, jobs.StateCompleted, jobs.RequestCancel)
		if flow := k.flow(claimed.Job.Flow); !flow.Begun.IsZero() {
			k.Errorf("%s: the flow may have begun under %s", how, flow.Begun)
		}
	}
}

func recordedHasNotBegun(k *kit) {
	session := k.session("worker")
	for _, verb := range k.verbs()[1:] {
		claimed := k.beginning(session, verb.name, true)
		ending := verb.suit(claimed)
		ending.Recorded = true
		k.wants(verb.name, verb.end(k.ctx, ending), nil)
		k.wants(verb.name+" again", verb.end(k.ctx, ending), nil)
		if flow := k.flow(claimed.Job.Flow); !flow.Begun.IsZero() {
			k.Errorf("%s: the flow may have begun under %s", verb.name, flow.Begun)
		}
		if verb.want.Finished() {
			continue
		}
		k.wants("Cancel", k.Board.Cancel(k.ctx, undo(claimed.Job.ID)), nil)
		k.under(claimed.Job.ID, jobs.StateCompleted, jobs.RequestCancel)
	}
}

func firstUpdateTells(k *kit) {
	session := k.session("worker")
	first := k.beginning(session, "travel", true)
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(first)), nil)
	second := k.soon(session)
	k.begun(second)
	if flow := k.flow(first.Job.Flow); !flow.Begun.IsZero() {
		k.Errorf("with an update, the flow may have begun under %s", flow.Begun)
	}
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(second)), nil)
	third := k.soon(session)
	if third.Flow == nil || !third.Flow.Begun.IsZero() {
		k.Errorf("the third owner is given %s", render(third.Flow))
	}
}

// lostClaimOfRunningFlowTells: the claim after the first update has Begins too, and is lost without an update of its own.
func lostClaimOfRunningFlowTells(k *kit) {
	heir := k.session("heir")
	for how, lose := range k.losses() {
		session := k.doomed(how, "worker")
		first := k.beginning(session, how, true)
		k.begun(first)
		k.wants("Abandon", k.Board.Abandon(k.ctx, release(first)), nil)
		request := k.request(session)
		request.Begins, request.Wait = true, parked
		claimed := k.next(request)
		if len(claimed) != 1 || claimed[0].Job.ID != first.Job.ID {
			k.Fatalf("%s: the second claim is %s", how, render(claimed))
		}
		lose(session, claimed[0])
		again := k.soon(heir)
		if again.Job.ID != first.Job.ID || again.Flow == nil || again.Flow.Begun != claimed[0].Job.Token || again.Flow.State != logbook.FlowRunning {
			k.Errorf("%s: the next owner is given %s", how, render(again))
		}
		k.begun(again)
		if flow := k.flow(first.Job.Flow); !flow.Begun.IsZero() {
			k.Errorf("%s: with an update, the flow may have begun under %s", how, flow.Begun)
		}
		k.wants("Trash", k.Board.Trash(k.ctx, release(again)), nil)
	}
}

func beginsIsSeen(k *kit) {
	session := k.session("worker")
	k.post(k.withFlow("travel"))
	request := k.request(session)
	request.Begins = true
	for _, what := range []string{"first", "repeated"} {
		claimed := k.next(request)
		if len(claimed) != 1 || claimed[0].Job.Claim == nil || !claimed[0].Job.Claim.Begins {
			k.Fatalf("%s: got %s", what, render(claimed))
		}
	}
	page, err := k.Board.Claims(k.ctx, jobs.ClaimQuery{Session: session})
	if k.wants("Claims", err, nil); len(page.Items) != 1 || !page.Items[0].Claim.Begins {
		k.Errorf("the claims are %s", render(page.Items))
	}
}

func begunPlanIsKept(k *kit) {
	session := k.session("worker")
	claimed := k.beginning(session, "travel", true)
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	book, err := k.Logbook.Book(k.ctx, claimed.Job.Book)
	k.wants("Book", err, nil)
	k.wants("SaveBook again", k.Logbook.SaveBook(k.ctx, book), nil)
	book.Flows[0].Factory.Name = "another"
	k.wants("SaveBook otherwise", k.Logbook.SaveBook(k.ctx, book), logbook.ErrConflict)
}
