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

// TestTimesComeFromTheCallersClock: every time in the record comes from Now, and waits use the
// same clock, on any machine.
func TestTimesComeFromTheCallersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		plan := compile(t, flow.Linear("f", act("a", func(ctx context.Context) error {
			call := flow.CallFrom(ctx)
			if err := call.Progress(1, 2, nil); err != nil {
				return err
			}
			<-time.After(3 * time.Second)
			if call.Attempt == 1 {
				return errors.New("woot")
			}
			return nil
		}, flow.Retry(flow.Backoff{Attempts: 2, Delay: time.Hour}))))
		for _, off := range []time.Duration{-year, year} {
			detail := newDetail()
			began := time.Now().Add(off)
			var told []time.Time
			run := func() engine.End {
				j := newJournal(detail)
				end, err := engine.Run(t.Context(), engine.Options{
					Plan: plan, Detail: detail, Token: logbook.Token{Index: detail.Fence.Index + 1}, Journal: j, MaxIdle: time.Minute,
					Now: func() time.Time { return time.Now().Add(off).Round(0) },
					Observe: func(e engine.Event) {
						if e.Progress != nil {
							told = append(told, e.Progress.At, e.Time)
						}
					},
				})
				if err == nil && end.Update != nil {
					err = j.apply(*end.Update)
				}
				if err != nil {
					t.Fatal(err)
				}
				detail = j.snapshot()
				return end
			}
			end := run()
			if len(told) == 0 || !told[0].Equal(began) || told[1].Sub(began) != time.Second {
				t.Errorf("off by %v: progress was recorded %v, want a second after %v", off, told, began)
			}
			due := began.Add(time.Hour + 3*time.Second)
			attempt := detail.Atoms[0].Attempts[0]
			if !attempt.StartedAt.Equal(began) || attempt.EndedAt.Sub(began) != 3*time.Second || !end.WaitUntil.Equal(due) || end.Wait != time.Hour {
				t.Errorf("off by %v: %+v, %+v", off, end, attempt)
			}
			time.Sleep(end.Wait - time.Second) // another owner comes a little early
			if end = run(); end.State != logbook.FlowSuccess || !detail.Atoms[0].Attempts[1].StartedAt.Equal(due) {
				t.Errorf("off by %v: it goes on with %+v: %+v", off, end, detail.Atoms[0].Attempts)
			}
		}
	})
}
