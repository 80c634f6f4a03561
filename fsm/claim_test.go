package fsm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestClaimRefusals(t *testing.T) {
	r := newRig(t)
	for _, session := range []string{"ann", "bob", "gone"} {
		r.ok(open(session))
	}
	r.ok(closing("gone"))
	held := r.claimed("ann", posting("held", "k"))
	done := r.claimed("ann", posting("done", "k"))
	r.ok(consume(success("done", done)))
	r.ok(abandon(&v1.Ending{
		Job: id("cool"), Token: command.TokenToProto(r.claimed("ann", posting("cool", "k"))), Delay: lasting(1e9),
	}))
	rows := []struct {
		name string
		c    *v1.Command
		code string
	}{
		{"an unknown session", claim("nobody", id("held"), "n"), "session_expired"},
		{"a closed session", claim("gone", id("held"), "n"), "session_expired"},
		{"an unknown job", claim("ann", id("nothing"), "n"), "not_found"},
		{"a held job", claim("bob", id("held"), "n"), "unclaimable"},
		{"one's own job, with another nonce", claim("ann", id("held"), "n"), "unclaimable"},
		{"a finished job", claim("bob", id("done"), "n"), "unclaimable"},
		{"a cooling job", claim("bob", id("cool"), "n"), "unclaimable"},
		{"a nonce that is none", &v1.Command{Kind: &v1.Command_Claim{Claim: &v1.ClaimCommand{
			Session: id("ann"), Job: id("held"), Nonce: "x"}}}, "invalid"},
		{"the next one, for an unknown session", claimNext("nobody", "n", 1, nil, nil), "session_expired"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			message := r.refused(row.c, row.code)
			if row.name == "a held job" && (!strings.Contains(message, "ann") || !strings.Contains(message, held.String())) {
				t.Errorf("the message names neither owner nor token: %s", message)
			}
		})
	}
}

func TestClaimNextOrder(t *testing.T) {
	jobsOf := func(words string) []*v1.Posting {
		var postings []*v1.Posting
		for i, word := range strings.Fields(words) {
			parts := strings.Split(word, "/") // board/kind/priority
			priority, err := jobs.ParsePriority(parts[2])
			if err != nil {
				panic(err)
			}
			postings = append(postings, &v1.Posting{
				Id: id(fmt.Sprint(i)), Name: fmt.Sprint(i), Board: parts[0], Kind: parts[1], Priority: int32(priority),
			})
		}
		return postings
	}
	rows := []struct {
		name, postings string
		boards, kinds  []string
		most           uint32
		want           string
	}{
		{"priority, then posting", "default/k/low default/k/high default/k/high default/k/normal", nil, []string{"k"}, 9, "1 2 3 0"},
		{"across kinds", "default/k/0 default/l/1 default/m/2 default/l/0", nil, []string{"k", "l"}, 9, "1 0 3"},
		{"all kinds", "default/k/0 default/l/1 default//2 default/l/0", nil, nil, 9, "2 1 0 3"},
		{"across boards", "b/k/0 c/k/5 d/k/9 b/l/7", []string{"b", "c"}, []string{"k"}, 9, "1 0"},
		{"boards and all kinds", "b/k/0 c/k/5 d/k/9 b/l/7", []string{"c", "b"}, nil, 9, "3 1 0"},
		{"a board named twice", "b/k/0 b/k/1", []string{"b", "b"}, nil, 9, "1 0"},
		{"the default board", "b/k/0 default/k/1", nil, nil, 9, "1"},
		{"at most one unless asked", "default/k/0 default/k/0", nil, nil, 0, "0"},
		{"at most two", "default/k/0 default/l/0 default/k/0", nil, nil, 2, "0 1"},
		{"extremes", "default/k/-2147483648 default/k/2147483647 default/k/-1 default/k/0", nil, nil, 9, "1 3 2 0"},
		{"a kind that begins another", "default/k/0 default/kk/1", nil, []string{"k"}, 9, "0"},
		{"none", "default/k/0", nil, []string{"l"}, 9, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(open("ann"))
			postings := jobsOf(row.postings)
			r.ok(post(postings...))
			var got []string
			for _, granted := range r.ok(claimNext("ann", "n", row.most, row.boards, row.kinds)).GetClaim().Granted {
				got = append(got, r.job(granted.Job).Name)
			}
			if strings.Join(got, " ") != row.want {
				t.Errorf("claimed %q, not %q", strings.Join(got, " "), row.want)
			}
		})
	}
}

