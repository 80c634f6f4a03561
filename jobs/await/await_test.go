package await_test

import (
	"context"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// lookedAt is a board that changes just before the first read of its jobs.
type lookedAt struct {
	*boardtest.Board
	before func()
}

func (l *lookedAt) Jobs(ctx context.Context, query jobs.Query) (jobs.Page[jobs.Job], error) {
	if l.before != nil {
		l.before()
		l.before = nil
	}
	return l.Board.Jobs(ctx, query)
}

// TestAwaitKnowsWhatItHasSeen: a job that was claimed and abandoned before the read does not count
// as gone when the event of that claim arrives.
func TestAwaitKnowsWhatItHasSeen(t *testing.T) {
	board := &lookedAt{Board: boardtest.New(t, boardtest.Options{})}
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
	status, err := await.Jobs(ctx, board, await.Waiting{States: []jobs.State{jobs.StateClaimable}, Progress: func(status await.Status) {
		if begun {
			return
		}
		begun = true
		if status.Left != 1 {
			t.Errorf("began with %+v", status)
		}
		second := posted("second")
		claim(first)
		claim(second)
	}})
	if err != nil || status.Left != 0 || status.Gone != 2 {
		t.Errorf("ended with %+v, %v", status, err)
	}
}

// ordered makes a command that requests a stop of a job.
func ordered(kind jobs.RequestKind) func(jobs.Job) *v1.Command {
	return func(job jobs.Job) *v1.Command {
		order := command.JobCommandToProto(&jobs.JobCommand{Job: job.ID, By: "ann"})
		switch kind {
		case jobs.RequestCancel:
			return &v1.Command{Kind: &v1.Command_Cancel{Cancel: order}}
		case jobs.RequestRetry:
			return &v1.Command{Kind: &v1.Command_Retry{Retry: order}}
		case jobs.RequestResume:
			return &v1.Command{Kind: &v1.Command_Resume{Resume: order}}
		}
		return &v1.Command{Kind: &v1.Command_Suspend{Suspend: order}}
	}
}

// trashed makes the command with which a job's owner trashes it.
func trashed(job jobs.Job) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Trash{Trash: command.EndingToProto(&jobs.Ending{Job: job.ID, Token: job.Token})}}
}

// postedAndClaimed posts a job, and optionally claims it.
func postedAndClaimed(ctx context.Context, t *testing.T, board *boardtest.Board, claim bool) jobs.Job {
	t.Helper()
	session := jobs.NewSessionID()
	if _, err := board.OpenSession(ctx, jobs.Opening{ID: session, Name: "worker", TTL: jobs.MaxTTL}); err != nil {
		t.Fatal(err)
	}
	job, err := jobs.PostOne(ctx, board, jobs.Posting{Name: "first", Kind: "k"})
	if err == nil && claim {
		var claimed jobs.Claimed
		claimed, err = board.Claim(ctx, session, job.ID, jobs.NewNonce())
		job = claimed.Job
	}
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// TestAwaitLooksAtWholeEntries: a change that the same log entry reverses ends no wait. A lasting
// change in a later entry does.
func TestAwaitLooksAtWholeEntries(t *testing.T) {
	type commands []func(jobs.Job) *v1.Command
	suspend, resume := ordered(jobs.RequestSuspend), ordered(jobs.RequestResume)
	for name, row := range map[string]struct {
		waiting              await.Waiting
		entry                commands // the last command reverses the first
		last                 func(jobs.Job) *v1.Command
		left, gone, finished int // expected result of the wait
	}{
		"until none is unfinished": {await.Waiting{}, commands{trashed, ordered(jobs.RequestRetry)}, ordered(jobs.RequestCancel), 0, 2, 2},
		"until none is claimable":  {await.Waiting{States: []jobs.State{jobs.StateClaimable}}, commands{suspend, resume}, suspend, 0, 2, 0},
		"until one is suspended":   {await.Waiting{States: []jobs.State{jobs.StateSuspended}, Some: true}, commands{suspend, resume}, suspend, 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			board := boardtest.New(t, boardtest.Options{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			job := postedAndClaimed(ctx, t, board, len(row.waiting.States) == 0)
			const first, undone = 1, 3
			calls := 0
			row.waiting.Progress = func(await.Status) { // blocks the wait meanwhile
				calls++
				var entry []*v1.Command
				switch calls {
				case first:
					for _, make := range row.entry {
						entry = append(entry, make(job))
					}
				case undone:
					entry = append(entry, row.last(job))
				default:
					return
				}
				if err := board.Entry(entry...); err != nil {
					t.Error(err)
				}
			}
			status, err := await.Jobs(ctx, board, row.waiting)
			if err != nil || status.Left != row.left || status.Gone != row.gone || status.Finished != row.finished {
				t.Errorf("ended with %+v, %v", status, err)
			}
		})
	}
}

// TestAwaitEndsWithItsEntry: if a job returns in a later entry, the wait has ended before.
func TestAwaitEndsWithItsEntry(t *testing.T) {
	board := boardtest.New(t, boardtest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	job := postedAndClaimed(ctx, t, board, true)
	looked := false
	status, err := await.Jobs(ctx, board, await.Waiting{Progress: func(await.Status) {
		if looked {
			return
		}
		looked = true
		for _, make := range []func(jobs.Job) *v1.Command{trashed, ordered(jobs.RequestRetry)} {
			if err := board.Entry(make(job)); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil || status.Left != 0 || status.Gone != 1 || status.Trashed != 1 {
		t.Errorf("ended with %+v, %v", status, err)
	}
}

// TestAwaitMoves: a job that moves to another board counts as gone; a job that arrives does not.
func TestAwaitMoves(t *testing.T) {
	board := boardtest.New(t, boardtest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	posted := func(on string) jobs.JobID {
		job, err := jobs.PostOne(ctx, board, jobs.Posting{Board: on, Name: "a", Kind: "k"})
		if err != nil {
			t.Fatal(err)
		}
		return job.ID
	}
	here, there := posted("day"), posted("night")
	seen := []int{}
	status, err := await.Jobs(ctx, board, await.Waiting{Board: "day", Progress: func(status await.Status) {
		seen = append(seen, status.Left)
		var err error
		switch len(seen) {
		case 1:
			err = board.Change(ctx, jobs.Change{Job: there, Board: "day"})
		case 2:
			err = board.Change(ctx, jobs.Change{Job: there, Board: "night"})
			if err == nil {
				err = board.Change(ctx, jobs.Change{Job: here, Board: "night"})
			}
		}
		if err != nil {
			t.Error(err)
		}
	}})
	if err != nil || status.Left != 0 || status.Gone != 2 || len(seen) < 4 || seen[1] != 2 {
		t.Errorf("ended with %+v, %v, after %v", status, err, seen)
	}
}
