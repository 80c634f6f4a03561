package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestRetryNow: a request starts the named waiting step before it is due, or all waiting steps: after a
// failed try, and after a "not yet".
func TestRetryNow(t *testing.T) {
	for _, row := range []struct {
		request []string // after one and two minutes
		want    map[string]time.Duration
	}{
		{nil, map[string]time.Duration{"fails": time.Hour, "waits": 2 * time.Hour}},
		{[]string{""}, map[string]time.Duration{"fails": time.Minute, "waits": time.Minute}},
		{[]string{"waits"}, map[string]time.Duration{"fails": time.Hour, "waits": time.Minute}},
		{[]string{"nothing", "fails"}, map[string]time.Duration{"fails": 2 * time.Minute, "waits": 2 * time.Hour}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			began, done := time.Now(), map[string]time.Duration{}
			second := func(name string, first error) *flow.Step {
				return act(name, func(ctx context.Context) error {
					if call := flow.CallFrom(ctx); call.Try == 1 && call.Asked == 0 {
						return first
					}
					mu.Lock()
					defer mu.Unlock()
					done[name] = time.Since(began)
					return nil
				}, flow.Retry(flow.Backoff{Attempts: 2, Delay: time.Hour}))
			}
			requests := make(chan string)
			go func() { // ends with its requests, which the run takes
				for _, step := range row.request {
					time.Sleep(time.Minute)
					requests <- step
				}
			}()
			plan := compiled(t, flow.Unordered("f", second("fails", errors.New("woot")), second("waits", flow.NotYet(2*time.Hour))))
			end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: newDetail(), Journal: newJournal(newDetail()), Token: logbook.Token{Index: 1}, RetryNow: requests})
			if err != nil || end.State != logbook.FlowSuccess || len(done) != 2 || done["fails"] != row.want["fails"] || done["waits"] != row.want["waits"] {
				t.Errorf("%q: %s after %v, %v; want %v", row.request, end.State, done, err, row.want)
			}
		})
	}
}
