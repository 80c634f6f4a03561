//go:build unix

package handler_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

// reporter records all reports.
type reporter struct {
	mu   sync.Mutex
	said []string
}

func (r *reporter) Report(_ *flow.Call, p logbook.Progress) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf("%d/%d%s", p.Done, p.Total, p.Details))
	return nil
}

func TestHandlersTellTheirProgress(t *testing.T) {
	directory := t.TempDir()
	set := open(t, directory)
	long := strings.Repeat("x", flow.MaxDetails-2)
	for _, row := range []struct{ name, script, want string }{
		{"nothing", `:`, "[]"},
		{"lines", `for i in 1 2 3; do echo "{\"done\":$i,\"total\":3}" >&3; done`, "[1/3 2/3 3/3]"},
		{"details", `echo '{"done":1,"details":{"a":1}}' >&3; echo '{"done":2,"details":null}' >&3`, `[1/0{"a":1} 2/0]`},
		{"the-last-line-needs-no-end", `printf '{"done":1}' >&3`, "[1/0]"},
		{"what-is-no-progress", `echo hello >&3; echo '{"total":3}' >&3; echo '{"done":-1}' >&3; echo '{"done":1.5}' >&3; echo '{"done":7}' >&3`, "[7/0]"},
		{"the-longest-line", `echo '{"done":1,"details":"` + long + `"}' >&3`, `[1/0"` + long + `"]`},
		{"a-line-too-long", `head -c 1000000 /dev/zero | tr '\0' x >&3; echo >&3; echo '{"done":7}' >&3`, "[7/0]"},
		{"it-closes-the-pipe", `exec 3>&-`, "[]"},
		{"and-fails", `echo '{"done":1}' >&3; exit 1`, "[1/0]"},
	} {
		install(t, directory, row.name, row.script)
		c, heard := call(nil), &reporter{}
		c.ReportTo(heard)
		_, _ = set.Task(row.name, "", handler.Scratch(t.TempDir())).Execute(t.Context(), c)
		if got := fmt.Sprint(heard.said); got != row.want {
			t.Errorf("%s: %.200s, wanted %.200s", row.name, got, row.want)
		}
	}
}

// TestProgressOfOneThatLeft: a process outside the group holds the pipe open, and the step waits
// for it only briefly.
func TestProgressOfOneThatLeft(t *testing.T) {
	directory := t.TempDir()
	install(t, directory, "leaves", `setsid sleep 3 >/dev/null 2>&1 & echo '{"done":1}' >&3`)
	c, heard := call(nil), &reporter{}
	c.ReportTo(heard)
	began := time.Now()
	if _, err := open(t, directory).Task("leaves", "").Execute(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > soon || fmt.Sprint(heard.said) != "[1/0]" {
		t.Errorf("after %s: %v", took, heard.said)
	}
}
