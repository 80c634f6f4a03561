package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/conductord/conductord/cmd/conductord/dashboard"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node"
)

// Ignore two goroutine sources that are no leaks of a page: prometheus's in-process metrics, and
// idle connections of the test's client.
func TestMain(m *testing.M) {
	longtest.AtOnce(8)
	goleak.VerifyTestMain(m)
}

const patience = 20 * time.Second

// site is a node with access control and its dashboard, with clients for both.
type site struct {
	t        *testing.T
	url      string            // of the node
	operator *raftboard.Client // has all permissions
	browser  *http.Client      // without cookies
	tokens   map[string]string // tokens by principal
}

// open starts the node. Its principals are an operator and a viewer of board "one", and an operator of all
// boards that does not see values.
func open(t *testing.T, adjust ...func(*dashboard.Options)) *site {
	t.Helper()
	dir := t.TempDir()
	authority, err := credentials.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := credentials.Issue(authority, credentials.Subject{Name: "n1", Cluster: "test", Hosts: []string{"127.0.0.1"}, Valid: time.Minute * 30})
	if err != nil {
		t.Fatal(err)
	}
	files := credentials.Files{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	for path, text := range map[string][]byte{files.CA: authority.Cert, files.Cert: issued.Cert, files.Key: issued.Key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own, anybody := store(t, files), store(t, credentials.Files{CA: files.CA})
	n, err := node.Open(node.Options{
		Name: "n1", Cluster: "test", Members: []node.Member{{Name: "n1", Raft: "127.0.0.1:1", API: "127.0.0.1:2"}}, RaftListen: "127.0.0.1:0", APIListen: "127.0.0.1:0",
		DataDir: filepath.Join(dir, "data"), Init: true, Credentials: own, AccessControl: true, Raft: node.RaftTimings{Heartbeat: 100 * time.Millisecond}, Memory: 4 << 30, // the memory check counts the heap of all tests
		PagesPath: "/dashboard/", PageToken: (&dashboard.Options{Path: "/dashboard/"}).TokenOf, Pages: func(api http.Handler) http.Handler {
			options := dashboard.Options{API: api, Path: "/dashboard/", AccessControl: true, Node: "n1", Logger: hclog.NewNullLogger()}
			for _, change := range adjust {
				change(&options)
			}
			return dashboard.New(options)
		},
		Fatal: func(err error) { t.Errorf("the node cannot continue: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	t.Cleanup(func() { _ = n.Close() })
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: anybody.Client()}
	s := &site{t: t, url: "https://" + n.APIAddress().String(), tokens: map[string]string{}, browser: &http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(transport.CloseIdleConnections)
	s.operator, err = raftboard.Open(ctx, raftboard.Options{Endpoints: []string{n.APIAddress().String()}, Credentials: own})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.operator.Close)
	s.principal(access.Principal{Name: "viewer", Grants: []access.Grant{{Role: access.Viewer, Boards: "one"}}})
	s.principal(access.Principal{Name: "operator", Grants: []access.Grant{{Role: access.Operator, Boards: "one"}}})
	s.principal(access.Principal{Name: "blind", Grants: []access.Grant{{Role: access.Operator, Boards: access.AllBoards}}, HideValues: true})
	return s
}

func store(t *testing.T, files credentials.Files) *credentials.Store {
	t.Helper()
	opened, err := credentials.Open(files, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

func (s *site) principal(p access.Principal) {
	s.t.Helper()
	text, token := access.Draw(time.Time{})
	if err := s.operator.SavePrincipal(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
	if err := s.operator.AddAccessToken(s.t.Context(), p.Name, token); err != nil {
		s.t.Fatal(err)
	}
	s.tokens[p.Name] = text
}

func (s *site) post(board, name string) jobs.JobID {
	s.t.Helper()
	posted, err := s.operator.Post(s.t.Context(), jobs.Posting{
		ID: jobs.NewJobID(), Board: board, Name: name, Kind: "work", Details: json.RawMessage(`{"note": "<script>alert(1)</script>"}`),
	})
	if err != nil || posted[0].Err != nil {
		s.t.Fatal(err, posted)
	}
	return posted[0].Job.ID
}

// request makes a browser's request as a principal; with a form, a change.
func (s *site) request(method, who, path string, form url.Values, header ...string) (*http.Response, string) {
	s.t.Helper()
	return s.from("", method, who, path, form, header...)
}

// from is request with a given host name.
func (s *site) from(host, method, who, path string, form url.Values, header ...string) (*http.Response, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Origin", s.url)
		request.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if request.Header.Set(header[i], header[i+1]); header[i+1] == "" {
			request.Header.Del(header[i])
		}
	}
	request.Host = host
	if who != "" {
		request.AddCookie(&http.Cookie{Name: "__Host-conductord-token", Value: s.tokens[who]})
	}
	response, err := s.browser.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	commandsExist(s.t, string(text))
	return response, string(text)
}

func (s *site) state(id jobs.JobID) jobs.State {
	s.t.Helper()
	job, err := s.operator.Job(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return job.State
}

// Each principal sees only its boards and its permitted actions. Payloads are escaped or hidden.
func TestPagesShowWhatThePrincipalMay(t *testing.T) {
	t.Parallel()
	s := open(t)
	one, two := s.post("one", "mine"), s.post("two", "theirs")
	const escaped = `&lt;script&gt;alert(1)`
	for _, row := range []struct {
		who, path string
		status    int
		has, not  []string
	}{
		{"viewer", "/dashboard/", 200, []string{"Cluster test", ">one<", "Nothing needs attention", "Leader: n1 · 1 of 1 voters ready · tolerates 0 failures"}, []string{">two<", `id="day"`}},
		{"viewer", "/dashboard/jobs", 200, []string{"mine"}, []string{"theirs", "<script>alert"}},
		{"viewer", "/dashboard/jobs?id=" + one.String()[:35], 200, []string{"mine", "conductord job get " + one.String()[:35]}, []string{"theirs"}},
		{"viewer", "/dashboard/jobs?id=" + two.String(), 200, []string{"No job matches"}, []string{"theirs"}},
		{"viewer", "/dashboard/jobs?board=two", 403, []string{"no permission to read on board"}, []string{"theirs"}},
		{"viewer", "/dashboard/jobs/" + one.String(), 200, []string{"mine", escaped, "Why it does not run", "no live conductor"}, []string{"<script>alert", "method=\"post\" action=\"/dashboard/jobs"}},
		{"viewer", "/dashboard/jobs/" + two.String(), 404, []string{"not found"}, []string{"theirs"}},
		{"viewer", "/dashboard/bulk/cancel?board=one", 403, []string{"no permission to operate"}, nil},
		{"operator", "/dashboard/jobs/" + one.String(), 200, []string{"/cancel\"", "conductord job cancel " + one.String()}, []string{"/repost\""}},
		{"operator", "/dashboard/bulk/cancel?board=one", 200, []string{"Cancel 1 job?"}, nil},
		{"operator", "/dashboard/jobs", 200, []string{`/dashboard/bulk/cancel?board=one"`, "job list --board one"}, nil},
		{"blind", "/dashboard/", 200, []string{">two<", `id="day"`}, nil},
		{"blind", "/dashboard/jobs/" + two.String(), 200, []string{"theirs", "Values are hidden from you"}, []string{"alert(1)"}},
		{"operator", "/dashboard/jobs/nonsense", 400, []string{"job id"}, nil},
		{"operator", "/dashboard/nothing", 404, []string{"there is no page"}, nil},
	} {
		response, text := s.request(http.MethodGet, row.who, row.path, nil)
		if response.StatusCode != row.status {
			t.Errorf("%s of %s: status %d, want %d\n%s", row.path, row.who, response.StatusCode, row.status, text)
		}
		for _, part := range row.has {
			if !strings.Contains(text, part) {
				t.Errorf("%s of %s does not show %q:\n%s", row.path, row.who, part, text)
			}
		}
		for _, part := range row.not {
			if strings.Contains(text, part) {
				t.Errorf("%s of %s shows %q", row.path, row.who, part)
			}
		}
		if policy := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s has the policy %q", row.path, policy)
		}
		if response.Header.Get("X-Content-Type-Options") != "nosniff" || response.Header.Get("Referrer-Policy") == "" || strings.Contains(text, " style=") {
			t.Errorf("%s lacks a header, or has an inline style", row.path)
		}
	}
}

// A change is made once, as the principal, and only from a page of the dashboard.
func TestChanges(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.post("one", "mine")
	path := "/dashboard/jobs/" + id.String()
	for _, row := range []struct {
		who, path string
		form      url.Values
		header    []string
		status    int
		state     jobs.State
	}{
		{"operator", path + "/suspend", nil, []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 403, jobs.StateClaimable},
		{"viewer", path + "/suspend", nil, nil, 403, jobs.StateClaimable},
		{"operator", path + "/suspend", url.Values{"reason": {"wait"}}, nil, 303, jobs.StateSuspended},
		{"operator", path + "/resume", nil, nil, 303, jobs.StateClaimable},
		{"operator", path + "/change", url.Values{"delay": {"1h"}, "priority": {"high"}}, nil, 303, jobs.StateDelayed},
		{"operator", path + "/change", url.Values{"delay": {"soon"}}, nil, 400, jobs.StateDelayed},
		{"operator", path + "/change", url.Values{"reason": {strings.Repeat("x", 70_000)}}, nil, 413, jobs.StateDelayed},
		{"operator", path + "/trash-it", nil, nil, 404, jobs.StateDelayed},
		{"operator", "/dashboard/bulk/cancel", nil, nil, 400, jobs.StateDelayed},
		{"operator", "/dashboard/bulk/cancel?board=one", nil, nil, 303, jobs.StateCompleted},
	} {
		response, text := s.request(http.MethodPost, row.who, row.path, row.form, row.header...)
		if state := s.state(id); response.StatusCode != row.status || state != row.state {
			t.Errorf("%s by %s: status %d and the job is %s; want %d and %s\n%s", row.path, row.who, response.StatusCode, state, row.status, row.state, text)
		}
	}
	response, text := s.request(http.MethodPost, "operator", path+"/repost", nil)
	again := strings.TrimPrefix(response.Header.Get("Location"), "/dashboard/jobs/")
	reposted, err := jobs.ParseJobID(again)
	if err != nil || reposted == id {
		t.Fatalf("posting again leads to %q with status %d\n%s", response.Header.Get("Location"), response.StatusCode, text)
	}
	if job, err := s.operator.Job(t.Context(), reposted); err != nil || job.PostedBy != "operator" || job.Name != "mine" {
		t.Errorf("the job that was posted again is %+v: %v", job, err)
	}
}

// A posting with a used key creates no job. The page names the job that has the key.
func TestPostedAgainUnderATakenKey(t *testing.T) {
	t.Parallel()
	s := open(t)
	keyed := func(name string) jobs.JobID {
		job, err := jobs.PostOne(t.Context(), s.operator, jobs.Posting{ID: jobs.NewJobID(), Name: name, Kind: "k", Board: "one", Key: "order 8"})
		if err != nil {
			t.Fatal(err)
		}
		return job.ID
	}
	first := keyed("first")
	if err := s.operator.Cancel(t.Context(), jobs.JobCommand{Job: first}); err != nil {
		t.Fatal(err)
	}
	other := keyed("other")
	response, text := s.request(http.MethodPost, "operator", "/dashboard/jobs/"+first.String()+"/repost", nil)
	if response.StatusCode != http.StatusConflict || !strings.Contains(text, "no new job was posted") || !strings.Contains(text, other.String()) {
		t.Errorf("status %d, to %q\n%s", response.StatusCode, response.Header.Get("Location"), text)
	}
}

// A read-only dashboard offers no changes and makes none.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := open(t, func(o *dashboard.Options) { o.ReadOnly = true })
	id := s.post("one", "mine")
	path := "/dashboard/jobs/" + id.String()
	if _, text := s.request(http.MethodGet, "operator", path, nil); strings.Contains(text, "/cancel\"") || !strings.Contains(text, "read only") {
		t.Errorf("the page offers to cancel:\n%s", text)
	}
	if response, _ := s.request(http.MethodPost, "operator", path+"/cancel", nil); response.StatusCode != http.StatusForbidden || s.state(id) != jobs.StateClaimable {
		t.Errorf("cancelling: status %d, and the job is %s", response.StatusCode, s.state(id))
	}
	if response, _ := s.request(http.MethodGet, "operator", "/dashboard/bulk/cancel?board=one", nil); response.StatusCode != http.StatusForbidden {
		t.Errorf("a bulk is offered with status %d", response.StatusCode)
	}
}

// The page of a job with large values shows the beginning of each value.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	s := open(t)
	store := map[string]json.RawMessage{}
	for i := range 12 {
		store[fmt.Sprintf("value%02d", i)] = json.RawMessage(`"` + strings.Repeat(`\"`, 9_000) + `"`)
	}
	posted, err := s.operator.Post(t.Context(), jobs.Posting{ID: jobs.NewJobID(), Board: "one", Name: "large", Kind: "work", Store: store})
	if err != nil || posted[0].Err != nil {
		t.Fatal(err, posted[0].Err)
	}
	response, text := s.request(http.MethodGet, "operator", "/dashboard/jobs/"+posted[0].Job.ID.String(), nil)
	if response.StatusCode != http.StatusOK || !strings.Contains(text, "value00") || !strings.Contains(text, "and 9 more") {
		t.Errorf("status %d, %d bytes:\n%.200s", response.StatusCode, len(text), text)
	}
}

// A panicking call fails its page, but does not stop the node.
func TestPanicOfACall(t *testing.T) {
	t.Parallel()
	api := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh") })
	server := newServer(t, dashboard.New(dashboard.Options{API: api, Path: "/dashboard/", Logger: hclog.NewNullLogger()}))
	response, err := http.Get(server + "/dashboard/jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusInternalServerError {
		t.Errorf("status %d", response.StatusCode)
	}
}

// A token is kept in a cookie that scripts and other sites cannot use.
func TestSignIn(t *testing.T) {
	t.Parallel()
	s := open(t)
	if response, _ := s.request(http.MethodGet, "", "/dashboard/jobs?state=held", nil); response.StatusCode != http.StatusSeeOther ||
		response.Header.Get("Location") != "/dashboard/sign-in?next=%2Fdashboard%2Fjobs%3Fstate%3Dheld" {
		t.Errorf("without a token: %d to %s", response.StatusCode, response.Header.Get("Location"))
	}
	for _, row := range []struct {
		token, next string
		status      int
		to          string
	}{
		{"", "", 400, ""},
		{"cdt_wrong", "", 401, ""},
		{"two words", "", 400, ""},
		{strings.Repeat("x", 4_000), "", 400, ""},
		{s.tokens["viewer"], "", 303, "/dashboard/"},
		{s.tokens["viewer"], "/dashboard/jobs?state=held", 303, "/dashboard/jobs?state=held"},
		{s.tokens["viewer"], "//evil.example/dashboard/", 303, "/dashboard/"},
		{s.tokens["viewer"], "https://evil.example/dashboard/", 303, "/dashboard/"},
		{s.tokens["viewer"], "/dashboard/../x", 303, "/dashboard/"},
		{s.tokens["viewer"], "/dashboard/jobs/../../x", 303, "/dashboard/"},
		{s.tokens["viewer"], "/dashboard/%2e%2E/x", 303, "/dashboard/"},
		{s.tokens["viewer"], "/dashboard/..%2fx", 303, "/dashboard/"},
		{s.tokens["viewer"], "/dashboard/./../x", 303, "/dashboard/"},
		{s.tokens["viewer"], "/dashboard", 303, "/dashboard/"},
		{s.tokens["viewer"], "/dashboard/boards/a%2Fb?x=..", 303, "/dashboard/boards/a%2Fb?x=.."},
	} {
		response, text := s.request(http.MethodPost, "", "/dashboard/sign-in", url.Values{"token": {row.token}, "next": {row.next}})
		if response.StatusCode != row.status || response.Header.Get("Location") != row.to {
			t.Errorf("signing in with %.20q: %d to %q, want %d to %q\n%s", row.token, response.StatusCode, response.Header.Get("Location"), row.status, row.to, text)
		}
		cookies := response.Cookies()
		if row.status != 303 {
			if len(cookies) > 0 {
				t.Errorf("a refused token is kept: %v", cookies)
			}
			continue
		}
		if c := cookies[0]; !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Name != "__Host-conductord-token" || c.Path != "/" || c.Domain != "" || c.Value != row.token {
			t.Errorf("the cookie is %v", c)
		}
	}
	if response, _ := s.request(http.MethodPost, "viewer", "/dashboard/sign-out", nil); response.Cookies()[0].MaxAge >= 0 {
		t.Errorf("signing out keeps %v", response.Cookies())
	}
	if response, _ := s.request(http.MethodGet, "", "/", nil, "Accept", "text/html"); response.Header.Get("Location") != "/dashboard/" {
		t.Errorf("a browser at the root is sent to %q", response.Header.Get("Location"))
	}
}

// Over TLS, a cookie that another host of the domain could have set is not accepted as a token.
func TestCookieOfAnotherHost(t *testing.T) {
	t.Parallel()
	s := open(t)
	response, _ := s.request(http.MethodGet, "", "/dashboard/jobs", nil, "Cookie", "conductord-token="+s.tokens["viewer"])
	if response.StatusCode != http.StatusSeeOther {
		t.Errorf("status %d", response.StatusCode)
	}
}

// Only files in the folder "static" are served, for every spelling of a path.
func TestStaticFiles(t *testing.T) {
	t.Parallel()
	server := newServer(t, dashboard.New(dashboard.Options{API: http.NotFoundHandler(), Path: "/dashboard/", Logger: hclog.NewNullLogger()}))
	for path, status := range map[string]int{
		"style.css": 200, "..%2ftemplates/layout.html": 404, "%2e%2e%2ftemplates%2flayout.html": 404, "x%2f..%2f..%2ftemplates/layout.html": 404,
		"..%2f..%2fdashboard.go": 404, "templates/layout.html": 404, "%2f..%2ftemplates/layout.html": 404, "..%5ctemplates%5clayout.html": 404, "x/": 404, "": 404,
	} {
		response, err := http.Get(server + "/dashboard/static/" + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("%s: status %d, want %d", path, response.StatusCode, status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// A live page is sent again when it has changed, and only then. Its stream ends with its request.
func TestLivePage(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.post("one", "first")
	response, cancel := s.stream("viewer", "jobs")
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("the stream is %q", kind)
	}
	var ids []string
	lines := bufio.NewScanner(response.Body)
	awaits := func(text string) {
		t.Helper()
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				ids = append(ids, id)
			}
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the stream has ended without %q: %v", text, lines.Err())
	}
	awaits("first")
	s.post("two", "unseen") // the viewer does not see this board, so nothing is sent
	s.post("one", "second")
	awaits("second")
	if len(ids) < 2 || len(slices.Compact(ids)) != len(ids) {
		t.Errorf("the page was sent with the ids %v", ids)
	}
	cancel()
}

// stream opens a live page.
func (s *site) stream(who, path string) (*http.Response, context.CancelFunc) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	s.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/dashboard/"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	request.AddCookie(&http.Cookie{Name: "__Host-conductord-token", Value: s.tokens[who]})
	response, err := s.browser.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = response.Body.Close() })
	return response, cancel
}

// The live pages of a user end with the sign-out or the token. The number of live pages per user is
// limited.
func TestLivePagesOfAPerson(t *testing.T) {
	t.Parallel()
	s := open(t)
	const share = 16
	var streams []*http.Response
	for range share {
		response, _ := s.stream("operator", "jobs")
		streams = append(streams, response)
	}
	if refused, _ := s.stream("operator", "jobs"); refused.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one stream more than %d has status %d", share, refused.StatusCode)
	}
	other, _ := s.stream("viewer", "jobs")
	if other.StatusCode != http.StatusOK {
		t.Errorf("the stream of another person has status %d", other.StatusCode)
	}
	if response, _ := s.request(http.MethodPost, "operator", "/dashboard/sign-out", nil); response.StatusCode != http.StatusSeeOther {
		t.Fatalf("status %d", response.StatusCode)
	}
	for _, stream := range streams {
		if _, err := io.Copy(io.Discard, stream.Body); err != nil { // fails if the stream outlives its limit
			t.Error(err)
		}
	}
	principals, err := s.operator.Principals(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range principals.Items {
		for _, token := range p.Tokens {
			if p.Name == "viewer" {
				if err := s.operator.RevokeAccessToken(t.Context(), p.Name, token.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	text, err := io.ReadAll(other.Body)
	if err != nil || !strings.Contains(string(text), "event: ended") {
		t.Errorf("the stream of a revoked token has ended with %v and sent\n%s", err, text)
	}
}

// Over plain text, a host name that an attacker could control is refused.
func TestForeignHost(t *testing.T) {
	t.Parallel()
	d := dashboard.New(dashboard.Options{API: http.NotFoundHandler(), Path: "/dashboard/", Hosts: []string{"node.example"}, Origin: "https://proxy.example", Logger: hclog.NewNullLogger()})
	server := newServer(t, d)
	for host, status := range map[string]int{
		"evil.example": 421, "proxy.example": 200, "proxy.example:7070": 421, "evil.example:7070": 421, "node.example:7070": 200, "localhost:7070": 200, "127.0.0.1:7070": 200, "[::1]:7070": 200,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/dashboard/static/style.css", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("%s: status %d, want %d", host, response.StatusCode, status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// The list of jobs continues from page to page, and the links keep its filters.
func TestJobPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	for i := range 60 {
		s.post("one", fmt.Sprintf("job-%02d", i))
	}
	_, text := s.request(http.MethodGet, "viewer", "/dashboard/jobs?board=one&state=claimable", nil)
	_, rest, found := strings.Cut(text, `href="/dashboard/jobs?after=`)
	if !found || !strings.Contains(text, "job-59") || strings.Contains(text, "job-09") {
		t.Fatalf("the first page is\n%s", text)
	}
	next, _, _ := strings.Cut(rest, `"`)
	_, text = s.request(http.MethodGet, "viewer", "/dashboard/jobs?after="+strings.ReplaceAll(next, "&amp;", "&"), nil)
	if !strings.Contains(text, "job-09") || strings.Contains(text, "job-59") || !strings.Contains(text, "<option selected>claimable") && !strings.Contains(text, "<option selected") {
		t.Errorf("the second page is\n%s", text)
	}
}
