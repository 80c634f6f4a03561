package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// History contains the calls of plain workers about the same jobs, with their answers. Many
// goroutines write it.
type History struct {
	began    time.Time
	series   string        // distinguishes its jobs from jobs of other histories
	term     time.Duration // time for which the workers work on the same jobs
	priority atomic.Int32  // the last number; each number is used once

	mu         sync.Mutex
	operations []porcupine.Operation
	answers    map[string]int
	posted     map[jobs.JobID]bool // acknowledged
	written    time.Duration       // time of the last acknowledged write, since began
	unserved   time.Duration       // longest time between two acknowledged writes
}

// jobsAtOnce is the number of jobs for all workers: few, so that they conflict.
const jobsAtOnce = 6

// NewHistory starts a history, whose workers move on to other jobs once per term. It uses at most
// four bytes of the series.
func NewHistory(series string, term time.Duration) *History {
	return &History{
		began: time.Now(), series: series, term: term,
		answers: map[string]int{}, posted: map[jobs.JobID]bool{},
	}
}

// numberedJob is the same job for all workers.
func (h *History) numberedJob(n int) jobs.JobID {
	id := jobs.JobID{}
	copy(id.UUID[:], fmt.Sprintf("%-4.4s%012d", h.series, n))
	return id
}

// Jobs are all jobs that the workers may have used so far.
func (h *History) Jobs() []jobs.JobID {
	var ids []jobs.JobID
	for n := range (int(time.Since(h.began)/h.term) + 1) * jobsAtOnce {
		ids = append(ids, h.numberedJob(n))
	}
	return ids
}

// Posted are the jobs whose posting was acknowledged.
func (h *History) Posted() []jobs.JobID {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []jobs.JobID
	for id := range h.posted {
		ids = append(ids, id)
	}
	return ids
}

// Answers counts calls by request and answer, such as "post refused=false unknown=false".
func (h *History) Answers() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	answers := map[string]int{}
	for answer, count := range h.answers {
		answers[answer] = count
	}
	return answers
}

// Unserved is the longest time without an acknowledged write so far.
func (h *History) Unserved() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.unserved, time.Since(h.began)-h.written).Round(time.Millisecond)
}

// Calls is the number of calls in the history.
func (h *History) Calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.operations)
}

// Check returns an error unless all answers are consistent with one order of the calls. The
// error names the first job with inconsistent answers.
func (h *History) Check(timeout time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	model := jobModel()
	for _, part := range model.Partition(h.operations) {
		if result := porcupine.CheckOperationsTimeout(model, part, timeout); result != porcupine.Ok {
			return fmt.Errorf("the history of job %s is not linearizable (%s):%s", part[0].Input.(asked).job, result, h.tell(part))
		}
	}
	return nil
}

// tell prints calls, one per line, in the order of their starts.
func (h *History) tell(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var lines strings.Builder
	for _, one := range operations {
		in, out := one.Input.(asked), one.Output.(answered)
		back := fmt.Sprint(time.Duration(one.Return))
		if one.Return == math.MaxInt64 {
			back = "never"
		}
		fmt.Fprintf(&lines, "\n  %v to %s: worker %d: %s %v %d → refused=%t unknown=%t %+v",
			time.Duration(one.Call), back, one.ClientId, in.what, in.token, in.priority, out.refused, out.unknown, out.job)
	}
	return lines.String()
}

// call makes a call and records it, unless the call certainly did not happen. refusals are the
// errors that count as an answer.
func (h *History) call(worker int, in asked, do func() (jobs.Job, error), refusals ...error) (jobs.Job, error) {
	called := time.Since(h.began)
	job, err := do()
	back := time.Since(h.began)
	out := answered{}
	switch {
	case err == nil:
		out.job = register{job.State, job.Token, job.Priority}
	case errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, jobs.ErrUncertain):
		return job, err
	case slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }):
		out.refused = true
	case in.what == "read":
		return job, err
	default:
		out.unknown, back = true, math.MaxInt64 // it can take effect at any later time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: worker, Input: in, Output: out, Call: called.Nanoseconds(), Return: int64(back),
	})
	h.answers[fmt.Sprintf("%s refused=%t unknown=%t", in.what, out.refused, out.unknown)]++
	if in.what == "post" && err == nil {
		h.posted[in.job] = true
	}
	if in.what != "read" && err == nil && back > h.written {
		h.unserved, h.written = max(h.unserved, back-h.written), back
	}
	return job, err
}

