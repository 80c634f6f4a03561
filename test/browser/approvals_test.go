package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

const deletion = `
name = "deletion"
[[steps]]
name = "ask"
approve = {text = "Delete sda?", need = [{role = "dba"}], fields = {required = ["ticket"], properties = {ticket = {type = "string"}, size = {type = "integer"}, note = {}}}}
[[steps]]
name = "delete"
handler = "quick"
after = ["ask"]
`

// TestApproveByForm: a user finds an approval in the live list, fills the fields, and approves, also in a browser without
// scripts. axe finds no fault on the page.
func TestApproveByForm(t *testing.T) {
	for _, script := range []bool{true, false} {
		t.Run(fmt.Sprintf("script %v", script), func(t *testing.T) {
			s, _, _ := seeded(t)
			p := s.browse()
			p.visit("approvals")
			job := s.run(deletion)
			p.wait(`document.querySelector("tbody a") !== null`) // a live update
			p.script(script)
			p.visit(fmt.Sprintf("approvals/%s/ask", job.ID))
			if rules, err := os.ReadFile(filepath.Join("testdata", "axe", "node_modules", "axe-core", "axe.min.js")); err == nil && script {
				if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](string(rules)+`;""`)); err != nil {
					t.Fatal(err)
				}
				if found := p.checked(); found != "" {
					t.Error(found)
				}
			} else {
				p.click("#do-approve summary")
			}
			p.write("#do-approve [name=by]", "ann")
			p.write("#do-approve [name=field-ticket]", "CHG-17")
			p.write("#do-approve [name=field-size]", "3")
			p.click("#do-approve button.primary")
			p.wait(`document.querySelector("h1 ~ .badge").textContent.includes("approved")`)
			p.want(`document.querySelector("#main").textContent.includes('{"size":3,"ticket":"CHG-17"}')`, "true")
		})
	}
}
