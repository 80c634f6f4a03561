package fsm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// wrong lets bob release a job with a failure.
func (r *rig) wrong(job string, failure *v1.Failure) {
	r.Helper()
	e := ending(job, r.claimedAgain("bob", id(job)))
	e.Failure = failure
	r.ok(abandon(e))
}

// errors returns the errors that a query selects, as "job how: message".
func (r *rig) errors(query jobs.ErrorQuery) []string {
	r.Helper()
	var told []string
	for {
		page, err := r.Errors(query)
		if err != nil {
			r.Fatal(err)
		}
		for i := range page.Items {
			told = append(told, fmt.Sprintf("%s %s: %s", page.Items[i].Name, page.Items[i].How, page.Items[i].Failure.Message))
		}
		if page.Next == "" {
			return told
		}
		query.After = page.Next
	}
}

func TestErrorsTellWhatWentWrong(t *testing.T) {
	for _, row := range []struct {
		name string
		end  func(r *rig)
		want []string
	}{
		{"given back without a failure", func(r *rig) { r.ok(abandon(ending("a", r.begin(flowPosting("a"), "flow of a")))) }, nil},
		{"a success", func(r *rig) {
			e := success("a", r.begin(flowPosting("a"), "flow of a"))
			e.Update = update("flow of a", tokenOf(e), 2, "success")
			r.ok(consume(e))
		}, nil},
		{"cancelled", func(r *rig) { r.posted(posting("a", "k")); r.ok(cancel(said())) }, nil},
		{"lost", func(r *rig) {
			r.begin(flowPosting("a"), "flow of a")
			r.ok(expire("bob", r.TimerEpoch(), time.Second, 0))
		}, []string{"a crashed: its owner bob vanished"}},
		{"lost under an order to cancel", func(r *rig) {
			r.claimed("bob", posting("a", "k"))
			r.ok(cancel(said()))
			r.ok(expire("bob", r.TimerEpoch(), time.Second, 0))
		}, []string{"a crashed: its owner bob vanished"}},
		{"lost too often", func(r *rig) {
			r.begin(flowPosting("a"), "flow of a")
			r.ok(expire("bob", r.TimerEpoch(), time.Second, 1))
		}, []string{"a crashed: its owner was lost 1 times; the last owner was bob"}},
		{"trashed with a reason", func(r *rig) {
			e := ending("a", r.begin(flowPosting("a"), "flow of a"))
			e.Reason = "nobody can"
			r.ok(trash(e))
		}, []string{"a trashed: nobody can"}},
		{"trashed", func(r *rig) { r.ok(trash(ending("a", r.claimed("bob", posting("a", "k"))))) },
			[]string{"a trashed: the job was trashed, without a reason"}},
		{"undone", func(r *rig) {
			e := ending("a", r.begin(flowPosting("a"), "flow of a"))
			u := update("flow of a", tokenOf(e), 2, "reverting")
			u.Cause = sampleFailure("snow")
			r.ok(updateFlow(u))
			e.Outcome, e.Update = "reverted", update("flow of a", tokenOf(e), 3, "reverted")
			r.ok(consume(e))
		}, []string{"a reverted: snow"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.ok(beginLeadership())
			r.ok(open("bob"))
			row.end(r)
			if got := r.errors(jobs.ErrorQuery{}); fmt.Sprint(got) != fmt.Sprint(row.want) {
				t.Errorf("told %q, not %q", got, row.want)
			}
			if err := fsm.Verify(r.Machine); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestErrorsAreBounded: errors are limited in number and length, and are removed with their job.
func TestErrorsAreBounded(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	p := posting("a", "k")
	p.Key = "one"
	r.posted(p)
	for i := range jobs.MaxJobErrors + 2 {
		r.wrong("a", sampleFailure(fmt.Sprint("snow ", i)))
	}
	query := jobs.ErrorQuery{Job: jobID(id("a"))}
	got := r.errors(query)
	if len(got) != jobs.MaxJobErrors || got[0] != fmt.Sprintf("a abandoned: snow %d", jobs.MaxJobErrors+1) || got[len(got)-1] != "a abandoned: snow 2" {
		t.Errorf("%d errors are kept, from %q", len(got), got)
	}
	long := &v1.Failure{Kind: "weather", Message: strings.Repeat("ß", fsm.MaxErrorText), Stack: strings.Repeat("s", fsm.MaxErrorText)}
	for range 20 {
		long.Causes = append(long.Causes, &v1.Failure{Kind: "cause", Message: strings.Repeat("c", fsm.MaxErrorText), Stack: "deep"})
	}
	r.wrong("a", long)
	page, err := r.Errors(query)
	if err != nil {
		t.Fatal(err)
	}
	kept := page.Items[0].Failure
	size := len(kept.Message) + len(kept.Stack)
	for _, cause := range kept.Causes {
		size += len(cause.Message) + len(cause.Stack)
	}
	if !page.Items[0].Abridged || size > fsm.MaxErrorText || len(kept.Causes) == 0 || kept.Causes[0].Message == "" {
		t.Errorf("of a long failure %d bytes are kept, and %d causes", size, len(kept.Causes))
	}
	if page.Items[1].Abridged {
		t.Error("a short failure is said to be abridged")
	}
	if whole := r.job(id("a")).Failure; len(whole.Causes) != 20 {
		t.Errorf("with the job are %d causes", len(whole.Causes))
	}
	r.wrong("a", &v1.Failure{Kind: "weather", Details: []*v1.NamedValue{{Name: "long", Value: &v1.Value{Json: []byte(`"` + strings.Repeat("d", fsm.MaxErrorText) + `"`)}}}})
	if long, err := r.Errors(query); err != nil || !long.Items[0].Abridged || len(long.Items[0].Failure.Details) != 0 {
		t.Errorf("of details that are too long is kept %+v, %v", long.Items[0], err)
	}
	r.ok(cancel(said()))
	r.now = r.now.Add(time.Hour)
	r.ok(sweep(r.TimerEpoch(), time.Minute, 0, 10))
	if got := r.errors(jobs.ErrorQuery{}); len(got) != 0 {
		t.Errorf("errors have outlived their job: %q", got)
	}
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
}

// TestErrorPagesAreBounded: the search for a rare code among many errors reads a limited number of
// rows per page, and a search by time starts at that time.
func TestErrorPagesAreBounded(t *testing.T) {
	longtest.Skip(t)
	r := newRig(t)
	r.ok(beginLeadership())
	for posted := 0; posted <= fsm.MaxErrorsExamined; posted += jobs.MaxClaims {
		r.now = r.now.Add(time.Second)
		var many []*v1.Posting
		for i := range jobs.MaxClaims {
			many = append(many, posting(fmt.Sprint("job ", posted+i), "k"))
		}
		session := fmt.Sprint("session ", posted)
		r.ok(post(many...))
		r.ok(open(session))
		r.ok(claimNext(session, session, jobs.MaxClaims, nil, nil))
		r.ok(expire(session, r.TimerEpoch(), time.Hour, 0))
	}
	code, one := 99, start.Add(time.Second)
	page, err := r.Errors(jobs.ErrorQuery{Code: &code})
	if err != nil || len(page.Items) != 0 || page.Next == "" || !page.Scans {
		t.Errorf("a page of %d errors, next %v, scans %t (%v)", len(page.Items), page.Next, page.Scans, err)
	}
	for _, query := range []jobs.ErrorQuery{{To: one.Add(time.Second)}, {To: one.Add(1), Board: "default"}} {
		page, err := r.Errors(query)
		if err != nil || len(page.Items) != jobs.MaxClaims || page.Next != "" || !page.Items[0].At.Equal(one) {
			t.Errorf("up to the first: %d errors, next %v (%v)", len(page.Items), page.Next, err)
		}
	}
	if got := r.errors(jobs.ErrorQuery{From: r.now}); len(got) != jobs.MaxClaims {
		t.Errorf("from the last on: %d errors", len(got))
	}
}

func tokenOf(e *v1.Ending) logbook.Token { return command.TokenFromProto(e.Token) }
