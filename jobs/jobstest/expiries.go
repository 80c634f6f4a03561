package jobstest

import (
	"fmt"
	"time"

	"github.com/conductord/conductord/jobs"
)

var expiryRows = []row{
	{"a claim ends with its own TTL, and its session continues", ownTimeEnds},
	{"a claim that is extended lasts", extendedLasts},
	{"only the holder of the token extends a claim", onlyTheOwnerExtends},
	{"every claim of a request has the time asked for", timeForEach},
	{"a time that is no time of a claim is refused", timesAtTheEdge},
	{"claims are listed with their owners", claimsListed},
	{"sessions and entities are events on request", sessionsTold},
	{"a watch gets the selected events", watchSelects},
}

// brief is a claim's own TTL that must pass in a row; ample is a TTL that must not pass.
const (
	brief = jobs.MinTTL
	ample = time.Hour
)

// outlast ends a claim through its own TTL.
func (k *kit) outlast(claimed jobs.Claimed) {
	k.Helper()
	if k.LapseClaim != nil {
		k.LapseClaim(claimed.Job.ID, claimed.Job.Token)
	}
	if _, err := k.watch(jobs.Watch{Job: claimed.Job.ID, Kinds: []jobs.EventKind{jobs.EventExpired}, After: start}, 1); err != nil {
		k.Fatalf("the claim does not end by its own time: %v", err)
	}
}

// timed claims a job of the row's board that no other caller wants.
func (k *kit) timed(session jobs.SessionID, name string, expiry time.Duration) jobs.Claimed {
	k.Helper()
	k.posted(name)
	request := k.request(session)
	request.Expiry = expiry
	claimed := k.next(request)
	if len(claimed) != 1 || claimed[0].Job.Claim == nil || claimed[0].Job.Claim.Expiry != expiry {
		k.Fatalf("ClaimNext with a time of its own: %s", render(claimed))
	}
	return claimed[0]
}

func ownTimeEnds(k *kit) {
	session := k.session("worker")
	claimed := k.timed(session, "slow", brief)
	other := k.owned(session, "other")
	k.outlast(claimed)
	k.wants("Consume after its time", k.Board.Consume(k.ctx, success(claimed)), jobs.ErrFenced)
	k.wants("Extend after its time", k.Board.Extend(k.ctx, claimed.Job.ID, claimed.Job.Token, ample), jobs.ErrFenced)
	again := k.soon(session)
	if again.Job.ID != claimed.Job.ID || again.Job.Crashes != 1 || again.Job.Claim.Expiry != 0 || again.Job.Token.Compare(claimed.Job.Token) <= 0 {
		k.Errorf("claimed again: %s", render(again.Job))
	}
	k.wants("Consume of another claim of the session", k.Board.Consume(k.ctx, success(other)), nil)
	k.same("the job's life", stories(k.events(jobs.Watch{Job: claimed.Job.ID}, 5)), []string{
		"posted slow claimable", "claimed slow claimed", "expired slow cooling", "cooled slow claimable", "claimed slow claimed",
	})
}

func extendedLasts(k *kit) {
	session := k.session("worker")
	claimed := k.timed(session, "long", ample)
	for range 2 {
		k.wants("Extend", k.Board.Extend(k.ctx, claimed.Job.ID, claimed.Job.Token, 2*ample), nil)
	}
	plain := k.owned(session, "plain")
	k.wants("Extend of one without a time", k.Board.Extend(k.ctx, plain.Job.ID, plain.Job.Token, ample/2), nil)
	k.wants("Extend to more", k.Board.Extend(k.ctx, plain.Job.ID, plain.Job.Token, ample), nil)
	for _, row := range []struct {
		claimed jobs.Claimed
		expiry  time.Duration
	}{{claimed, 2 * ample}, {plain, ample}} {
		if claim := k.job(row.claimed.Job.ID).Claim; claim == nil || claim.Expiry != row.expiry || claim.Extensions != 2 {
			k.Errorf("the claim stands as %s, want %s after 2 extensions", render(claim), row.expiry)
		}
	}
	// The TTL is shortened, and then it passes.
	k.wants("Extend to less", k.Board.Extend(k.ctx, plain.Job.ID, plain.Job.Token, brief), nil)
	k.outlast(plain)
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed)), nil)
}

