package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
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
	var answers []string
	for _, sent := range detail.Atoms[0].Attempts[0].Sends {
		answers = append(answers, sent.Answer)
	}
	if want := []string{"not_found", "not_found", "kept", "not_found", "not_found"}; !slices.Equal(answers, want) {
		t.Errorf("the answers are %v, want %v", answers, want)
	}
	if job, err := c.operator.Job(t.Context(), other.job); err != nil || job.UnreadSignals != 0 {
		t.Errorf("the job of another tenant has %d signals, %v", job.UnreadSignals, err)
	}
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
