package browser_test

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestNoPageScrollsSideways holds that no page is wider than its window, with its forms open. Tables and
// pictures scroll in their own frames.
func TestNoPageScrollsSideways(t *testing.T) {
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
