package dashboard_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/dashboard"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// interruption changes the cluster before a call of the dashboard to the API.
type interruption struct {
	left   atomic.Int64 // calls before the change; negative: done, or no change
	change func()
	noise  func() // another change before each call; nil: none
}

func (i *interruption) before(api http.Handler) http.Handler { return i.at("", api) }

// at inserts the interruption before calls whose names have the suffix.
func (i *interruption) at(name string, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, name) {
			api.ServeHTTP(w, r)
			return
		}
		switch left := i.left.Add(-1); {
		case left == 0:
			i.change()
		case left > 0 && i.noise != nil:
			i.noise()
		}
		api.ServeHTTP(w, r)
	})
}

// facts are the statements of a page about the state of its subject: badges, sentences, actions and
// numbers.
func facts(page string) string {
	_, main, _ := strings.Cut(page, "<main")
	found := regexp.MustCompile(`(?s)<span class="(?:badge|sign) [^>]*>.*?</span>(?: [^<]+</span>)?|<p class="(?:why|notice)[^>]*>.*?</p>|id="do-[^"]*"|<b>[^<]*</b>|<h2[^>]*>[^<]*`).FindAllString(main, -1)
	return strings.Join(found, "\n")
}

// flowJob claims a job whose flow is reverting, and returns it with the ending of both.
func (s *site) flowJob(board string) (jobs.Job, jobs.Ending) {
	s.t.Helper()
	ctx, book, id := s.t.Context(), logbook.NewBookID(), logbook.NewFlowID()
	job := s.claim(jobs.Posting{Board: board, Name: "with a flow", Book: &logbook.Book{ID: book, Name: "b", Flows: []logbook.FlowDetail{
		{ID: id, Book: book, Name: "order", Factory: logbook.Factory{Name: "work"}},
	}}})
	for i, state := range []logbook.FlowState{logbook.FlowRunning, logbook.FlowReverting} {
		verdicts, err := s.operator.Update(ctx, logbook.Update{Flow: id, Token: job.Token, Sequence: uint64(i + 1), State: state})
		if err != nil || verdicts[0] != nil {
			s.t.Fatal(err, verdicts)
		}
	}
	end := logbook.Update{Flow: id, Token: job.Token, Sequence: 3, State: logbook.FlowReverted, Cause: &logbook.Failure{Kind: "test", Message: "no stock"}}
	return job, jobs.Ending{Job: job.ID, Token: job.Token, Outcome: jobs.OutcomeReverted, Reason: "no stock", Update: &end}
}

// All parts of a page show the state at one moment, even if the state changes between two of its
// reads.
func TestPartsOfAPageAgree(t *testing.T) {
	t.Parallel()
	var between interruption
	s := open(t, func(o *dashboard.Options) { o.API = between.before(o.API) })
	s.principal(access.Principal{Name: "admin", Grants: []access.Grant{{Role: access.Administrator, Boards: access.AllBoards}}})
	ctx := t.Context()
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	claimed := func(board string) jobs.Job { return s.claimed(board, "mine", nil) }
	limits := uint64(0)
	must(s.operator.CreateBoard(ctx, "noise"))
	noise := func() {
		limits++
		must(s.operator.LimitBoard(ctx, "noise", jobs.BoardLimits{Jobs: limits}))
	}
	for n, row := range []struct {
		name string
		busy func() // other changes
		make func(board string) (path string, change func())
	}{
		{"a job that is completed", noise, func(board string) (string, func()) {
			job := claimed(board)
			return "jobs/" + job.ID.String(), func() {
				must(s.operator.Consume(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Outcome: jobs.OutcomeSuccess}))
			}
		}},
		{"a job that is put aside", nil, func(board string) (string, func()) {
			job := claimed(board)
			return "jobs/" + job.ID.String(), func() {
				must(s.operator.Trash(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Reason: "no handler"}))
			}
		}},
		{"a job that is suspended", nil, func(board string) (string, func()) {
			id := s.post(board, "mine")
			return "jobs/" + id.String(), func() { must(s.operator.Suspend(ctx, jobs.JobCommand{Job: id})) }
		}},
		{"a job whose flow is reverted", nil, func(board string) (string, func()) {
			job, ending := s.flowJob(board)
			return "jobs/" + job.ID.String(), func() { must(s.operator.Consume(ctx, ending)) }
		}},
		{"a flow that is reverted", noise, func(board string) (string, func()) {
			job, ending := s.flowJob(board)
			return "flows/" + job.ID.String(), func() { must(s.operator.Consume(ctx, ending)) }
		}},
		{"the overview", nil, func(board string) (string, func()) {
			job := claimed(board)
			return "", func() {
				must(s.operator.Trash(ctx, jobs.Ending{Job: job.ID, Token: job.Token, Reason: "no handler"}))
			}
		}},
		{"a board that is paused", nil, func(board string) (string, func()) {
			s.post(board, "mine")
			return "boards/" + board, func() { must(s.operator.PauseBoard(ctx, jobs.BoardCommand{Board: board})) }
		}},
		{"the list of jobs", nil, func(board string) (string, func()) {
			s.post(board, "mine")
			return "jobs", func() { s.post(board+"-more", "another") }
		}},
		{"a conductor that is drained", nil, func(board string) (string, func()) {
			s.conductor(board)
			return "conductors/" + board, func() { must(s.operator.DrainConductor(ctx, jobs.DrainCommand{Conductor: board})) }
		}},
	} {
		for k := int64(1); ; k++ {
			path, change := row.make(fmt.Sprintf("b%d-%d", n, k))
			_, before := s.request(http.MethodGet, "admin", "/dashboard/"+path, nil)
			between.change, between.noise = change, row.busy
			between.left.Store(k)
			_, page := s.request(http.MethodGet, "admin", "/dashboard/"+path, nil)
			fired := between.left.Swap(-1) <= 0
			if !fired {
				break
			}
			_, after := s.request(http.MethodGet, "admin", "/dashboard/"+path, nil)
			if have := facts(page); have != facts(before) && have != facts(after) {
				t.Errorf("%s, changed before call %d of its page: it shows\n%s\nwhich is neither the state before:\n%s\nnor the state after:\n%s", row.name, k, have, facts(before), facts(after))
			}
			if facts(before) == facts(after) {
				t.Fatalf("%s: the change is not seen:\n%s", row.name, facts(before))
			}
		}
	}
}

