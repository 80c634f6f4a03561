package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// end reports the end of an attempt until it is recorded.
func (w *handWorker) end(o steps.Outcome) {
	w.Helper()
	for recorded := false; !recorded; {
		var err error
		if recorded, err = w.client.ReportStep(w.ctx, w.session, o, 10*time.Second); err != nil {
			w.Fatal(err)
		}
	}
}

// TestWorkersSendSignals: the cluster sends the signals of a worker's report once, with the record of the result, also when the
// step's conductor was killed before. A report that ends in another way, or has too many signals, is refused.
func TestWorkersSendSignals(t *testing.T) {
	t.Parallel()
	f, ctx := openField(t), within(t)
	waiting := f.runFlow("[[steps]]\nname = \"payment\"\nwait = {signal = \"paid\", timeout = \"1h\"}")
	w := f.byHand(ctx, "one")
	job := f.run("name = \"charge\"\nhandler = \"import\"")
	id := w.pull().ID
	sends := func(n int) (sends []logbook.Sending) {
		for range n {
			sends = append(sends, logbook.Sending{Job: waiting, Signal: &logbook.Signal{Name: "paid", Data: []byte(`{"amount":7}`), By: "job forged"}})
		}
		return sends
	}
	failed := steps.Outcome{ID: id, Done: true, Failure: &logbook.Failure{Kind: "error", Message: "no"}, Sends: sends(1)}
	w.refused(failed, jobs.ErrInvalid, "sends")
	w.refused(steps.Outcome{ID: id, Sends: sends(1)}, jobs.ErrInvalid, "sends")
	w.refused(steps.Outcome{ID: id, Done: true, Result: []byte("1"), Sends: sends(logbook.MaxSends + 1)}, jobs.ErrLimit, fmt.Sprint(logbook.MaxSends))

	holder, _ := runsAt(t, f.cluster, job, f.all)
	holder.Kill()
	done := steps.Outcome{ID: id, Done: true, Result: []byte("1"), Sends: sends(2)}
	w.end(done)
	w.end(done) // a late repeat
	f.ends(job, jobs.OutcomeSuccess)
	f.ends(waiting, jobs.OutcomeSuccess)
	if got := ran(t, "step", "wait", waiting+"/payment", f.all); !sameJSON(t, got, `{"amount": 7}`) {
		t.Errorf("the wait has %s", got)
	}
	var answers []string
	for _, sent := range f.attempt(ctx, job).Sends {
		answers = append(answers, sent.Answer+" by "+sent.Signal.By)
	}
	if want := "[taken by job " + job + " kept by job " + job + "]"; fmt.Sprint(answers) != want {
		t.Errorf("the answers are %s, want %s", answers, want)
	}
}

// attempt is the last attempt of the only step of a job.
func (f *field) attempt(ctx context.Context, job string) logbook.Attempt {
	f.Helper()
	id, err := jobs.ParseJobID(job)
	if err != nil {
		f.Fatal(err)
	}
	found, err := f.client.Job(ctx, id)
	if err != nil {
		f.Fatal(err)
	}
	detail, err := f.client.FlowDetail(ctx, found.Flow)
	if err != nil {
		f.Fatal(err)
	}
	attempts := detail.Atoms[0].Attempts
	return attempts[len(attempts)-1]
}
