package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/dashboard"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// conductor opens the session of a registered conductor, which holds a job of board "one".
func (s *site) conductor(name string) jobs.SessionID {
	s.t.Helper()
	ctx, session := s.t.Context(), jobs.NewSessionID()
	if _, err := s.operator.OpenSession(ctx, jobs.Opening{ID: session, Name: name, Host: "there", TTL: time.Minute}); err != nil {
		s.t.Fatal(err)
	}
	err := s.operator.Register(ctx, session, jobs.Entity{
		Kind: jobs.EntityConductor, Name: name, Boards: []string{"one", "two"}, JobKinds: []string{"work"}, Labels: []string{"gpu"}, MaxJobs: 4, Host: "there",
		Metadata: logbook.Values{"node": []byte(`"n1"`), "handlers": []byte(`["paint","<b>"]`)},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.post("one", "held")
	claimed, err := s.operator.ClaimNext(ctx, jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Boards: []string{"one"}, Kinds: []string{"work"}, Max: 1})
	if err != nil || len(claimed) != 1 {
		s.t.Fatal(err, claimed)
	}
	return session
}

// worker opens the session of a registered step worker.
func (s *site) worker(name string, boards ...string) {
	s.t.Helper()
	session := jobs.NewSessionID()
	if _, err := s.operator.OpenSession(s.t.Context(), jobs.Opening{ID: session, Name: name, TTL: time.Minute}); err != nil {
		s.t.Fatal(err)
	}
	if err := s.operator.Register(s.t.Context(), session, jobs.Entity{Kind: jobs.EntityWorker, Name: name, Boards: boards, JobKinds: []string{"resize"}, MaxJobs: 2}); err != nil {
		s.t.Fatal(err)
	}
}

// The pages of boards, conductors and the cluster show the visible objects, and offer the permitted
// operations.
func TestOperatorPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	s.post("two", "theirs")
	s.post("a/b c", "odd")
	session := s.conductor("worker 1").String()
	s.worker("hands of both", "one", "two")
	s.worker("hands of two", "two")
	if err := s.operator.LimitBoard(t.Context(), "one", jobs.BoardLimits{Jobs: 5_000}); err != nil {
		t.Fatal(err)
	}
	if err := s.operator.SaveQuota(t.Context(), access.Quota{Subject: access.Subject{Boards: "o*"}, Limits: access.Amounts{Jobs: 70}}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		who, path string
		status    int
		has, not  []string
	}{
		{"viewer", "boards", 200, []string{`/boards/one"`, "5\u2009000 unfinished jobs", "conductord board list"}, []string{`>two<`}},
		{"blind", "boards", 200, []string{`/boards/a%2Fb%20c"`, `>two<`}, nil},
		{"viewer", "boards/one", 200, []string{"at most 5\u2009000", `state=claimable`, "conductord board show one"}, []string{`method="post" action="/dashboard/boards`, "Quota of"}},
		{"viewer", "boards/two", 403, []string{"no permission to read"}, nil},
		{"blind", "boards/a%2Fb%20c", 200, []string{"a/b c", "conductord board show &#39;a/b c&#39;"}, nil},
		{"blind", "boards/one", 200, []string{"Quota of o*", "at most 70", "worker 1", "claims?session=" + session, `/boards/one/pause"`, `/boards/one/ageing"`}, []string{`/boards/one/limit"`, `/boards/one/resume"`}},
		{"admin", "boards/one", 200, []string{`/boards/one/limit"`, `value="5000"`}, []string{`/boards/one/delete"`}},
		{"blind", "boards/none", 404, []string{"not found"}, nil},
		{"viewer", "conductors", 200, []string{"worker 1", "one"}, []string{"two"}},
		{"blind", "conductors", 200, []string{`/conductors/worker%201"`, "one, two", "work", "gpu", "there", "1</a> of 4", "claims?session=" + session}, nil},
		{"viewer", "conductors/worker%201", 200, []string{"worker 1"}, []string{`/drain"`}},
		{"admin", "conductors/worker%201", 200, []string{"n1", "paint, &lt;b&gt;", `/conductors/worker%201/drain"`, "conductord conductor drain &#39;worker 1&#39;"}, []string{`/undrain"`}},
		{"viewer", "workers", 200, []string{"hands of both", "<td>one</td>", "silent", "0 of 2"}, []string{"hands of two", "data-live"}},
		{"blind", "workers", 200, []string{"hands of both", "<td>one, two</td>", "hands of two", "conductord worker list"}, nil},
		{"viewer", "sessions", 200, []string{"No sessions are visible to you"}, []string{session}},
		{"blind", "sessions", 200, []string{session, "worker 1", "1 min", "conductord session list"}, nil},
		{"viewer", "claims?board=two", 403, []string{"no permission to read"}, nil},
		{"viewer", "claims?session=" + session, 200, []string{"held", "--session " + session + " --board one"}, nil},
		{"blind", "claims?owner=worker+1", 200, []string{"held", "/dashboard/jobs/", "Claims of worker 1"}, []string{"data-live"}},
		{"viewer", "cluster", 200, []string{"n1", "1 of 1", "conductord cluster check"}, []string{`action="/dashboard/cluster`}},
		{"blind", "cluster", 200, []string{"n1"}, []string{`action="/dashboard/cluster`}},
		{"admin", "cluster", 200, []string{`/cluster/verify"`}, []string{`/cluster/transfer"`, `/cluster/remove"`, `/cluster/upgrade"`}},
	} {
		response, text := s.request(http.MethodGet, row.who, "/dashboard/"+row.path, nil)
		if response.StatusCode != row.status {
			t.Errorf("%s of %s: status %d, want %d\n%s", row.path, row.who, response.StatusCode, row.status, text)
		}
		_, main, _ := strings.Cut(text, "<body")
		for _, part := range row.has {
			if !strings.Contains(main, part) {
				t.Errorf("%s of %s does not show %q:\n%s", row.path, row.who, part, main)
			}
		}
		for _, part := range row.not {
			if strings.Contains(main, part) {
				t.Errorf("%s of %s shows %q:\n%s", row.path, row.who, part, main)
			}
		}
	}
}

