package conductor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// killer is the real board, and kills the owner at one of its writes: before or after its effect.
type killer struct {
	cluster
	t     *testing.T
	after bool

	mu     sync.Mutex
	writes int
	at     int
}

// write makes a write. At the chosen write, it ends all sessions.
func (k *killer) write(call func() error) error {
	k.mu.Lock()
	k.writes++
	now := k.writes == k.at
	k.mu.Unlock()
	if now && !k.after {
		expireSessions(k.t, k.cluster)
	}
	err := call()
	if now && k.after {
		expireSessions(k.t, k.cluster)
		err = jobs.ErrUncertain // the answer is lost with its owner
	}
	return err
}

func (k *killer) Consume(ctx context.Context, e jobs.Ending) error {
	return k.write(func() error { return k.cluster.Consume(ctx, e) })
}

func (k *killer) Update(ctx context.Context, updates ...logbook.Update) (verdicts []error, err error) {
	err = k.write(func() error {
		verdicts, err = k.cluster.Update(ctx, updates...)
		return err
	})
	return verdicts, err
}

// TestAttemptsOutliveTheirOwner: a flow that is reverted twice and then succeeds has three
// attempts, for each write at which its owner dies. No attempt is lost or counted twice.
func TestAttemptsOutliveTheirOwner(t *testing.T) {
	for _, after := range []bool{false, true} {
		writes := 1
		for at := 1; at <= writes; at++ {
			t.Run(fmt.Sprintf("write %d, after it: %t", at, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := &killer{cluster: openCluster(t), t: t, at: at, after: after}
					o := options(k, stubborn(t, k))
					o.TTL = ttl
					_, run := made(t, o)
					run()
					job := finished(t, k, threeTimes(t, k))
					thrice(t, k, job)
					k.mu.Lock()
					writes = max(writes, k.writes)
					k.mu.Unlock()
				})
			})
		}
		if writes < 9 {
			t.Errorf("there were %d writes to die at", writes)
		}
	}
}

// stubborn makes flows whose second step fails until two attempts at the job have failed.
func stubborn(t *testing.T, c cluster) *flow.Registry {
	return factories{"stubborn": func() ([]flow.Node, error) {
		return []flow.Node{do("a", well), do("b", func(ctx context.Context) error {
			id, err := jobs.ParseJobID(flow.CallFrom(ctx).Job)
			if err != nil {
				return err
			}
			job, err := c.Job(ctx, id)
			if err == nil && job.Attempts < 2 {
				err = errors.New("not this time")
			}
			return err
		})}, nil
	}}.registry(t)
}

func threeTimes(t *testing.T, c cluster) jobs.JobID {
	t.Helper()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "stubborn"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "stubborn", Factory: logbook.Factory{Name: "stubborn"}}}
	return postOne(t, c, jobs.Posting{Name: "stubborn", Book: &book, Retry: &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 3, Delay: jobs.MinRetryDelay}}}).ID
}

// thrice checks that two attempts have failed, and the third has succeeded.
func thrice(t *testing.T, c cluster, job jobs.Job) {
	t.Helper()
	if job.Outcome != jobs.OutcomeSuccess || job.Attempts != 2 || job.Failures != 0 {
		t.Errorf("the job is %s %s after %d attempts that failed (%s)", job.State, job.Outcome, job.Attempts, job.Reason)
	}
	page, err := c.Errors(t.Context(), jobs.ErrorQuery{Job: job.ID})
	if err != nil {
		t.Fatal(err)
	}
	reverted := 0
	for i := range page.Items {
		if page.Items[i].How == jobs.HowReverted {
			reverted++
		}
	}
	detail := detailOf(t, c, job)
	if reverted != 2 || len(detail.Interventions) != 2 || detail.State != logbook.FlowSuccess || detail.Cause != nil {
		t.Errorf("%d attempts are recorded as reverted, and the flow is %s after %d words", reverted, detail.State, len(detail.Interventions))
	}
	for _, step := range []string{"a", "b"} {
		if result, ok := stepOf(detail, step).Result(); !ok {
			t.Errorf("step %s gives %s, %t", step, result, ok)
		}
	}
}

func stepOf(detail logbook.FlowDetail, name string) *logbook.AtomDetail {
	if atom, ok := detail.Atom(name); ok {
		return atom
	}
	return &logbook.AtomDetail{}
}
