package fsm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func extend(job string, token logbook.Token, expiry time.Duration) *v1.Command {
	return &v1.Command{Kind: &v1.Command_ExtendClaim{ExtendClaim: &v1.ExtendClaimCommand{
		Job: id(job), Token: command.TokenToProto(token), Expiry: lasting(expiry),
	}}}
}

func expireClaim(job string, token logbook.Token, extensions uint32, epoch uint64) *v1.Command {
	return &v1.Command{Kind: &v1.Command_ExpireClaim{ExpireClaim: &v1.ExpireClaimCommand{
		Job: id(job), Token: command.TokenToProto(token), Extensions: extensions, TimerEpoch: epoch,
		CoolDown: lasting(time.Second), MaxCrashes: 2,
	}}}
}

// timed claims the next job for a minute.
func timed(r *rig, session, nonce string) logbook.Token {
	r.Helper()
	c := claimNext(session, nonce, 1, nil, nil)
	c.GetClaimNext().Boards, c.GetClaimNext().Expiry = []string{"default"}, lasting(time.Minute)
	return command.TokenFromProto(r.ok(c).GetClaim().Granted[0].Token)
}

// A claim's own TTL ends it like the end of its session, and leaves the session open.
func TestExpireClaim(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("ann"))
	r.posted(posting("a", "k"))
	token := timed(r, "ann", "n")
	if claim := r.job(id("a")).Claim; claim == nil || claim.Expiry != time.Minute || claim.Extensions != 0 {
		t.Fatalf("claimed as %+v", claim)
	}
	r.refused(expireClaim("a", token, 0, r.TimerEpoch()-1), "conflict")
	r.refused(expireClaim("a", token, 1, r.TimerEpoch()), "conflict")
	r.ok(expireClaim("a", token, 0, r.TimerEpoch()))
	job := r.job(id("a"))
	if job.State != jobs.StateCooling || job.Crashes != 1 || job.Claim != nil || !strings.Contains(job.Reason, "ann neither ended nor extended") {
		t.Errorf("after its time: %+v", job)
	}
	r.refused(expireClaim("a", token, 0, r.TimerEpoch()), "fenced")
	r.refused(extend("a", token, time.Minute), "fenced")
	r.refused(consume(success("a", token)), "fenced")
	if _, err := r.Session(sessionID("ann")); err != nil {
		t.Errorf("the session is over too: %v", err)
	}
	r.now = r.now.Add(time.Second)
	r.ok(wake(r.TimerEpoch(), 1))
	r.ok(expireClaim("a", timed(r, "ann", "m"), 0, r.TimerEpoch()))
	if job := r.job(id("a")); job.State != jobs.StateTrashed || !job.Failure.Matches(logbook.FailureCrash) {
		t.Errorf("after two crashes: %+v", job)
	}
	want := []string{
		"posted a claimable", "claimed a claimed", "expired a cooling", "cooled a claimable", "claimed a claimed", "trashed a trashed",
	}
	if got := r.events(); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
}

// An expiry that the leader proposed before it saw an extension is refused.
func TestExtendClaim(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("ann"))
	plain := r.claimed("ann", posting("plain", "l"))
	r.refused(expireClaim("plain", plain, 0, r.TimerEpoch()), "conflict") // the claim has no TTL of its own
	r.ok(extend("plain", plain, time.Second))
	r.ok(extend("plain", plain, time.Hour))
	if claim := r.job(id("plain")).Claim; claim.Expiry != time.Hour || claim.Extensions != 2 {
		t.Errorf("extended to %+v", claim)
	}
	r.refused(expireClaim("plain", plain, 1, r.TimerEpoch()), "conflict")
	old := plain
	old.Index--
	r.refused(extend("plain", old, time.Hour), "fenced")
	r.refused(extend("nothing", plain, time.Hour), "not_found")

	timers, err := r.ClaimTimers()
	want := fsm.ClaimTimer{Job: jobID(id("plain")), Token: plain, Expiry: time.Hour, Extensions: 2}
	if err != nil || len(timers) != 1 || timers[0] != want {
		t.Errorf("timers %+v, %v", timers, err)
	}
	r.ok(consume(success("plain", plain)))
	last := r.changes[len(r.changes)-1].Timed
	if len(last) != 1 || last[0] != (fsm.ClaimTimer{Job: want.Job, Token: plain}) {
		t.Errorf("the end of the claim was told as %+v", last)
	}
	if timers, err := r.ClaimTimers(); err != nil || len(timers) != 0 {
		t.Errorf("timers of no claim: %+v, %v", timers, err)
	}
}

