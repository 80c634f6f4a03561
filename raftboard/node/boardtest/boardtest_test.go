package boardtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/jobstest"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/logbooktest"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBoardConformance(t *testing.T) {
	jobstest.Exercise(t, func(t *testing.T) jobstest.Harness {
		board := boardtest.New(t, boardtest.Options{Grace: time.Minute})
		return jobstest.Harness{
			Board: board, Logbook: board, TTL: time.Second,
			Lapse: func(session jobs.SessionID) {
				if err := board.Expire(session); err != nil {
					t.Errorf("cannot expire a session: %v", err)
				}
			},
			LapseClaim: func(job jobs.JobID, token jobs.Token) {
				if err := board.ExpireClaim(job, token); err != nil {
					t.Errorf("cannot expire a claim: %v", err)
				}
			},
		}
	})
}

func TestSchedulerConformance(t *testing.T) {
	jobstest.ExerciseScheduler(t, func(t *testing.T) jobstest.Harness {
		board := boardtest.New(t, boardtest.Options{})
		return jobstest.Harness{
			Board: board, Logbook: board, TTL: time.Second, Scheduler: board,
			Dormant: func(schedule schedules.Schedule, since time.Time) (schedules.Schedule, error) {
				return board.SaveScheduleSince(schedule, since)
			},
		}
	})
}

func TestLogbookConformance(t *testing.T) {
	logbooktest.Exercise(t, func(t *testing.T) logbook.Connection { return boardtest.New(t, boardtest.Options{}) })
}

// claimed posts a job and claims it for a new session.
func claimed(t *testing.T, board *boardtest.Board) (jobs.SessionID, jobs.Claimed) {
	t.Helper()
	session := jobs.NewSessionID()
	if _, err := board.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "worker"}); err != nil {
		t.Fatal(err)
	}
	id := jobs.NewJobID()
	if posted, err := board.Post(t.Context(), jobs.Posting{ID: id, Name: "plain"}); err != nil || posted[0].Err != nil {
		t.Fatalf("Post: %+v, %v", posted, err)
	}
	got, err := board.Claim(t.Context(), session, id, jobs.NewNonce())
	if err != nil {
		t.Fatal(err)
	}
	return session, got
}

func TestTooManyCrashesTrashTheJob(t *testing.T) {
	board := boardtest.New(t, boardtest.Options{MaxCrashes: 1})
	session, got := claimed(t, board)
	if err := board.Expire(session); err != nil {
		t.Fatal(err)
	}
	job, err := board.Wait(t.Context(), got.Job.ID)
	if err != nil || job.State != jobs.StateTrashed || job.Crashes != 1 || !job.Failure.Matches(logbook.FailureCrash) {
		t.Errorf("Wait: %+v, %v; want the job trashed, with the crash as evidence", job, err)
	}
	if err := board.Expire(session); !errors.Is(err, jobs.ErrSessionExpired) {
		t.Errorf("Expire again: got error %v, want %v", err, jobs.ErrSessionExpired)
	}
}

func TestTimeCanBeDriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := boardtest.New(t, boardtest.Options{CoolDown: time.Hour})
		session, got := claimed(t, board)
		if err := board.Expire(session); err != nil {
			t.Fatal(err)
		}
		heir := jobs.NewSessionID()
		if _, err := board.OpenSession(t.Context(), jobs.Opening{ID: heir, Name: "heir"}); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		next, err := board.ClaimNext(t.Context(), jobs.ClaimRequest{Session: heir, Nonce: jobs.NewNonce(), Wait: 2 * time.Hour})
		if err != nil || len(next) != 1 || next[0].Job.ID != got.Job.ID {
			t.Fatalf("ClaimNext: %+v, %v", next, err)
		}
		if took := time.Since(before); took < time.Hour || took > time.Hour+time.Second {
			t.Errorf("the job was claimable after %s, want 1h", took)
		}
	})
}

func TestCloseAnswersWhoWaits(t *testing.T) {
	board := boardtest.New(t, boardtest.Options{})
	session, got := claimed(t, board)
	answers := make(chan error, 3)
	go func() {
		_, err := board.Wait(t.Context(), got.Job.ID)
		answers <- err
	}()
	go func() {
		_, err := board.ClaimNext(t.Context(), jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Wait: time.Hour})
		answers <- err
	}()
	go func() {
		var last error
		for _, err := range board.Watch(t.Context(), jobs.Watch{}) {
			last = err
		}
		answers <- last
	}()
	for range 2 {
		if err := board.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range cap(answers) {
		select {
		case err := <-answers:
			if err == nil {
				t.Error("a waiting call was answered as if nothing had happened")
			}
		case <-ctx.Done():
			t.Fatal("a waiting call was not answered")
		}
	}
}

func TestWatchTellsOfEventsThatAreGone(t *testing.T) {
	board := boardtest.New(t, boardtest.Options{EventsKept: 2})
	_, got := claimed(t, board)
	ending := jobs.Ending{Job: got.Job.ID, Token: got.Job.Token, Outcome: jobs.OutcomeSuccess}
	if err := board.Consume(t.Context(), ending); err != nil {
		t.Fatal(err)
	}
	var last error
	for event, err := range board.Watch(t.Context(), jobs.Watch{After: &jobs.Position{}}) {
		if err == nil {
			t.Errorf("an event after a gap was told: %+v", event)
		}
		last = err
	}
	if !errors.Is(last, jobs.ErrCompacted) {
		t.Errorf("Watch: got error %v, want %v", last, jobs.ErrCompacted)
	}
}
