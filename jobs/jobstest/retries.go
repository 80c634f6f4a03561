package jobstest

import (
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var retryRows = []row{
	{"a failed job is retried", triedAgain},
	{"a flow that was reverted is run again from its beginning", runAgain},
	{"a parked job waits for an operator", parkedWaits},
	{"a flow that is half undone is never run again by itself", halfUndoneParks},
	{"a cancelled parked job has no pending interventions", givenUpWhole},
	{"a retry policy that makes no sense is refused", senselessPolicies},
}

// failed consumes a job whose work has failed, twice, as after a lost answer.
func (k *kit) failed(claimed jobs.Claimed, failure *logbook.Failure) {
	k.Helper()
	ending := success(claimed)
	ending.Outcome, ending.Failure = jobs.OutcomeFailed, failure
	for range 2 {
		k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	}
}

// refusesStart holds of a cooling job: only RetryNow starts it, and the refusals of other calls name its command.
func (k *kit) refusesStart(waiting *jobs.Job) {
	id := waiting.ID
	for what, err := range map[string]error{
		"Retry":                   k.Board.Retry(k.ctx, jobs.JobCommand{Job: id}),
		"Release":                 k.Board.Change(k.ctx, jobs.Change{Job: id, Release: true}),
		"a start now":             k.Board.Change(k.ctx, jobs.Change{Job: id, NotBefore: waiting.ModifiedAt}),
		"a start when it is due":  k.Board.Change(k.ctx, jobs.Change{Job: id, NotBefore: waiting.DueAt}),
		"a priority, and a start": k.Board.Change(k.ctx, jobs.Change{Job: id, Priority: new(jobs.Priority), NotBefore: waiting.ModifiedAt}),
	} {
		if k.wants(what, err, jobs.ErrConflict); err != nil && !strings.Contains(err.Error(), "attempt; `conductord flow retry-now ") {
			k.Errorf("%s: the refusal does not name the command: %v", what, err)
		}
	}
}

func triedAgain(k *kit) {
	const delay = 3 * time.Second // during the delay, the row checks the waiting job
	session := k.session("worker")
	posting := k.posting("mail")
	posting.Retry = &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 3, Delay: delay}, PriorityStep: -5, RetryFilter: logbook.RetryFilter{Never: []string{"address"}}}
	job := k.post(posting)[0]
	first := k.claim(session, job.ID)
	k.failed(first, &logbook.Failure{Kind: "network", Message: "gone"})
	waiting := k.stands(job.ID, jobs.StateCooling)
	if waiting.Attempts != 1 || waiting.Attempted != jobs.OutcomeFailed || waiting.Priority != -5 || waiting.Outcome != "" ||
		!waiting.DueAt.Equal(waiting.ModifiedAt.Add(delay)) || !strings.Contains(waiting.Reason, "attempt 1 of 3") {
		k.Errorf("it waits as %s", render(waiting))
	}
	k.refusesStart(&waiting)
	second := k.soon(session)
	if second.Job.ID != job.ID || second.Job.Token.Compare(first.Job.Token) <= 0 {
		k.Errorf("got %s", render(second.Job))
	}
	ending := success(first)
	ending.Outcome = jobs.OutcomeFailed
	k.wants("the end of the first attempt, late", k.Board.Consume(k.ctx, ending), jobs.ErrFenced)
	k.failed(second, &logbook.Failure{Kind: "address", Message: "unknown"})
	done := k.stands(job.ID, jobs.StateCompleted)
	if done.Outcome != jobs.OutcomeFailed || done.Attempts != 2 || done.Crashes != 0 || done.Failures != 0 {
		k.Errorf("it is completed as %s", render(done))
	}
	k.same("events", stories(k.events(jobs.Watch{Job: job.ID}, 6)), []string{
		"posted mail claimable", "claimed mail claimed", "retried mail cooling", "cooled mail claimable", "claimed mail claimed", "completed mail completed",
	})
	k.same("errors", k.errors(jobs.ErrorQuery{Job: job.ID}, 10), []string{"mail failed address", "mail failed network"})
}

// reverted makes a claimed job's flow fail and be reverted.
func (k *kit) reverted(claimed jobs.Claimed) {
	k.Helper()
	reverting := change(claimed, 2, logbook.FlowReverting)
	last := change(claimed, 3, logbook.FlowReverted)
	last.Cause = &logbook.Failure{Kind: "weather", Message: "snow"}
	k.wants("Update", k.update(change(claimed, 1, logbook.FlowRunning)), nil)
	k.wants("Update", k.update(reverting), nil)
	ending := success(claimed)
	ending.Outcome, ending.Update = jobs.OutcomeReverted, &last
	for range 2 {
		k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	}
}

