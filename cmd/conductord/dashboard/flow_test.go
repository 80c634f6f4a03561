package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/cmd/conductord/dashboard"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/nodetest"
)

// flowPages is the dashboard of a node that runs flow documents.
type flowPages struct {
	t       *testing.T
	cluster *nodetest.Cluster
	server  *httptest.Server
}

func newFlowPages(t *testing.T, handlers map[string]string) *flowPages {
	t.Helper()
	return newFlowPagesOf(t, 1, handlers)
}

// newFlowPagesOf is the dashboard of the first of some nodes.
func newFlowPagesOf(t *testing.T, nodes int, handlers map[string]string) *flowPages {
	t.Helper()
	p := &flowPages{t: t, cluster: nodetest.New(t, nodes)}
	p.serve(p.cluster.Endpoints[0])
	directory := t.TempDir()
	for name, script := range handlers {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	set, err := handler.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	registry := flow.NewRegistry()
	if err := registry.Register(spec.Kind, spec.Factory(set)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- conductor.Run(ctx, conductor.Options{Client: p.cluster.Client, Registry: registry, Name: "worker"})
	}() // ends with ctx
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// serve serves the pages of a node.
func (p *flowPages) serve(endpoint string) {
	api := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: endpoint})
	p.server = httptest.NewServer(dashboard.New(dashboard.Options{API: api, Path: "/dashboard/", Node: "n1", Logger: hclog.NewNullLogger()}))
	p.t.Cleanup(p.server.Close)
}

// run posts a document as a job.
func (p *flowPages) run(document string) jobs.Job {
	p.t.Helper()
	path := "flow.toml"
	if strings.HasPrefix(document, "{") {
		path = "flow.json"
	}
	d, err := spec.Parse([]byte(document), path)
	if err != nil {
		p.t.Fatal(err)
	}
	book := logbook.NewBookID()
	posting := jobs.Posting{Name: d.Name, Book: &logbook.Book{ID: book, Name: d.Name, Flows: []logbook.FlowDetail{d.Detail(logbook.NewFlowID(), book, d.Store)}}}
	job, err := jobs.PostOne(p.t.Context(), p.cluster.Client, posting)
	if err != nil {
		p.t.Fatal(err)
	}
	return job
}

func (p *flowPages) wait(id jobs.JobID) jobs.Job {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	job, err := p.cluster.Client.Wait(ctx, id)
	if err != nil {
		p.t.Fatal(err)
	}
	return job
}

func (p *flowPages) get(path string) string {
	p.t.Helper()
	return p.body(http.Get(p.server.URL + "/dashboard/" + path))
}

func (p *flowPages) body(answer *http.Response, err error) string {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s %v\n%s", answer.Request.URL, answer.Status, err, text)
	}
	commandsExist(p.t, string(text))
	return string(text)
}

// press presses the button of a page for an intervention or a stop.
func (p *flowPages) press(page, do string) string {
	p.t.Helper()
	form := regexp.MustCompile(`name="do" value="` + do + `"><input type="hidden" name="step" value="([^"]*)"><input type="hidden" name="id" value="([^"]*)"`).FindStringSubmatch(page)
	action := regexp.MustCompile(`action="([^"]*/flows/[^"]*)"`).FindStringSubmatch(page)
	if form == nil || action == nil {
		p.t.Fatalf("the page has no button for %s:\n%s", do, page)
	}
	return p.body(http.PostForm(p.server.URL+action[1], url.Values{"do": {do}, "step": {form[1]}, "id": {form[2]}, "reason": {"checked by hand"}}))
}

// wants checks the texts of a page; texts that begin with "no " must be absent.
func (p *flowPages) wants(page string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		absent, no := strings.CutPrefix(text, "no ")
		if strings.Contains(page, absent) == no {
			p.t.Errorf("wanted %q in:\n%s", text, page)
		}
	}
}