func TestClaimsAreListed(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(open("bob"))
	for i := range 5 {
		p := posting(fmt.Sprint(i), "k")
		p.Board = []string{"", "night"}[i%2]
		r.claimed([]string{"ann", "bob"}[i/3], p)
	}
	r.ok(abandon(ending("1", r.job(id("1")).Token)))
	list := func(query jobs.ClaimQuery) (names []string) {
		for {
			page, err := r.Claims(query)
			if err != nil {
				t.Fatal(err)
			}
			for _, held := range page.Items {
				names = append(names, fmt.Sprint(held.Name, " ", held.Board, " ", held.Kind, " ", held.Claim.Owner))
			}
			if query.After = page.Next; page.Next == "" {
				return names
			}
		}
	}
	ann, bob := []string{"0 default k ann", "2 default k ann"}, []string{"3 night k bob", "4 default k bob"}
	all := append(slices.Clone(ann), bob...)
	if id("bob") < id("ann") {
		all = append(slices.Clone(bob), ann...)
	}
	for _, row := range []struct {
		name  string
		query jobs.ClaimQuery
		want  []string
	}{
		{"all", jobs.ClaimQuery{}, all},
		{"page by page", jobs.ClaimQuery{Limit: 1}, all},
		{"of an owner", jobs.ClaimQuery{Owner: "ann", Limit: 1}, ann},
		{"of a session", jobs.ClaimQuery{Session: sessionID("bob"), Limit: 1}, bob},
		{"of a board", jobs.ClaimQuery{Board: "night"}, bob[:1]},
		{"of nobody", jobs.ClaimQuery{Owner: "eve"}, nil},
	} {
		if got := list(row.query); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, not %q", row.name, got, row.want)
		}
	}
	if _, err := r.Claims(jobs.ClaimQuery{After: "17"}); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("a place that no page has said: %v", err)
	}
}

// Forty sessions with 250 claims each are the maximum of one round of the leader's timers,
// which is one entry.
func TestTenThousandClaimsEndInOneEntry(t *testing.T) {
	const sessions, each = 40, 250
	r := newRig(t)
	r.ok(beginLeadership())
	var expiries []*v1.Command
	for s := range sessions {
		session, postings := fmt.Sprint("session ", s), make([]*v1.Posting, each)
		for i := range postings {
			postings[i] = posting(fmt.Sprint(s, "/", i), "k")
		}
		if claimed := r.do(open(session), post(postings...), claimNext(session, session, each, []string{"default"}, nil))[2]; claimed.GetError() != nil {
			t.Fatal(claimed.GetError())
		}
		expiries = append(expiries, expire(session, r.TimerEpoch(), time.Second, 0))
	}
	if held := r.Counts()[jobs.StateClaimed]; held != sessions*each {
		t.Fatalf("%d jobs are claimed", held)
	}
	for i, result := range r.do(expiries...) {
		if result.GetError() != nil {
			t.Fatalf("expiry %d: %v", i, result.GetError())
		}
	}
	if counts := r.Counts(); counts[jobs.StateCooling] != sessions*each || counts[jobs.StateClaimed] != 0 {
		t.Errorf("after the entry: %v", counts)
	}
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
}

// A watch of sessions gets events when sessions and entities come and go.
func TestSessionEvents(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	for _, session := range []string{"ann", "bob"} {
		r.ok(open(session))
		r.harmless(open(session))
		r.ok(register(session, &v1.Entity{Kind: "conductor", Name: "c of " + session}))
		r.harmless(register(session, &v1.Entity{Kind: "conductor", Name: "c of " + session}))
	}
	r.ok(register("ann", &v1.Entity{Kind: "conductor", Name: "c of ann", MaxJobs: 3}))
	r.ok(closing("ann"))
	r.ok(expire("bob", r.TimerEpoch(), 0, 0))
	events, err := r.Events(jobs.Position{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range events {
		told = append(told, strings.TrimSpace(fmt.Sprint(e.Kind, " ", e.Owner, " ", e.EntityKind, " ", e.Entity)))
		if e.Session != sessionID(e.Owner) || e.Time.IsZero() || !e.Job.IsZero() || e.State != "" {
			t.Errorf("event %+v", e)
		}
	}
	want := []string{
		"session_opened ann", "registered ann conductor c of ann", "session_opened bob", "registered bob conductor c of bob",
		"registered ann conductor c of ann", "gone ann conductor c of ann", "session_closed ann",
		"gone bob conductor c of bob", "session_expired bob",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q\nnot %q", told, want)
	}
}

// A request for removed events gets the first available position.
func TestCompactedTellsWhereToGoOn(t *testing.T) {
	r := newRigWith(t, fsm.Options{EventsKept: 3})
	for i := range 8 {
		r.posted(posting(fmt.Sprint(i), "k"))
	}
	_, err := r.Events(jobs.Position{Index: 2, Item: 1}, 0)
	var compacted *jobs.CompactedError
	if !errors.Is(err, jobs.ErrCompacted) || !errors.As(err, &compacted) || compacted.After != (jobs.Position{Index: 2, Item: 1}) {
		t.Fatalf("got %v", err)
	}
	events, err := r.Events(compacted.Since, 0)
	if err != nil || len(events) != 3 || events[0].Name != "5" {
		t.Errorf("after %v: %d events, %v", compacted.Since, len(events), err)
	}
}
