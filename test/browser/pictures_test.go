package browser_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

var rewrite = flag.Bool("rewrite", false, "TestPictures draws the pictures of docs/dashboard.md anew")

// picture is a picture of a page, docs/dashboard-NAME.png.
type picture struct {
	name, path string
	until      string // a condition in JavaScript: the page shows the subject of the picture
	dark       bool
}

// TestPictures checks that docs/dashboard.md shows exactly the pictures that a run with -rewrite
// draws.
func TestPictures(t *testing.T) {
	page, err := os.ReadFile("../../docs/dashboard.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown, drawn []string
	for _, found := range regexp.MustCompile(`\(dashboard-([a-z-]+)\.png\)`).FindAllSubmatch(page, -1) {
		shown = append(shown, string(found[1]))
	}
	for _, p := range append(picturesOf(jobs.Job{}, jobs.Job{}), cluster) {
		drawn = append(drawn, p.name)
	}
	files, _ := filepath.Glob("../../docs/dashboard-*.png")
	if len(files) != len(drawn) {
		t.Errorf("docs has %d pictures of the dashboard, and this test draws %d", len(files), len(drawn))
	}
	slices.Sort(shown)
	if slices.Sort(drawn); !slices.Equal(shown, drawn) {
		t.Errorf("docs/dashboard.md shows %q, and this test draws %q", shown, drawn)
	}
	if *rewrite {
		draw(t)
	}
}

// cluster is drawn last, because a node is dead then.
var cluster = picture{name: "cluster", path: "cluster", until: says("2 of 3")}

// picturesOf are the pictures of a cluster with a flow that reverts, and a job that was reverted.
func picturesOf(reverting, reverted jobs.Job) []picture {
	flow := fmt.Sprintf("flows/%s", reverting.Flow)
	const cancelling = `/book-flight\s+\S+ reverting/.test(document.body.innerText)`
	return []picture{
		{name: "flow", path: flow, until: cancelling},
		{name: "flow-dark", path: flow, until: cancelling, dark: true},
		{name: "overview"}, {name: "jobs", path: "jobs"}, {name: "job", path: fmt.Sprintf("jobs/%s", reverted.ID)},
		{name: "schedule", path: "schedules/reports/nightly"}, {name: "parked", path: "parked"},
		{name: "boards", path: "boards"}, {name: "api", path: "api"},
	}
}

// draw fills a cluster, and writes the pictures.
func draw(t *testing.T) {
	if chromium == nil {
		t.Fatal("no chromium is installed")
	}
	s := openWith(t, 3, "../../examples/handlers")
	document, err := os.ReadFile("../../examples/travel.toml")
	if err != nil {
		t.Fatal(err)
	}
	trip := func(name string, retry *jobs.RetryPolicy, set map[string]string) jobs.Job {
		posting := s.posting(string(document))
		posting.Name, posting.Retry, posting.Store = name, retry, logbook.Values{}
		for key, value := range set {
			posting.Store[key] = json.RawMessage(value)
		}
		return s.post(posting)
	}
	var ended []jobs.Job
	for i := range 9 {
		set := map[string]string{"pace": "0"}
		if i%4 == 3 {
			set["fail_at"] = `"charge-card"`
		}
		ended = append(ended, trip(fmt.Sprint("trip-", i+1), nil, set))
	}
	ended = append(ended, trip("trip-to-approve", &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 1}, OnFailure: jobs.FailureParks}, map[string]string{"pace": "0", "fail_at": `"charge-card"`}))
	for i := range 4 {
		s.post(jobs.Posting{Name: fmt.Sprint("newsletter-", i+1), Kind: "email", Board: "mail"})
	}
	if _, err := s.cluster.Client.SaveSchedule(t.Context(), schedules.Schedule{Board: "reports", Name: "nightly", Rule: "0 2 * * *", Zone: "Europe/Vienna", Posting: jobs.Posting{Kind: "report"}}); err != nil {
		t.Fatal(err)
	}
	for _, job := range ended {
		s.await(job, func(j *jobs.Job) bool {
			return j.State == jobs.StateCompleted || j.Parked
		})
	}
	trip("trip-10", nil, map[string]string{"pace": "15"})
	reverting := trip("trip-11", nil, map[string]string{"pace": "3", "fail_at": `"charge-card"`})
	p := s.browse()
	for _, one := range picturesOf(reverting, ended[3]) {
		p.picture(one)
	}
	if err := s.cluster.Stop(2); err != nil {
		t.Fatal(err)
	}
	p.picture(cluster)
}

// await waits until a job meets a condition.
func (s *site) await(job jobs.Job, is func(*jobs.Job) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		now, err := s.cluster.Client.Job(s.t.Context(), job.ID)
		if err == nil && is(&now) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("job %s is %s: %v", job.Name, now.State, err)
		}
	}
}

// picture writes a picture of a page.
func (p *tab) picture(one picture) {
	p.Helper()
	scheme := map[bool]string{true: "dark", false: "light"}[one.dark]
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		p.Fatal(err)
	}
	p.visit(one.path)
	if one.until != "" {
		p.wait(one.until)
	}
	p.wait("document.readyState === 'complete'")
	drawn, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile("../../docs/dashboard-"+one.name+".png", drawn, 0o644); err != nil {
		p.Fatal(err)
	}
}
