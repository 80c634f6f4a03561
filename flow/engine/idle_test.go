package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestRunsThatOnlyWaitEnd: the run ends with the flow unchanged. The next run waits for the
// remaining time, in place if that is short.
func TestRunsThatOnlyWaitEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flaky := act("a", func(ctx context.Context) error {
			if flow.CallFrom(ctx).Attempt == 1 {
				return errors.New("woot")
			}
			return nil
		}, flow.Retry(flow.Backoff{Attempts: 2, Delay: time.Hour}))
		short := act("b", func(context.Context) error { <-time.After(time.Minute); return nil })
		plan := compile(t, flow.Unordered("f", flaky, short))
		detail, began := newDetail(), time.Now()
		for _, row := range []struct {
			maxIdle time.Duration
			state   logbook.FlowState
			until   time.Duration // since it began; 0: it has ended
			took    time.Duration // since it began
		}{
			{30 * time.Second, logbook.FlowRunning, time.Hour, time.Minute}, // b is awaited
			{30 * time.Second, logbook.FlowRunning, time.Hour, time.Minute},
			{59 * time.Minute, logbook.FlowSuccess, 0, time.Hour},
		} {
			j := newJournal(detail)
			token := logbook.Token{Index: detail.Fence.Index + 1}
			end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: detail, Token: token, Journal: j, MaxIdle: row.maxIdle})
			if err == nil && end.Update != nil {
				err = j.apply(*end.Update)
			}
			detail = j.snapshot()
			var until time.Duration
			if !end.WaitUntil.IsZero() {
				until = end.WaitUntil.Sub(began)
			}
			if took := time.Since(began); err != nil || end.State != row.state || detail.State != row.state || until != row.until || took != row.took {
				t.Errorf("after %s: %+v, %v; the record says %s", took, end, err, detail.State)
			}
			if row.until > 0 && end.WaitFor != "a" {
				t.Errorf("it waits for %q", end.WaitFor)
			}
		}
	})
}
