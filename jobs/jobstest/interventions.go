package jobstest

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var interventionRows = []row{
	{"an intervention makes a failed flow's job claimable", reopenedByPerson},
	{"a flow that runs again has no cause, and a wait for its job continues until the next end", waitsOnceMore},
	{"interventions with hold wait for one without hold", holdsWait},
	{"the next owner gets all pending interventions", interventionsTravel},
	{"a cancelled job is undone further", cancelledUndoneFurther},
	{"pending interventions can be withdrawn", wordsTakenBack},
	{"an unclaimed reopened job is cancelled", reopenedAndCancelled},
	{"a reopened job needs room on its board", reopenedNeedsRoom},
	{"interventions are refused where they make no sense", senselessInterventions},
}

// intervene returns the error of an intervention, and checks that the answer names the right
// job.
func (k *kit) intervene(word logbook.Intervention) error {
	k.Helper()
	id, err := k.Board.Intervene(k.ctx, word)
	if err != nil {
		return err
	}
	if job := k.job(id); job.Flow != word.Flow {
		k.Errorf("the intervention in flow %s is answered with the job of flow %s", word.Flow, job.Flow)
	}
	return nil
}

// said makes an intervention in a claimed job's flow.
func said(claimed jobs.Claimed, kind logbook.InterventionKind, step string) logbook.Intervention {
	return logbook.Intervention{ID: uuid.New(), Flow: claimed.Job.Flow, Kind: kind, Step: step, By: "ann", Reason: "so it is to be"}
}

// failing makes the flow of a claimed job fail permanently: the revert of step fly fails, and step
// stay has failed. It returns the job's ending.
func (k *kit) failing(claimed jobs.Claimed) jobs.Ending {
	k.Helper()
	first := change(claimed, 1, logbook.FlowRunning)
	first.Definition = &logbook.Definition{Hash: "of fly and stay"}
	first.Atoms = []logbook.AtomChange{
		{Name: "fly", Kind: logbook.KindTask, State: logbook.AtomRunning}, {Name: "fly", State: logbook.AtomSuccess},
		{Name: "stay", Kind: logbook.KindTask, State: logbook.AtomRunning}, {Name: "stay", State: logbook.AtomFailure},
	}
	k.wants("Update", k.update(first), nil)
	return k.failingAgain(claimed, 2)
}

// failingAgain makes the revert fail, starting with an update.
func (k *kit) failingAgain(claimed jobs.Claimed, sequence uint64) jobs.Ending {
	k.Helper()
	reverting := change(claimed, sequence, logbook.FlowReverting)
	reverting.Atoms = []logbook.AtomChange{{Name: "fly", State: logbook.AtomReverting}}
	k.wants("Update", k.update(reverting), nil)
	last := change(claimed, sequence+1, logbook.FlowFailure)
	last.Cause = &logbook.Failure{Kind: logbook.FailureError, Message: "no way back"}
	last.Atoms = []logbook.AtomChange{{Name: "fly", State: logbook.AtomRevertFailure}}
	ending := success(claimed)
	ending.Outcome, ending.Update, ending.Failure, ending.Reason = jobs.OutcomeFailed, &last, last.Cause, "no way back"
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	return ending
}