// Each operation is performed as the principal, or refused with a reason.
func TestOperations(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	s.post("one", "mine")
	s.conductor("worker")
	if err := s.operator.CreateBoard(t.Context(), "empty"); err != nil {
		t.Fatal(err)
	}
	board := func() string {
		b, err := s.operator.BoardStatus(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(b.Limits, b.Ageing.Step)
		if b.Pause != nil {
			said += " " + b.Pause.By + ": " + b.Pause.Reason
		}
		return said
	}
	drains := func() string {
		all, err := s.operator.Drains(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, d := range all {
			said += fmt.Sprint(d.Conductor, " by ", d.By, ": ", d.Reason, d.Finish)
		}
		return said
	}
	boards := func() string {
		said := ""
		for b, err := range jobs.AllBoards(t.Context(), s.operator) {
			if said += b.Name + " "; err != nil {
				t.Fatal(err)
			}
		}
		return said
	}
	none := func() string { return "" }
	for _, row := range []struct {
		who, path string
		form      url.Values
		status    int
		look      func() string
		want      string
	}{
		{"viewer", "boards/one/pause", nil, 403, board, "{0 0 0} 0s"},
		{"operator", "boards/one/pause", url.Values{"reason": {"mail is down"}}, 303, board, "{0 0 0} 0s operator: mail is down"},
		{"operator", "boards/one/resume", nil, 303, board, "{0 0 0} 0s"},
		{"operator", "boards/one/ageing", url.Values{"step": {"1m"}}, 303, board, "{0 0 0} 1m0s"},
		{"operator", "boards/one/ageing", url.Values{"step": {"soon"}}, 400, board, "{0 0 0} 1m0s"},
		{"operator", "boards/one/ageing", nil, 303, board, "{0 0 0} 0s"},
		{"operator", "boards/one/limit", url.Values{"jobs": {"7"}}, 403, board, "{0 0 0} 0s"},
		{"admin", "boards/one/limit", url.Values{"jobs": {"7"}, "bytes": {"0"}, "rate": {"9"}}, 303, board, "{7 0 9} 0s"},
		{"admin", "boards/one/limit", url.Values{"jobs": {"many"}}, 400, board, "{7 0 9} 0s"},
		{"admin", "boards/one/delete", nil, 409, boards, "default empty one "},
		{"admin", "boards/empty/delete", nil, 303, boards, "default one "},
		{"admin", "boards/one/paint", nil, 404, board, "{7 0 9} 0s"},
		{"operator", "conductors/worker/drain", nil, 403, drains, ""},
		{"admin", "conductors/nobody/drain", nil, 404, drains, ""},
		{"admin", "conductors/worker/drain", url.Values{"reason": {"kernel"}, "finish": {"1"}}, 303, drains, "worker by admin: kerneltrue"},
		{"admin", "conductors/worker/undrain", nil, 303, drains, ""},
		{"admin", "conductors/nobody/drain", url.Values{"absent": {"1"}}, 303, drains, "nobody by admin: false"},
		{"blind", "cluster/verify", nil, 403, none, ""},
		{"admin", "cluster/verify", nil, 503, none, ""}, // no process listens at the address of the only member
		{"admin", "cluster/transfer", nil, 400, none, ""},
		{"admin", "cluster/transfer", url.Values{"node": {"n2"}}, 409, none, ""},
		{"admin", "cluster/promote", url.Values{"node": {"n2"}}, 404, none, ""},
		{"admin", "cluster/demote", url.Values{"node": {"n1"}}, 409, none, ""},
		{"admin", "cluster/remove", url.Values{"node": {"n1"}}, 409, none, ""},
		{"admin", "cluster/upgrade", nil, 303, none, ""},
	} {
		response, text := s.request(http.MethodPost, row.who, "/dashboard/"+row.path, row.form)
		if have := row.look(); response.StatusCode != row.status || have != row.want {
			t.Errorf("%s by %s: status %d and %q; want %d and %q\n%s", row.path, row.who, response.StatusCode, have, row.status, row.want, text)
		}
		if to := response.Header.Get("Location"); row.status == 303 {
			if next, _ := s.request(http.MethodGet, row.who, to, nil); next.StatusCode != 200 {
				t.Errorf("%s leads to %s, with status %d", row.path, to, next.StatusCode)
			}
		}
	}
	if _, text := s.request(http.MethodGet, "admin", "/dashboard/conductors", nil); !strings.Contains(text, `id="drain-nobody"`) {
		t.Errorf("the page does not show the drain of a name without a conductor:\n%s", text)
	}
}

// TestHandOver: the page of a claimed job offers the other conductors, and transfers the job to one
// of them.
func TestHandOver(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.post("one", "mine")
	s.conductor("from")
	s.conductor("to")
	path := "/dashboard/jobs/" + id.String()
	if _, page := s.request(http.MethodGet, "blind", path, nil); !strings.Contains(page, path+`/transfer"`) ||
		!strings.Contains(page, "<option>to</option>") || strings.Contains(page, "<option>from</option>") {
		t.Errorf("the page does not offer a hand-over to the other conductor alone:\n%s", page)
	}
	for _, row := range []struct {
		who, to string
		status  int
		want    string
	}{{"viewer", "to", 403, ""}, {"operator", "nobody", 404, ""}, {"operator", "", 400, ""}, {"operator", "to", 303, "transfer to to by operator: kernel"}} {
		response, text := s.request(http.MethodPost, row.who, path+"/transfer", url.Values{"to": {row.to}, "reason": {"kernel"}})
		job, err := s.operator.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		have := ""
		if r := job.StopRequest; r != nil {
			have = fmt.Sprintf("%s to %s by %s: %s", r.Kind, r.To, r.By, r.Reason)
		}
		if response.StatusCode != row.status || have != row.want {
			t.Errorf("to %q by %s: status %d and %q; want %d and %q\n%s", row.to, row.who, response.StatusCode, have, row.status, row.want, text)
		}
	}
}

// A read-only dashboard offers no operations, even to an administrator.
func TestReadOnlyOperations(t *testing.T) {
	t.Parallel()
	s := open(t, func(o *dashboard.Options) { o.ReadOnly = true })
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	s.conductor("worker")
	for path, act := range map[string]string{"boards/one": "pause", "conductors/worker": "drain", "cluster": "verify"} {
		if _, text := s.request(http.MethodGet, "admin", "/dashboard/"+path, nil); strings.Contains(text, ">Actions<") {
			t.Errorf("%s offers something:\n%s", path, text)
		}
		if response, _ := s.request(http.MethodPost, "admin", "/dashboard/"+path+"/"+act, nil); response.StatusCode != http.StatusForbidden {
			t.Errorf("%s/%s: status %d", path, act, response.StatusCode)
		}
	}
}

// Long lists are shown in pages of 50 rows. Together the pages have each row once.
func TestOperatorLists(t *testing.T) {
	t.Parallel()
	s := open(t)
	const rows = 120
	for i := range rows {
		name := fmt.Sprintf("many-%03d", i)
		session := jobs.NewSessionID()
		if _, err := s.operator.OpenSession(t.Context(), jobs.Opening{ID: session, Name: name, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if err := s.operator.Register(t.Context(), session, jobs.Entity{Kind: jobs.EntityConductor, Name: name, Boards: []string{"one"}}); err != nil {
			t.Fatal(err)
		}
		if err := s.operator.CreateBoard(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, list := range []string{"boards", "conductors", "sessions"} {
		seen, at := map[string]bool{}, "/dashboard/"+list
		for at != "" {
			_, text := s.request(http.MethodGet, "blind", at, nil)
			if n := strings.Count(text, "<tr id="); n > 50 || len(text) > 300<<10 {
				t.Fatalf("%s has %d rows and %d bytes", at, n, len(text))
			}
			for i := range rows {
				if name := fmt.Sprintf("many-%03d", i); strings.Contains(text, ">"+name+"<") {
					if seen[name] {
						t.Errorf("%s shows %s twice", list, name)
					}
					seen[name] = true
				}
			}
			before, _, found := strings.Cut(text, `" rel="next">`)
			at = ""
			if found {
				at = strings.ReplaceAll(before[strings.LastIndex(before, `href="`)+len(`href="`):], "&amp;", "&")
			}
		}
		if len(seen) != rows {
			t.Errorf("the pages of %s show %d of %d rows", list, len(seen), rows)
		}
	}
}
