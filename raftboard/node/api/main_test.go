package api_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened is a session that is kept until the end of the test.
func opened(t *testing.T, board *boardtest.Board) jobs.SessionID {
	t.Helper()
	session, err := board.OpenSession(t.Context(), jobs.Opening{ID: jobs.NewSessionID(), Name: "worker", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return session.ID
}
