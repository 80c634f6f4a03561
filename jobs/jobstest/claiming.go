package jobstest

import (
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
)

var claimingRows = []row{
	{"a claim ties a job to a session", claimTies},
	{"a claimed job has one owner", claimedHasOneOwner},
	{"a job knows when it was first claimed", firstClaimed},
	{"a claim repeated with its nonce is the same claim", claimRepeated},
	{"sixteen claimants, one owner", sixteenClaimants},
	{"sixteen that ask for any job get one each", sixteenAskers},
	{"the order is priority, then posting", claimOrder},
	{"the order holds across boards and kinds", claimOrderAcross},
	{"only the kinds asked for are given", kindsAskedFor},
	{"no more than asked for are given", noMoreThanAsked},
	{"a request repeated with its nonce gives the same jobs", requestRepeated},
	{"tokens of a job only grow", tokensGrow},
	{"owners of one name are two owners", namesakes},
	{"a session holds only so many claims", claimsAtLimit},
	{"a session that is over claims nothing", deadClaimNothing},
}

func claimTies(k *kit) {
	session := k.session("worker 7")
	before := k.posted("plain")
	claimed := k.claim(session, before.ID)
	job := k.job(before.ID)
	k.same("the job as it was answered", claimed.Job, job)
	if job.State != jobs.StateClaimed || job.Claims != 1 || job.Crashes != 0 || job.Claim == nil {
		k.Fatalf("got %s, want it claimed once", render(job))
	}
	claim := *job.Claim
	if claim.Session != session || claim.Owner != "worker 7" || claim.Token.IsZero() || claim.Token != job.Token || claim.Since.Before(job.PostedAt) {
		k.Errorf("claim: %s", render(claim))
	}
	if claimed.Book != nil || claimed.Flow != nil {
		k.Errorf("a job without a flow came with one: %s", render(claimed))
	}
}

func firstClaimed(k *kit) {
	session := k.session("worker")
	job := k.posted("plain")
	started := func(when string, want time.Time) {
		k.Helper()
		if got := k.job(job.ID).StartedAt; !got.Equal(want) {
			k.Errorf("%s: started at %s, want %s", when, got, want)
		}
	}
	started("posted", time.Time{})
	first := k.claim(session, job.ID)
	since := first.Job.Claim.Since
	started("claimed", since)
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(first)), nil)
	started("abandoned", since)
	second := k.claim(k.session("another"), job.ID)
	started("claimed again", since)
	k.wants("Trash", k.Board.Trash(k.ctx, release(second)), nil)
	started("trashed", since)
	k.wants("Retry", k.Board.Retry(k.ctx, command(job.ID)), nil)
	started("restored", time.Time{})
	third := k.claim(session, job.ID)
	started("claimed once more", third.Job.Claim.Since)
}

func claimedHasOneOwner(k *kit) {
	first, second := k.session("first"), k.session("second")
	claimed := k.owned(first, "plain")
	before := k.job(claimed.Job.ID)
	for what, session := range map[string]jobs.SessionID{"another": second, "its owner, asking anew": first} {
		_, err := k.Board.Claim(k.ctx, session, claimed.Job.ID, jobs.NewNonce())
		k.wants("claim by "+what, err, jobs.ErrUnclaimable)
		k.wants("claim by "+what, err, jobs.ErrConflict)
		k.same("jobs for "+what, names(k.next(k.request(session))), []string{})
	}
	k.same("job", k.job(claimed.Job.ID), before)
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
	_, err := k.Board.Claim(k.ctx, second, claimed.Job.ID, jobs.NewNonce())
	k.wants("claim of a finished job", err, jobs.ErrUnclaimable)
}

func claimRepeated(k *kit) {
	session, job, nonce := k.session("worker"), k.post(k.withFlow("travel"))[0], jobs.NewNonce()
	first, err := k.Board.Claim(k.ctx, session, job.ID, nonce)
	k.wants("Claim", err, nil)
	second, err := k.Board.Claim(k.ctx, session, job.ID, nonce)
	k.wants("Claim again", err, nil)
	k.same("the claim again", second, first)
	if got := k.job(job.ID); got.Claims != 1 {
		k.Errorf("the job was claimed %d times, want 1", got.Claims)
	}
	_, err = k.Board.Claim(k.ctx, k.session("other"), job.ID, nonce)
	k.wants("another session with the same nonce", err, jobs.ErrUnclaimable)
}

func sixteenClaimants(k *kit) {
	const claimants = 16
	job := k.posted("wanted")
	sessions := make([]jobs.SessionID, claimants)
	for i := range sessions {
		sessions[i] = k.session(fmt.Sprint("claimant ", i))
	}
	won := make(chan jobs.SessionID, claimants)
	var group sync.WaitGroup
	for _, session := range sessions {
		group.Go(func() {
			_, err := k.Board.Claim(k.ctx, session, job.ID, jobs.NewNonce())
			if err == nil {
				won <- session
				return
			}
			k.wants("Claim", err, jobs.ErrUnclaimable)
		})
	}
	group.Wait()
	if len(won) != 1 {
		k.Fatalf("%d claimants have won, want 1", len(won))
	}
	if owner, winner := k.job(job.ID).Claim, <-won; owner == nil || owner.Session != winner {
		k.Errorf("the owner is %s, want %s", render(owner), winner)
	}
}