// Worker works on the jobs of a history. Its client must give up before another node can lead,
// and no session of a worker may expire. Otherwise a repeated change could take effect again
// after changes of others, and the history would have to record each try.
type Worker struct {
	*raftboard.Client
	Number  int
	History *History
	Session jobs.SessionID
	Draw    *rand.Rand
	Think   time.Duration // maximum time between two calls
}

// Impatient is the patience of a worker's client.
const Impatient = 200 * time.Millisecond

// Work makes random calls until ctx ends.
func (w *Worker) Work(ctx context.Context) {
	for ctx.Err() == nil {
		h := w.History
		id := h.numberedJob(int(time.Since(h.began)/h.term)*jobsAtOnce + w.Draw.IntN(jobsAtOnce))
		var err error
		switch w.Draw.IntN(8) {
		case 0, 1:
			err = w.post(ctx, id)
		case 2, 3, 4:
			err = w.claimAndEnd(ctx, id)
		case 5:
			err = w.change(ctx, id)
		default:
			err = w.Read(ctx, id)
		}
		if w.Think > 0 {
			rest(ctx, time.Duration(w.Draw.Int64N(int64(w.Think))))
		}
		if errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrUncertain) {
			rest(ctx, 50*time.Millisecond) // no leader: no node to call
		}
	}
}

func rest(ctx context.Context, long time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(long):
	}
}

func (w *Worker) post(ctx context.Context, id jobs.JobID) error {
	_, err := w.History.call(w.Number, asked{what: "post", job: id}, func() (jobs.Job, error) {
		return jobs.PostOne(ctx, w, jobs.Posting{ID: id, Name: "plain", Kind: "plain"})
	})
	return err
}

func (w *Worker) claimAndEnd(ctx context.Context, id jobs.JobID) error {
	job, err := w.History.call(w.Number, asked{what: "claim", job: id}, func() (jobs.Job, error) {
		claimed, err := w.Claim(ctx, w.Session, id, jobs.NewNonce())
		return claimed.Job, err
	}, jobs.ErrUnclaimable, jobs.ErrNotFound)
	if err != nil {
		return err
	}
	what, ending := "abandon", jobs.Ending{Job: id, Token: job.Token}
	end := w.Abandon
	switch w.Draw.IntN(6) {
	case 0:
		what, end, ending.Outcome = "consume", w.Consume, jobs.OutcomeSuccess
	case 1:
		what, end, ending.Reason = "trash", w.Trash, "at random"
	}
	_, err = w.History.call(w.Number, asked{what: what, job: id, token: job.Token}, func() (jobs.Job, error) {
		return jobs.Job{}, end(ctx, ending)
	}, jobs.ErrFenced)
	return err
}

func (w *Worker) change(ctx context.Context, id jobs.JobID) error {
	priority := jobs.Priority(w.History.priority.Add(1))
	_, err := w.History.call(w.Number, asked{what: "change", job: id, priority: priority}, func() (jobs.Job, error) {
		return jobs.Job{}, w.Change(ctx, jobs.Change{Job: id, Priority: &priority})
	}, jobs.ErrConflict, jobs.ErrNotFound)
	return err
}

// Read reads a job, and also records the answer that no such job exists.
func (w *Worker) Read(ctx context.Context, id jobs.JobID) error {
	_, err := w.History.call(w.Number, asked{what: "read", job: id}, func() (jobs.Job, error) {
		job, err := w.Job(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) {
			return jobs.Job{}, nil
		}
		return job, err
	})
	return err
}
