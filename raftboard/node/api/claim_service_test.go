package api_test

import (
	"testing"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/api"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// The handler of a claim is held up between the apply of the claim's entry and
// the read for its answer. Meanwhile the claim ends, and perhaps another session
// claims the job. The answer carries the granted token or nothing.
func TestAnswerToAClaimThatIsOver(t *testing.T) {
	t.Parallel()
	client := boardtest.New(t, boardtest.Options{})
	a := client.API()
	if _, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "job", Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	claim := func(owner jobs.SessionID) jobs.Job {
		got, err := client.ClaimNext(t.Context(), jobs.ClaimRequest{Session: owner, Nonce: jobs.NewNonce(), Kinds: []string{"k"}, Max: 1})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		return got[0].Job
	}
	first, second := opened(t, client), opened(t, client)
	granted := claim(first)
	answer, err := api.AnswerToClaim(a, granted.ID, granted.Token)
	if err != nil || len(answer) != 1 || command.TokenFromProto(answer[0].GetJob().GetToken()) != granted.Token {
		t.Fatalf("a claim that holds is answered with %v, %v", answer, err)
	}
	if err := client.CloseSession(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	over := func(when string) {
		t.Helper()
		if answer, err := api.AnswerToClaim(a, granted.ID, granted.Token); err != nil || len(answer) > 0 {
			t.Errorf("%s, the claim under token %s is answered with %v, %v", when, granted.Token, answer, err)
		}
	}
	over("after its session has ended")
	others := claim(second)
	over("after another session has claimed the job")
	if err := client.Consume(t.Context(), jobs.Ending{Job: others.ID, Token: others.Token, Outcome: jobs.OutcomeSuccess}); err != nil {
		t.Fatal(err)
	}
	over("after the job has finished")
}
