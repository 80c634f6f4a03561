package node_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// TestStepsSignalTheirOwnBoards: a step signals jobs of its own board. For other boards, the owner of its job needs the
// permission. The step succeeds anyway.
func TestStepsSignalTheirOwnBoards(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	mine, other := c.newTenant("mine/b", "own"), c.newTenant("other/b", "foreign")
	worker := c.as(mine.workerToken)
	if err := c.operator.Change(t.Context(), jobs.Change{Job: mine.job, Release: true}); err != nil {
		t.Fatal(err)
	}
	claimed, err := worker.Claim(t.Context(), mine.session, mine.job, jobs.NewNonce())
	if err != nil {
		t.Fatal(err)
	}
	paid := &logbook.Signal{Name: "paid", ID: "one"}
	begun := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, Token: claimed.Job.Token, StartedAt: time.Unix(1_000_000_000, 0).UTC()}
	ended := begun
	ended.EndedAt, ended.Sends = begun.StartedAt, []logbook.Sending{
		{Job: other.job.String(), Signal: paid}, {Board: other.board, Key: "k", Signal: paid}, {Job: mine.claimed.String(), Signal: paid}, {Key: "k", Signal: paid},
		{Job: mine.claimed.String(), Signal: &logbook.Signal{Name: "paid", ID: "two"}, Answer: logbook.SendRefused}, // of the worker's report
	}
	update := logbook.Update{Flow: mine.flow, Token: claimed.Job.Token, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{
		{Name: "tell", Kind: logbook.KindTask, State: logbook.AtomRunning, Attempts: []logbook.Attempt{begun}},
		{Name: "tell", State: logbook.AtomSuccess, Attempts: []logbook.Attempt{ended}},
	}}
	if verdicts, err := worker.Update(t.Context(), update); err != nil || verdicts[0] != nil {
		t.Fatal(err, verdicts)
	}
	detail, err := c.operator.FlowDetail(t.Context(), mine.flow)
	if err != nil {
		t.Fatal(err)
	}
	if answers, want := answersOf(detail.Atoms[0].Attempts[0].Sends), []string{"not_found", "not_found", "kept", "not_found", "not_found"}; !slices.Equal(answers, want) {
		t.Errorf("the answers are %v, want %v", answers, want)
	}
	if job, err := c.operator.Job(t.Context(), other.job); err != nil || job.UnreadSignals != 0 {
		t.Errorf("the job of another tenant has %d signals, %v", job.UnreadSignals, err)
	}
}

// TestReportsSignalTheirOwnBoards: the report of a worker that may not signal another board marks the signal as refused.
// The mark stays in the update of the job's owner, which has the permission. The step succeeds anyway.
func TestReportsSignalTheirOwnBoards(t *testing.T) {
	t.Parallel()
	c, ctx := newTenants(t, 1), t.Context()
	mine, other := c.newTenant("mine/b", "own"), c.newTenant("other/b", "foreign")
	token, worker := mine.begin(c), c.as(mine.workerToken)
	paid := &logbook.Signal{Name: "paid", ID: "one"}
	id := steps.ID{Flow: mine.flow, Step: "s", Action: logbook.ActionExecute, Attempt: 1}
	sends := []logbook.Sending{{Job: other.job.String(), Signal: paid}, {Board: other.board, Key: "k", Signal: paid}, {Job: mine.claimed.String(), Signal: paid}}
	reported := make(chan error, 1)
	go func() { // ends with the record of the attempt, or with the test
		_, err := worker.ReportStep(ctx, mine.session, steps.Outcome{ID: id, Done: true, Result: []byte("1"), Sends: sends}, patience)
		reported <- err
	}()
	answer, err := worker.OfferStep(ctx, steps.Offer{
		Session: mine.session, Worker: mine.session, Work: steps.Work{ID: id, Type: "s", Job: mine.job, Token: token}, Since: time.Now(), Wait: patience,
	})
	if err != nil || answer.Outcome == nil {
		t.Fatalf("the offer has the answer %+v, %v", answer, err)
	}
	got := answer.Outcome
	if answers, want := answersOf(got.Sends), []string{logbook.SendRefused, logbook.SendRefused, ""}; !slices.Equal(answers, want) {
		t.Errorf("the marks of the report are %q, want %q", answers, want)
	}
	grants := []access.Grant{{Role: access.Worker, Boards: mine.board}, {Role: access.Signaller, Boards: other.board}}
	if err := c.operator.SavePrincipal(ctx, access.Principal{Name: mine.worker, Grants: grants}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ended := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, Token: token, StartedAt: now, EndedAt: now, Result: got.Result, Offered: true, Worker: mine.session.String(), Sends: got.Sends}
	verdicts, err := worker.Update(ctx, logbook.Update{Flow: mine.flow, Token: token, Sequence: 2, State: logbook.FlowRunning,
		Atoms: []logbook.AtomChange{{Name: "s", State: logbook.AtomSuccess, Attempts: []logbook.Attempt{ended}}}})
	if err := errors.Join(append(verdicts, err)...); err != nil {
		t.Fatal(err)
	}
	if err := <-reported; err != nil {
		t.Fatal(err)
	}
	detail, err := c.operator.FlowDetail(ctx, mine.flow)
	if err != nil {
		t.Fatal(err)
	}
	if answers, want := answersOf(detail.Atoms[0].Attempts[0].Sends), []string{"not_found", "not_found", "kept"}; !slices.Equal(answers, want) {
		t.Errorf("the answers are %q, want %q", answers, want)
	}
	if job, err := c.operator.Job(ctx, other.job); err != nil || job.UnreadSignals != 0 {
		t.Errorf("the job of another tenant has %d signals, %v", job.UnreadSignals, err)
	}
}

func answersOf(sends []logbook.Sending) (answers []string) {
	for _, sent := range sends {
		answers = append(answers, sent.Answer)
	}
	return answers
}

// TestSignalsByKeyNeedTheBoard: a signal by key needs the permission on the board of the key.
func TestSignalsByKeyNeedTheBoard(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	mine, other := c.newTenant("mine/b", "own"), c.newTenant("other/b", "foreign")
	sender, _ := c.token("sender", time.Time{}, access.Grant{Role: access.Signaller, Boards: "mine/*"})
	viewer, _ := c.token("viewer", time.Time{}, access.Grant{Role: access.Viewer, Boards: "mine/*"})
	request := func(board string) string {
		return fmt.Sprintf(`{"board": %q, "key": "k", "name": "paid", "id": "evt_17"}`, board)
	}
	for _, row := range []struct{ token, board, want string }{
		{sender, mine.board, "not_found"}, {sender, other.board, "not_allowed"}, {viewer, mine.board, "not_allowed"}, {sender, "", "not_allowed"},
	} {
		if _, answer := c.call(0, row.token, "BoardService/Signal", request(row.board)); !strings.Contains(answer, `"`+row.want+`"`) {
			t.Errorf("board %q: %s, want %s", row.board, answer, row.want)
		}
	}
}