func sixteenAskers(k *kit) {
	const askers, available = 16, 8
	for i := range available {
		k.posted(fmt.Sprint("job ", i))
	}
	sessions := make([]jobs.SessionID, askers)
	for i := range sessions {
		sessions[i] = k.session(fmt.Sprint("asker ", i))
	}
	given := make(chan jobs.Claimed, askers)
	var group sync.WaitGroup
	for _, session := range sessions {
		group.Go(func() {
			claimed, err := k.Board.ClaimNext(k.ctx, k.request(session))
			if err != nil || len(claimed) > 1 {
				k.Errorf("ClaimNext: %d jobs, %v", len(claimed), err)
			}
			for i := range claimed {
				given <- claimed[i]
			}
		})
	}
	group.Wait()
	close(given)
	owners := make(map[jobs.JobID]jobs.Token)
	for claimed := range given {
		if token, twice := owners[claimed.Job.ID]; twice {
			k.Errorf("%s was given under %s and %s", claimed.Job.Name, token, claimed.Job.Token)
		}
		owners[claimed.Job.ID] = claimed.Job.Token
		if job := k.job(claimed.Job.ID); job.Claim == nil || job.Claim.Token != claimed.Job.Token || job.Claims != 1 {
			k.Errorf("given under %s, the job stands as %s", claimed.Job.Token, render(job))
		}
	}
	if len(owners) != available {
		k.Errorf("%d jobs were given, want %d", len(owners), available)
	}
}

// ranked posts plain jobs with the given priorities. Their names give the expected claim
// order.
func (k *kit) ranked(postings []jobs.Posting, ranks []jobs.Priority) {
	k.Helper()
	for i := range postings {
		postings[i].Priority = ranks[i]
	}
	k.post(postings...)
}

func claimOrder(k *kit) {
	order := []string{"1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th"}
	k.ranked([]jobs.Posting{
		k.posting("6th"), k.posting("2nd"), k.posting("3rd"), k.posting("4th"),
		k.posting("8th"), k.posting("1st"), k.posting("5th"), k.posting("7th"),
	}, []jobs.Priority{jobs.Low, jobs.High, jobs.High, jobs.Normal, -1 << 31, 1<<31 - 1, jobs.Normal, -150})
	session := k.session("worker")
	var got []string
	for len(got) < 3 {
		got = append(got, names(k.next(k.request(session)))...)
	}
	request := k.request(session)
	request.Max = 10
	got = append(got, names(k.next(request))...)
	k.same("order", got, order)
}

func claimOrderAcross(k *kit) {
	place := func(name, board, kind string) jobs.Posting {
		posting := k.posting(name)
		posting.Board += board
		posting.Kind += kind
		return posting
	}
	k.ranked([]jobs.Posting{
		place("5th", " a", " x"), place("3rd", " b", " y"), place("1st", " a", " y"), place("4th", " a", " x"),
		place("6th", " b", " x"), place("never", " c", " x"), place("2nd", " b", " x"), place("never", " a", " z"),
	}, []jobs.Priority{jobs.Low, jobs.Normal, jobs.High, jobs.Normal, jobs.Low, jobs.VeryHigh, jobs.High, jobs.VeryHigh})
	session := k.session("worker")
	request := func(most int) jobs.ClaimRequest {
		return jobs.ClaimRequest{
			Session: session, Nonce: jobs.NewNonce(), Max: most,
			Boards: []string{k.board + " b", k.board + " a"}, Kinds: []string{k.kind + " y", k.kind + " x"},
		}
	}
	got := names(k.next(request(1)))
	got = append(got, names(k.next(request(3)))...)
	got = append(got, names(k.next(request(9)))...)
	k.same("order", got, []string{"1st", "2nd", "3rd", "4th", "5th", "6th"})
}

func kindsAskedFor(k *kit) {
	other := k.posting("other")
	other.Kind += " 2"
	other.Priority = jobs.High
	k.post(k.posting("mine"), other, k.withFlow("travel"))
	session := k.session("worker")
	for _, ask := range []struct {
		kinds []string
		want  []string
	}{
		{[]string{k.kind + " 3"}, []string{}},
		{[]string{k.kind}, []string{"mine"}},
		{[]string{k.kind}, []string{}},
		{[]string{"test", k.kind}, []string{"travel"}},
		{nil, []string{"other"}},
	} {
		request := k.request(session)
		request.Kinds, request.Max = ask.kinds, 9
		k.same(fmt.Sprint("jobs of kinds ", ask.kinds), names(k.next(request)), ask.want)
	}
}