// TestManyAttempts opens a step with more attempts than the page shows. Their stderr has carriage
// returns, which must not end lines of the live page's events: the text after them could pose as a
// field.
func TestManyAttempts(t *testing.T) {
	t.Parallel()
	p := newFlowPages(t, map[string]string{"load": `printf '50%%\revent: problem\r\n' >&2; exit 1`})
	job := p.run(`
		name = "import"
		[[steps]]
		name = "load"
		retry = {attempts = 7, delay = "10ms"}
	`)
	p.wait(job.ID)
	path := "flows/" + job.ID.String() + "?step=load"
	p.wants(p.get(path), "2 earlier attempts are not shown", "event: problem")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.server.URL+"/dashboard/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var event strings.Builder
	for buffer := make([]byte, 4096); !strings.Contains(event.String(), "\n\n"); {
		n, err := answer.Body.Read(buffer)
		if event.Write(buffer[:n]); err != nil {
			t.Fatalf("the stream ends: %v\n%s", err, event.String())
		}
	}
	p.wants(event.String(), "event: main", "data: event: problem", "no \r")
}

// TestFlowByItsOwnID opens the page of a flow by the id that job get and flow show print.
func TestFlowByItsOwnID(t *testing.T) {
	t.Parallel()
	p := newFlowPages(t, map[string]string{"slow": "sleep 60"})
	job := p.run(`
		name = "place"
		[[steps]]
		name = "slow"
	`)
	var page string
	for end := time.Now().Add(time.Minute); !strings.Contains(page, "execute 1: running"); {
		if page = p.get("flows/" + job.Flow.String() + "?step=slow"); time.Now().After(end) {
			t.Fatalf("the step does not run:\n%s", page)
		}
	}
	p.wants(page, "<h3>Log</h3>", "conductord job logs "+job.ID.String(), `href="/dashboard/jobs/`+job.ID.String()+`"`, "</span> claimed", `value="suspend"`, `value="cancel"`, "data-live", "conductord flow show "+job.ID.String())
	p.wants(p.get("jobs/"+job.ID.String()), `class="graph"`, `href="/dashboard/flows/`+job.ID.String()+`?step=slow#step"`, "▶ running", "Show its steps", "no conductord flow show")
	p.wants(p.get("jobs?state=claimed"), job.ID.String()[28:], `<td class="n"><time datetime=`, `data-as="since"`)
	p.wants(p.press(p.get("flows/"+job.Flow.String()), "cancel"), "/dashboard/jobs/"+job.ID.String())
	p.wait(job.ID)
}

// TestFailedFlow looks at a flow whose undo fails, and skips that undo.
// TestIgnoredFailure: the pages of the job and of its flow name the step that has failed.
func TestIgnoredFailure(t *testing.T) {
	t.Parallel()
	p := newFlowPages(t, map[string]string{"fetch": `echo "no route" >&2; exit 65`, "report": `echo 1`})
	job := p.run(`
		name = "report"
		pattern = "linear"
		[[steps]]
		name = "fetch"
		on_failure = "ignore"
		default = []
		provides = "pages"
		[[steps]]
		name = "report"
		requires = ["pages", "fetch.failure"]`)
	if job = p.wait(job.ID); job.Outcome != jobs.OutcomeSuccess {
		t.Fatalf("the job ended as %+v", job)
	}
	page := "flows/" + job.ID.String()
	p.wants(p.get("jobs/"+job.ID.String()), `<p class="notice">1 failure ignored: fetch</p>`)
	p.wants(p.get(page), "<dt>Failures</dt><dd>1 failure ignored: fetch</dd>", `aria-label="fetch, failure-ignored"`, `aria-label="report, success"`)
	p.wants(p.get(page+"?step=report"), "the failure of fetch")
	p.wants(p.get(page+"?step=fetch"), "which forbids another attempt: no route", "failure-ignored")
}