func runAgain(k *kit) {
	session := k.session("worker")
	posting := k.withFlow("travel")
	posting.Retry = &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 2, Delay: jobs.MinRetryDelay}}
	job := k.post(posting)[0]
	k.reverted(k.claim(session, job.ID))
	again := k.soon(session)
	if again.Job.ID != job.ID || again.Flow == nil || !again.Flow.Resumable() || len(again.Flow.Interventions) != 1 {
		k.Fatalf("got %s", render(again))
	}
	if rerun := again.Flow.Interventions[0]; rerun.Kind != logbook.InterveneRerun || rerun.By != jobs.ByRetryPolicy || rerun.Reason != "attempt 1 of 2 has failed" {
		k.Errorf("it is run again as %s", render(rerun))
	}
	k.reverted(again)
	if done := k.stands(job.ID, jobs.StateCompleted); done.Outcome != jobs.OutcomeReverted || done.Attempts != 2 {
		k.Errorf("it is completed as %s", render(done))
	}
}

func parkedWaits(k *kit) {
	session := k.session("worker")
	posting := k.withFlow("travel")
	posting.Key, posting.Retry = "trip", &jobs.RetryPolicy{OnFailure: jobs.FailureParks}
	job := k.post(posting)[0]
	k.reverted(k.claim(session, job.ID))
	parked := k.stands(job.ID, jobs.StateHeld)
	if !parked.Parked || !parked.Held || parked.Attempted != jobs.OutcomeReverted || !strings.Contains(parked.Reason, "snow") {
		k.Errorf("it is parked as %s", render(parked))
	}
	explained, err := k.Board.Explain(k.ctx, job.ID)
	if k.wants("Explain", err, nil); explained.Cause != jobs.CauseParked || explained.Remedy != (jobs.Remedy{Verb: jobs.RemedyRelease, Target: job.ID.String()}) || !strings.Contains(explained.Text, "snow") {
		k.Errorf("explained as %s", render(explained))
	}
	k.same("jobs to be had", names(k.next(k.request(session))), []string{})
	k.sameKey(k.keyed("other", "trip"), job.ID)
	k.change(jobs.Change{Job: job.ID, Release: true})
	again := k.soon(session)
	if again.Job.ID != job.ID || again.Job.Attempts != 0 || again.Job.Parked || !again.Flow.Resumable() || again.Flow.Interventions[0].By != "ann" {
		k.Fatalf("got %s", render(again))
	}
	k.reverted(again)
	k.stands(job.ID, jobs.StateHeld)
	for range 2 {
		k.wants("Cancel", k.Board.Cancel(k.ctx, command(job.ID)), nil)
	}
	if got := k.stands(job.ID, jobs.StateCompleted); got.Outcome != jobs.OutcomeCancelled || got.Parked {
		k.Errorf("it is cancelled as %s", render(got))
	}
}

func halfUndoneParks(k *kit) {
	session := k.session("worker")
	posting := k.withFlow("travel")
	posting.Retry = &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 5}, OnFailure: jobs.FailureParks}
	job := k.post(posting)[0]
	claimed := k.claim(session, job.ID)
	k.failing(claimed)
	if parked := k.stands(job.ID, jobs.StateHeld); !parked.Parked || parked.Attempted != jobs.OutcomeFailed {
		k.Errorf("it is parked as %s", render(parked))
	}
	freed := jobs.Change{Job: job.ID, Release: true}
	k.wants("Release of what is half undone", k.Board.Change(k.ctx, freed), jobs.ErrConflict)
	explained, err := k.Board.Explain(k.ctx, job.ID)
	if k.wants("Explain", err, nil); explained.Remedy != (jobs.Remedy{Verb: jobs.RemedyRetryRevert, Target: job.Flow.String()}) {
		k.Errorf("explained as %s", render(explained))
	}
	k.wants("Intervene", k.intervene(said(claimed, logbook.InterveneRetryRevert, "")), nil)
	if got := k.stands(job.ID, jobs.StateClaimable); got.Parked || got.Held {
		k.Errorf("it continues as %s", render(got))
	}
	if again := k.soon(session); again.Job.ID != job.ID || !again.Flow.Resumable() {
		k.Errorf("got %s", render(again))
	}
}

