package browser_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

const live = `document.getElementById("live").textContent === "● live"`

func says(words string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", words) }

// TestPagesLive checks that an open page shows changes without a reload, that Pause stops this, and that
// open details and the focus stay.
func TestPagesLive(t *testing.T) {
	s, idle, flowing := seeded(t)
	p, other := s.browse(), s.browse()
	p.visit("jobs")
	p.wait(live)
	p.text(`window.loaded = "once"`)
	s.idle("newcomer")
	p.wait(says("newcomer"))
	p.click("#pause")
	p.wait(`document.getElementById("live").textContent === "‖ paused"`)
	other.visit("jobs")
	other.wait(live)
	s.idle("latecomer")
	other.wait(says("latecomer"))
	p.want(says("latecomer"), "false")
	p.click("#pause")
	p.wait(says("latecomer"))
	p.want("window.loaded", "once")

	p.visit(fmt.Sprintf("jobs/%s", idle.ID))
	p.wait(live)
	p.click("#do-cancel summary")
	p.write("#reason-cancel", "no longer")
	if err := s.cluster.Client.Suspend(t.Context(), jobs.JobCommand{Job: idle.ID}); err != nil {
		t.Fatal(err)
	}
	p.wait(`document.querySelector("h1 ~ .badge").textContent.includes("suspended")`)
	p.want(`document.getElementById("do-cancel").open`, "true")
	p.want("document.activeElement.id", "reason-cancel")
	p.want("document.activeElement.value", "no longer")

	p.visit(fmt.Sprintf("flows/%s", flowing.ID))
	const succeeded = `document.querySelectorAll("#steps .sign.success").length`
	p.wait(live + ` && document.querySelector("#steps .sign.running") !== null`)
	p.want(succeeded, "1")
	p.text(`window.loaded = "once"`)
	p.text(`document.querySelector("#picture a").focus()`)
	s.release()
	p.wait(succeeded + " === 3")
	p.want(`document.activeElement.closest("#picture a") !== null`, "true")
	p.want("window.loaded", "once")
}

// TestCancelByButton: a user finds a job with the filter, opens an action, sees its command, and
// gets the new state, also in a browser without scripts.
func TestCancelByButton(t *testing.T) {
	for _, script := range []bool{true, false} {
		t.Run(fmt.Sprintf("script %v", script), func(t *testing.T) {
			if !script {
				longtest.Skip(t)
			}
			s, idle, _ := seeded(t)
			p := s.browse()
			p.script(script)
			p.visit("jobs")
			p.write("[name=name]", "waiting")
			p.click(".filters button.primary")
			p.wait(`location.search.includes("name=waiting") && document.querySelectorAll("tbody tr").length === 1`)
			p.click("tbody a")
			p.wait(`document.getElementById("do-cancel") !== null`)
			p.want(`document.getElementById("do-cancel").open`, "false")
			p.click("#do-cancel summary")
			p.want(`document.querySelector("#do-cancel code.command").textContent`, fmt.Sprintf("conductord job cancel %s", idle.ID))
			p.click("#do-cancel button.danger")
			p.wait(`document.querySelector("h1 ~ .badge").textContent.includes("cancelled")`)
		})
	}
}

// script turns scripts on the pages on or off.
func (p *tab) script(runs bool) {
	p.Helper()
	p.silent = !runs
	if _, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !runs}); err != nil {
		p.Fatal(err)
	}
}

// TestKeyboard checks that the pages can be used without a mouse.
func TestKeyboard(t *testing.T) {
	s, _, flowing := seeded(t)
	p := s.browse()
	p.visit(fmt.Sprintf("flows/%s", flowing.ID))
	p.wait(live)
	p.key(kb.Tab)
	p.want("document.activeElement.className", "skip")
	p.key(kb.Tab)
	p.want("document.activeElement.className", "brand")
	p.key(kb.Tab)
	p.want(`document.activeElement.closest("nav") !== null`, "true")
	p.text(`document.querySelector(".picture").focus()`)
	for _, step := range []string{"reserve", "ship"} {
		p.key(kb.Tab)
		p.want(fmt.Sprintf(`document.activeElement.textContent.includes(%q)`, step), "true")
	}
	p.key(kb.Enter)
	p.wait(`document.getElementById("step") !== null`)
	p.want(`document.querySelector("#step h2").textContent`, "ship")
}

// TestWidths checks that no page scrolls sideways.
func TestWidths(t *testing.T) {
	longtest.Skip(t)
	s, idle, flowing := seeded(t)
	p := s.browse()
	for _, width := range []int64{400, 2500} {
		p.do(chromedp.EmulateViewport(width, 900))
		for name, path := range pages(idle, flowing) {
			p.visit(path)
			if wide := p.text("document.scrollingElement.scrollWidth - innerWidth"); wide != "0" {
				t.Errorf("page %s is wider than %d pixels by %s", name, width, wide)
			}
		}
	}
}

// TestDark checks that the pages follow the colour scheme of the system.
func TestDark(t *testing.T) {
	longtest.Skip(t)
	s, _, _ := seeded(t)
	p := s.browse()
	p.visit("")
	const background = "getComputedStyle(document.body).backgroundColor"
	p.want(background, "rgb(246, 247, 249)")
	dark := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: dark}); err != nil {
		t.Fatal(err)
	}
	p.want(background, "rgb(18, 22, 28)")
}
