package jobstest

import (
	"encoding/json"
	"fmt"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var flowRows = []row{
	{"a flow's end and its job's are one", endTogether},
	{"a refused update refuses the ending", refusedUpdateRefusesEnding},
	{"an outcome must be that of the flow", outcomeOfFlow},
	{"a flow is written under its job's claim only", flowFenced},
	{"updates of a lost claim are refused", lostClaimWritesNothing},
	{"a new owner finds the record and continues", newOwnerResumes},
	{"the flow of an unfinished job keeps its plan", planIsKept},
	{"the book of an unfinished job cannot be destroyed", bookIsKept},
}

// travelling posts a job with a flow and claims it.
func (k *kit) travelling(session jobs.SessionID, name string) jobs.Claimed {
	k.Helper()
	return k.claim(session, k.post(k.withFlow(name))[0].ID)
}

// change makes an update of a claimed job's flow.
func change(claimed jobs.Claimed, sequence uint64, state logbook.FlowState) logbook.Update {
	return logbook.Update{Flow: claimed.Job.Flow, Token: claimed.Job.Token, Sequence: sequence, State: state}
}

// update applies one update and returns its verdict.
func (k *kit) update(u logbook.Update) error {
	k.Helper()
	verdicts, err := k.Logbook.Update(k.ctx, u)
	if err != nil {
		return err
	}
	if len(verdicts) != 1 {
		k.Fatalf("Update of 1: %d verdicts", len(verdicts))
	}
	return verdicts[0]
}

func endTogether(k *kit) {
	session := k.session("worker")
	for _, end := range []struct {
		outcome jobs.Outcome
		path    []logbook.FlowState
	}{
		{jobs.OutcomeSuccess, []logbook.FlowState{logbook.FlowRunning, logbook.FlowSuccess}},
		{jobs.OutcomeSuccess, []logbook.FlowState{logbook.FlowSuccess}},
		{jobs.OutcomeReverted, []logbook.FlowState{logbook.FlowRunning, logbook.FlowReverting, logbook.FlowReverted}},
		{jobs.OutcomeFailed, []logbook.FlowState{logbook.FlowRunning, logbook.FlowReverting, logbook.FlowFailure}},
	} {
		claimed := k.travelling(session, string(end.outcome))
		last := len(end.path) - 1
		for i, state := range end.path[:last] {
			k.wants("Update", k.update(change(claimed, uint64(i+1), state)), nil)
		}
		final := change(claimed, uint64(last+1), end.path[last])
		final.Atoms = []logbook.AtomChange{{Name: "fly", Kind: logbook.KindTask, State: logbook.AtomRunning}}
		ending := success(claimed)
		ending.Outcome, ending.Update = end.outcome, &final
		k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
		k.wants("Consume again", k.Board.Consume(k.ctx, ending), nil)
		job, flow := k.job(ending.Job), k.flow(claimed.Job.Flow)
		if job.State != jobs.StateCompleted || job.Outcome != end.outcome || flow.State != end.path[last] || len(flow.Atoms) != 1 {
			k.Errorf("%s: the job is %s, the flow %s with %d atoms", end.outcome, job.State, flow.State, len(flow.Atoms))
		}
		k.wants("DestroyBook after the end", k.Logbook.DestroyBook(k.ctx, claimed.Job.Book), nil)
	}
	for _, verb := range k.verbs()[1:] {
		claimed := k.travelling(session, verb.name)
		suspend := change(claimed, 1, logbook.FlowSuspended)
		ending := verb.suit(claimed)
		ending.Update = &suspend
		k.wants(verb.name, verb.end(k.ctx, ending), nil)
		k.wants(verb.name+" again", verb.end(k.ctx, ending), nil)
		if job, flow := k.job(ending.Job), k.flow(claimed.Job.Flow); job.State != verb.want || flow.State != logbook.FlowSuspended || flow.Sequence != 1 {
			k.Errorf("%s: the job is %s, the flow %s at %d", verb.name, job.State, flow.State, flow.Sequence)
		}
		if !verb.want.Finished() {
			k.wants("DestroyBook after "+verb.name, k.Logbook.DestroyBook(k.ctx, claimed.Job.Book), logbook.ErrConflict)
			continue
		}
		k.wants("DestroyBook after "+verb.name, k.Logbook.DestroyBook(k.ctx, claimed.Job.Book), nil)
	}
}

func refusedUpdateRefusesEnding(k *kit) {
	session := k.session("worker")
	claimed, other := k.travelling(session, "travel"), k.travelling(session, "other")
	k.wants("Update", k.update(change(claimed, 1, logbook.FlowRunning)), nil)
	job, flow := k.job(claimed.Job.ID), k.flow(claimed.Job.Flow)
	skipped, senseless := change(claimed, 3, logbook.FlowSuccess), change(claimed, 2, logbook.FlowPending)
	foreign, stray := change(other, 1, logbook.FlowSuspended), change(claimed, 1, logbook.FlowSuspended)
	stray.Flow = other.Job.Flow
	for what, update := range map[string]logbook.Update{"skipped": skipped, "senseless": senseless, "foreign": foreign, "stray": stray} {
		for _, verb := range k.verbs() {
			ending := verb.suit(claimed)
			ending.Update = &update
			err := verb.end(k.ctx, ending)
			if err == nil {
				k.Errorf("%s with an update that is %s was taken", verb.name, what)
			}
			if what == "skipped" || what == "senseless" {
				k.wants(verb.name+" with an update that is "+what, err, jobs.ErrConflict)
			}
		}
	}
	k.same("job", k.job(claimed.Job.ID), job)
	k.same("flow", k.flow(claimed.Job.Flow), flow)
	if flow := k.flow(other.Job.Flow); flow.Sequence != 0 {
		k.Errorf("the flow of another job was changed")
	}
	final := change(claimed, 2, logbook.FlowSuccess)
	ending := success(claimed)
	ending.Update = &final
	k.wants("Consume with the right update", k.Board.Consume(k.ctx, ending), nil)
}

func outcomeOfFlow(k *kit) {
	claimed := k.travelling(k.session("worker"), "travel")
	before := k.job(claimed.Job.ID)
	for _, outcome := range []jobs.Outcome{jobs.OutcomeSuccess, jobs.OutcomeReverted, jobs.OutcomeFailed} {
		ending := success(claimed)
		ending.Outcome = outcome
		k.wants("outcome "+string(outcome)+" of a pending flow", k.Board.Consume(k.ctx, ending), jobs.ErrInvalid)
	}
	k.same("job", k.job(claimed.Job.ID), before)
	k.wants("Update", k.update(change(claimed, 1, logbook.FlowRunning)), nil)
	done, ending := change(claimed, 2, logbook.FlowSuccess), success(claimed)
	ending.Outcome, ending.Update = jobs.OutcomeReverted, &done
	k.wants("a flow that succeeds and is said to be reverted", k.Board.Consume(k.ctx, ending), jobs.ErrInvalid)
	if flow := k.flow(claimed.Job.Flow); flow.State != logbook.FlowRunning || flow.Sequence != 1 {
		k.Errorf("the refused ending has left the flow %s at %d", flow.State, flow.Sequence)
	}
}

func flowFenced(k *kit) {
	posting := k.withFlow("travel")
	job := k.post(posting)[0]
	outside := logbook.Update{Flow: job.Flow, Sequence: 1, State: logbook.FlowRunning}
	k.wants("the zero token before the claim", k.update(outside), logbook.ErrFenced)
	session := k.session("worker")
	claimed, neighbour := k.claim(session, job.ID), k.travelling(session, "neighbour")
	k.wants("the zero token", k.update(outside), logbook.ErrFenced)
	wrong := change(claimed, 1, logbook.FlowRunning)
	wrong.Token = neighbour.Job.Token
	k.wants("the token of another job", k.update(wrong), logbook.ErrFenced)
	if flow := k.flow(job.Flow); flow.Sequence != 0 || flow.State != logbook.FlowPending {
		k.Errorf("refused updates have changed the flow: %s", render(flow))
	}
	first := change(claimed, 1, logbook.FlowRunning)
	k.wants("the token", k.update(first), nil)
	k.wants("the token, repeated", k.update(first), nil)
	if flow := k.flow(job.Flow); flow.Fence != claimed.Job.Token || flow.Sequence != 1 {
		k.Errorf("the flow is at %s %d, want %s 1", flow.Fence, flow.Sequence, claimed.Job.Token)
	}
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	k.wants("the first update, repeated after the end", k.update(first), nil)
	k.wants("the token after the job's end", k.update(change(claimed, 2, logbook.FlowSuspended)), logbook.ErrFenced)
	k.wants("the zero token after the job's end", k.update(logbook.Update{Flow: job.Flow, Sequence: 1, State: logbook.FlowSuspended}), logbook.ErrFenced)
}

func lostClaimWritesNothing(k *kit) {
	for how, lose := range k.losses() {
		session := k.doomed(how, "worker")
		claimed := k.travelling(session, how)
		k.wants("Update", k.update(change(claimed, 1, logbook.FlowRunning)), nil)
		lose(session, claimed)
		before := k.flow(claimed.Job.Flow)
		late := change(claimed, 2, logbook.FlowSuccess)
		k.wants("update under a claim that was "+how, k.update(late), logbook.ErrFenced)
		heir := k.soon(k.session("worker"))
		k.wants("update under a claim that was "+how+", with a new owner", k.update(late), logbook.ErrFenced)
		k.same("flow", k.flow(claimed.Job.Flow), before)
		k.wants("update by the new owner", k.update(change(heir, 1, logbook.FlowSuspended)), nil)
		k.wants("Trash", k.Board.Trash(k.ctx, release(heir)), nil)
	}
}

func newOwnerResumes(k *kit) {
	old := k.mortal("old")
	claimed := k.travelling(old, "travel")
	attempt := logbook.Attempt{
		Action: logbook.ActionExecute, Number: 1, Token: claimed.Job.Token, Owner: "old",
		StartedAt: claimed.Job.Claim.Since, EndedAt: claimed.Job.Claim.Since, Result: json.RawMessage(`{"seat": "12A"}`),
	}
	first := change(claimed, 1, logbook.FlowRunning)
	first.Atoms = []logbook.AtomChange{{Name: "fly", Kind: logbook.KindTask, State: logbook.AtomRunning}}
	second := change(claimed, 2, "")
	second.Atoms = []logbook.AtomChange{{Name: "fly", State: logbook.AtomSuccess, Attempts: []logbook.Attempt{attempt}}}
	k.wants("Update", k.update(first), nil)
	k.wants("Update", k.update(second), nil)
	before := k.flow(claimed.Job.Flow)
	k.lapse(old)
	heir := k.soon(k.session("heir"))
	if heir.Flow == nil {
		k.Fatalf("the job was given without its flow")
	}
	k.same("flow that the new owner is given", *heir.Flow, before)
	for i := range 3 {
		next := change(heir, uint64(i+1), "")
		next.Atoms = []logbook.AtomChange{{Name: fmt.Sprint("stay ", i), Kind: logbook.KindTask}}
		k.wants("update by the new owner", k.update(next), nil)
	}
	if flow := k.flow(claimed.Job.Flow); len(flow.Atoms) != 4 || flow.Sequence != 3 || flow.Fence != heir.Job.Token {
		k.Errorf("the flow stands at %s %d with %d atoms", flow.Fence, flow.Sequence, len(flow.Atoms))
	}
}

func planIsKept(k *kit) {
	posting := k.withFlow("travel")
	job := k.post(posting)[0]
	changed := *posting.Book
	changed.Flows = append([]logbook.FlowDetail(nil), posting.Book.Flows...)
	changed.Flows[0].Store = logbook.Values{"city": json.RawMessage(`"Rome"`)}
	k.wants("SaveBook before the claim", k.Logbook.SaveBook(k.ctx, changed), logbook.ErrConflict)
	claimed := k.claim(k.session("worker"), job.ID)
	k.wants("SaveBook", k.Logbook.SaveBook(k.ctx, changed), logbook.ErrConflict)
	k.wants("SaveBook of the same", k.Logbook.SaveBook(k.ctx, *posting.Book), nil)
	k.same("store of the flow", k.flow(job.Flow).Store, posting.Book.Flows[0].Store)
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	k.wants("SaveBook after the job's end", k.Logbook.SaveBook(k.ctx, changed), nil)
	k.same("store of the flow after the job's end", k.flow(job.Flow).Store, changed.Flows[0].Store)
}

func bookIsKept(k *kit) {
	job := k.post(k.withFlow("travel"))[0]
	k.wants("DestroyBook before the claim", k.Logbook.DestroyBook(k.ctx, job.Book), logbook.ErrConflict)
	claimed := k.claim(k.session("worker"), job.ID)
	k.wants("DestroyBook", k.Logbook.DestroyBook(k.ctx, job.Book), logbook.ErrConflict)
	k.flow(job.Flow)
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	k.wants("DestroyBook after the job's end", k.Logbook.DestroyBook(k.ctx, job.Book), nil)
	_, err := k.Logbook.FlowDetail(k.ctx, job.Flow)
	k.wants("the flow", err, logbook.ErrNotFound)
	if got := k.job(job.ID); got.State != jobs.StateTrashed || got.BookName != job.BookName {
		k.Errorf("got %s, want the trashed job as it was", render(got))
	}
}
