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

// TestRetryNowCrash: the conductor dies before each update of a flow in which an operator ends all waits after a
// minute. No later owner waits again: the request has removed the times of the next attempts from the record, as the board
// does.
func TestRetryNowCrash(t *testing.T) {
	root := flow.Linear("f", act("first", fine), flow.Unordered("g", hurriedStep("fails", errors.New("woot")), hurriedStep("waits", flow.NotYet(2*time.Hour))), act("last", fine))
	for dies := range 100 {
		crashed := false
		synctest.Test(t, func(t *testing.T) {
			began, detail := time.Now(), newDetail()
			for left := dies; ; left = -1 {
				j := newJournal(detail)
				j.left = left
				end, err := runHurried(t, j, compile(t, root), time.Until(began.Add(time.Minute)))
				detail = j.snapshot()
				if errors.Is(err, errCrash) {
					crashed = true
					detail.Fence.Index++
					continue
				}
				if took := time.Since(began); err != nil || end.State != logbook.FlowSuccess || took > 2*time.Minute {
					t.Errorf("crash before update %d: %s after %s, %v", dies, end.State, took, err)
				}
				return
			}
		})
		if !crashed {
			return
		}
	}
	t.Error("the flow makes more updates than the test has crashes")
}

// hurriedStep ends in an error at its first call, and succeeds at the next one.
func hurriedStep(name string, first error) *flow.Step {
	return act(name, func(ctx context.Context) error {
		if call := flow.CallFrom(ctx); call.Try == 1 && call.Asked == 0 {
			return first
		}
		return nil
	}, flow.Retry(flow.Backoff{Attempts: 3, Delay: time.Hour}))
}

// runHurried runs a flow, and requests after a time that its waiting steps start. A request that comes late is already
// in the record.
func runHurried(t *testing.T, j *journal, plan *flow.Plan, after time.Duration) (engine.End, error) {
	requests, over := make(chan string, 1), make(chan struct{})
	request := func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		for i := range j.detail.Atoms {
			j.detail.Atoms[i].RetryAt = time.Time{}
		}
		requests <- ""
	}
	go func() { // ends with the run
		select {
		case <-time.After(after):
			request()
		case <-over:
		}
	}()
	defer close(over)
	detail := j.snapshot()
	end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: detail, Journal: j, Workers: 3, Token: logbook.Token{Index: detail.Fence.Index + 1}, RetryNow: requests})
	if err == nil && end.Update != nil {
		err = j.apply(*end.Update)
	}
	return end, err
}

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
