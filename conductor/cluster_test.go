package conductor_test

import (
	"context"
	"testing"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// openCluster makes an empty board over the real state machine.
func openCluster(t *testing.T) cluster {
	t.Helper()
	return boardtest.New(t, boardtest.Options{})
}

// expireSessions ends all sessions as if their clients had died.
func expireSessions(t *testing.T, c cluster) {
	t.Helper()
	sessions, err := c.Sessions(context.WithoutCancel(t.Context())) // a conductor that drains can call this after the test
	if err != nil {
		t.Fatal(err)
	}
	for _, session := range sessions {
		expire(t, c, session.ID)
	}
}

// expireClaims ends the session that holds a job.
func expireClaims(t *testing.T, c cluster, id jobs.JobID) {
	t.Helper()
	job, err := c.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if job.Claim == nil {
		t.Fatalf("job %s has no owner", id)
	}
	expire(t, c, job.Claim.Session)
}

func expire(t *testing.T, c cluster, id jobs.SessionID) {
	t.Helper()
	if err := c.(*boardtest.Board).Expire(id); err != nil {
		t.Fatal(err)
	}
}
