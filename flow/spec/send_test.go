package spec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

const sending = `
name = "f"
inputs = ["order", "amount"]
[[steps]]
name = "tell"
requires = ["order", "amount"]
send = `

// TestSendKeys fills the references in the signals of a step, also from the form that the logbook keeps.
func TestSendKeys(t *testing.T) {
	document, err := spec.Parse([]byte(sending+`[
		{key = "order-{order.id}", board = "mail", name = "paid", data = {amount = "{amount}", text = "order {order.id}", all = ["{order}"]}},
		{job = "{order.job}", name = "go"}]`), "f.toml")
	if err != nil {
		t.Fatal(err)
	}
	again, err := spec.Parse(document.JSON(), "f.json")
	if err != nil {
		t.Fatal(err)
	}
	arguments := logbook.Values{"order": json.RawMessage(`{"id": 7, "job": "0198a3c2-0000-7000-8000-000000000004"}`), "amount": json.RawMessage(`100`)}
	for _, d := range []*spec.Document{document, again} {
		plan, err := d.Compile()
		if err != nil {
			t.Fatal(err)
		}
		sends, err := plan.Step(0).TakeSends(&flow.Call{Step: "tell", Attempt: 1, Job: "j", Arguments: arguments})
		if err != nil || len(sends) != 2 {
			t.Fatalf("got %d signals, %v", len(sends), err)
		}
		first, second := sends[0], sends[1]
		if first.Key != "order-7" || first.Board != "mail" || first.Signal.Name != "paid" || first.Signal.By != "job j" ||
			string(first.Signal.Data) != `{"all":[{"id":7,"job":"0198a3c2-0000-7000-8000-000000000004"}],"amount":100,"text":"order 7"}` {
			t.Errorf("the first signal is %+v with %+v: %s", first, first.Signal, first.Signal.Data)
		}
		if second.Job != "0198a3c2-0000-7000-8000-000000000004" || second.Signal.Data != nil || second.Signal.ID == first.Signal.ID || second.Signal.ID == "" {
			t.Errorf("the second signal is %+v with %+v", second, second.Signal)
		}
		if err := logbook.MaxLimits.CheckSends(sends); err != nil {
			t.Error(err)
		}
		delete(arguments, "order")
		if _, err := plan.Step(0).TakeSends(&flow.Call{Arguments: arguments}); err == nil || !strings.Contains(err.Error(), `signal "paid"`) {
			t.Errorf("without an argument: %v", err)
		}
		arguments["order"] = json.RawMessage(`{"id": 7, "job": "0198a3c2-0000-7000-8000-000000000004"}`)
	}
}

// TestFaultsOfSends: errors name the key and what to write.
func TestFaultsOfSends(t *testing.T) {
	for keys, want := range map[string]string{
		`[{name = "paid"}]`:                                 "write the id of a job, or key",
		`[{job = "x"}]`:                                     "missing",
		`[{job = "x", key = "k", name = "paid"}]`:           "use one of job and key",
		`[{job = "x", board = "b", name = "paid"}]`:         "only a key needs a board",
		`[{key = "k", name = "paid", data = "{customer}"}]`: "is not an argument of the step",
		`[{key = "k-{customer}", name = "paid"}]`:           "is not an argument of the step",
		`[{key = "k", name = "paid", till = "now"}]`:        "till",
		`"paid"`: "must be a list of tables",
		`[` + strings.Repeat(`{key = "k", name = "paid"},`, 17) + `]`: "a step sends at most 16",
	} {
		if _, err := spec.Parse([]byte(sending+keys), "f.toml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", keys, err, want)
		}
	}
	waits := "name = \"f\"\n[[steps]]\nname = \"w\"\nsleep = \"1h\"\nsend = []"
	if _, err := spec.Parse([]byte(waits), "f.toml"); err == nil || !strings.Contains(err.Error(), "this step waits") {
		t.Errorf("a step that sleeps and sends: %v", err)
	}
}
