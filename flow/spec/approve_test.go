package spec_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// TestApproveKeys reads a step that waits for an approval, and again from the form that the logbook keeps.
func TestApproveKeys(t *testing.T) {
	const text = `name = "f"
inputs = ["disk"]
[[steps]]
name = "ask"
requires = ["disk"]
provides = ["answers"]
approve = {text = "Delete {disk}?", need = [{role = "owner"}, {role = "dba", count = 2}], self = true, fields = {required = ["ticket"]}, deadline = "72h", at_deadline = "reject", remind = ["24h", "48h"]}
`
	document, err := spec.Parse([]byte(text), "f.toml")
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
		wait := plan.Step(0).Wait()
		a := wait.Approval
		if a == nil || a.Text != "Delete {disk}?" || logbook.NeedText(a.Need) != "1 of owner and 2 of dba" || !a.Self || string(a.Fields) != `{"required":["ticket"]}` ||
			wait.For != 72*time.Hour || a.AtDeadline != logbook.RejectAtDeadline || len(d.Handlers()) > 0 {
			t.Errorf("got %+v with %+v", wait, a)
		}
		if outline := plan.Outline(); !strings.Contains(outline, "waits for an approval by 1 of owner and 2 of dba for 72h") {
			t.Errorf("the plan is\n%s", outline)
		}
	}
}

// TestFaultsOfApprovals: errors name the key, the limit and what to write.
func TestFaultsOfApprovals(t *testing.T) {
	const need = `need = [{role = "dba"}]`
	for keys, want := range map[string]string{
		`approve = {}`:                                                  "missing",
		`approve = {text = "Go?"}`:                                      `write need = [{role = "dba"}]`,
		`approve = {text = "", ` + need + `}`:                           "approve text",
		`approve = {text = "Go?", need = [{}]}`:                         "role",
		`approve = {text = "{disk}?", ` + need + `}`:                    "is not an argument of the step",
		`approve = {text = "Go?", need = [{role = "dba", count = 17}]}`: "16",
		`approve = {text = "Go?", need = [{role = "dba", count = 9}, {role = "owner", count = 8}]}`:                   "17",
		`approve = {text = "Go?", ` + need + `, fields = {type = "array"}}`:                                           "fields",
		`approve = {text = "Go?", ` + need + `, fields = {properties = {a = {"$ref" = "file:///x"}}}}`:                "cannot have references",
		`approve = {text = "Go?", ` + need + `, deadline = "9601h"}`:                                                  "at most 9600h (400 days)",
		`approve = {text = "Go?", ` + need + `, remind = ["soon"]}`:                                                   "\"soon\" is not a time",
		`approve = {text = "Go?", ` + need + `, remind = ["2h", "1h"]}`:                                               "must be ascending",
		`approve = {text = "Go?", ` + need + `, deadline = "2h", remind = ["2h"]}`:                                    "below the deadline, 2h",
		`approve = {text = "Go?", ` + need + `, remind = ["1h","2h","3h","4h","5h","6h","7h","8h","9h","10h","11h"]}`: "11 times, and the limit is 10",
		`approve = {text = "Go?", ` + need + `, at_deadline = "approve"}`:                                             "without a deadline",
		`approve = {text = "Go?", ` + need + `, deadline = "1h", at_deadline = "accept"}`:                             "fail, approve, reject",
		`approve = {text = "Go?", ` + need + `, till = "now"}`:                                                        "till",
		"sleep = \"1s\"\napprove = {text = \"Go?\", " + need + "}":                                                    "make two steps",
		"handler = \"h\"\napprove = {text = \"Go?\", " + need + "}":                                                   "runs no handler",
	} {
		document, err := spec.Parse([]byte("name = \"f\"\n[[steps]]\nname = \"w\"\n"+keys), "f.toml")
		if err == nil {
			_, err = document.Compile()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", keys, err, want)
		}
	}
}
