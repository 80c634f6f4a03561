package browser_test

import (
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/conductord/conductord/internal/longtest"
)

// TestNoPageScrollsSideways checks that no page is wider than its window, with its forms open. Tables and
// pictures scroll in their own frames.
func TestNoPageScrollsSideways(t *testing.T) {
	longtest.Skip(t)
	s, idle, flowing := seeded(t)
	p := s.browse()
	for name, path := range everyPage(idle, flowing) {
		p.visit(path)
		p.text(`document.querySelectorAll("details").forEach(d => d.open = true)`)
		for _, width := range []int64{400, 1280} {
			p.do(chromedp.EmulateViewport(width, 900))
			if wide := p.text("document.documentElement.scrollWidth"); wide != p.text("window.innerWidth") {
				t.Errorf("page %s is %s pixels wide in a window of %d", name, wide, width)
			}
		}
	}
	p.text(`document.body.style.width = "1300px"`)
	if p.text("document.documentElement.scrollWidth") == p.text("window.innerWidth") {
		t.Error("a page of 1,300 pixels was not found")
	}
}

// TestNarrowTablesAreCards checks that in a narrow window no table scrolls sideways, and each cell shows its heading.
func TestNarrowTablesAreCards(t *testing.T) {
	longtest.Skip(t)
	s, idle, flowing := seeded(t)
	p := s.browse()
	p.do(chromedp.EmulateViewport(400, 900))
	for name, path := range everyPage(idle, flowing) {
		p.visit(path)
		if wide := p.text(`[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth).length`); wide != "0" {
			t.Errorf("page %s has %s tables that are wider than the window", name, wide)
		}
	}
	p.visit("jobs")
	p.want(`getComputedStyle(document.querySelector("tbody td"), "::before").content`, `"State"`)
}

// TestFilterTimesAreLocal checks that users enter times as the rows show them, and that addresses
// contain UTC.
func TestFilterTimesAreLocal(t *testing.T) {
	longtest.Skip(t)
	s, _, _ := seeded(t)
	p := s.browse()
	if _, err := chromedp.Call(p.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"}); err != nil {
		t.Fatal(err)
	}
	p.visit("jobs?from=2026-01-31T18%3A30")
	p.want(`document.querySelector("[name=from]").value`, "2026-02-01T03:30")
	p.want(`document.querySelector(".utc").offsetWidth`, "0")
	p.click(".filters button.primary")
	p.wait(`location.search.includes("board=") && document.readyState === "complete"`)
	p.want(`new URLSearchParams(location.search).get("from")`, "2026-01-31T18:30")
	p.want(`new URLSearchParams(location.search).get("to")`, "")
	p.want(`document.querySelector("[name=from]").value`, "2026-02-01T03:30")
}