func TestClaimRepeats(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(post(posting("a", "k"), posting("b", "k"), posting("c", "k")))
	next := claimNext("ann", "n", 2, nil, nil)
	first := r.ok(next).GetClaim()
	again := r.harmless(next).GetClaim()
	if len(first.Granted) != 2 || first.String() != again.String() {
		t.Errorf("claimed %v, and again %v", first, again)
	}
	one := claim("ann", id("c"), "m")
	granted := r.ok(one).GetClaim().Granted[0]
	if repeated := r.harmless(one).GetClaim().Granted[0]; repeated.String() != granted.String() {
		t.Errorf("claimed %v, and again %v", granted, repeated)
	}
	// A repeat after the end of all claims must claim no further job: its caller would not know of
	// the claim.
	for _, g := range append(first.Granted, granted) {
		r.ok(abandon(&v1.Ending{Job: g.Job, Token: g.Token}))
	}
	r.refused(next, "unclaimable")
	r.refused(one, "unclaimable")
}

// TestClaimResult: the result of a claim equals a read by Claimed, unless the data is long or the
// flow has steps already.
func TestClaimResult(t *testing.T) {
	plain, long := posting("plain", "k"), posting("long", "k")
	plain.Details, plain.Store = value(`{"a":1}`), []*v1.NamedValue{{Name: "b", Value: value(`2`)}}
	long.Details = value(`"` + strings.Repeat("x", 64<<10) + `"`)
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(post(plain, long, flowPosting("trip")))
	for _, row := range []struct {
		job  string
		read bool // the node must read the data
	}{{"plain", false}, {"long", true}, {"trip", false}} {
		granted := r.ok(claim("ann", id(row.job), row.job)).GetClaim().Granted[0]
		now, _, err := r.Claimed(jobID(id(row.job)), fsm.Unbounded)
		if want := command.ClaimedToProto(&now); err != nil || (granted.Claimed == nil) != row.read || !row.read && !proto.Equal(granted.Claimed, want) {
			t.Errorf("the result of the claim of %s has %v, not %v: %v", row.job, granted.Claimed, want, err)
		}
	}
	token := r.job(id("trip")).Claim.Token
	r.ok(updateFlow(update("flow of trip", token, 1, "running", task("a", ""))))
	r.ok(abandon(&v1.Ending{Job: id("trip"), Token: command.TokenToProto(token)}))
	if granted := r.ok(claim("ann", id("trip"), "again")).GetClaim().Granted[0]; granted.Claimed != nil {
		t.Errorf("the result of the claim of a flow that runs has %v", granted.Claimed)
	}
}

func TestMayClaim(t *testing.T) {
	r := newRig(t)
	nonce := jobs.NewNonce()
	may := func(session string, kinds ...string) bool {
		t.Helper()
		may, err := r.MayClaim(jobs.ClaimRequest{Session: sessionID(session), Nonce: nonce, Kinds: kinds})
		if err != nil {
			t.Fatal(err)
		}
		return may != fsm.NothingToClaim
	}
	if _, err := r.MayClaim(jobs.ClaimRequest{Session: sessionID("ann")}); !errors.Is(err, jobs.ErrSessionExpired) {
		t.Errorf("got %v", err)
	}
	r.ok(open("ann"))
	if may("ann") {
		t.Error("an empty board")
	}
	r.posted(posting("a", "k"))
	if !may("ann") || !may("ann", "l", "k") || may("ann", "l") {
		t.Error("a job of kind k")
	}
	r.ok(&v1.Command{Kind: &v1.Command_Claim{Claim: &v1.ClaimCommand{Session: id("ann"), Job: id("a"), Nonce: nonce.String()}}})
	if !may("ann", "l") {
		t.Error("an answered request must be repeated")
	}
	nonce = jobs.NewNonce()
	if may("ann") {
		t.Error("a job that is held")
	}
	r.posted(posting("b", "k"))
	r.ok(register("ann", &v1.Entity{Kind: "conductor", Name: "c1"}))
	r.ok(drainConductor("c1"))
	if prospect, err := r.MayClaim(jobs.ClaimRequest{Session: sessionID("ann"), Nonce: nonce}); prospect != fsm.ClaimantDrained || err != nil {
		t.Errorf("a drained conductor has the prospect %d, %v", prospect, err)
	}
}

