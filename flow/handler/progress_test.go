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

// TestHandlersRecordCheckpoints: a handler writes checkpoints to descriptor 3, reads the answers from descriptor 4, and
// finds the checkpoints of earlier attempts in its input.
func TestHandlersRecordCheckpoints(t *testing.T) {
	directory := t.TempDir()
	set := open(t, directory)
	for _, row := range []struct{ name, script, stdout, saved string }{
		{"nothing", `cat`, `{}`, ""},
		{"an-answer", `echo '{"checkpoint":{"name":"row","value":[7, "x"]}}' >&3; read -r answer <&4; echo "$answer"`, `{"checkpoint":"row"}`, `row=[7,"x"]`},
		{"without-reading-the-answers", `for i in 1 2 3; do echo "{\"checkpoint\":{\"name\":\"row\",\"value\":$i}}" >&3; done`, `null`, `row=3`},
		{"more-answers-than-fit", `i=0; while [ $i -lt 9000 ]; do i=$((i+1)); echo "{\"checkpoint\":{\"name\":\"row\",\"value\":$i}}" >&3; done`, `null`, `row=9000`},
		{"no-value-is-null", `echo '{"checkpoint":{"name":"row"}}' >&3; read -r answer <&4`, `null`, `row=null`},
		{"a-refusal", `echo '{"checkpoint":{"name":""}}' >&3; read -r answer <&4; echo "$answer"`, `{"checkpoint":"","error":"cannot record the checkpoint \"\" of step \"the step\": checkpoint name is invalid: empty"}`, ""},
		{"while-it-fails", `echo '{"checkpoint":{"name":"row","value":1}}' >&3; exit 1`, ``, `row=1`},
	} {
		install(t, directory, row.name, row.script)
		c := call(nil)
		result, err := set.Task(row.name, "", handler.Scratch(t.TempDir())).Execute(t.Context(), c)
		saved := c.Checkpoints()
		var all []string
		for name, value := range saved {
			all = append(all, name+"="+string(value))
		}
		if got := fmt.Sprintf("%s", result); err == nil && got != row.stdout || err != nil && row.stdout != "" || strings.Join(all, " ") != row.saved {
			t.Errorf("%s: %v, %s, %v", row.name, all, result, err)
		}
	}
	install(t, directory, "continues", `cat`)
	c := call(nil)
	c.KeepCheckpoints(logbook.Values{"row": []byte(`7`)}, nil, nil)
	c.LastProgress = &logbook.Progress{Done: 7, Total: 9}
	result, err := set.Task("continues", "").Execute(t.Context(), c)
	if want := `{"$checkpoints":{"row":7},"$progress":{"done":7,"total":9,"at":"0001-01-01T00:00:00Z"}}`; err != nil || fmt.Sprintf("%s", result) != want {
		t.Errorf("the next attempt got %s, %v", result, err)
	}
}
