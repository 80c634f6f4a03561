package dashboard_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// maxPage is the bound of a page, in bytes.
const maxPage = 300 << 10

// long is a name of nearly the maximum length; each of its bytes takes five bytes in HTML.
func long(i int) string { return fmt.Sprintf("%s%03d", strings.Repeat(`"`, 245), i) }

// crowd fills a cluster with long names, and returns jobs whose pages show most of them.
func (s *site) crowd() map[string]jobs.JobID {
	s.t.Helper()
	ctx := s.t.Context()
	do := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	tags := func() (all []string) {
		for i := range jobs.MaxTags {
			all = append(all, fmt.Sprintf("%s%02d", strings.Repeat(`"`, jobs.MaxTagBytes/jobs.MaxTags-3), i))
		}
		return all
	}()
	store := map[string]json.RawMessage{}
	for i := range 450 {
		store[long(i)] = json.RawMessage(`"` + strings.Repeat(`\"`, 100) + `"`)
	}
	var postings []jobs.Posting
	for i := range 120 {
		postings = append(postings, jobs.Posting{ID: jobs.NewJobID(), Board: long(i), Name: long(i), Kind: long(i), Key: long(i), Tags: tags, Details: json.RawMessage(`"` + strings.Repeat(`\"`, 60_000) + `"`)})
	}
	for i := range 60 {
		postings = append(postings, jobs.Posting{ID: jobs.NewJobID(), Board: long(0), Name: long(i), Kind: long(i)})
	}
	whole := jobs.Posting{ID: jobs.NewJobID(), Board: long(0), Name: long(0), Kind: "work", Store: store, Tags: tags}
	for _, p := range append(postings, whole) {
		posted, err := s.operator.Post(ctx, p)
		do(err)
		do(posted[0].Err)
	}
	session := jobs.NewSessionID()
	_, err := s.operator.OpenSession(ctx, jobs.Opening{ID: session, Name: long(0), Host: long(0), TTL: time.Hour})
	do(err)
	for i := range 70 {
		for _, kind := range []string{jobs.EntityConductor, jobs.EntityWorker} {
			do(s.operator.Register(ctx, session, jobs.Entity{Kind: kind, Name: long(i), Boards: []string{long(i)}, JobKinds: []string{long(i)}, MaxJobs: 1}))
		}
		do(s.operator.DrainConductor(ctx, jobs.DrainCommand{Conductor: long(1_000 + i), Absent: true, Reason: strings.Repeat(`"`, logbook.MaxReason)}))
		_, err := s.operator.SaveSchedule(ctx, schedules.Schedule{Board: long(0), Name: long(i), Rule: "@daily", Posting: jobs.Posting{Kind: long(i)}})
		do(err)
		own := jobs.NewSessionID()
		_, err = s.operator.OpenSession(ctx, jobs.Opening{ID: own, Name: long(i), Host: long(0), TTL: time.Hour})
		do(err)
		claimed, err := s.operator.ClaimNext(ctx, jobs.ClaimRequest{Session: own, Nonce: jobs.NewNonce(), Boards: []string{long(i)}, Kinds: []string{long(i)}, Max: 1})
		do(err)
		if i < 60 {
			do(s.operator.Trash(ctx, jobs.Ending{Job: claimed[0].Job.ID, Token: claimed[0].Job.Token, Reason: strings.Repeat(`"`, logbook.MaxReason), Failure: failing()}))
		}
	}
	restless := s.claim(jobs.Posting{Board: long(0), Name: long(0), Kind: "work"})
	for range 25 {
		do(s.operator.Abandon(ctx, jobs.Ending{Job: restless.ID, Token: restless.Token, Reason: strings.Repeat(`"`, logbook.MaxReason), Failure: failing()}))
		claimed, err := s.operator.Claim(ctx, session, restless.ID, jobs.NewNonce())
		do(err)
		restless = claimed.Job
	}
	return map[string]jobs.JobID{"whole": whole.ID, "restless": restless.ID, "first": postings[0].ID, "flow": s.longFlow()}
}