func TestClaimForgetsOldNonces(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	r.posted(posting("a", "k"))
	for i := range fsm.MaxOver + 3 {
		granted := r.ok(claimNext("ann", fmt.Sprint(i), 1, nil, nil)).GetClaim().Granted
		if len(granted) != 1 {
			t.Fatalf("claim %d: %v", i, granted)
		}
		r.ok(abandon(&v1.Ending{Job: granted[0].Job, Token: granted[0].Token}))
	}
	r.refused(claimNext("ann", fmt.Sprint(fsm.MaxOver+2), 1, nil, nil), "unclaimable") // the latest nonce is known
	if old := r.ok(claimNext("ann", "0", 1, nil, nil)).GetClaim().Granted; len(old) != 1 {
		t.Errorf("the oldest nonce is kept without limit: %v", old)
	}
}

// TestClaimKnowsLargeRequests: a request counts once, for any number of claimed jobs. Otherwise a
// few large requests would displace other nonces.
func TestClaimKnowsLargeRequests(t *testing.T) {
	const most = fsm.MaxOver
	r := newRig(t)
	r.ok(open("ann"))
	for i := range most {
		r.do(post(posting(fmt.Sprint(i), "k")))
	}
	for _, nonce := range []string{"first", "second", "third"} {
		granted := r.ok(claimNext("ann", nonce, most, nil, nil)).GetClaim().Granted
		if len(granted) != most {
			t.Fatalf("claimed %d", len(granted))
		}
		for _, g := range granted {
			r.do(abandon(&v1.Ending{Job: g.Job, Token: g.Token}))
		}
	}
	r.refused(claimNext("ann", "first", most, nil, nil), "unclaimable")
}

// TestClaimNextFitsIntoAnAnswer: the claims of one request fit into its answer. If an answer could
// not be sent, its owner would not know of its claims.
func TestClaimNextFitsIntoAnAnswer(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	large := value(`"` + strings.Repeat("x", 250<<10) + `"`)
	postings := []*v1.Posting{
		{Id: id("huge"), Name: "huge", Kind: "k", Store: []*v1.NamedValue{{Name: "a", Value: large}, {Name: "b", Value: large}, {Name: "c", Value: large}, {Name: "d", Value: large}, {Name: "e", Value: large}}},
	}
	for i := range 6 {
		p := flowPosting(fmt.Sprint(i))
		switch i % 3 {
		case 0:
			p.Details = large
		case 1:
			p.Book.Flows[0].Factory.Args = large
		case 2:
			p.Book.Meta = []*v1.NamedValue{{Name: "m", Value: large}}
		}
		postings = append(postings, p)
	}
	r.ok(post(postings...))
	var got []string
	for i := range 4 {
		var names []string
		for _, granted := range r.ok(claimNext("ann", fmt.Sprint(i), 9, nil, nil)).GetClaim().Granted {
			names = append(names, r.job(granted.Job).Name)
		}
		got = append(got, strings.Join(names, " "))
	}
	if want := "huge|0 1 2 3|4 5|"; strings.Join(got, "|") != want {
		t.Errorf("claimed %q, not %q", strings.Join(got, "|"), want)
	}
}

