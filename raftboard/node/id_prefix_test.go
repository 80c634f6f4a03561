package node_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// TestShortIDsOfOtherTenants: a search by prefix finds no object that the caller's lists hide.
func TestShortIDsOfOtherTenants(t *testing.T) {
	t.Parallel()
	c := newTenants(t, 3)
	own, foreign := c.newTenant("own", "mine"), c.newTenant("foreign", "theirs")
	viewer, _ := c.token("viewer", time.Time{}, access.Grant{Role: access.Viewer, Boards: "own"})
	everything, _ := c.token("auditor", time.Time{}, access.Grant{Role: access.Viewer, Boards: access.AllBoards})
	for _, row := range []struct {
		name, token string
		noun        jobs.IDNoun
		id          uuid.UUID
		found       bool
	}{
		{"a job of its board", viewer, jobs.IDOfJob, own.job.UUID, true},
		{"a flow of its board", viewer, jobs.IDOfFlow, own.flow.UUID, true},
		{"a book of its board", viewer, jobs.IDOfBook, own.book.UUID, true},
		{"a session of another", viewer, jobs.IDOfSession, own.session.UUID, false},
		{"its own session", own.workerToken, jobs.IDOfSession, own.session.UUID, true},
		{"the session of another tenant", own.workerToken, jobs.IDOfSession, foreign.session.UUID, false},
		{"a job of another board", viewer, jobs.IDOfJob, foreign.job.UUID, false},
		{"a flow of another board", viewer, jobs.IDOfFlow, foreign.flow.UUID, false},
		{"a book of another board", viewer, jobs.IDOfBook, foreign.book.UUID, false},
		{"any job", everything, jobs.IDOfJob, foreign.job.UUID, true},
		{"any session", everything, jobs.IDOfSession, foreign.session.UUID, true},
		{"a flow by the id of a job", everything, jobs.IDOfFlow, foreign.job.UUID, false},
	} {
		for node := range 3 { // one node leads, the others forward
			client := c.as(row.token, node)
			prefix, err := jobs.ParseIDPrefix(row.noun, row.id.String()[:33])
			if err != nil {
				t.Fatal(err)
			}
			found, err := client.FindIDs(t.Context(), prefix)
			if err != nil || found.More || (len(found.IDs) == 1 && found.IDs[0] == row.id) != row.found || len(found.IDs) > 1 {
				t.Errorf("%s: %+v, %v", row.name, found, err)
			}
		}
	}
	for _, request := range []string{`{"noun": "job", "prefix": "018"}`, `{"noun": "job", "prefix": "018g"}`, `{"noun": "board", "prefix": "0189"}`, `{"noun": "job", "prefix": "01890123"}`} {
		if status, answer := c.call(0, viewer, "BoardService/FindIDs", request); status != 400 {
			t.Errorf("%s: %d %s", request, status, answer)
		}
	}
}
