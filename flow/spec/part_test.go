package spec_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// TestParts: a part is put where it is used, under the names that it has there.
func TestParts(t *testing.T) {
	document := parse(t, "testdata/good/parts.toml")
	whole, err := document.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := flow.Compile(whole, document.Symbols()...)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/good/parts.plan", plan.Outline())
	if want := []string{"confirm", "find-bus", "pay", "release", "reserve"}; !slices.Equal(document.Handlers(), want) {
		t.Errorf("handlers %q, want %q", document.Handlers(), want)
	}
	number, _ := plan.Find("pay")
	wants := []flow.Provision{{Symbol: "receipt", Field: "receipt_number"}, {Symbol: "paid", Field: "total"}}
	if pay := plan.Step(number); !slices.Equal(pay.Provides(), wants) || pay.Retry().JitterPercent != 50 {
		t.Errorf("%+v", pay)
	}
}

// TestWaits: the flow has the waits of the document.
func TestWaits(t *testing.T) {
	plan, err := parse(t, "testdata/good/waits.toml").Compile()
	if err != nil {
		t.Fatal(err)
	}
	key, limit := plan.Step(0).Concurrency()
	if key != "disk-{disk}-{machine}" || limit != 2 || plan.Step(0).WaitAtMost() != time.Hour || plan.Step(0).DeadlineText() != "2h after its start" || plan.Step(0).Priority() != -3 {
		t.Errorf("%q %d %s %d", key, limit, plan.Step(0).WaitAtMost(), plan.Step(0).Priority())
	}
}

// TestEach: the flow has the lists of the document; in a part, under the names of the part.
func TestEach(t *testing.T) {
	plan, err := parse(t, "testdata/good/each.toml").Compile()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/good/each.plan", plan.Outline())
	number, _ := plan.Find("pack")
	pack := plan.Step(number)
	if pack.WaitAtMost() != time.Hour {
		t.Errorf("it waits %s at most", pack.WaitAtMost())
	}
}

// TestKeysAreDocumented checks that the pages about documents have a row for every key.
func TestKeysAreDocumented(t *testing.T) {
	page := ""
	for _, name := range []string{"flows", "control-flow", "failure", "time-limits"} {
		page += string(read(t, "../../docs/"+name+".md"))
	}
	known := regexp.MustCompile(`known are (.*)`)
	found := 0
	for _, step := range []string{
		`{"name": "a"}`, `{"name": "a", "x": 1}`, `{"name": "a", "x": 1, "steps": []}`, `{"name": "a", "x": 1, "flow": "f"}`,
		`{"name": "a", "retry": {"x": 1}}`, `{"name": "a", "when": {"x": 1}}`, `{"name": "a", "concurrency": {"x": 1}}`,
		`{"name": "a", "steps": [{"name": "b"}], "retry": {"x": 1}}`, `{"name": "a", "steps": [{"name": "b"}], "each": {"x": 1}}`,
	} {
		_, err := spec.Parse([]byte(`{"name": "n", "x": 1, "flows": {"f": {"x": 1}}, "steps": [`+step+`]}`), "keys.json")
		for _, match := range known.FindAllStringSubmatch(err.Error(), -1) {
			for _, key := range strings.Split(match[1], ", ") {
				found++
				if !regexp.MustCompile("(?m)^\\| [^|]*`([a-z_]+\\.)?" + key + "`").MatchString(page) {
					t.Errorf("the pages about documents have no row for %s, in %s", key, step)
				}
			}
		}
	}
	const fewest = 100
	if found < fewest {
		t.Errorf("found only %d keys", found)
	}
}

// TestDetail: the logbook has the targets and the change policy of the document.
func TestDetail(t *testing.T) {
	document := parse(t, "testdata/good/parts.toml")
	detail := document.Detail(logbook.NewFlowID(), logbook.BookID{}, nil)
	if !slices.Equal(detail.Targets, []string{"pay", "hotel.reserve"}) || detail.OnChange != logbook.ChangePin || detail.Factory.Name != spec.Kind {
		t.Errorf("%+v", detail)
	}
	plan, err := document.Compile()
	if err != nil || !slices.Equal(plan.Targets(), detail.Targets) {
		t.Errorf("%v, %v", plan, err)
	}
	if _, err := document.Compile("car"); !errors.Is(err, flow.ErrUnknownNode) {
		t.Errorf("with a flow for a target: %v", err)
	}
}

// doubling is a document of a few parts. Each uses the next one twice.
func doubling(parts int, step string) string {
	var text strings.Builder
	text.WriteString(`{"name":"x","steps":[{"name":"s","flow":"p0"}],"flows":{`)
	for i := range parts {
		fmt.Fprintf(&text, `"p%d":{"steps":[{"name":"a","flow":"p%d"},{"name":"b","flow":"p%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&text, `"p%d":{"steps":[%s]}}}`, parts, step)
	return text.String()
}

// TestGrowth: parts that use parts grow exponentially, and a flow that is too large is refused
// before it is built.
func TestGrowth(t *testing.T) {
	chain := func(parts int) string {
		var text strings.Builder
		text.WriteString(`{"name":"x","steps":[{"name":"s","flow":"p0"}],"flows":{`)
		for i := range parts {
			fmt.Fprintf(&text, `"p%d":{"steps":[{"name":"a","flow":"p%d"}]},`, i, i+1)
		}
		fmt.Fprintf(&text, `"p%d":{"steps":[{"name":"h"}]}}}`, parts)
		return text.String()
	}
	var fields []string
	for i := range 400 {
		fields = append(fields, fmt.Sprintf(`"f%d"`, i))
	}
	wide := fmt.Sprintf(`{"name":"h","provides":[%s]}`, strings.Join(fields, ","))
	for _, row := range []struct {
		what, text string
		unit       string // of the limit; empty: it is good
	}{
		{"8 times two", doubling(8, `{"name":"h"}`), ""},
		{"60 times two", doubling(60, `{"name":"h"}`), "steps"},
		{"many names", doubling(8, wide), "names that steps require, provide and wait for"},
		{"a chain", chain(98), ""},
		{"a long chain", chain(100), "flows in each other"},
		{"a very long chain", chain(4000), "flows in each other"},
	} {
		document, err := spec.Parse([]byte(row.text), "growth.json")
		var limit *logbook.LimitError
		switch {
		case row.unit == "" && err != nil:
			t.Errorf("%s: %v", row.what, err)
		case row.unit == "":
			if _, err := document.Compile(); err != nil {
				t.Errorf("%s: %v", row.what, err)
			}
		case !errors.As(err, &limit) || limit.Unit != row.unit:
			t.Errorf("%s: %v", row.what, err)
		}
	}
}
