package jobstest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// sameKey posts with a used key, and returns the job of the answer.
func (k *kit) sameKey(posting jobs.Posting, holder jobs.JobID) jobs.Job {
	k.Helper()
	answers, err := k.Board.Post(k.ctx, posting)
	if err != nil || len(answers) != 1 || answers[0].Err != nil || !answers[0].Existed || answers[0].Job.ID != holder {
		k.Fatalf("posted under a key that job %s has: %s, %v", holder, render(answers), err)
	}
	return answers[0].Job
}

// keyed makes a posting with a key.
func (k *kit) keyed(name, key string) jobs.Posting {
	posting := k.posting(name)
	posting.Key = key
	return posting
}

func oneJobPerKey(k *kit) {
	session := k.session("worker")
	first := k.post(k.keyed("first", "order 7"), k.keyed("another key", "order 8"))[0]
	for _, priority := range []jobs.Priority{jobs.Low, jobs.High, jobs.Normal} {
		second := k.keyed("second", "order 7")
		second.Priority = priority
		k.sameKey(second, first.ID)
		_, err := k.Board.Job(k.ctx, second.ID)
		k.wants("Job", err, jobs.ErrNotFound)
		second.ID = jobs.JobID{}
		k.sameKey(second, first.ID)
	}
	if job := k.job(first.ID); job.Priority != jobs.High || job.Name != "first" || job.Key != "order 7" {
		k.Errorf("the job has become %s", render(job))
	}
	elsewhere := k.keyed("elsewhere", "order 7")
	elsewhere.Board = k.board + " too"
	k.post(elsewhere)
	claimed := k.claim(session, first.ID)
	k.sameKey(k.keyed("while it is claimed", "order 7"), first.ID)
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	next := k.post(k.keyed("next", "order 7"))[0]
	if next.Name != "next" {
		k.Errorf("posted %s", render(next))
	}
	k.wants("Cancel", k.Board.Cancel(k.ctx, command(next.ID)), nil)
	if last := k.post(k.keyed("last", "order 7"))[0]; last.Name != "last" {
		k.Errorf("posted %s", render(last))
	}
	k.same("events", stories(k.events(jobs.Watch{Job: first.ID}, 4)), []string{
		"posted first claimable", "changed first claimable", "claimed first claimed", "completed first completed",
	})
}

func keyIsTaken(k *kit) {
	session := k.session("worker")
	plain, trip := k.keyed("plain", "order 7"), k.withFlow("trip")
	trip.Key = "trip 7"
	k.wants("Trash", k.Board.Trash(k.ctx, release(k.claim(session, k.post(plain)[0].ID))), nil)
	failed := k.claim(session, k.post(trip)[0].ID)
	k.failing(failed)
	others := k.post(k.keyed("other", "order 7"), k.keyed("other trip", "trip 7"))
	refused := func(what string, other jobs.Job, err error) {
		k.Helper()
		k.wants(what, err, jobs.ErrConflict)
		if !strings.Contains(fmt.Sprint(err), other.ID.String()) {
			k.Errorf("%s: %v, without the job that has the key", what, err)
		}
	}
	refused("Retry of what was trashed", others[0], k.Board.Retry(k.ctx, command(plain.ID)))
	refused("Retry of a flow", others[1], k.Board.Retry(k.ctx, command(trip.ID)))
	refused("Intervene", others[1], k.intervene(said(failed, logbook.InterveneRetryRevert, "")))
	report := k.many(jobs.Bulk{Action: jobs.ActionRetry, Query: jobs.Query{Board: k.board}}, 0)
	if report.Matched != 2 || report.Done != 0 || len(report.Refused) != 2 {
		k.Fatalf("retried: %+v", report)
	}
	for i, refusal := range report.Refused {
		refused("Bulk", others[i], refusal.Err)
	}
	for i, id := range []jobs.JobID{plain.ID, trip.ID} {
		if job := k.job(id); !job.State.Finished() || job.Key != others[i].Key {
			k.Errorf("refused, the job is %s", render(job))
		}
		k.wants("Cancel", k.Board.Cancel(k.ctx, command(others[i].ID)), nil)
		k.wants("Retry", k.Board.Retry(k.ctx, command(id)), nil)
		k.stands(id, jobs.StateClaimable)
		k.sameKey(k.keyed("more", others[i].Key), id)
	}
}

func twentyOfOneKey(k *kit) {
	var wait sync.WaitGroup
	found := make([]jobs.JobID, 20)
	for i := range found {
		wait.Go(func() {
			job, err := jobs.PostOne(k.ctx, k.Board, k.keyed(fmt.Sprint("posting ", i), "the one"))
			if err != nil {
				k.Errorf("Post: %v", err)
			}
			found[i] = job.ID
		})
	}
	wait.Wait()
	for _, id := range found {
		if id != found[0] {
			k.Fatalf("one key has jobs %s and %s", found[0], id)
		}
	}
}