func TestFailedFlow(t *testing.T) {
	t.Parallel()
	p := newFlowPages(t, map[string]string{
		"reserve": `echo '{"address": "10.0.0.7"}'`, "release": `echo "cannot give <it> back" >&2; exit 65`, "start": `echo "no route" >&2; exit 65`,
	})
	job := p.run(`
		name = "place"
		pattern = "linear"
		store = {region = "eu"}
		[[steps]]
		name = "reserve"
		revert = "release"
		requires = ["region"]
		provides = "address"
		[[steps]]
		name = "start"
		requires = ["address"]
		[[steps]]
		name = "announce"
		handler = "reserve"`)
	if job = p.wait(job.ID); job.Outcome != jobs.OutcomeFailed {
		t.Fatalf("the job ended as %+v", job)
	}
	page := "flows/" + job.ID.String()
	p.wants(p.get("jobs/"+job.ID.String()), `href="/dashboard/`+page+`"`, "No step is reverted first. These steps run a second time: reserve, start.")
	p.wants(p.get(page),
		`marker-start="url(#arrow)"`, `aria-label="reserve, revert-failure"`, `aria-label="start, nothing-to-undo after failure"`, `aria-label="announce, pending"`,
		`<td>reserve</td>`, "conductord flow retry-revert "+job.ID.String(), "conductord flow rerun", "no conductord flow skip", "no job suspend", "no style=",
		"<dt>Cause</dt><dd>step start: handler.exit: ", "which forbids another attempt: no route", "<dt>Then</dt><dd>revert of step reserve: handler.exit: ", "No step is reverted first. These steps run a second time: reserve, start.")
	step := p.get(page + "?step=reserve")
	p.wants(step, "conductord flow skip "+job.ID.String()+" reserve", "conductord flow complete", "--from reserve", "No step is reverted first. The flow runs again: reserve, start; runs: announce.", "cannot give &lt;it&gt; back",
		"<td>store</td>", "&#34;eu&#34;", "&#34;address&#34;", `class="box revert-failure selected"`)
	p.wants(p.get(page+"?step=start"), "Waits for", "No step is reverted first. The flow runs again: start; runs: announce.", "no conductord flow skip", "<td>reserve</td>")
	p.wants(p.get("flows/"+job.Flow.String()), `aria-label="reserve, revert-failure"`)
	p.wants(p.press(step, "skip"), `id="step"`)
	if job = p.wait(job.ID); job.Outcome != jobs.OutcomeReverted {
		t.Errorf("after the skip the job ended as %s %s", job.State, job.Outcome)
	}
	p.wants(p.get(page), "skip reserve by dashboard", "checked by hand", "conductord flow rerun", "no retry-revert "+job.ID.String())
}

// TestPointOfNoReturn looks at a flow that has failed behind one: only forward repairs are offered.
func TestPointOfNoReturn(t *testing.T) {
	t.Parallel()
	p := newFlowPages(t, map[string]string{"copy": ":", "switch": ":", "tell": `echo "no route" >&2; exit 65`})
	job := p.run(`
		name = "switch-over"
		pattern = "linear"
		[[steps]]
		name = "copy"
		revert = "copy"
		[[steps]]
		name = "switch"
		point_of_no_return = true
		[[steps]]
		name = "tell"`)
	if job = p.wait(job.ID); job.Outcome != jobs.OutcomeFailed {
		t.Fatalf("the job ended as %+v", job)
	}
	page := "flows/" + job.ID.String()
	p.wants(p.get(page), `aria-label="switch, success, point of no return"`, "because step switch is a point of no return and has succeeded", `aria-label="copy, success"`,
		"no conductord flow rerun", "no conductord flow revert", "no Run the whole flow again")
	p.wants(p.get(page+"?step=copy"), "no conductord flow rerun")
	p.wants(p.get(page+"?step=tell"), "--from tell", "No step is reverted first. The flow runs again: tell.", "conductord flow complete")
	p.wants(p.get(page+"?step=switch"), "success</span>, point of no return", "--from switch", "The flow runs again: switch, tell.")
}