func reopenedByPerson(k *kit) {
	session := k.session("worker")
	claimed := k.travelling(session, "travel")
	late := k.failing(claimed)
	before := k.job(claimed.Job.ID)
	word := said(claimed, logbook.InterveneSkip, "fly")
	for range 2 {
		k.wants("Intervene", k.intervene(word), nil)
	}
	job := k.job(claimed.Job.ID)
	if job.State != jobs.StateClaimable || job.Outcome != "" || job.Reason != "" || job.Failure != nil || !job.FinishedAt.IsZero() {
		k.Errorf("reopened, the job is %s", render(job))
	}
	if job.Sequence != before.Sequence || job.Claims != before.Claims || !job.PostedAt.Equal(before.PostedAt) {
		k.Errorf("the job was %s, and is %s", render(before), render(job))
	}
	k.wants("update by the old owner", k.update(change(claimed, 4, logbook.FlowReverting)), logbook.ErrFenced)
	k.wants("the old owner's end, repeated", k.Board.Consume(k.ctx, late), jobs.ErrFenced)

	again := k.soon(session)
	if again.Job.ID != job.ID || again.Flow == nil || !again.Flow.Resumable() {
		k.Fatalf("got %s", render(again))
	}
	if token := again.Flow.Interventions[0].Token; token.Compare(claimed.Job.Token) <= 0 || token.Compare(again.Job.Token) >= 0 {
		k.Errorf("the intervention has token %s, between claims under %s and %s", token, claimed.Job.Token, again.Job.Token)
	}
	k.wants("Intervene while it is carried out", k.intervene(said(claimed, logbook.InterveneRerun, "")), jobs.ErrConflict)
	k.wants("Intervene, repeated", k.intervene(word), nil)
	reverting := change(again, 1, logbook.FlowReverting)
	reverting.Atoms = []logbook.AtomChange{{Name: "fly", State: logbook.AtomReverted}}
	k.wants("Update", k.update(reverting), nil)
	last := change(again, 2, logbook.FlowReverted)
	ending := success(again)
	ending.Outcome, ending.Update = jobs.OutcomeReverted, &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	events := k.events(jobs.Watch{Job: job.ID}, 6)
	k.same("events", stories(events), []string{
		"posted travel claimable", "claimed travel claimed", "completed travel completed",
		"reopened travel claimable", "claimed travel claimed", "completed travel completed",
	})
	if o := events[3].Request; o == nil || o.Kind != jobs.RequestIntervene || o.By != "ann" || o.Reason != "so it is to be" || o.At.IsZero() || events[3].Reason == "" {
		k.Errorf("the event is %s", render(events[3]))
	}
}

func waitsOnceMore(k *kit) {
	session := k.session("worker")
	claimed := k.travelling(session, "travel")
	k.failing(claimed)
	finished, err := k.Board.Wait(k.ctx, claimed.Job.ID)
	if k.wants("Wait", err, nil); finished.Outcome != jobs.OutcomeFailed {
		k.Errorf("waited for %s", render(finished))
	}
	k.wants("Intervene", k.intervene(said(claimed, logbook.InterveneRerun, "")), nil)
	ended := make(chan jobs.Job, 1)
	go func() {
		job, err := k.Board.Wait(k.ctx, claimed.Job.ID)
		k.wants("Wait", err, nil)
		ended <- job
	}()
	again := k.soon(session)
	if flow := k.flow(claimed.Job.Flow); flow.Cause == nil {
		k.Errorf("the failed flow has no cause: %s", render(flow))
	}
	k.wants("Update", k.update(change(again, 1, logbook.FlowRunning)), nil)
	if flow := k.flow(claimed.Job.Flow); flow.Cause != nil || flow.Store == nil {
		k.Errorf("the flow that runs again is %s", render(flow))
	}
	last := change(again, 2, logbook.FlowSuccess)
	ending := success(again)
	ending.Update = &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	if job := answer(k, "Wait", ended); job.Outcome != jobs.OutcomeSuccess {
		k.Errorf("waited for %s", render(job))
	}
}

func holdsWait(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	k.failing(claimed)
	before := k.job(claimed.Job.ID)
	held := said(claimed, logbook.InterveneComplete, "stay")
	held.Hold, held.Result = true, json.RawMessage(`{"room": 7}`)
	for range 2 {
		k.wants("Intervene", k.intervene(held), nil)
	}
	k.same("job", k.job(claimed.Job.ID), before)
	k.wants("Intervene", k.intervene(said(claimed, logbook.InterveneSkip, "fly")), nil)
	k.same("state", k.job(claimed.Job.ID).State, jobs.StateClaimable)
	events := k.events(jobs.Watch{Job: claimed.Job.ID}, 5)
	k.same("events", stories(events)[3:], []string{"intervened travel completed", "reopened travel claimable"})
}

func interventionsTravel(k *kit) {
	session := k.session("worker")
	claimed := k.travelling(session, "travel")
	k.failing(claimed)
	held := said(claimed, logbook.InterveneComplete, "stay")
	held.Hold, held.Result = true, json.RawMessage(`{"room": 7}`)
	words := []logbook.Intervention{held, said(claimed, logbook.InterveneSkip, "fly"), said(claimed, logbook.InterveneRerun, "")}
	for _, word := range words {
		k.wants("Intervene", k.intervene(word), nil)
	}
	again := k.soon(session)
	k.same("what the owner is told", *again.Flow, k.flow(claimed.Job.Flow))
	pending := again.Flow.Pending()
	if len(pending) != len(words) {
		k.Fatalf("pending are %s", render(pending))
	}
	for i, want := range words {
		want.At, want.Token = pending[i].At, pending[i].Token
		k.same("intervention", pending[i], want)
		if want.At.IsZero() || want.Token.IsZero() {
			k.Errorf("intervention %d is %s", i, render(pending[i]))
		}
	}
	k.wants("Update", k.update(change(again, 1, logbook.FlowRunning)), nil)
	flow := k.flow(claimed.Job.Flow)
	if len(flow.Pending()) != 0 || len(flow.Interventions) != len(words) {
		k.Errorf("carried out, the flow is %s", render(flow))
	}
}

