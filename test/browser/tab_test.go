package browser_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is the limit for a page on a busy machine.
const patience = time.Minute

// chromium is the browser of all tests, nil if there is none.
var chromium context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return m.Run()
	}
	flags := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), flags...)
	defer end()
	browser, stop := chromedp.NewContext(allocator)
	defer stop()
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, "cannot start chromium:", err)
		return 1
	}
	chromium = browser
	return m.Run()
}

// tab is a window of the browser with its own cookies. A test fails when its pages write to the
// console or load anything from another host.
type tab struct {
	*testing.T
	ctx    context.Context
	site   *site
	silent bool // its pages run no scripts

	mu       sync.Mutex
	problems []string
}

func (s *site) browse() *tab {
	s.t.Helper()
	ctx, end := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	s.t.Cleanup(end)
	p := &tab{T: s.t, ctx: ctx, site: s}
	if err := chromedp.Listen(ctx, p.observe); err != nil {
		s.t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(1280, 900))
	s.t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			p.Error(problem)
		}
	})
	return p
}

func (p *tab) observe(event any) {
	var problem string
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		var said []string
		for _, argument := range e.Args {
			said = append(said, string(argument.Value))
		}
		problem = fmt.Sprintf("console: %s: %s", e.Type, strings.Join(said, " "))
	case *runtime.EventExceptionThrown:
		problem = fmt.Sprintf("exception: %v", e.ExceptionDetails)
	case *log.EventEntryAdded:
		problem = fmt.Sprintf("browser: %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		own := strings.HasPrefix(e.Request.URL, p.site.url) || strings.HasPrefix(e.Request.URL, "data:") // the browser's own icon of a date field
		if !own {
			problem = "request elsewhere: " + e.Request.URL
		}
	}
	if problem != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.problems = append(p.problems, problem)
	}
}

// do performs actions in the browser.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

func (p *tab) visit(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.site.url + path))
}

// click presses an element when the page is live and the element does not move. It names the
// element by its position, because the browser's element ids become invalid while a page loads.
func (p *tab) click(selector string) {
	p.Helper()
	place := fmt.Sprintf(`(() => {
		const element = document.querySelector(%q);
		if (!element || %t && document.body.dataset.live && document.getElementById("live").hidden) return "";
		element.scrollIntoView({block: "center", behavior: "instant"});
		const box = element.getClientRects()[0];
		if (!box) return "";
		const x = box.x + box.width / 2, y = box.y + box.height / 2;
		return element.contains(document.elementFromPoint(x, y)) ? x + " " + y : "";
	})()`, selector, !p.silent)
	p.wait(fmt.Sprintf(`(() => {
		const place = %s, stands = place !== "" && place === window.stood;
		window.stood = place;
		return stands;
	})()`, place))
	var x, y float64
	if _, err := fmt.Sscan(p.text(place), &x, &y); err != nil {
		p.Fatalf("%s has no place in the window: %v", selector, err)
	}
	p.do(chromedp.MouseClickXY(x, y))
}

// write types text into a field.
func (p *tab) write(selector, text string) {
	p.Helper()
	p.click(selector)
	p.key(text)
	p.want(fmt.Sprintf("document.querySelector(%q).value", selector), text)
}

func (p *tab) key(keys string) {
	p.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// text is the value of a JavaScript expression.
func (p *tab) text(expression string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return value
}

func (p *tab) want(expression, want string) {
	p.Helper()
	if have := p.text(expression); have != want {
		p.Errorf("%s is %q, not %q", expression, have, want)
	}
}

// wait waits until a condition in JavaScript is true, also across reloads of the page.
func (p *tab) wait(condition string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
		if err == nil && holds {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			page, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			p.Fatalf("not within %v: %s (%v); the page:\n%s", patience, condition, err, page)
		}
	}
}