func TestTokensGrow(t *testing.T) {
	r := newRigWith(t, fsm.Options{Generation: 3})
	r.ok(open("ann"))
	r.ok(open("bob"))
	token := r.claimed("ann", posting("a", "k"))
	if token.Generation != 3 || token.Index != r.index {
		t.Errorf("token %s at entry %d", token, r.index)
	}
	r.ok(abandon(ending("a", token)))
	// Within one entry every claim has the same token. If a released job could be claimed again in
	// that entry, its previous owner could continue to write.
	results := r.do(
		claim("ann", id("a"), "n1"),
		abandon(ending("a", logbook.Token{Generation: 3, Index: r.index + 1})),
		claim("bob", id("a"), "n2"),
		claimNext("bob", "n3", 1, nil, nil),
	)
	if results[0].Error != nil || results[1].Error != nil {
		t.Fatalf("claim and abandon: %v", results)
	}
	if results[2].GetError().GetCode() != "unclaimable" || len(results[3].GetClaim().GetGranted()) != 0 {
		t.Errorf("claimed twice under one token: %v", results)
	}
	again := r.ok(claim("bob", id("a"), "n4")).GetClaim().Granted[0].Token
	if command.TokenFromProto(again).Compare(token) <= 0 {
		t.Errorf("token %v after %s", again, token)
	}
}

func TestMaxClaims(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	for i := range jobs.MaxClaims + 2 {
		r.do(post(posting(fmt.Sprint(i), "k")))
	}
	if n := len(r.do(claimNext("ann", "n", jobs.MaxClaims-1, nil, nil))[0].GetClaim().Granted); n != jobs.MaxClaims-1 {
		t.Fatalf("claimed %d", n)
	}
	// A request for more jobs than the session can hold gets as many as it can hold.
	if n := len(r.do(claimNext("ann", "m", 5, nil, nil))[0].GetClaim().Granted); n != 1 {
		t.Fatalf("claimed %d", n)
	}
	r.refused(claimNext("ann", "o", 1, nil, nil), "over_limit")
	r.refused(claim("ann", id(fmt.Sprint(jobs.MaxClaims)), "p"), "over_limit")
	session, err := r.Session(sessionID("ann"))
	if err != nil || session.Claims != jobs.MaxClaims {
		t.Errorf("session %+v: %v", session, err)
	}
}

func TestClaimedAnswer(t *testing.T) {
	r := newRig(t)
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("trip"))
	r.ok(updateFlow(update("flow of trip", token, 1, "running", task("a", ""), task("b", ""))))
	claimed, omitted, err := r.Claimed(jobID(id("trip")), fsm.Unbounded)
	if err != nil || omitted {
		t.Fatal(omitted, err)
	}
	if claimed.Book.Name != "book of trip" || len(claimed.Flow.Atoms) != 2 || claimed.Job.Claim.Owner != "ann" {
		t.Errorf("claimed %+v", claimed)
	}
	for _, bound := range []int{1, 0} {
		claimed, omitted, err = r.Claimed(jobID(id("trip")), bound)
		if err != nil || !omitted || claimed.Flow != nil {
			t.Errorf("a flow over a bound of %d: %v %+v %v", bound, omitted, claimed.Flow, err)
		}
	}
	var names []string
	head, more, err := r.Flow(flowID("flow of trip"), fsm.Part{MaxBytes: 1})
	if err != nil || !more || len(head.Atoms) != 0 || len(head.Store) == 0 {
		t.Errorf("a part that the plan alone fills: %+v %v %v", head, more, err)
	}
	for skip := 0; more; skip++ {
		var flow logbook.FlowDetail
		flow, more, err = r.Flow(flowID("flow of trip"), fsm.Part{Skip: skip, AtomsOnly: true, MaxBytes: 1})
		if err != nil || len(flow.Atoms) != 1 || len(flow.Store) != 0 || flow.Sequence != head.Sequence {
			t.Fatal(flow, err)
		}
		names = append(names, flow.Atoms[0].Name)
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("read %v", names)
	}
	if _, _, err := r.Flow(flowID("none"), fsm.Part{MaxBytes: fsm.Unbounded}); !errors.Is(err, logbook.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
