package jobstest

import (
	"context"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var endingRows = []row{
	{"each ending has its documented effect", endingsDo},
	{"a repeated ending gets the same answer", endingRepeated},
	{"an ending that differs from the recorded one is refused", otherEnding},
	{"an ending needs the token of the claim", endingNeedsToken},
	{"an ending is refused once the claim is over", endingAfterClaim},
	{"the new owner is untouched by the old one", newOwnerUntouched},
	{"abandoning releases a job at once", abandonAtOnce},
	{"abandoning with a delay keeps the job back", abandonWithDelay},
	{"the death of an owner cools the job", deathCools},
	{"an ending that makes no sense is refused", senselessEndings},
}

// verb is one of the endings, with valid content.
type verb struct {
	name string
	end  func(context.Context, jobs.Ending) error
	suit func(jobs.Claimed) jobs.Ending
	want jobs.State
}

func (k *kit) verbs() []verb {
	return []verb{
		{"consume", k.Board.Consume, success, jobs.StateCompleted},
		{"abandon", k.Board.Abandon, release, jobs.StateClaimable},
		{"trash", k.Board.Trash, release, jobs.StateTrashed},
	}
}

func endingsDo(k *kit) {
	session := k.session("worker")
	evidence := &logbook.Failure{Kind: "weather", Message: "snow", Causes: []logbook.Failure{{Kind: "winter", Message: "it is January"}}}
	for _, verb := range k.verbs() {
		claimed := k.owned(session, verb.name)
		ending := verb.suit(claimed)
		ending.Failure = evidence
		if verb.name != "consume" {
			ending.Reason = "no flights today"
		}
		k.wants(verb.name, verb.end(k.ctx, ending), nil)
		job := k.job(claimed.Job.ID)
		if job.State != verb.want || job.Claim != nil || job.Token != claimed.Job.Token || job.Outcome != ending.Outcome || job.Reason != ending.Reason {
			k.Errorf("%s: got %s", verb.name, render(job))
		}
		if job.FinishedAt.IsZero() == verb.want.Finished() || job.ModifiedAt.Before(claimed.Job.ModifiedAt) {
			k.Errorf("%s: finished at %v, modified at %v", verb.name, job.FinishedAt, job.ModifiedAt)
		}
		k.same("evidence after "+verb.name, job.Failure, evidence)
	}
	for _, outcome := range []jobs.Outcome{jobs.OutcomeReverted, jobs.OutcomeFailed} {
		ending := success(k.owned(session, string(outcome)))
		ending.Outcome = outcome
		k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
		k.same("outcome", k.job(ending.Job).Outcome, outcome)
	}
}

func endingRepeated(k *kit) {
	session := k.session("worker")
	for _, verb := range k.verbs() {
		ending := verb.suit(k.owned(session, verb.name))
		k.wants(verb.name, verb.end(k.ctx, ending), nil)
		before := k.job(ending.Job)
		k.wants("the repeated "+verb.name, verb.end(k.ctx, ending), nil)
		k.same("job after the repeated "+verb.name, k.job(ending.Job), before)
	}
}

func otherEnding(k *kit) {
	session := k.session("worker")
	for _, first := range k.verbs() {
		for _, second := range k.verbs() {
			if first.name == second.name {
				continue
			}
			claimed := k.owned(session, first.name+" "+second.name)
			k.wants(first.name, first.end(k.ctx, first.suit(claimed)), nil)
			before := k.job(claimed.Job.ID)
			k.wants(second.name+" after "+first.name, second.end(k.ctx, second.suit(claimed)), jobs.ErrFenced)
			k.same("job", k.job(claimed.Job.ID), before)
		}
	}
	ending := success(k.owned(session, "twice"))
	k.wants("Consume", k.Board.Consume(k.ctx, ending), nil)
	ending.Outcome = jobs.OutcomeFailed
	k.wants("consume with another outcome", k.Board.Consume(k.ctx, ending), jobs.ErrFenced)
	k.same("outcome", k.job(ending.Job).Outcome, jobs.OutcomeSuccess)
}

func endingNeedsToken(k *kit) {
	session := k.session("worker")
	claimed, neighbour, waiting := k.owned(session, "claimed"), k.owned(session, "neighbour"), k.posted("waiting")
	token := claimed.Job.Token
	before, beforeWaiting := k.job(claimed.Job.ID), k.job(waiting.ID)
	for what, wrong := range map[string]jobs.Token{
		"that of another job":     neighbour.Job.Token,
		"an older one":            {Generation: token.Generation, Index: token.Index - 1},
		"a newer one":             {Generation: token.Generation, Index: token.Index + 1000},
		"one of a new generation": {Generation: token.Generation + 1, Index: token.Index},
	} {
		for _, verb := range k.verbs() {
			ending := verb.suit(claimed)
			ending.Token = wrong
			k.wants(verb.name+" under "+what, verb.end(k.ctx, ending), jobs.ErrFenced)
			ending.Job = waiting.ID
			k.wants(verb.name+" of a job that nobody has claimed", verb.end(k.ctx, ending), jobs.ErrFenced)
		}
	}
	k.same("claimed job", k.job(claimed.Job.ID), before)
	k.same("waiting job", k.job(waiting.ID), beforeWaiting)
}

// losses are the ways in which a claim is lost.
func (k *kit) losses() map[string]func(jobs.SessionID, jobs.Claimed) {
	return map[string]func(jobs.SessionID, jobs.Claimed){
		"abandoned": func(_ jobs.SessionID, claimed jobs.Claimed) {
			k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
		},
		"closed": func(session jobs.SessionID, _ jobs.Claimed) { k.close(session) },
		"lapsed": func(session jobs.SessionID, _ jobs.Claimed) { k.lapse(session) },
	}
}

func endingAfterClaim(k *kit) {
	for how, lose := range k.losses() {
		session := k.doomed(how, "worker")
		claimed := k.owned(session, how)
		lose(session, claimed)
		for _, verb := range k.verbs() {
			if how == "abandoned" && verb.name == "abandon" {
				continue // a repeat
			}
			k.wants(verb.name+" of a claim that was "+how, verb.end(k.ctx, verb.suit(claimed)), jobs.ErrFenced)
		}
		if job := k.job(claimed.Job.ID); job.State.Finished() {
			k.Errorf("%s: got %s, want it unfinished", how, render(job))
		}
	}
}

func newOwnerUntouched(k *kit) {
	for how, lose := range k.losses() {
		old := k.doomed(how, "worker")
		first := k.owned(old, how)
		lose(old, first)
		heir := k.session("worker")
		second := k.soon(heir)
		before := k.job(first.Job.ID)
		for _, verb := range k.verbs() {
			k.wants(verb.name+" by the old owner, whose claim was "+how, verb.end(k.ctx, verb.suit(first)), jobs.ErrFenced)
		}
		k.same("job of the new owner", k.job(first.Job.ID), before)
		k.wants("Consume by the new owner", k.Board.Consume(k.ctx, success(second)), nil)
		k.wants("Consume by the old owner", k.Board.Consume(k.ctx, success(first)), jobs.ErrFenced)
	}
}

func abandonAtOnce(k *kit) {
	session := k.session("worker")
	claimed := k.owned(session, "plain")
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
	again := k.next(k.request(session))
	k.same("jobs at once", names(again), []string{"plain"})
	if len(again) == 1 && (again[0].Job.Claims != 2 || again[0].Job.Crashes != 0) {
		k.Errorf("got %s, want two claims and no crash", render(again[0].Job))
	}
}

func abandonWithDelay(k *kit) {
	session := k.session("worker")
	ending := release(k.owned(session, "plain"))
	ending.Delay, ending.Reason = time.Hour, "the shop is shut"
	k.wants("Abandon", k.Board.Abandon(k.ctx, ending), nil)
	k.wants("Abandon again", k.Board.Abandon(k.ctx, ending), nil)
	job := k.job(ending.Job)
	if job.State != jobs.StateCooling || !job.DueAt.Equal(job.ModifiedAt.Add(time.Hour)) || job.Reason != ending.Reason || job.Crashes != 0 {
		k.Errorf("got %s, want it cooling for an hour", render(job))
	}
	_, err := k.Board.Claim(k.ctx, session, ending.Job, jobs.NewNonce())
	k.wants("Claim", err, jobs.ErrUnclaimable)
	k.same("jobs to be had", names(k.next(k.request(session))), []string{})
}

func deathCools(k *kit) {
	session := k.mortal("worker")
	first, second := k.owned(session, "first"), k.owned(session, "second")
	k.lapse(session)
	heir := k.session("heir")
	for _, old := range []jobs.Claimed{first, second} {
		got := k.soon(heir)
		if got.Job.ID != old.Job.ID || got.Job.Crashes != 1 || got.Job.Claims != 2 || got.Job.Token.Compare(old.Job.Token) <= 0 {
			k.Errorf("got %s, want %s after one crash, under a token above %s", render(got.Job), old.Job.Name, old.Job.Token)
		}
	}
	events := k.events(jobs.Watch{Job: first.Job.ID}, 5)
	k.same("events", stories(events), []string{
		"posted first claimable", "claimed first claimed", "expired first cooling", "cooled first claimable", "claimed first claimed",
	})
	if !events[3].Time.After(events[2].Time) {
		k.Errorf("expired at %v and cooled at %v, want some time between", events[2].Time, events[3].Time)
	}
}

func senselessEndings(k *kit) {
	session := k.session("worker")
	claimed := k.owned(session, "plain")
	before := k.job(claimed.Job.ID)
	long := release(claimed)
	long.Delay = -time.Second
	k.wants("a negative delay", k.Board.Abandon(k.ctx, long), jobs.ErrInvalid)
	odd := success(claimed)
	odd.Outcome = "splendid"
	k.wants("an unknown outcome", k.Board.Consume(k.ctx, odd), jobs.ErrInvalid)
	odd.Outcome = ""
	k.wants("no outcome", k.Board.Consume(k.ctx, odd), jobs.ErrInvalid)
	update := success(claimed)
	update.Update = &logbook.Update{Flow: logbook.NewFlowID(), Token: claimed.Job.Token, Sequence: 1}
	k.wants("an update of a flow that the job does not have", k.Board.Consume(k.ctx, update), jobs.ErrInvalid)
	k.same("job", k.job(claimed.Job.ID), before)
}
