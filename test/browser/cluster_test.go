package browser_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conductord/conductord/internal/longtest"
)

// TestTransferByButton: one user transfers the leadership, and another user's open page shows the
// new leader without a reload. The members can be compared.
func TestTransferByButton(t *testing.T) {
	longtest.Skip(t)
	if chromium == nil {
		t.Skip("no chromium is installed")
	}
	s := open(t, 3)
	p, other := s.browse(), s.browse()
	const leads = `document.querySelector(".tiles b").textContent`
	other.visit("cluster")
	other.wait(live)
	other.text(`window.loaded = "once"`)
	old := other.text(leads)
	names := []string{"n1", "n2", "n3"}
	names = slices.DeleteFunc(names, func(name string) bool { return name == old })
	if len(names) != 2 {
		t.Fatalf("%q leads", old)
	}
	p.visit("cluster")
	p.wait(live)
	p.click("#do-transfer summary")
	p.text(fmt.Sprintf(`document.querySelector("#do-transfer select").value = %q`, names[0]))
	p.click("#do-transfer button")
	p.wait(fmt.Sprintf("%s === %q", leads, names[0]))
	other.wait(fmt.Sprintf("%s === %q", leads, names[0]))
	other.wait(fmt.Sprintf(`document.getElementById("node-%s").innerText.includes("★ leader")`, names[0]))
	other.want("window.loaded", "once")
	p.click("#do-verify summary")
	p.click("#do-verify button")
	p.wait(says("All members have the same state"))
}
