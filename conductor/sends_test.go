package conductor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// tells makes a step that sends a signal to the job with the key order-7. Its first execution fails.
func tells() *flow.Step {
	executed := 0
	return flow.Func("tell", func(ctx context.Context, _ struct{}) (struct{}, error) {
		flow.CallFrom(ctx).SignalKey("", "order-7", logbook.Signal{Name: "paid"})
		if executed++; executed == 1 {
			return struct{}{}, errors.New("busy")
		}
		return struct{}{}, nil
	}, flow.Retry(flow.Backoff{Attempts: 5, Delay: time.Second}))
}

// TestSendsOutliveTheOwner: a step that is tried again sends its signal once, whatever write the owner of its job dies at.
func TestSendsOutliveTheOwner(t *testing.T) {
	for _, after := range []bool{false, true} {
		writes := 1
		for at := 1; at <= writes; at++ {
			t.Run(fmt.Sprintf("write %d, after the effect %t", at, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := waitKiller{&killer{cluster: openCluster(t), t: t, at: at, after: after}}
					target := postOne(t, k, jobs.Posting{Name: "target", Kind: "target", Key: "order-7"}).ID
					id := postOrder(t, k)
					o := options(k, orderFlow(t, func() []flow.Node { return []flow.Node{tells(), do("ship", well)} }))
					o.TTL = ttl
					_, run := made(t, o)
					run()
					job := finished(t, k, id)
					got, err := k.Job(t.Context(), target)
					if err != nil || job.Outcome != jobs.OutcomeSuccess || got.UnreadSignals != 1 {
						t.Errorf("the sender is %s, and the target has %d signals, %v; want 1", job.Outcome, got.UnreadSignals, err)
					}
					atom := stepOf(detailOf(t, k, job), "tell")
					if sends := atom.Attempts[len(atom.Attempts)-1].Sends; len(sends) != 1 || sends[0].Answer != "kept" {
						t.Errorf("the record has %+v", sends)
					}
					k.mu.Lock()
					writes = max(writes, k.writes)
					k.mu.Unlock()
				})
			})
		}
		if writes < 3 {
			t.Errorf("there were %d writes to die at", writes)
		}
	}
}

// TestBadSendFailsTheStep: a signal that no board accepts fails its step, and the error names the limit.
func TestBadSendFailsTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		id := postOrder(t, c)
		_, run := made(t, options(c, orderFlow(t, func() []flow.Node {
			return []flow.Node{flow.Func("tell", func(ctx context.Context, _ struct{}) (struct{}, error) {
				for range logbook.MaxSends + 1 {
					flow.CallFrom(ctx).Signal(id.String(), logbook.Signal{Name: "paid"})
				}
				return struct{}{}, nil
			})}
		})))
		run()
		if job := finished(t, c, id); job.Outcome != jobs.OutcomeReverted || job.Failure == nil || job.Failure.Kind != logbook.FailureResult || !strings.Contains(job.Failure.Message, "17") {
			t.Errorf("the job is %s: %v", job.Outcome, job.Failure)
		}
	})
}
