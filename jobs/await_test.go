package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/conductord/conductord/fsm/fsmtest"
	"github.com/conductord/conductord/jobs"
)

// lookedAt is a board on which something happens just before the first look
// at its jobs.
type lookedAt struct {
	*fsmtest.Board
	before func()
}

func (l *lookedAt) Jobs(ctx context.Context, query jobs.Query) (jobs.Page, error) {
	if l.before != nil {
		l.before()
		l.before = nil
	}
	return l.Board.Jobs(ctx, query)
}

// TestAwaitKnowsWhatItHasSeen: a job that was claimed and given back before the
// look is not taken for gone when the event of that claim comes.
func TestAwaitKnowsWhatItHasSeen(t *testing.T) {
	board := &lookedAt{Board: fsmtest.New(t, fsmtest.Options{})}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	session := jobs.NewSessionID()
	if _, err := board.OpenSession(ctx, jobs.Opening{ID: session, Name: "worker", TTL: jobs.MaxTTL}); err != nil {
		t.Fatal(err)
	}
	posted := func(name string) jobs.JobID {
		job, err := jobs.PostOne(ctx, board, jobs.Posting{Name: name, Kind: "k"})
		if err != nil {
			t.Error(err)
		}
		return job.ID
	}
	claim := func(id jobs.JobID) jobs.Token {
		claimed, err := board.Claim(ctx, session, id, jobs.NewNonce())
		if err != nil {
			t.Error(err)
		}
		return claimed.Job.Token
	}
	first := posted("first")
	board.before = func() {
		if err := board.Abandon(ctx, jobs.Ending{Job: first, Token: claim(first)}); err != nil {
			t.Error(err)
		}
	}
	begun := false
	tally, err := jobs.Await(ctx, board, jobs.Waiting{States: []jobs.State{jobs.StateClaimable}, Progress: func(tally jobs.Tally) {
		if begun {
			return
		}
		begun = true
		if tally.Left != 1 {
			t.Errorf("began with %+v", tally)
		}
		second := posted("second")
		claim(first)
		claim(second)
	}})
	if err != nil || tally.Left != 0 || tally.Gone != 2 {
		t.Errorf("ended with %+v, %v", tally, err)
	}
}
