package spec_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow/spec"
)

// TestWaitKeys reads steps that wait, and again from the form that the logbook keeps.
func TestWaitKeys(t *testing.T) {
	for _, row := range []struct {
		keys    string
		signals string
		limit   time.Duration
		result  string
	}{
		{`wait = {signal = "paid"}`, "paid", 0, ""},
		{`wait = {signal = "paid", timeout = "48h", on_timeout = "fail"}`, "paid", 48 * time.Hour, ""},
		{`wait = {signals = ["paid", "waived"], timeout = "9600h", on_timeout = {value = {amount = 0}}}`, "paid waived", 400 * 24 * time.Hour, `{"amount":0}`},
		{`sleep = "24h"`, "", 24 * time.Hour, ""},
	} {
		document, err := spec.Parse([]byte("name = \"f\"\n[[steps]]\nname = \"w\"\nprovides = \"payment\"\n"+row.keys), "f.toml")
		if err != nil {
			t.Errorf("%s: %v", row.keys, err)
			continue
		}
		again, err := spec.Parse(document.JSON(), "f.json")
		if err != nil {
			t.Errorf("%s: again: %v", row.keys, err)
			continue
		}
		for _, d := range []*spec.Document{document, again} {
			plan, err := d.Compile()
			if err != nil {
				t.Fatalf("%s: %v", row.keys, err)
			}
			wait := plan.Step(0).Wait()
			if wait == nil || strings.Join(wait.Signals, " ") != row.signals || wait.For != row.limit || string(wait.OnTimeout) != row.result {
				t.Errorf("%s: got %+v", row.keys, wait)
			}
			if len(d.Handlers()) > 0 {
				t.Errorf("%s: it has handlers %v", row.keys, d.Handlers())
			}
		}
	}
}

// TestFaultsOfWaits: errors name the key, the limit and what to write.
func TestFaultsOfWaits(t *testing.T) {
	for keys, want := range map[string]string{
		`wait = {}`:                                    "missing",
		`wait = {signal = "a", signals = ["b"]}`:       "use one of signal and signals",
		`wait = {signals = []}`:                        "it must have 1 to 16",
		`wait = {signal = "a", timeout = "9601h"}`:     "at most 9600h (400 days)",
		`wait = {signal = "a", timeout = "soon"}`:      "write a time such as 48h",
		`wait = {signal = "a", on_timeout = "go"}`:     `write "fail", or {value`,
		`wait = {signal = "a", till = "now"}`:          "till",
		`sleep = "-1s"`:                                "must be above 0",
		`sleep = "tomorrow"`:                           "2030-01-31T08:00:00Z",
		"sleep = \"1s\"\nwait = {signal = \"a\"}":      "use one of wait and sleep",
		"sleep = \"1s\"\nhandler = \"h\"":              "runs no handler",
		"wait = {signal = \"a\"}\nat_most_once = true": "runs no handler",
	} {
		_, err := spec.Parse([]byte("name = \"f\"\n[[steps]]\nname = \"w\"\n"+keys), "f.toml")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", keys, err, want)
		}
	}
}

// TestTopicKeys reads steps that wait for a topic, and again from the form that the logbook keeps.
func TestTopicKeys(t *testing.T) {
	document, err := spec.Parse([]byte("name = \"f\"\ninputs = [\"order\"]\n[[steps]]\nname = \"w\"\nrequires = [\"order\"]\nwait = {topic = \"payments\", key = \"{order.id}\", timeout = \"1h\"}"), "f.toml")
	if err != nil {
		t.Fatal(err)
	}
	again, err := spec.Parse(document.JSON(), "f.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*spec.Document{document, again} {
		plan, err := d.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if wait := plan.Step(0).Wait(); wait.Topic != "payments" || wait.Key != "{order.id}" || wait.For != time.Hour || len(wait.Signals) != 0 {
			t.Errorf("the wait is %+v", wait)
		}
	}
	for keys, fault := range map[string]string{
		`wait = {topic = "payments"}`:                              "missing; write the key of the publication",
		`wait = {key = "7"}`:                                       "topic",
		`wait = {topic = "payments", key = "{order}"}`:             "order",
		`wait = {topic = "payments", key = "7", signal = "paid"}`:  "use one of signal, signals and topic",
		`wait = {topic = "payments", key = "7", timeout = "soon"}`: "not a time",
		`wait = {signal = "paid"}` + "\nrequires = [\"order\"]":    "runs no handler",
	} {
		_, err := spec.Parse([]byte("name = \"f\"\ninputs = [\"order\"]\n[[steps]]\nname = \"w\"\n"+keys), "f.toml")
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v", keys, err)
		}
	}
}