func wordsTakenBack(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	k.failing(claimed)
	back := said(claimed, logbook.InterveneTakeBack, "")
	k.wants("taking back nothing", k.intervene(back), jobs.ErrConflict)
	held := said(claimed, logbook.InterveneComplete, "stay")
	held.Hold = true
	k.wants("Intervene", k.intervene(held), nil)
	for range 2 {
		k.wants("taking back what holds", k.intervene(back), nil)
	}
	if job, flow := k.job(claimed.Job.ID), k.flow(claimed.Job.Flow); job.State != jobs.StateCompleted || len(flow.Pending()) != 0 || len(flow.Interventions) != 2 {
		k.Errorf("the job is %s, and its flow %s", job.State, render(flow))
	}
	again := held
	again.ID = uuid.New()
	skip := said(claimed, logbook.InterveneSkip, "fly")
	for _, word := range []logbook.Intervention{again, skip, said(claimed, logbook.InterveneTakeBack, "stay")} {
		k.wants("Intervene", k.intervene(word), nil)
	}
	flow := k.flow(claimed.Job.Flow)
	if pending := flow.Pending(); len(pending) != 1 || pending[0].ID != skip.ID || k.job(claimed.Job.ID).State != jobs.StateClaimable {
		k.Errorf("pending are %s", render(pending))
	}
	k.wants("taking back all", k.intervene(said(claimed, logbook.InterveneTakeBack, "")), nil)
	if job := k.job(claimed.Job.ID); job.State != jobs.StateCompleted || job.Outcome != jobs.OutcomeFailed {
		k.Errorf("the job is %s", render(job))
	}
	events := stories(k.events(jobs.Watch{Job: claimed.Job.ID}, 9))
	k.same("events", events[3:], []string{
		"intervened travel completed", "intervened travel completed", "intervened travel completed",
		"reopened travel claimable", "intervened travel claimable", "completed travel completed",
	})
}

func reopenedAndCancelled(k *kit) {
	session := k.session("worker")
	for _, row := range []struct {
		kind   logbook.InterventionKind
		revert bool
		want   jobs.State
	}{
		{logbook.InterveneRerun, false, jobs.StateCompleted},
		{logbook.InterveneRerun, true, jobs.StateCompleted},
		{logbook.InterveneRetryRevert, false, jobs.StateCompleted},
		{logbook.InterveneRetryRevert, true, jobs.StateClaimable}, // to be reverted, which both request
	} {
		claimed := k.travelling(session, "travel")
		k.failing(claimed)
		k.wants("Intervene", k.intervene(said(claimed, row.kind, "")), nil)
		end := jobs.JobCommand{Job: claimed.Job.ID, By: "bob", Revert: row.revert}
		for range 2 {
			k.wants("Cancel", k.Board.Cancel(k.ctx, end), nil)
		}
		job, flow := k.job(claimed.Job.ID), k.flow(claimed.Job.Flow)
		over := row.want == jobs.StateCompleted
		if job.State != row.want || over != (job.Outcome == jobs.OutcomeFailed) || over != (len(flow.Pending()) == 0) || job.StopRequest == nil || job.StopRequest.Kind != jobs.RequestCancel {
			k.Errorf("%s, cancelled with revert=%v: the job is %s, its flow %s", row.kind, row.revert, render(job), render(flow))
		}
		if last := flow.Interventions[len(flow.Interventions)-1]; over && (last.Kind != logbook.InterveneTakeBack || last.By != "bob") {
			k.Errorf("the last word is %s", render(last))
		}
		if !over {
			continue
		}
		k.wants("Intervene", k.intervene(said(claimed, logbook.InterveneSkip, "fly")), nil)
		next := k.claim(session, claimed.Job.ID)
		if pending := next.Flow.Pending(); len(pending) != 1 || pending[0].Kind != logbook.InterveneSkip {
			k.Errorf("pending are %s", render(pending))
		}
	}
}

