package browser_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/conductord/conductord/internal/longtest"
)

// violations is what axe finds on a page with all its forms open: a line for each rule that is broken.
const violations = `(async () => {
	document.querySelectorAll("details").forEach(d => d.open = true)
	const found = await axe.run(document, {resultTypes: ["violations"]})
	return found.violations.map(v => v.impact + ": " + v.help + " (" + v.id + "): " + v.nodes.map(n => n.target.join(" ")).join("; ")).join("\n")
})()`

// TestAccessible checks that axe-core finds no fault on any page, light and dark, narrow and wide.
func TestAccessible(t *testing.T) {
	longtest.Skip(t)
	s, idle, flowing := seeded(t)
	rules, err := os.ReadFile(filepath.Join("testdata", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skip("axe-core is not installed: npm ci --prefix test/browser/testdata/axe")
	}
	p := s.browse()
	for name, path := range everyPage(idle, flowing) { // each is loaded once: the style sheet follows the scheme and the width
		p.visit(path)
		if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](string(rules)+`;""`)); err != nil {
			t.Fatal(err)
		}
		for _, scheme := range []string{"light", "dark"} {
			media := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
			if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: media}); err != nil {
				t.Fatal(err)
			}
			for _, width := range []int64{400, 1280} {
				p.do(chromedp.EmulateViewport(width, 900))
				if found := p.checked(); found != "" {
					t.Errorf("page %s, %s, %d pixels wide:\n%s", name, scheme, width, found)
				}
			}
		}
	}
	p.text(`document.querySelector("h1").outerHTML = "<img src='/dashboard/static/icon.svg'>"`)
	if p.checked() == "" {
		t.Error("an image without a text was not found")
	}
}

// checked returns the faults that the rules find on the page.
func (p *tab) checked() string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	found, err := chromedp.Run(ctx, chromedp.Evaluate[string](violations, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatal(err)
	}
	return found
}