func frontIsFirst(k *kit) {
	session := k.session("worker")
	front := func(posting jobs.Posting) jobs.Posting {
		posting.Front = true
		return posting
	}
	high := k.posting("high")
	high.Priority = jobs.High
	k.post(k.posting("a"), k.keyed("b", "b"), high)
	k.post(front(k.posting("first")))
	k.post(front(k.posting("second")))
	holder := k.job(k.sameKey(front(k.keyed("b again", "b")), k.listed("b").ID).ID)
	if holder.Front == 0 {
		k.Errorf("the job was not put to the front: %s", render(holder))
	}
	k.same("order", func() []string {
		request := k.request(session)
		request.Max = 10
		return names(k.next(request))
	}(), []string{"high", "b", "second", "first", "a"})
}

// listed finds a job of the row's board by its key.
func (k *kit) listed(key string) jobs.Job {
	k.Helper()
	page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board, Key: key})
	if err != nil || len(page.Items) != 1 {
		k.Fatalf("jobs of key %q: %s, %v", key, render(page), err)
	}
	return page.Items[0]
}

func foundByTags(k *kit) {
	tagged := func(name string, tags ...string) jobs.Posting {
		posting := k.keyed(name, "key of "+name)
		posting.Tags = tags
		return posting
	}
	k.post(tagged("a", "red", "big"), tagged("b", "red"), tagged("c"))
	for _, row := range []struct {
		tags []string
		want []string
	}{
		{nil, []string{"a", "b", "c"}},
		{[]string{"red"}, []string{"a", "b"}},
		{[]string{"big", "red"}, []string{"a"}},
		{[]string{"blue"}, []string{}},
	} {
		page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board, Tags: row.tags})
		k.wants("Jobs", err, nil)
		found := []string{}
		for _, job := range page.Items {
			found = append(found, job.Name)
		}
		k.same(fmt.Sprint("jobs with tags ", row.tags), found, row.want)
	}
	if job := k.listed("key of a"); len(job.Tags) != 2 || job.Tags[0] != "red" {
		k.Errorf("listed %s", render(job))
	}
	k.wantsLimit("a question for too many tags", func() error {
		_, err := k.Board.Jobs(k.ctx, jobs.Query{Tags: make([]string, jobs.MaxTags+1)})
		return err
	}(), jobs.MaxTags, jobs.MaxTags+1)
}

func ownCrashes(k *kit) {
	posting := k.posting("once")
	posting.MaxCrashes = 1
	job := k.post(posting)[0]
	session := k.mortal("worker")
	k.claim(session, job.ID)
	k.lapse(session)
	if got := k.stands(job.ID, jobs.StateTrashed); got.Crashes != 1 || got.Failure == nil {
		k.Errorf("trashed as %s", render(got))
	}
}

func boundsOfPostings(k *kit) {
	set := func(change func(*jobs.Posting)) error {
		posting := k.posting("plain")
		posting.NotBefore = time.Time{}
		change(&posting)
		return k.verdict(posting)
	}
	many := func(n, size int) (tags []string) {
		for i := range n {
			tags = append(tags, fmt.Sprintf("%0*d", size, i))
		}
		return tags
	}
	for what, change := range map[string]func(*jobs.Posting){
		"as many tags as there can be": func(p *jobs.Posting) { p.Tags = many(jobs.MaxTags, 2) },
		"as long tags as can be":       func(p *jobs.Posting) { p.Tags = many(8, jobs.MaxTagBytes/8) },
		"the shortest retention":       func(p *jobs.Posting) { p.Retention = jobs.MinRetention },
		"the longest retention":        func(p *jobs.Posting) { p.Retention = jobs.MaxRetention },
		"as many crashes as can be":    func(p *jobs.Posting) { p.MaxCrashes = jobs.MaxMaxCrashes },
		"as long a key as can be":      func(p *jobs.Posting) { p.Key = strings.Repeat("x", 255) },
	} {
		k.wants(what, set(change), nil)
	}
	k.wantsLimit("too many tags", set(func(p *jobs.Posting) { p.Tags = many(jobs.MaxTags+1, 2) }), jobs.MaxTags, jobs.MaxTags+1)
	k.wantsLimit("tags too long", set(func(p *jobs.Posting) { p.Tags = append(many(8, jobs.MaxTagBytes/8), "x") }), jobs.MaxTagBytes, jobs.MaxTagBytes+1)
	k.wantsInvalid("too short a retention", set(func(p *jobs.Posting) { p.Retention = jobs.MinRetention - 1 }))
	k.wantsInvalid("too long a retention", set(func(p *jobs.Posting) { p.Retention = jobs.MaxRetention + 1 }))
	k.wantsLimit("too many crashes", set(func(p *jobs.Posting) { p.MaxCrashes = jobs.MaxMaxCrashes + 1 }), jobs.MaxMaxCrashes, jobs.MaxMaxCrashes+1)
	k.wantsLimit("a key too long", set(func(p *jobs.Posting) { p.Key = strings.Repeat("x", 256) }), 255, 256)
	k.wantsInvalid("a key that is no name", set(func(p *jobs.Posting) { p.Key = "a\nb" }))
	k.wantsInvalid("a traceparent of another version", set(func(p *jobs.Posting) { p.Traceparent = "01" + traceparentA[2:] }))
	k.wantsLimit("a traceparent too long", set(func(p *jobs.Posting) { p.Traceparent = traceparentA + "-" }), 55, 56)
	k.wantsInvalid("a tag that occurs twice", set(func(p *jobs.Posting) { p.Tags = []string{"a", "a"} }))
}
