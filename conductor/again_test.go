package conductor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// bill bills one month in each iteration. charged counts the charges of each month, and keys has
// their idempotency keys.
func bill(charged map[int]int, keys map[string]bool, options ...flow.StepOption) []flow.Node {
	type months struct {
		Following int `json:"following"`
	}
	charge := flow.Func("charge", func(ctx context.Context, in struct {
		Month int `json:"month"`
	}) (months, error) {
		charged[in.Month]++
		keys[flow.CallFrom(ctx).Key()] = true
		return months{in.Month + 1}, nil
	})
	next := flow.Again("next-month", append([]flow.StepOption{flow.Requires("month"), flow.Rebind(map[string]string{"month": "following"})}, options...)...)
	return []flow.Node{charge, next}
}

func postAgain(t *testing.T, c cluster) jobs.JobID {
	t.Helper()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "order"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "order", Factory: logbook.Factory{Name: "order"}}}
	return postOne(t, c, jobs.Posting{Name: "order", Book: &book, Store: logbook.Values{"month": json.RawMessage("0")}}).ID
}

// TestAgain: a job bills one month a minute, with a new key for each charge, and no conductor has the job between them.
// A cancel between two iterations ends the job.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		charged, keys := map[int]int{}, map[string]bool{}
		c := openCluster(t)
		id := postAgain(t, c)
		_, run := made(t, options(c, orderFlow(t, func() []flow.Node { return bill(charged, keys, flow.AgainAfter(time.Minute)) })))
		run()
		time.Sleep(12*time.Minute + 30*time.Second)
		job, err := c.Job(t.Context(), id)
		if err != nil || job.State != jobs.StateWaiting || job.Iteration != 14 || string(job.Store["month"]) != "13" || len(charged) != 13 || len(keys) != 13 {
			t.Errorf("after 12 minutes the job is %s in iteration %d with %s, and has charged %v with %d keys, %v", job.State, job.Iteration, job.Store, charged, len(keys), err)
		}
		for month, times := range charged {
			if times != 1 {
				t.Errorf("month %d is charged %d times", month, times)
			}
		}
		iterations, flowID := 0, job.Flow
		for !flowID.IsZero() {
			detail, err := c.FlowDetail(t.Context(), flowID)
			if err != nil {
				t.Fatal(err)
			}
			iterations, flowID = iterations+1, detail.Previous
		}
		if iterations != jobs.KeptIterations {
			t.Errorf("%d iterations are kept, want %d", iterations, jobs.KeptIterations)
		}
		if err := c.Cancel(t.Context(), jobs.JobCommand{Job: id, Revert: true}); err != nil {
			t.Fatal(err)
		}
		if job := finished(t, c, id); job.Outcome != jobs.OutcomeCancelled || len(charged) != 13 {
			t.Errorf("after the cancel the job is %s, with %d charges", job.Outcome, len(charged))
		}
	})
}

// TestAgainFails: the failure of an iteration reverts this iteration only, and ends the job.
func TestAgainFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		charged, undone := map[int]int{}, 0
		nodes := func() []flow.Node {
			reverting := flow.FuncRevert("reserve", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil },
				func(context.Context, struct{}, *struct{}) error { undone++; return nil })
			fails := flow.Func("check", func(_ context.Context, in struct {
				Month int `json:"month"`
			}) (struct{}, error) {
				if in.Month == 2 {
					return struct{}{}, fmt.Errorf("no money in month %d", in.Month)
				}
				return struct{}{}, nil
			})
			return append([]flow.Node{reverting, fails}, bill(charged, map[string]bool{})...)
		}
		c := openCluster(t)
		id := postAgain(t, c)
		_, run := made(t, options(c, orderFlow(t, nodes)))
		run()
		job := finished(t, c, id)
		if job.Outcome != jobs.OutcomeReverted || job.Iteration != 3 || undone != 1 || len(charged) != 2 {
			t.Errorf("the job is %s in iteration %d, with %d reverts and the charges %v", job.Outcome, job.Iteration, undone, charged)
		}
		if detail := detailOf(t, c, job); detail.State != logbook.FlowReverted {
			t.Errorf("its flow is %s", detail.State)
		}
	})
}