func reopenedNeedsRoom(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	k.failing(claimed)
	next := k.posted("the only one")
	k.wants("LimitBoard", k.Board.LimitBoard(k.ctx, k.board, jobs.BoardLimits{Jobs: 1}), nil)
	held, word := said(claimed, logbook.InterveneComplete, "stay"), said(claimed, logbook.InterveneRerun, "")
	held.Hold = true
	k.wants("what holds", k.intervene(held), nil)
	k.wantsLimit("what reopens the job", k.intervene(word), 1, 2)
	k.same("state", k.job(claimed.Job.ID).State, jobs.StateCompleted)
	k.wants("Cancel", k.Board.Cancel(k.ctx, command(next.ID)), nil)
	k.wants("Intervene", k.intervene(word), nil)
	k.same("state", k.job(claimed.Job.ID).State, jobs.StateClaimable)
}

func cancelledUndoneFurther(k *kit) {
	session := k.session("worker")
	for kind, want := range map[logbook.InterventionKind]jobs.RequestKind{
		logbook.InterveneRetryRevert: jobs.RequestCancel, logbook.InterveneRerun: "",
	} {
		claimed := k.travelling(session, "travel")
		k.wants("Cancel", k.Board.Cancel(k.ctx, undo(claimed.Job.ID)), nil)
		k.failing(claimed)
		k.wants("Intervene", k.intervene(said(claimed, kind, "")), nil)
		k.under(claimed.Job.ID, jobs.StateClaimable, want)
		again := k.soon(session)
		k.failingAgainOr(again, kind)
	}
}

// failingAgainOr reverts the flow of a cancelled job, or makes the flow of a resumed job fail
// again.
func (k *kit) failingAgainOr(again jobs.Claimed, kind logbook.InterventionKind) {
	k.Helper()
	if kind == logbook.InterveneRerun {
		k.failingAgain(again, 1)
		return
	}
	k.wants("Update", k.update(change(again, 1, logbook.FlowReverting)), nil)
	last := change(again, 2, logbook.FlowReverted)
	ending := success(again)
	ending.Outcome, ending.Update = jobs.OutcomeCancelled, &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
}

func senselessInterventions(k *kit) {
	session := k.session("worker")
	running := k.travelling(session, "running")
	k.begun(running)
	failed := k.travelling(session, "failed")
	k.failing(failed)
	done := k.travelling(session, "done")
	k.wants("Update", k.update(change(done, 1, logbook.FlowRunning)), nil)
	last, ending := change(done, 2, logbook.FlowSuccess), success(done)
	ending.Update = &last
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	loose := k.saved("loose").Flows[0].ID
	nowhere := said(failed, logbook.InterveneRerun, "")
	nowhere.Flow = logbook.NewFlowID()
	outside := said(failed, logbook.InterveneRerun, "")
	outside.Flow = loose
	before, flow := k.job(failed.Job.ID), k.flow(failed.Job.Flow)
	for _, r := range []struct {
		name string
		word logbook.Intervention
		want error
	}{
		{"no flow", nowhere, logbook.ErrNotFound},
		{"a flow that has not begun", outside, logbook.ErrConflict},
		{"a flow that runs", said(running, logbook.InterveneRerun, ""), logbook.ErrConflict},
		{"a flow that has succeeded", said(done, logbook.InterveneRerun, ""), logbook.ErrConflict},
		{"a step that was not reverted", said(failed, logbook.InterveneSkip, "stay"), logbook.ErrConflict},
		{"no step", said(failed, logbook.InterveneComplete, "dance"), logbook.ErrNotFound},
		{"a step that is needed", said(failed, logbook.InterveneComplete, ""), logbook.ErrInvalid},
		{"a step too many", said(failed, logbook.InterveneRetryRevert, "fly"), logbook.ErrInvalid},
		{"an unknown kind", said(failed, "mend", ""), logbook.ErrInvalid},
		{"nobody", logbook.Intervention{ID: uuid.New(), Flow: failed.Job.Flow, Kind: logbook.InterveneRerun}, logbook.ErrInvalid},
		{"no id", logbook.Intervention{Flow: failed.Job.Flow, Kind: logbook.InterveneRerun, By: "ann"}, logbook.ErrInvalid},
	} {
		k.wants(r.name, k.intervene(r.word), r.want)
	}
	k.same("job", k.job(failed.Job.ID), before)
	k.same("flow", k.flow(failed.Job.Flow), flow)
	k.wants("DestroyBook", k.Logbook.DestroyBook(k.ctx, failed.Job.Book), nil)
	k.wants("a flow that was destroyed", k.intervene(said(failed, logbook.InterveneRerun, "")), logbook.ErrNotFound)
}
