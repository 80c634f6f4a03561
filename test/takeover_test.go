package test

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// TestBenchTakeoverOfAServer holds that `conductord bench takeover` measures what a
// leader's own timers do: a silent owner loses its job, and not before its TTL,
// the grace and the cool-down have passed.
func TestBenchTakeoverOfAServer(t *testing.T) {
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