// TestRunningFlow opens the page of a flow that waits for a file: the steps that a revert would undo,
// and its cancellation.
func TestRunningFlow(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	p := newFlowPages(t, map[string]string{"quick": "exit 0", "undo": "exit 0", "wait": "echo begun >" + gate + "; sleep 600"})
	job := p.run(`
		name = "copy"
		pattern = "linear"
		[[steps]]
		name = "lock"
		handler = "quick"
		revert = "undo"
		[[steps]]
		name = "parts"
		[[steps.steps]]
		name = "wait"`)
	for p.get("flows/"+job.ID.String()) == "" || !exists(gate) { // each request takes some time
		if t.Context().Err() != nil {
			t.Fatal("the step does not begin")
		}
	}
	page := "flows/" + job.ID.String()
	shown := p.get(page + "?undo=1")
	p.wants(shown, `aria-label="wait, running"`, "lock: its revert runs", "wait: it is interrupted; then nothing: the step has no revert, or has not started", "conductord job suspend", "conductord job cancel", "no conductord flow rerun", `marker-end="url(#arrow)"`)
	p.wants(p.get(page+"?open="), `aria-label="parts, 1 steps: 1 running"`, "no aria-label=\"wait, running\"")
	for looks := 0; timeline(p.get(page)) == timeline(shown); looks++ {
		if looks == 2_000 {
			t.Fatalf("while the step runs, its timeline stays %q", timeline(shown))
		}
	}
	p.press(shown, "cancel")
	if job = p.wait(job.ID); job.Outcome != jobs.OutcomeCancelled {
		t.Errorf("the job ended as %s %s", job.State, job.Outcome)
	}
	p.wants(p.get("jobs/"+job.ID.String()), "Ended: cancelled; claimed once, by "+job.LastOwner)
	p.wants(p.get(page), `aria-label="lock, reverted"`, `aria-label="wait, nothing-to-undo after interruption"`, "no conductord job cancel")
}

// TestFullLoop opens the page of a flow in which an element of a loop waits for a place.
func TestFullLoop(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	p := newFlowPages(t, map[string]string{"pack": "echo begun >" + gate + "; sleep 600"})
	job := p.run(`
		name = "ship"
		store = {parcels = [7, 8]}
		[[steps]]
		name = "parcels"
		each = {over = "parcels", as = "parcel", at_once = 1}
		steps = [{name = "pack", requires = ["parcel"]}]`)
	for p.get("flows/"+job.ID.String()) == "" || !exists(gate) { // each request takes some time
		if t.Context().Err() != nil {
			t.Fatal("the step does not begin")
		}
	}
	shown := p.get("flows/" + job.ID.String())
	p.wants(shown, "<dt>Places</dt><dd>parcels: 1 element waits; [0] holds the only place</dd>")
	p.press(shown, "cancel")
	p.wait(job.ID)
}

