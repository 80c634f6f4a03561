package conductor_test

import (
	"context"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// cluster is the real state machine without raft.
type cluster interface {
	jobs.Board
	logbook.Connection
}

// patience is enough for a busy machine.
const patience = time.Minute

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting until %s", what)
		}
		timer := time.NewTimer(2 * time.Millisecond)
		<-timer.C
	}
}

// registered waits until n conductors are registered. A conductor opens its session before it
// registers.
func registered(t *testing.T, c cluster, n int) {
	t.Helper()
	until(t, "the conductors are registered", func() bool {
		present, err := c.Entities(t.Context(), jobs.EntityConductor)
		return err == nil && len(present) == n
	})
}

// post puts a job on the default board, with a book of one flow of the kind.
func post(t *testing.T, c cluster, kind string, store logbook.Values) jobs.Job {
	t.Helper()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "book of " + kind}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: kind, Factory: logbook.Factory{Name: kind}}}
	return postOne(t, c, jobs.Posting{Name: "job of " + kind, Book: &book, Store: store})
}

func postOne(t *testing.T, c cluster, posting jobs.Posting) jobs.Job {
	t.Helper()
	posted, err := c.Post(t.Context(), posting)
	if err != nil {
		t.Fatal(err)
	}
	if posted[0].Err != nil {
		t.Fatal(posted[0].Err)
	}
	return posted[0].Job
}

// finished waits for a job's end.
func finished(t *testing.T, c cluster, id jobs.JobID) jobs.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	job, err := c.Wait(ctx, id)
	if err != nil {
		t.Fatalf("cannot wait for job %s: %v", id, err)
	}
	return job
}

func detailOf(t *testing.T, c cluster, job jobs.Job) logbook.FlowDetail {
	t.Helper()
	detail, err := c.FlowDetail(t.Context(), job.Flow)
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

// attempts counts the executions of a step that were recorded.
func attempts(detail logbook.FlowDetail, step string) int {
	count := 0
	if atom, ok := detail.Atom(step); ok {
		for i := range atom.Attempts {
			if atom.Attempts[i].Action == logbook.ActionExecute {
				count++
			}
		}
	}
	return count
}
