package dashboard_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// claimed posts a job to a board and claims it in its own session.
func (s *site) claimed(board, name string, retry *jobs.RetryPolicy) jobs.Job {
	s.t.Helper()
	return s.claim(jobs.Posting{Board: board, Name: name, Kind: "work", Retry: retry})
}

// claim posts a job of kind "work" and claims it in its own session.
func (s *site) claim(posting jobs.Posting) jobs.Job {
	s.t.Helper()
	ctx, session := s.t.Context(), jobs.NewSessionID()
	if _, err := s.operator.OpenSession(ctx, jobs.Opening{ID: session, Name: "worker", TTL: time.Minute}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := jobs.PostOne(ctx, s.operator, posting); err != nil {
		s.t.Fatal(err)
	}
	claimed, err := s.operator.ClaimNext(ctx, jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Boards: []string{posting.Board}, Kinds: []string{"work"}, Max: 1})
	if err != nil || len(claimed) != 1 {
		s.t.Fatal(err, claimed)
	}
	return claimed[0].Job
}

// The lists of jobs that need an operator show the reasons, and offer the permitted operations.
func TestTrashPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	for _, board := range []string{"one", "two"} {
		broken := s.claimed(board, "broken on "+board, nil)
		if err := s.operator.Trash(ctx, jobs.Ending{Job: broken.ID, Token: broken.Token, Reason: "no handler <paint>"}); err != nil {
			t.Fatal(err)
		}
	}
	parked := s.claimed("one", "weary", &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 1}, OnFailure: jobs.FailureParks})
	if err := s.operator.Consume(ctx, jobs.Ending{Job: parked.ID, Token: parked.Token, Outcome: jobs.OutcomeFailed, Reason: "mail is down"}); err != nil {
		t.Fatal(err)
	}
	suspended := s.claimed("one", "weary too", &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 1}, OnFailure: jobs.FailureParks})
	if err := s.operator.Consume(ctx, jobs.Ending{Job: suspended.ID, Token: suspended.Token, Outcome: jobs.OutcomeFailed, Reason: "mail is down"}); err != nil {
		t.Fatal(err)
	}
	if err := s.operator.Suspend(ctx, jobs.JobCommand{Job: suspended.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.PostOne(ctx, s.operator, jobs.Posting{Board: "one", Name: "merely held", Kind: "work", Hold: true}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		who, path string
		has, not  []string
	}{
		{"viewer", "trash", []string{"broken on one", "no handler &lt;paint&gt;", "conductord trash list --board one"}, []string{"broken on two", `method="post" action="/dashboard/jobs`, "To all of them"}},
		{"operator", "trash", []string{"broken on one", "/retry\"", "bulk/purge?", "state=trashed"}, []string{"broken on two", "bulk/cancel"}},
		{"blind", "trash", []string{"broken on one", "broken on two"}, nil},
		{"blind", "trash?board=two", []string{"broken on two"}, []string{"broken on one"}},
		{"operator", "parked", []string{"weary", "mail is down", "weary too", "bulk/retry?board=one&amp;state=held%2Csuspended", "--state held,suspended"}, []string{"merely held", "bulk/cancel", "broken"}},
		{"viewer", "parked", []string{"weary"}, []string{"merely held", `method="post" action="/dashboard/jobs`}},
	} {
		response, text := s.request(http.MethodGet, row.who, "/dashboard/"+row.path, nil)
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s of %s: status %d", row.path, row.who, response.StatusCode)
		}
		s.holds(text, row.path+" of "+row.who, row.has, row.not)
	}
	if response, text := s.request(http.MethodPost, "operator", "/dashboard/bulk/retry?board=one&state=held,suspended", nil); response.StatusCode != http.StatusSeeOther {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
	for _, id := range []jobs.JobID{parked.ID, suspended.ID} {
		if now, err := s.operator.Job(ctx, id); err != nil || now.Parked {
			t.Errorf("job %s is parked after its retry (%v)", now.Name, err)
		}
	}
}

// The overview has one card with the counts that need attention, and draws successes and
// failures.
func TestOverviewCounts(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	for range 3 {
		job := s.claimed("one", "broken", nil)
		if err := s.operator.Consume(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Outcome: jobs.OutcomeFailed, Reason: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	good, trashed := s.claimed("one", "good", nil), s.claimed("one", "lost", nil)
	if err := errors.Join(s.operator.Consume(ctx, jobs.Ending{Job: good.ID, Token: good.Token, Outcome: jobs.OutcomeSuccess}), s.operator.Trash(ctx, jobs.Ending{Job: trashed.ID, Token: trashed.Token, Reason: "x"})); err != nil {
		t.Fatal(err)
	}
	_, text := s.request(http.MethodGet, "admin", "/dashboard/", nil)
	s.holds(text, "the overview", []string{
		"Needs attention: 2", "Failed jobs: 3, which are not reverted", "Trashed jobs: 1, which no conductor could run",
		"Jobs in each 5 min: 5 posted, 1 succeeded, 4 failed", "5 posted · ", "1 succeeded · ", "4 failed, reverted or trashed", "ago</span> <span>now</span>",
	}, nil)
}

// holds returns the wanted parts that a page lacks, and the unwanted parts that it has.
func (s *site) holds(text, what string, has, not []string) {
	s.t.Helper()
	_, main, _ := strings.Cut(text, "<body")
	for _, part := range has {
		if !strings.Contains(main, part) {
			s.t.Errorf("%s does not show %q:\n%s", what, part, main)
		}
	}
	for _, part := range not {
		if strings.Contains(main, part) {
			s.t.Errorf("%s shows %q:\n%s", what, part, main)
		}
	}
}

// The pages of schedules show their slots, and operations on a schedule carry the user's name.
func TestSchedulePages(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	ref := schedules.Ref{Board: "one", Name: "night/ly"}
	save := func(board string) {
		t.Helper()
		if _, err := s.operator.SaveSchedule(ctx, schedules.Schedule{
			Board: board, Name: ref.Name, Rule: "0 3 * * *", Zone: "Europe/Berlin", Overlap: schedules.OverlapAllow, Posting: jobs.Posting{Kind: "work"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	save("one")
	save("two")
	stands := func() string {
		report, err := s.operator.Schedule(ctx, ref, schedules.Look{History: 100})
		if err != nil {
			return "gone"
		}
		said := fmt.Sprintf("%d posted", report.Schedule.Posted)
		if pause := report.Schedule.Pause; pause != nil {
			said += ", paused by " + pause.By + ": " + pause.Reason
		}
		return said
	}
	const page = "schedules/one/night%2Fly"
	for _, row := range []struct {
		who, path string
		form      url.Values // not nil: the form is sent
		status    int
		has, not  []string
		stands    string
	}{
		{"viewer", "schedules", nil, 200, []string{`/schedules/one/night%2Fly"`, "Europe/Berlin", "schedule list --board one"}, []string{"/schedules/two/"}, "0 posted"},
		{"blind", "schedules", nil, 200, []string{"/schedules/two/"}, nil, "0 posted"},
		{"viewer", page, nil, 200, []string{"<code>0 3 * * *</code>", "No slots yet", "allow", "conductord schedule show --board one night/ly"}, []string{`method="post" action="/dashboard/schedules`}, "0 posted"},
		{"viewer", page + "/run", url.Values{}, 403, nil, nil, "0 posted"},
		{"operator", page, nil, 200, []string{`/run"`, `/pause"`, `/backfill"`, `type="datetime-local"`}, []string{`/resume"`}, "0 posted"},
		{"operator", page + "/run", url.Values{}, 303, nil, nil, "1 posted"},
		{"operator", page, nil, 200, []string{"run by operator", `href="/dashboard/jobs/`}, nil, "1 posted"},
		{"operator", page + "/pause", url.Values{"reason": {"moving"}}, 303, nil, nil, "1 posted, paused by operator: moving"},
		{"operator", page, nil, 200, []string{"Paused by operator", "moving", `/resume"`, "if you resume the schedule now"}, []string{`/pause"`}, "1 posted, paused by operator: moving"},
		{"operator", page + "/resume", url.Values{}, 303, nil, nil, "1 posted"},
		{"operator", page + "/backfill", url.Values{"from": {"2026-01-01T00:00"}, "to": {"2026-01-04T00:00"}}, 303, nil, nil, "4 posted"},
		{"operator", page + "/backfill", url.Values{"from": {"yesterday"}, "to": {"2026-01-04T00:00"}}, 400, []string{"field from is"}, nil, "4 posted"},
		{"operator", page + "/backfill", url.Values{"from": {"1990-01-01T00:00"}, "to": {"2026-01-04T00:00"}}, 429, []string{"1000"}, nil, "4 posted"},
		{"operator", "schedules/one/none", nil, 404, []string{"not found", `/dashboard/errors/not_found"`}, nil, "4 posted"},
		{"viewer", "errors/not_found", nil, 200, []string{"The object does not exist", "<li>The id is wrong", "gRPC <code>not_found</code>", "conductord job list", "conductord error not_found"}, []string{"`"}, "4 posted"},
		{"viewer", "errors/none", nil, 404, []string{"there is no error code"}, nil, "4 posted"},
		{"operator", page + "/delete", url.Values{}, 303, nil, nil, "gone"},
	} {
		method := http.MethodGet
		if row.form != nil {
			method = http.MethodPost
		}
		response, text := s.request(method, row.who, "/dashboard/"+row.path, row.form)
		if have := stands(); response.StatusCode != row.status || have != row.stands {
			t.Errorf("%s by %s: status %d and %q, want %d and %q\n%s", row.path, row.who, response.StatusCode, have, row.status, row.stands, text)
		}
		s.holds(text, row.path+" of "+row.who, row.has, row.not)
	}
}