// timeline returns the times of the bars on a flow's page.
func timeline(page string) string {
	_, rest, _ := strings.Cut(page, "Bars show attempts")
	said, _, _ := strings.Cut(rest, "</p>")
	return said
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestBigFlow checks that pages of the largest flow documents stay within their size limit. The
// dashboard refuses to exceed it.
func TestBigFlow(t *testing.T) {
	t.Parallel()
	p := newFlowPages(t, map[string]string{"elsewhere": "exit 0"})
	const steps = 4_000
	for _, pattern := range []string{"linear", "unordered"} {
		var all []map[string]string
		for i := range steps {
			all = append(all, map[string]string{"name": fmt.Sprint("s", i), "handler": "missing"})
		}
		text, err := json.Marshal(map[string]any{"name": "big", "pattern": pattern, "steps": all})
		if err != nil {
			t.Fatal(err)
		}
		id := p.run(string(text)).ID.String()
		p.wants(p.get("jobs/"+id), "4000 pending", `href="/dashboard/flows/`+id+`"`)
		page := "flows/" + id
		link := regexp.MustCompile(`href="/dashboard/([^"]*open=[^"#]*)[^"]*" aria-label="s`)
		for range 5 {
			began := time.Now()
			shown := p.get(page)
			t.Logf("%s: %d bytes in %s", page, len(shown), time.Since(began))
			p.wants(shown, "4000 pending")
			next := link.FindAllStringSubmatch(shown, -1)
			if len(next) == 0 {
				break
			}
			page = strings.ReplaceAll(next[len(next)-1][1], "&amp;", "&")
		}
		p.wants(p.get(page), `aria-label="s3999, pending"`)
	}
}

// TestWorkers opens a step that a worker runs, and the page of this worker after the leader has
// suspended it. TestWaitForWorker looks at a job whose step has no worker, at every node: the
// leader alone knows it.
func TestWaitForWorker(t *testing.T) {
	t.Parallel()
	p := newFlowPagesOf(t, 3, nil)
	job := p.run("name = \"picture\"\n[[steps]]\nname = \"scale\"\nhandler = \"resize\"\nworker = true\nworker_labels = [\"gpu\"]\n")
	for _, endpoint := range p.cluster.Endpoints {
		p.serve(endpoint)
		for _, address := range []string{"jobs/", "flows/"} {
			const waits = "for a worker of the type &#34;resize&#34; with the labels &#34;gpu&#34;, and no live worker runs it"
			var page string
			for until := time.Now().Add(patience); !strings.Contains(page, waits) && time.Now().Before(until); {
				answer, err := http.Get(p.server.URL + "/dashboard/" + address + job.ID.String()) // 404 until this node has the job
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				page = string(text)
			}
			p.wants(page, waits, "worker claimed it at <time", "conductord worker --handlers DIRECTORY --types resize --labels gpu")
			p.wants(page, `aria-label="scale, waits-for-worker"`, "1: 1 waits-for-worker", "no scale, running")
		}
		flow := "flows/" + job.ID.String()
		p.wants(p.get(flow+"?step=scale"), "· waits-for-worker</span>: resize &#43; gpu, since <time", "execute 1: waits-for-worker")
		p.wants(p.get(flow+"?undo=1"), "scale: its offer to workers is withdrawn; then nothing: the step has no revert, or has not started")
		if t.Failed() {
			break
		}
	}
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	p, ctx, session := newFlowPages(t, nil), t.Context(), jobs.NewSessionID()
	client := p.cluster.Client
	p.wants(p.get("workers"), "No live workers", "conductord worker --handlers DIRECTORY")
	if _, err := client.OpenSession(ctx, jobs.Opening{ID: session, Name: "hands", Host: "there", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if err := client.Register(ctx, session, jobs.Entity{Kind: jobs.EntityWorker, Name: "hands", JobKinds: []string{"resize"}, Labels: []string{"gpu"}, MaxJobs: 6, Host: "there"}); err != nil {
		t.Fatal(err)
	}
	const all = 6
	for range all {
		p.run("name = \"picture\"\n[[steps]]\nname = \"scale\"\nhandler = \"resize\"\nworker = true\n")
	}
	var work []steps.Work
	pull := func(wait time.Duration) {
		asked := steps.Pull{Session: session, Slots: all - len(work), Wait: wait}
		for i := range work {
			asked.Holds = append(asked.Holds, steps.Held{ID: work[i].ID})
		}
		pulled, err := client.PullSteps(ctx, asked)
		if err != nil {
			t.Fatal(err)
		}
		work = append(work, pulled.Work...)
	}
	for len(work) < all {
		pull(patience)
	}
	pull(0)
	p.wants(p.get("workers"), "hands", "resize", "gpu", "6 of 6", "full", "there", "conductord worker list", "no different steps failed")
	p.wants(p.get("flows/"+work[0].Job.String()+"?step=scale"), "on worker", "#worker-"+session.String(), "hands …")
	for i := range work[1:] {
		report := steps.Outcome{ID: work[1+i].ID, Done: true, Failure: &logbook.Failure{Kind: "error", Message: "no disk"}}
		for recorded := false; !recorded; {
			var err error
			if recorded, err = client.ReportStep(ctx, session, report, patience); err != nil {
				t.Fatal(err)
			}
		}
	}
	work = work[:1]
	pull(0)
	p.wants(p.get("workers"), "1 of 6", "set aside", "5 different steps failed", "next trial")
}
