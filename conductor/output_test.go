package conductor_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs/steplog"
)

// veiled is a logbook that encrypts texts.
type veiled struct{ cluster }

func (veiled) EncryptText(text string) string { return "veiled " + text }

// TestLogs: the log lines of a Go step can be read while it runs, with attempt and time. They
// are encrypted if the logbook encrypts.
func TestLogs(t *testing.T) {
	for name, encrypts := range map[string]bool{"": false, "veiled ": true} {
		synctest.Test(t, func(t *testing.T) {
			c, read := openCluster(t), make(chan struct{})
			factory := factories{"f": func() ([]flow.Node, error) {
				return []flow.Node{do("a", func(ctx context.Context) error {
					flow.Logger(ctx).Info("tries", "attempt", flow.CallFrom(ctx).Attempt)
					<-read
					if flow.CallFrom(ctx).Attempt == 1 {
						return errors.New("no")
					}
					return nil
				}, flow.Retry(flow.Backoff{Attempts: 2}))}, nil
			}}
			o := options(c, factory.registry(t))
			if o.Logs = steplog.New("n1"); encrypts {
				o.Client = veiled{c}
			}
			running(t, o)
			job := post(t, c, "f", nil)
			query := steplog.Query{Job: job.ID}
			for attempt := range 2 {
				var page steplog.Page
				until(t, "there is a line", func() (read bool) { page, _, _ = o.Logs.Read(query); return len(page.Lines) > 0 })
				line := page.Lines[0]
				want := name + `level=INFO msg=tries attempt=` + string('1'+rune(attempt))
				if line.Text != want || line.Step != "a" || line.Attempt != attempt+1 || line.Time.Before(job.PostedAt) || !page.Running {
					text, _ := json.Marshal(page)
					t.Errorf("%s; want %q", text, want)
				}
				query.After = page.Next
				read <- struct{}{}
			}
			finished(t, c, job.ID)
			until(t, "the run has ended", func() bool { page, _, _ := o.Logs.Read(query); return !page.Running })
		})
	}
}
