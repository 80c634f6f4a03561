//go:build unix

package examples_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/examples"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// handlers writes the embedded handlers to a disk, as the demo does.
func handlers(t *testing.T) *handler.Set {
	t.Helper()
	directory := t.TempDir()
	files, err := fs.Sub(examples.Files, "handlers")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		script, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, entry.Name()), script, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	set, err := handler.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Names()) != len(entries) {
		t.Fatalf("%d handlers of %d can be run", len(set.Names()), len(entries))
	}
	return set
}

// run runs a flow document step by step, without an engine, and then reverts the steps up to the
// failed step. It returns the result or failure of each step, and the stderr of each action.
func run(t *testing.T, file string, given logbook.Values) (results map[string]string, said map[string]string, failure error) {
	t.Helper()
	text, err := fs.ReadFile(examples.Files, file)
	if err != nil {
		t.Fatal(err)
	}
	document, err := spec.Parse(text, file)
	if err != nil {
		t.Fatal(err)
	}
	store, err := document.Fill(given)
	if err != nil {
		t.Fatal(err)
	}
	built, err := spec.Factory(handlers(t))(document.JSON())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := flow.Compile(built, document.Symbols()...)
	if err != nil {
		t.Fatal(err)
	}
	results, said = map[string]string{}, map[string]string{}
	values := make([]json.RawMessage, plan.Len())
	last := 0
	for ; last < plan.Len() && failure == nil; last++ {
		step := plan.Step(last)
		call := &flow.Call{Action: logbook.ActionExecute, Step: step.Name(), Attempt: 1, Arguments: arguments(t, plan.Arguments(last), values, store)}
		result, err := step.Task().Execute(context.Background(), call)
		if failure = err; err == nil {
			values[last] = result.(json.RawMessage)
			results[step.Name()] = string(values[last])
		}
		said[step.Name()], _ = call.Stderr()
	}
	for last--; last >= 0 && failure != nil; last-- {
		step := plan.Step(last)
		reverter, ok := step.Reverter()
		if !ok {
			continue
		}
		call := &flow.Call{Action: logbook.ActionRevert, Step: step.Name(), Attempt: 1, Result: values[last], Arguments: arguments(t, plan.RevertArguments(last), values, store)}
		if err := reverter.Revert(context.Background(), call); err != nil {
			t.Errorf("cannot revert %s: %v", step.Name(), err)
		}
		said["revert "+step.Name()], _ = call.Stderr()
	}
	return results, said, failure
}

func arguments(t *testing.T, wires []flow.Wire, values []json.RawMessage, store logbook.Values) logbook.Values {
	t.Helper()
	given := logbook.Values{}
	for _, wire := range wires {
		switch {
		case wire.From == flow.FromStore:
			given[wire.Name] = store[wire.Symbol]
		case wire.From >= 0 && wire.Field == "":
			given[wire.Name] = values[wire.From]
		case wire.From >= 0:
			var fields logbook.Values
			if err := json.Unmarshal(values[wire.From], &fields); err != nil {
				t.Fatal(err)
			}
			given[wire.Name] = fields[wire.Field]
		}
	}
	return given
}

func quick(more logbook.Values) logbook.Values {
	given := logbook.Values{"pace": json.RawMessage("0")}
	for name, value := range more {
		given[name] = value
	}
	return given
}

func TestTravel(t *testing.T) {
	results, said, err := run(t, "travel.toml", quick(nil))
	if err != nil {
		t.Fatal(err)
	}
	var receipt struct{ Total int }
	if err := json.Unmarshal([]byte(results["charge-card"]), &receipt); err != nil || receipt.Total != 189+3*95+3*31 {
		t.Errorf("receipt %s, %v", results["charge-card"], err)
	}
	for step, want := range map[string]string{
		"check-customer": "looking up Ada Lovelace\n",
		"book-flight":    "from Vienna to Lisbon for AC-",
		"book-hotel":     "a room in Lisbon for 3 nights",
		"book-car":       "a small car in Lisbon for 3 days",
		"charge-card":    "charging 567 to AC-",
	} {
		if !strings.Contains(said[step], want) {
			t.Errorf("%s said %q, want %q", step, said[step], want)
		}
	}
}

// TestTravelFails lets each step fail in turn. Every booking is cancelled by its number.
func TestTravelFails(t *testing.T) {
	for _, step := range []string{"check-customer", "book-flight", "book-hotel", "book-car", "charge-card"} {
		t.Run(step, func(t *testing.T) {
			results, said, err := run(t, "travel.toml", quick(logbook.Values{"fail_at": json.RawMessage(`"` + step + `"`)}))
			var failure *logbook.Failure
			if !errors.As(err, &failure) || !failure.Permanent || failure.Kind != logbook.FailureExit {
				t.Fatalf("error %v, want a permanent failure", err)
			}
			if undone := said["revert "+step]; step != "check-customer" && !strings.HasPrefix(undone, "nothing was ") {
				t.Errorf("the revert of %s said %q", step, undone)
			}
			for booked, field := range map[string]string{"book-flight": "flight", "book-hotel": "hotel", "book-car": "car"} {
				var fields map[string]any
				if json.Unmarshal([]byte(results[booked]), &fields) != nil {
					continue // not reached
				}
				number, _ := fields[field].(string)
				if want := field + " " + number + " is cancelled\n"; number == "" || said["revert "+booked] != want {
					t.Errorf("the revert of %s said %q, want %q", booked, said["revert "+booked], want)
				}
			}
		})
	}
}

func TestHello(t *testing.T) {
	_, said, err := run(t, "hello.toml", logbook.Values{"guest": json.RawMessage(`"Grace"`)})
	if err != nil || said["say-greeting"] != "Hello, Grace!\n" {
		t.Errorf("said %q, error %v", said["say-greeting"], err)
	}
}

// TestHandlersReadAnyJSON checks that the handlers read JSON with spaces, line breaks and
// escapes.
func TestHandlersReadAnyJSON(t *testing.T) {
	for _, row := range []struct{ handler, input, want string }{
		{"make-greeting", `{"guest":"Ada"}`, `"Hello, Ada!"`},
		{"make-greeting", `{"guest": "Ada"}`, `"Hello, Ada!"`},
		{"make-greeting", "{\n  \"guest\" : \"Ada\"\n}", `"Hello, Ada!"`},
		{"make-greeting", `{"guest": "Ada \"the\" first"}`, `"Hello, Ada \"the\" first!"`},
		{"price-order", "{\n  \"item\": \"globe\",\n  \"amount\": 3\n}", `{"total":75,"country":"CH"}`},
	} {
		cmd := exec.CommandContext(t.Context(), "sh", filepath.Join("handlers", row.handler))
		cmd.Stdin, cmd.Env = strings.NewReader(row.input), append(os.Environ(), "CONDUCTORD_STEP=s", "CONDUCTORD_KEY=k")
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != row.want {
			t.Errorf("%s with %s: %q, %v", row.handler, row.input, got, err)
		}
	}
}