func noMoreThanAsked(k *kit) {
	k.post(k.posting("1"), k.posting("2"), k.posting("3"), k.posting("4"), k.posting("5"))
	session := k.session("worker")
	for _, ask := range []struct {
		most int
		want []string
	}{{3, []string{"1", "2", "3"}}, {0, []string{"4"}}, {9, []string{"5"}}, {9, []string{}}} {
		request := k.request(session)
		request.Max = ask.most
		claimed := k.next(request)
		k.same(fmt.Sprint("at most ", ask.most), names(claimed), ask.want)
		for i := range claimed {
			k.same("the job as it was answered", claimed[i].Job, k.job(claimed[i].Job.ID))
		}
	}
}

func requestRepeated(k *kit) {
	k.post(k.posting("1"), k.withFlow("2"), k.posting("3"))
	session := k.session("worker")
	request := k.request(session)
	request.Max = 2
	first := k.next(request)
	k.same("jobs", names(first), []string{"1", "2"})
	k.same("jobs of the same request", k.next(request), first)
	if got := k.job(first[0].Job.ID); got.Claims != 1 {
		k.Errorf("the job was claimed %d times, want 1", got.Claims)
	}
	k.same("jobs of a new request", names(k.next(k.request(session))), []string{"3"})
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(first[0])), nil)
	k.same("jobs of the same request that are still held", k.next(request), first[1:])
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(first[1])), nil)
	_, err := k.Board.ClaimNext(k.ctx, request)
	k.wants("the same request when its claims are over", err, jobs.ErrUnclaimable)
}

func tokensGrow(k *kit) {
	first, second := k.mortal("first"), k.session("second")
	job := k.posted("plain")
	last := jobs.Token{}
	for i := range 6 {
		claimed := k.claim([]jobs.SessionID{first, second}[i%2], job.ID)
		if claimed.Job.Token.Compare(last) <= 0 {
			k.Errorf("claim %d has the token %s after %s", i, claimed.Job.Token, last)
		}
		last = claimed.Job.Token
		k.wants("Abandon", k.Board.Abandon(k.ctx, release(claimed)), nil)
	}
	k.lapse(first)
	if got := k.job(job.ID); got.Claims != 6 || got.Token != last {
		k.Errorf("got %d claims and token %s, want 6 and %s", got.Claims, got.Token, last)
	}
}

func namesakes(k *kit) {
	first, second := k.session("worker"), k.session("worker")
	claimed := k.owned(first, "plain")
	_, err := k.Board.Claim(k.ctx, second, claimed.Job.ID, jobs.NewNonce())
	k.wants("claim by a namesake", err, jobs.ErrUnclaimable)
	k.close(second)
	if job := k.job(claimed.Job.ID); job.Claim == nil || job.Claim.Session != first {
		k.Errorf("after its namesake has left, the owner is %s", render(job.Claim))
	}
}

func claimsAtLimit(k *kit) {
	postings := make([]jobs.Posting, jobs.MaxClaims+1)
	for i := range postings {
		postings[i] = k.posting(fmt.Sprint("job ", i))
	}
	k.post(postings...)
	session := k.session("glutton")
	request := k.request(session)
	request.Max = jobs.MaxClaims
	claimed := k.next(request)
	if len(claimed) != jobs.MaxClaims {
		k.Fatalf("got %d jobs, want %d", len(claimed), jobs.MaxClaims)
	}
	last := postings[jobs.MaxClaims].ID
	_, err := k.Board.Claim(k.ctx, session, last, jobs.NewNonce())
	k.wants("Claim of one more", err, jobs.ErrLimit)
	_, err = k.Board.ClaimNext(k.ctx, k.request(session))
	k.wants("ClaimNext of one more", err, jobs.ErrLimit)
	if again := k.next(request); len(again) != jobs.MaxClaims {
		k.Errorf("the repeated request gives %d jobs, want %d", len(again), jobs.MaxClaims)
	}
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed[0])), nil)
	k.same("jobs after one was consumed", names(k.next(k.request(session))), []string{fmt.Sprint("job ", jobs.MaxClaims)})
	k.close(session)
	page, err := k.Board.Jobs(k.ctx, jobs.Query{Board: k.board, States: []jobs.State{jobs.StateClaimable}})
	if err != nil || len(page.Items) != jobs.MaxClaims {
		k.Errorf("after the session was closed: %d claimable jobs, %v; want %d", len(page.Items), err, jobs.MaxClaims)
	}
}

func deadClaimNothing(k *kit) {
	closed, lapsed := k.session("closed"), k.mortal("lapsed")
	k.close(closed)
	k.lapse(lapsed)
	job := k.posted("plain")
	for what, session := range map[string]jobs.SessionID{"closed": closed, "lapsed": lapsed, "unknown": jobs.NewSessionID()} {
		_, err := k.Board.Claim(k.ctx, session, job.ID, jobs.NewNonce())
		k.wants("Claim by a session that is "+what, err, jobs.ErrSessionExpired)
		request := k.request(session)
		request.Wait = parked
		_, err = k.Board.ClaimNext(k.ctx, request)
		k.wants("ClaimNext by a session that is "+what, err, jobs.ErrSessionExpired)
	}
	if got := k.job(job.ID); got.State != jobs.StateClaimable || got.Claims != 0 {
		k.Errorf("got %s, want it never claimed", render(got))
	}
}
