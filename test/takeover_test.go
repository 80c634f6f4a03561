package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestTakeoverUndoesLast kills a conductor while one step of a flow runs and another has finished:
// with the policy undo_last, the next conductor undoes the step that was cut off. It also undoes
// the finished step, unless the other step follows it. Then it executes the undone steps again.
func TestTakeoverUndoesLast(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	for pattern, want := range map[string]map[string]int{
		"linear":    {"reserve execute": 1, "ship execute": 2, "ship revert": 1},
		"unordered": {"reserve execute": 2, "reserve revert": 1, "ship execute": 2, "ship revert": 1},
	} {
		t.Run(pattern, func(t *testing.T) { takeOver(t, pattern, want) })
	}
}

func takeOver(t *testing.T, pattern string, want map[string]int) {
	t.Parallel()
	w := openWarehouse(t)
	w.mark("busy", true)
	text := strings.Replace(orderDocument, `"linear"`, fmt.Sprintf("%q\non_takeover = %q", pattern, flow.UndoLast), 1)
	text = strings.Replace(text, `handler = "ship"`, `handler = "ship"`+"\n"+`revert = "release"`, 1)
	job, err := jobs.PostOne(within(t), w.client, documentPosting(t, "order", text))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "one step has finished, and the other runs", func() bool {
		detail := w.flow(job.Flow)
		reserve, finished := detail.Atom("reserve")
		diary, err := os.ReadFile(filepath.Join(w.dir, "diary-"+job.ID.String()))
		return finished && reserve.State == logbook.AtomSuccess && err == nil && strings.Contains(string(diary), "ship execute")
	})
	if job, err = w.client.Job(within(t), job.ID); err != nil {
		t.Fatal(err)
	}
	owner, found := w.cluster.Node(job.Claim.Owner)
	if !found {
		t.Fatalf("no node is named %q", job.Claim.Owner)
	}
	owner.Kill()
	w.mark("busy", false)
	job = w.ends(job.ID, jobs.OutcomeSuccess, logbook.FlowSuccess)
	if did := w.diary(job.ID); !maps.Equal(did, want) {
		t.Errorf("the handlers have done %v, want %v", did, want)
	}
}

// TestBenchTakeoverOfAServer checks that `conductord bench takeover` measures a leader's
// timers: a silent owner loses its job, but not before its TTL, the grace and the cool-down
// have passed.
func TestBenchTakeoverOfAServer(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	out, err := exec.CommandContext(within(t), binary, "bench", "takeover", "--server", startDev(t),
		"--clients", "4", "--rounds", "4", "--ttl", "500ms", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Operations, Errors uint64
		P50                float64 `json:"p50_ms"`
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatal(err)
	}
	const ttlGraceCoolDown = 500 + 1000 + 500
	if result.Operations != 4 || result.Errors != 0 || result.P50 < ttlGraceCoolDown {
		t.Errorf("four takeovers: %s", out)
	}
}
