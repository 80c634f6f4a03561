package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/internal/longtest"
)

// TestStepTest checks that the worker in Go and a handler in shell keep all rules. A worker with a
// fault breaks only the rule for this fault.
func TestStepTest(t *testing.T) {
	longtest.Skip(t)
	worker := filepath.Join(t.TempDir(), "conformance")
	if said, err := exec.Command("go", "build", "-o", worker, modulePath+"/test/conformance").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the worker: %v: %s", err, said)
	}
	page, err := os.ReadFile("../docs/testing-workers.md")
	if err != nil {
		t.Fatal(err)
	}
	const several = "--rule=text,failure,logs,checkpoint,signal,once,slots,sigterm,promised" // the other rules take longer
	for _, row := range []struct {
		name   string
		args   []string
		broken string // rules
	}{
		{"worker", []string{"--", worker}, ""},
		{"handler", []string{"--handler", "conformance/handler.sh"}, ""},
		{"reports twice", []string{several, "--", worker, "twice"}, "once"},
		{"drops unicode", []string{several, "--", worker, "unicode"}, "text"},
		{"ignores stops", []string{"--rule=text,stop", "--", worker, "stop"}, "stop"},
		{"exceeds its slots", []string{several, "--", worker, "slots"}, "slots"},
		{"exits with 3", []string{several, "--", worker, "exit"}, "sigterm"},
		{"leaves what it was promised", []string{several, "--", worker, "promised"}, "promised"},
		{"keeps checkpoints for itself", []string{several, "--", worker, "checkpoints"}, "checkpoint"},
		{"sends no signals", []string{several, "--", worker, "signals"}, "signal"},
		{"keeps lines for itself", []string{several, "--", worker, "logs"}, "logs"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(within(t), binary, append([]string{"step", "test", "-o", "json"}, row.args...)...)
			output, err := command.Output()
			var exit *exec.ExitError
			if errors.As(err, &exit) == (row.broken == "") {
				t.Errorf("exit code: %v", err)
			}
			var said struct {
				Passed bool
				Rules  []struct{ Rule, Verdict, Expected, Got, See string }
			}
			if err := json.Unmarshal(output, &said); err != nil || said.Passed != (row.broken == "") {
				t.Fatalf("it says %s (%v)", output, err)
			}
			for _, r := range said.Rules {
				if bad := slices.Contains(strings.Fields(row.broken), r.Rule); bad != (r.Verdict == "FAIL") {
					t.Errorf("%s is %s: expected %s, got %s", r.Rule, r.Verdict, r.Expected, r.Got)
				} else if bad && (r.See == "" || !strings.Contains(string(page), r.See)) {
					t.Errorf("%s names %q, which docs/testing-workers.md does not have", r.Rule, r.See)
				}
			}
		})
	}
}

// keepsRules checks that a worker keeps all rules, and that none is skipped.
func keepsRules(t *testing.T, command ...string) {
	t.Helper()
	output, err := exec.CommandContext(within(t), binary, append([]string{"step", "test", "--"}, command...)...).CombinedOutput()
	if err != nil || bytes.Contains(output, []byte("\nskip ")) {
		t.Errorf("%v\n%s", err, output)
	}
}