// The page after an action shows one consistent state, even while a conductor performs the action.
func TestAnswersOfActionsAgree(t *testing.T) {
	t.Parallel()
	p := newFlowPages(t, map[string]string{"quick": `echo 1`, "undo": `true`})
	ended := regexp.MustCompile(`</span> (success|reverted|cancelled|failed)</span>`)
	for n := range 24 {
		job := p.run(`
			name = "many"
			pattern = "linear"
			[[steps]]
			name = "quick"
			revert = "undo"
			[[steps]]
			name = "again"
			handler = "quick"
		`)
		path, verb := "/dashboard/jobs/"+job.ID.String(), []string{"cancel", "suspend", "change"}[n%3]
		answer, err := http.PostForm(p.server.URL+path+"/"+verb, url.Values{})
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // the action succeeded, or the job had ended before: the page shows which
		for _, page := range []string{p.get("jobs/" + job.ID.String()), p.get("flows/" + job.ID.String())} {
			_, main, _ := strings.Cut(page, "<main")
			end := ended.MatchString(main)
			if why := strings.Contains(main, "it was completed"); strings.Contains(main, `id="why"`) && why != end {
				t.Errorf("%s: the job has ended: %v by its badge, %v by its explanation:\n%s", verb, end, why, facts(page))
			}
			if stops := strings.Contains(main, `id="do-cancel"`) || strings.Contains(main, `id="do-suspend"`); stops && end {
				t.Errorf("%s: the job has ended, and can be stopped:\n%s", verb, facts(page))
			}
		}
	}
}

// An open page is sent again soon after a change. This includes a change before the page's watch of events
// begins, and a change soon after the page was opened. The test measures, so it is not parallel.
func TestChangesArePushedAtOnce(t *testing.T) {
	var between interruption
	s := open(t, func(o *dashboard.Options) {
		o.API = between.at("/Watch", o.API)
	})
	for _, row := range []struct {
		name  string
		limit time.Duration // shorter than the refresh interval without an event
		early bool          // the change comes before the watch
	}{{"before the watch", 1500 * time.Millisecond, true}, {"soon after the page was opened", 400 * time.Millisecond, false}} {
		best := time.Hour
		for try := 0; try < 6 && best > row.limit; try++ { // a busy machine can be slow
			id := s.post("one", "mine")
			changed := make(chan time.Time, 1)
			change := func() {
				if err := s.operator.Suspend(t.Context(), jobs.JobCommand{Job: id}); err != nil {
					t.Error(err)
				}
				changed <- time.Now()
			}
			if between.change = change; row.early {
				between.left.Store(1)
			}
			response, cancel := s.stream("operator", "jobs/"+id.String())
			lines := bufio.NewScanner(response.Body)
			for first := true; lines.Scan() && !strings.Contains(lines.Text(), "</span> suspended"); {
				if first && !row.early && strings.Contains(lines.Text(), "</span> claimable") {
					first = false
					change()
				}
			}
			best = min(best, time.Since(<-changed))
			cancel()
		}
		if best > row.limit {
			t.Errorf("%s: the change was shown %v after it was made", row.name, best)
		}
	}
}

// The page after an action shows the action's effect, even if another node serves the page.
func TestAnActionIsSeenOnEveryNode(t *testing.T) {
	t.Parallel()
	p := newFlowPagesOf(t, 3, nil)
	var dashboards []http.Handler
	for _, endpoint := range p.cluster.Endpoints {
		p.serve(endpoint)
		dashboards = append(dashboards, p.server.Config.Handler)
	}
	acting, shown := 0, 0
	server := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // like a load balancer
		if r.Method == http.MethodPost {
			dashboards[acting].ServeHTTP(w, r)
			return
		}
		dashboards[shown].ServeHTTP(w, r)
	}))
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := http.Client{Jar: jar}
	defer browser.CloseIdleConnections()
	for n := range 27 {
		acting, shown = n%3, n/3%3
		job, err := jobs.PostOne(t.Context(), p.cluster.Client, jobs.Posting{Board: "one", Name: "mine", Kind: "other"})
		if err != nil {
			t.Fatal(err)
		}
		page := p.body(browser.PostForm(server+"/dashboard/jobs/"+job.ID.String()+"/suspend", nil))
		if !strings.Contains(page, "</span> suspended") || strings.Contains(page, `id="do-suspend"`) {
			t.Errorf("suspended through node %d, node %d shows\n%s", acting, shown, facts(page))
		}
	}
}
