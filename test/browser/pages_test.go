// Package browser_test tests the dashboard in a browser: scripts, styles, keys.
package browser_test

import (
	"fmt"
	"testing"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

// seeded opens a site with jobs in several states, and returns a waiting job and a job whose second step
// runs.
func seeded(t *testing.T) (s *site, idle, flowing jobs.Job) {
	t.Helper()
	if chromium == nil {
		t.Skip("no chromium is installed")
	}
	s = open(t, 1)
	idle, flowing = s.idle("waiting one"), s.run(order)
	ended := s.idle("cancelled one")
	if err := s.cluster.Client.Cancel(t.Context(), jobs.JobCommand{Job: ended.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.cluster.Client.SaveSchedule(t.Context(), schedules.Schedule{Board: "quiet", Name: "nightly", Rule: "@daily", Posting: jobs.Posting{Kind: "other"}}); err != nil {
		t.Fatal(err)
	}
	return s, idle, flowing
}

// pages are the addresses of one page of each kind.
func pages(idle, flowing jobs.Job) map[string]string {
	return map[string]string{
		"overview": "", "jobs": "jobs", "job": fmt.Sprintf("jobs/%s", idle.ID), "flow": fmt.Sprintf("flows/%s", flowing.ID), "step": fmt.Sprintf("flows/%s?step=ship", flowing.ID),
		"approvals": "approvals", "boards": "boards", "board": "boards/quiet", "conductors": "conductors", "conductor": "conductors/worker", "sessions": "sessions", "workers": "workers", "claims": "claims", "cluster": "cluster",
		"trash": "trash", "parked": "parked", "schedules": "schedules", "schedule": "schedules/quiet/nightly", "access": "access", "audit": "audit",
	}
}

// everyPage is pages, and the pages without a live stream.
func everyPage(idle, flowing jobs.Job) map[string]string {
	all := pages(idle, flowing)
	all["API"], all["error code"], all["bulk"] = "api", "errors/not_found", "bulk/cancel?board=quiet"
	return all
}

// TestPagesLoad checks that each page loads without console output, and only from its own host (see
// tab).
func TestPagesLoad(t *testing.T) {
	s, idle, flowing := seeded(t)
	p := s.browse()
	for name, path := range pages(idle, flowing) {
		p.visit(path)
		if p.text("document.body.dataset.live") != "undefined" {
			p.wait(`document.getElementById("live").textContent === "● live"`)
		}
		p.want(`document.querySelectorAll("h1").length`, "1")
		if p.text("document.title") == "" {
			t.Errorf("page %s has no title", name)
		}
	}
}
