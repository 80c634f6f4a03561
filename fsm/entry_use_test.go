package fsm_test

import (
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestATokenStandsForOneThing: all claims and interventions of one entry share a token. So in
// one entry a flow gets one owner or interventions, never both and never two owners. Job "a"
// waits with a flow that will run again, or has finished. A command that the entry refuses or
// skips succeeds in the next entry.
func TestATokenStandsForOneThing(t *testing.T) {
	byAnn := func(job string) *v1.Command { return claim("ann", id(job), "of this entry") }
	next := claimNext("ann", "of this entry", 1, nil, nil)
	other := &v1.Posting{Id: id("b"), Name: "b", BookId: id("book of a"), Flow: id("flow of a")}
	none := func(*rig) {}
	reopened := func(r *rig) { r.ok(intervene(asked("rerun", ""))) }
	alsoHeld := func(r *rig) { r.ok(held(asked("complete", "y"))); reopened(r) }
	for _, row := range []struct {
		name     string
		before   func(*rig)
		commands []*v1.Command
		want     string // the expected answers
	}{
		{"a word, and a claim", reopened, []*v1.Command{intervene(asked("skip", "x")), byAnn("a")}, "ok unclaimable"},
		{"a word, and a claim of what is first", reopened, []*v1.Command{intervene(asked("skip", "x")), next}, "ok nothing"},
		{"a word that holds, and a claim", reopened, []*v1.Command{held(asked("complete", "z")), byAnn("a")}, "ok unclaimable"},
		{"a word that is taken back, and a claim", alsoHeld, []*v1.Command{intervene(asked("take-back", "y")), byAnn("a")}, "ok unclaimable"},
		{"two words, and a claim", reopened, []*v1.Command{intervene(asked("skip", "x")), intervene(asked("complete", "y")), next}, "ok ok nothing"},
		{"what opens the job, and a claim", none, []*v1.Command{intervene(asked("rerun", "")), byAnn("a")}, "ok unclaimable"},
		{"a claim that is given back, and a word", reopened, []*v1.Command{byAnn("a"), closing("ann"), intervene(asked("skip", "x"))}, "ok ok conflict"},
		{"two owners", reopened, []*v1.Command{claim("bob", id("a"), "first"), closing("bob"), byAnn("a")}, "ok ok unclaimable"},
		{"two owners by two jobs of the flow", reopened,
			[]*v1.Command{claim("bob", id("a"), "first"), expire("bob", 1, 0, 1), post(other), byAnn("b")}, "ok ok ok unclaimable"},
		{"an owner, and a word after another job came", reopened,
			[]*v1.Command{claim("bob", id("a"), "first"), expire("bob", 1, 0, 1), post(other), intervene(asked("skip", "x"))}, "ok ok ok conflict"},
		{"a word, and another job of the flow", none, []*v1.Command{held(asked("complete", "z")), post(other), byAnn("b")}, "ok ok unclaimable"},
		{"words that a cancellation takes back, and another job", reopened, []*v1.Command{cancel(said()), post(other), byAnn("b")}, "ok ok unclaimable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := stuck(t, "failure")
			r.ok(open("ann"))
			row.before(r)
			r.changes = nil
			var got []string
			for _, result := range r.do(row.commands...) {
				got = append(got, answered(result))
			}
			if said := strings.Join(got, " "); said != row.want {
				t.Fatalf("answered %s, want %s", said, row.want)
			}
			if len(r.changes) != 1 || len(r.changes[0].Claimable) == 0 {
				t.Errorf("who waits for the job is not woken: %+v", r.changes)
			}
			last := row.commands[len(row.commands)-1]
			if said := answered(r.ok(last)); said != "ok" {
				t.Errorf("in the next entry it is answered %s", said)
			}
			r.tokensTell("flow of a")
		})
	}
}

// answered returns an answer as one word.
func answered(result *v1.Result) string {
	switch claimed, ok := result.Kind.(*v1.Result_Claim); {
	case result.GetError() != nil:
		return result.GetError().Code
	case ok && len(claimed.Claim.Granted) == 0:
		return "nothing"
	}
	return "ok"
}

// tokensTell compares the tokens of all claims of a flow's jobs and of all interventions: each
// claim has its own token.
func (r *rig) tokensTell(flow string) {
	r.Helper()
	seen := make(map[logbook.Token]string)
	events, err := r.Events(jobs.Position{}, 0)
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range events {
		if e.Kind != jobs.EventClaimed {
			continue
		}
		if before := seen[e.Token]; before != "" {
			r.Errorf("%s was claimed under the token of the claim of %s", e.Name, before)
		}
		seen[e.Token] = e.Name
	}
	for _, i := range r.flow(flow).Interventions {
		if owner := seen[i.Token]; owner != "" {
			r.Errorf("%s has the token of the claim of %s", i.Kind, owner)
		}
	}
}

// TestAnEarlyWriteIsFenced: two jobs of one flow are claimed as early as possible. The first owner
// can no longer write to the flow.
func TestAnEarlyWriteIsFenced(t *testing.T) {
	r := stuck(t, "failure")
	r.ok(intervene(asked("rerun", "")))
	r.ok(open("ann"))
	other := &v1.Posting{Id: id("b"), Name: "b", BookId: id("book of a"), Flow: id("flow of a")}
	results := r.do(claim("bob", id("a"), "first"), expire("bob", 1, 0, 1), post(other), claim("ann", id("b"), "second"))
	old := command.TokenFromProto(results[0].GetClaim().Granted[0].Token)
	r.claimedAgain("ann", id("b"))
	r.refused(updateFlow(update("flow of a", old, 1, "running")), "fenced")
}