func failing() *logbook.Failure {
	return &logbook.Failure{Kind: "x", Message: strings.Repeat(`"`, 2_000), Step: long(0)}
}

// longFlow posts a flow of steps with long names, all done or failed.
func (s *site) longFlow() jobs.JobID {
	s.t.Helper()
	ctx, book, flow := s.t.Context(), logbook.NewBookID(), logbook.NewFlowID()
	detail := logbook.FlowDetail{ID: flow, Name: long(0), Book: book, Factory: logbook.Factory{Name: "work"}}
	job := s.claim(jobs.Posting{Board: "flows", Name: long(0), Book: &logbook.Book{ID: book, Name: long(0), Flows: []logbook.FlowDetail{detail}}})
	update := logbook.Update{Flow: flow, Token: job.Token, Sequence: 1, State: logbook.FlowRunning}
	for i := range 100 {
		began := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, StartedAt: time.Now()}
		ended := began
		ended.EndedAt, ended.Failure = time.Now(), failing()
		update.Atoms = append(update.Atoms,
			logbook.AtomChange{Name: long(i), Kind: logbook.KindTask, State: logbook.AtomRunning, Attempts: []logbook.Attempt{began}},
			logbook.AtomChange{Name: long(i), State: logbook.AtomFailure, Attempts: []logbook.Attempt{ended}})
	}
	if verdicts, err := s.operator.Update(ctx, update); err != nil || verdicts[0] != nil {
		s.t.Fatal(err, verdicts)
	}
	return job.ID
}

// With any names, each page loads, has at most 300 KB, folds long texts, and links to omitted rows.
func TestPagesOfLongNames(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	crowd := s.crowd()
	board := url.PathEscape(long(0))
	paths := []string{
		"", "jobs", "jobs?board=" + url.QueryEscape(long(0)), "trash", "parked", "schedules", "schedules/" + board + "/" + board, "boards", "boards/" + board,
		"conductors", "conductors/" + board, "workers", "sessions", "claims", "cluster", "access", "audit", "api", "bulk/cancel?board=" + url.QueryEscape(long(0)),
		"flows/" + crowd["flow"].String() + "?step=" + url.QueryEscape(long(0)), "jobs?name=" + strings.Repeat("x", 9_000),
	}
	for _, id := range crowd {
		paths = append(paths, "jobs/"+id.String())
	}
	for _, path := range paths {
		response, text := s.request(http.MethodGet, "admin", "/dashboard/"+path, nil)
		if want := map[bool]int{true: http.StatusOK, false: http.StatusRequestURITooLong}[len(path) < 9_000]; response.StatusCode != want || len(text) > maxPage {
			t.Errorf("page %.40s: status %d, want %d, %d bytes: %.300s", path, response.StatusCode, want, len(text), text)
		}
	}
	for _, row := range []struct {
		page, row string
		rows      int
	}{
		{"boards", `<tr id="board-`, 122}, {"jobs", `<tr id="job-`, 183}, {"conductors", `<tr id="conductor-`, 70}, {"sessions", `<tr id="session-`, 73}, {"schedules", `<tr id="schedule-`, 70},
		{"claims", `<tr id="claim-`, 12}, {"trash", `<tr id="job-`, 60},
	} {
		seen, folded := map[string]bool{}, false
		for next := "/dashboard/" + row.page; next != ""; {
			_, text := s.request(http.MethodGet, "admin", next, nil)
			for _, one := range strings.Split(text, row.row)[1:] {
				id, _, _ := strings.Cut(one, `">`)
				seen[id] = true
			}
			folded = folded || regexp.MustCompile(`title="(&#34;){245}\d+">(&#34;){64}…<`).MatchString(text)
			more := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(text)
			if next = ""; more != nil {
				next = html.UnescapeString(more[1])
			}
		}
		if len(seen) != row.rows || !folded {
			t.Errorf("page %s and those after it have %d rows, want %d; long names are folded: %v", row.page, len(seen), row.rows, folded)
		}
	}
}
