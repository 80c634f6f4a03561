package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs/access"
)

// TestMovesNeedBothBoards: a job moves only if the caller may operate on both boards. A caller that
// may not read the job's board does not learn that the board exists.
func TestMovesNeedBothBoards(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 1)
	mine, foreign := c.newTenant("mine/day", "own-job"), c.newTenant("other/day", "foreign-job")
	for _, board := range []string{"mine/night", "seen/night"} {
		if err := c.operator.CreateBoard(t.Context(), board); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		role    access.Role
		job, to string
		want    string // part of the answer
	}{
		{access.Viewer, mine.job.String(), "mine/night", "not_allowed"},
		{access.Poster, mine.job.String(), "mine/night", "not_allowed"},
		{access.Operator, mine.job.String(), "seen/night", `no permission to operate on board \"seen/night\"`},
		{access.Operator, mine.job.String(), "other/day", `no permission to operate on board \"other/day\"`},
		{access.Operator, foreign.job.String(), "mine/night", "not_found"},
		{access.Operator, mine.job.String(), "mine/night", "{}"},
		{access.Operator, mine.job.String(), "mine/nowhere", "not_found"},
	} {
		token, _ := c.token("mover-"+string(row.role), time.Time{}, access.Grant{Role: row.role, Boards: "mine/*"}, access.Grant{Role: access.Viewer, Boards: "seen/*"})
		_, answer := c.call(0, token, "BoardService/Change", fmt.Sprintf(`{"job": %q, "board": %q}`, row.job, row.to))
		if !strings.Contains(answer, row.want) {
			t.Errorf("%+v: %s", row, answer)
		}
		executed := fmt.Sprintf(`{"commands": [{"change": {"job": %q, "board": %q}}]}`, row.job, row.to)
		if _, answer := c.call(0, token, "BoardService/Execute", executed); row.want != "{}" && !strings.Contains(answer, row.want) {
			t.Errorf("executed: %+v: %s", row, answer)
		}
	}
}