func givenUpWhole(k *kit) {
	posting := k.withFlow("travel")
	posting.Retry = &jobs.RetryPolicy{OnFailure: jobs.FailureParks}
	claimed := k.claim(k.session("worker"), k.post(posting)[0].ID)
	k.failing(claimed)
	held := said(claimed, logbook.InterveneComplete, "stay")
	held.Hold = true
	k.wants("Intervene", k.intervene(held), nil)
	for range 2 {
		k.wants("Cancel", k.Board.Cancel(k.ctx, command(claimed.Job.ID)), nil)
	}
	flow := k.flow(claimed.Job.Flow)
	if got := k.stands(claimed.Job.ID, jobs.StateCompleted); got.Outcome != jobs.OutcomeFailed || len(flow.Pending()) != 0 {
		k.Errorf("given up, it is %s, and its flow %s", render(got), render(flow))
	}
	if last := flow.Interventions[len(flow.Interventions)-1]; last.Kind != logbook.InterveneTakeBack || last.By != "ann" {
		k.Errorf("the last word is %s", render(last))
	}
}

func senselessPolicies(k *kit) {
	with := func(policy jobs.RetryPolicy) error {
		posting := k.posting("odd")
		posting.Retry = &policy
		return k.verdict(posting)
	}
	k.wants("as many attempts as can be", with(jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: logbook.MaxAttempts}}), nil)
	k.wantsLimit("too many attempts", with(jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: logbook.MaxAttempts + 1}}), logbook.MaxAttempts, logbook.MaxAttempts+1)
	k.wantsInvalid("a delay that is too short", with(jobs.RetryPolicy{Backoff: logbook.Backoff{Delay: time.Millisecond}}))
	k.wantsInvalid("an unknown end", with(jobs.RetryPolicy{OnFailure: "hope"}))
}

func retriedNow(k *kit) {
	session := k.session("worker")
	claimed := k.travelling(session, "waits")
	id, flow := claimed.Job.ID, claimed.Job.Flow
	now := func(step string) error {
		return k.Board.RetryNow(k.ctx, jobs.JobCommand{Job: id, By: "ann", Reason: "it is mended", Step: step})
	}
	waits := func() map[string]bool {
		waiting := map[string]bool{}
		for _, atom := range k.flow(flow).Atoms {
			waiting[atom.Name] = !atom.RetryAt.IsZero()
		}
		return waiting
	}
	later := func(sequence uint64, token jobs.Token) {
		update := logbook.Update{Flow: flow, Token: token, Sequence: sequence, State: logbook.FlowRunning}
		for _, step := range []string{"fly", "stay"} {
			update.Atoms = append(update.Atoms, logbook.AtomChange{Name: step, Kind: logbook.KindTask, RetryAt: time.Unix(1<<32, 0).UTC()})
		}
		k.wants("Update", k.update(update), nil)
	}
	k.wants("RetryNow when nothing waits", now(""), jobs.ErrConflict)
	later(1, claimed.Job.Token)
	k.wants("RetryNow of a step of a claimed job", now("fly"), nil)
	k.same("the steps that wait", waits(), map[string]bool{"fly": false, "stay": true})
	k.wants("RetryNow of a step that does not wait", now("fly"), jobs.ErrConflict)
	k.wants("RetryNow of no step", now("swim"), jobs.ErrNotFound)
	late := release(claimed)
	late.Delay = time.Hour
	k.wants("Abandon by an owner that does not know", k.Board.Abandon(k.ctx, late), nil)
	k.stands(id, jobs.StateClaimable)
	k.wants("RetryNow of a claimable job", now(""), jobs.ErrConflict)
	again := k.claim(session, id)
	later(1, again.Job.Token) // each claim counts its updates
	late = release(again)
	late.Delay, late.Waits = time.Hour, true
	k.wants("Abandon", k.Board.Abandon(k.ctx, late), nil)
	k.stands(id, jobs.StateWaiting)
	k.wants("RetryNow", now(""), nil)
	k.stands(id, jobs.StateClaimable)
	k.same("the steps that wait", waits(), map[string]bool{"fly": false, "stay": false})
	k.wantsInvalid("Resume with a step", k.Board.Resume(k.ctx, jobs.JobCommand{Job: id, Step: "fly"}))
	events := k.events(jobs.Watch{Job: id, Kinds: []jobs.EventKind{jobs.EventRetryNow}}, 2)
	if len(events[0].Steps) != 1 || events[0].Steps[0].Name != "fly" || events[0].Token != claimed.Job.Token || len(events[1].Steps) != 0 || events[1].Request.Reason != "it is mended" {
		k.Errorf("the events are %s", render(events))
	}
}
