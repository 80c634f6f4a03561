package test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
)

// TestWorkersNeedTheValueKey: a worker without the value key starts no step and no revert whose values are encrypted.
// The job says why, nothing fails, and a worker with the key does both.
func TestWorkersNeedTheValueKey(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	ran(t, "value-key", "add", keys, "first")
	f := openFieldWith(t, func(c *config.Config) { c.Conductor.ValueKeys = keys })
	const steps = "[store]\nv = \"" + canary + "\"\n" + `
[[steps]]
name = "one"
worker = true
handler = "quick"
revert = "undo"
requires = ["v"]
[[steps]]
name = "two"
worker = true
handler = "fails"
`
	f.worker("--name", "without")
	job := f.runFlow(steps, "--value-keys", keys)
	refused := func(step, action string) {
		t.Helper()
		eventually(t, "the worker refuses the "+action+" of "+step, func() bool {
			said := ran(t, "job", "logs", "--step", step, job, "--value-keys", keys, f.all)
			return strings.Contains(said, "not started: a value is encrypted with key first") && strings.Contains(said, "CONDUCTORD_VALUE_KEYS")
		})
	}
	refused("one", "execution")
	if got := f.started(); got != "" {
		t.Errorf("the worker without the key has started %s", got)
	}
	f.worker("--name", "with", "--value-keys", keys)
	f.ends(job, jobs.OutcomeReverted)
	if got := f.started(); !strings.HasPrefix(got, "one execute 1, two execute 1, one revert 1") {
		t.Errorf("started: %s", got)
	}
}
