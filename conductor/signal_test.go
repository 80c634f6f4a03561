package conductor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

type payment struct {
	Amount int `json:"amount"`
}

// Abandon is a write too, for flows that wait.
type waitKiller struct{ *killer }

func (k waitKiller) Abandon(ctx context.Context, e jobs.Ending) error {
	return k.write(func() error { return k.cluster.Abandon(ctx, e) })
}

func orderFlow(t *testing.T, nodes func() []flow.Node) *flow.Registry {
	return factories{"order": func() ([]flow.Node, error) { return nodes(), nil }}.registry(t)
}

func postOrder(t *testing.T, c cluster) jobs.JobID {
	t.Helper()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "order"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "order", Factory: logbook.Factory{Name: "order"}}}
	return postOne(t, c, jobs.Posting{Name: "order", Book: &book}).ID
}

func pay(t *testing.T, c cluster, job jobs.JobID) jobs.SignalAnswer {
	t.Helper()
	receipt, err := c.Signal(t.Context(), job, logbook.Signal{Name: "paid", ID: "evt_17", Data: json.RawMessage(`{"amount":7}`)})
	if err != nil {
		t.Fatal(err)
	}
	return receipt.Answer
}

// TestSignalsOutliveTheOwner: a flow that waits for a signal and sleeps ends with the data of the signal, whatever write
// its owner dies at, and whether the signal comes before the wait or after it.
func TestSignalsOutliveTheOwner(t *testing.T) {
	for _, row := range []struct {
		name  string
		after bool          // the owner dies after the effect of the write
		delay time.Duration // of the signal
	}{
		{"before the effect, and the signal comes later", false, 20 * time.Second},
		{"after the effect, and the signal comes later", true, 20 * time.Second},
		{"after the effect, and the signal comes first", true, 0},
	} {
		writes := 1
		for at := 1; at <= writes; at++ {
			t.Run(fmt.Sprintf("write %d, %s", at, row.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := waitKiller{&killer{cluster: openCluster(t), t: t, at: at, after: row.after}}
					id := postOrder(t, k)
					if row.delay == 0 && pay(t, k, id) != jobs.SignalKept {
						t.Error("a signal before the wait is not kept")
					}
					o := options(k, orderFlow(t, func() []flow.Node {
						return []flow.Node{do("reserve", well), flow.Signal[payment]("paid", flow.WaitFor(time.Hour)), flow.Sleep("rest", time.Minute), do("ship", well)}
					}))
					o.TTL = ttl
					_, run := made(t, o)
					run()
					if row.delay > 0 {
						time.Sleep(row.delay)
						if answer := pay(t, k, id); answer != jobs.SignalTaken {
							t.Errorf("a signal for a step that waits is %s", answer)
						}
					}
					time.Sleep(3 * time.Minute) // longer than the flow takes, after any loss
					job := finished(t, k, id)
					result, _ := stepOf(detailOf(t, k, job), "paid").Result()
					if job.Outcome != jobs.OutcomeSuccess || string(result) != `{"amount":7}` || job.UnreadSignals != 0 || job.Failures != 0 {
						t.Errorf("the job is %s %s (%s) with %s, %d unread signals and %d failures", job.State, job.Outcome, job.Reason, result, job.UnreadSignals, job.Failures)
					}
					k.mu.Lock()
					writes = max(writes, k.writes)
					k.mu.Unlock()
				})
			})
		}
		if writes < 5 {
			t.Errorf("%s: there were %d writes to die at", row.name, writes)
		}
	}
}

// TestWaitHoldsNoClaim: the job of a flow that waits is on the board, with the reason and without an owner.
func TestWaitHoldsNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		id := postOrder(t, c)
		_, run := made(t, options(c, orderFlow(t, func() []flow.Node { return []flow.Node{flow.Signal[payment]("paid", flow.WaitFor(time.Hour))} })))
		run()
		time.Sleep(time.Second)
		job, err := c.Job(t.Context(), id)
		if err != nil || job.State != jobs.StateWaiting || job.Claim != nil || !strings.Contains(job.Reason, "step paid waits for signal paid since ") {
			t.Errorf("the job is %s, %v: %s, %v", job.State, job.Claim, job.Reason, err)
		}
		time.Sleep(time.Hour + time.Minute)
		if job = finished(t, c, id); job.Outcome != jobs.OutcomeReverted || job.Failure == nil || job.Failure.Kind != logbook.FailureTimeout {
			t.Errorf("after the limit the job is %s: %v", job.Outcome, job.Failure)
		}
	})
}

// TestOwnerTakesSignal: a signal for a job whose owner runs other steps continues the waiting step at once.
func TestOwnerTakesSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		id := postOrder(t, c)
		began := time.Now()
		var shipped time.Duration
		_, run := made(t, options(c, orderFlow(t, func() []flow.Node {
			return []flow.Node{flow.Unordered("both",
				do("long", func(context.Context) error { time.Sleep(time.Minute); return nil }),
				flow.Linear("paid and shipped", flow.Signal[payment]("paid"), do("ship", func(context.Context) error { shipped = time.Since(began); return nil })))}
		})))
		run()
		time.Sleep(10 * time.Second)
		if answer := pay(t, c, id); answer != jobs.SignalTaken {
			t.Errorf("the signal is %s", answer)
		}
		if job := finished(t, c, id); job.Outcome != jobs.OutcomeSuccess || shipped < 10*time.Second || shipped > 20*time.Second {
			t.Errorf("the job is %s, and shipped after %s", job.Outcome, shipped)
		}
	})
}