func onlyTheOwnerExtends(k *kit) {
	first, second := k.session("first"), k.session("second")
	old := k.owned(first, "job")
	k.wants("Abandon", k.Board.Abandon(k.ctx, release(old)), nil)
	k.wants("Extend of a claim that was given back", k.Board.Extend(k.ctx, old.Job.ID, old.Job.Token, ample), jobs.ErrFenced)
	claimed := k.claim(second, old.Job.ID)
	k.wants("Extend under an old token", k.Board.Extend(k.ctx, old.Job.ID, old.Job.Token, ample), jobs.ErrFenced)
	k.wants("Extend of no job", k.Board.Extend(k.ctx, jobs.NewJobID(), claimed.Job.Token, ample), jobs.ErrNotFound)
	if claim := k.job(old.Job.ID).Claim; claim.Expiry != 0 || claim.Extensions != 0 {
		k.Errorf("the claim stands as %s, want it untouched", render(claim))
	}
}

func timeForEach(k *kit) {
	session := k.session("worker")
	k.post(k.posting("1"), k.posting("2"), k.posting("3"))
	request := k.request(session)
	request.Max, request.Expiry = 3, ample
	claimed := k.next(request)
	if len(claimed) != 3 {
		k.Fatalf("got %d jobs", len(claimed))
	}
	for i := range claimed {
		if claimed[i].Job.Claim.Expiry != ample {
			k.Errorf("claimed as %s", render(claimed[i].Job.Claim))
		}
	}
	k.wants("Extend", k.Board.Extend(k.ctx, claimed[1].Job.ID, claimed[1].Job.Token, brief), nil)
	k.outlast(claimed[1])
	for _, i := range []int{0, 2} {
		k.wants("Consume", k.Board.Consume(k.ctx, success(claimed[i])), nil)
	}
}

func timesAtTheEdge(k *kit) {
	session := k.session("worker")
	claimed := k.owned(session, "job")
	for _, row := range []struct {
		expiry time.Duration
		want   error
	}{
		{jobs.MinTTL - 1, jobs.ErrInvalid}, {jobs.MaxExpiry + 1, jobs.ErrInvalid}, {-ample, jobs.ErrInvalid}, {0, jobs.ErrInvalid},
		{jobs.MaxExpiry, nil},
	} {
		k.wants(fmt.Sprint("Extend by ", row.expiry), k.Board.Extend(k.ctx, claimed.Job.ID, claimed.Job.Token, row.expiry), row.want)
		if row.expiry != 0 {
			request := k.request(session)
			request.Expiry = row.expiry
			_, err := k.Board.ClaimNext(k.ctx, request)
			k.wants(fmt.Sprint("ClaimNext for ", row.expiry), err, row.want)
		}
	}
}

func claimsListed(k *kit) {
	first, second := k.session("first"), k.session("second")
	claimed := []jobs.Claimed{k.owned(first, "a"), k.timed(first, "b", ample), k.owned(second, "c"), k.owned(first, "d")}
	k.wants("Consume", k.Board.Consume(k.ctx, success(claimed[3])), nil)
	list := func(query jobs.ClaimQuery) (found []string) {
		query.Board = k.board
		for {
			page, err := k.Board.Claims(k.ctx, query)
			if err != nil {
				k.Fatalf("Claims: %v", err)
			}
			for _, held := range page.Items {
				found = append(found, held.Name)
				if held.Job.IsZero() || held.Board != k.board || held.Kind != k.kind || held.Claim.Token.IsZero() || held.Suspect {
					k.Errorf("held as %s", render(held))
				}
				if most := lasting + time.Minute; held.Left > most || held.Silent > most {
					k.Errorf("held as %s, want less time to go", render(held))
				}
			}
			if query.After = page.Next; page.Next == "" {
				return found
			}
		}
	}
	k.same("claims of the first", list(jobs.ClaimQuery{Session: first, Limit: 1}), []string{"a", "b"})
	k.same("the claim of a job", list(jobs.ClaimQuery{Job: claimed[1].Job.ID}), []string{"b"})
	k.same("the claim of a job, of another session", list(jobs.ClaimQuery{Job: claimed[1].Job.ID, Session: second}), nil)
	k.same("the claim of a job that is done", list(jobs.ClaimQuery{Job: claimed[3].Job.ID}), nil)
	k.same("claims of the second", list(jobs.ClaimQuery{Owner: "second"}), []string{"c"})
	if all := list(jobs.ClaimQuery{}); len(all) != 3 {
		k.Errorf("claims: %q", all)
	}
}

func sessionsTold(k *kit) {
	name := "owner " + k.board
	session := k.session(name)
	k.register(session, k.kind, "e")
	k.owned(session, "a")
	k.close(session)
	want := []string{"session_opened", "registered", "claimed", "abandoned", "gone", "session_closed"}
	var kinds []string
	for _, event := range k.events(jobs.Watch{Owner: name, Sessions: true}, len(want)) {
		kinds = append(kinds, string(event.Kind))
		if event.Kind.OfSessions() && (event.Session != session || event.Owner != name) {
			k.Errorf("event %s", render(event))
		}
		if event.Kind == jobs.EventGone && (event.EntityKind != k.kind || event.Entity != "e") {
			k.Errorf("event %s", render(event))
		}
	}
	k.same("events", kinds, want)
	lapsed := k.mortal(name)
	k.lapse(lapsed)
	ends := k.events(jobs.Watch{Owner: name, Kinds: []jobs.EventKind{jobs.EventSessionExpired}}, 1)
	k.same("session that has lapsed", ends[0].Session, lapsed)
	plain := k.events(jobs.Watch{Owner: name}, 2)
	k.same("events for who did not ask", stories(plain), []string{"claimed a claimed", "abandoned a claimable"})
}

func watchSelects(k *kit) {
	night := k.board + " night"
	red := k.posting("red")
	red.Key, red.Tags = "order 7", []string{"eu", "gold"}
	blue := k.posting("blue")
	blue.Board, blue.Tags = night, []string{"eu"}
	mail := k.posting("mail")
	mail.Kind = k.kind + " mail"
	k.post(red, blue, mail)
	session := k.session("worker")
	for _, posting := range []jobs.Posting{red, blue, mail} {
		k.wants("Consume", k.Board.Consume(k.ctx, success(k.claim(session, posting.ID))), nil)
	}
	for what, row := range map[string]struct {
		watch jobs.Watch
		want  []string
	}{
		"two boards": {jobs.Watch{Boards: []string{k.board, night}, Kinds: []jobs.EventKind{jobs.EventPosted}},
			[]string{"posted red claimable", "posted blue claimable", "posted mail claimable"}},
		"a board besides": {jobs.Watch{Board: night, Boards: []string{night}}, []string{"posted blue claimable", "claimed blue claimed", "completed blue completed"}},
		"kinds": {jobs.Watch{Board: k.board, Kinds: []jobs.EventKind{jobs.EventClaimed, jobs.EventCompleted}},
			[]string{"claimed red claimed", "completed red completed", "claimed mail claimed", "completed mail completed"}},
		"a kind of job": {jobs.Watch{JobKind: k.kind + " mail"}, []string{"posted mail claimable", "claimed mail claimed", "completed mail completed"}},
		"a key":         {jobs.Watch{Board: k.board, Key: "order 7"}, []string{"posted red claimable", "claimed red claimed", "completed red completed"}},
		"tags": {jobs.Watch{Boards: []string{k.board, night}, Tags: []string{"gold", "eu"}, Kinds: []jobs.EventKind{jobs.EventCompleted}},
			[]string{"completed red completed"}},
	} {
		k.same("events by "+what, stories(k.events(row.watch, len(row.want))), row.want)
	}
	_, err := k.watch(jobs.Watch{Kinds: []jobs.EventKind{"exploded"}}, 1)
	k.wants("Watch of no kind", err, jobs.ErrInvalid)
}
