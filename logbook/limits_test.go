package logbook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/logbook"
)

// small limits, so that the rows show their edges.
var small = logbook.Limits{Name: 8, Value: 16, Command: 1 << 10, Steps: 2}

// check is the verdict on an input: empty, or the wrong field and the exceeded limit.
type check struct {
	field string
	limit int64 // 0: invalid, not too large
}

var fine = check{}

func (want check) compare(t *testing.T, name string, err error) {
	t.Helper()
	got := fine
	var invalid *logbook.InvalidError
	var limit *logbook.LimitError
	switch {
	case errors.As(err, &limit):
		got = check{limit.Field, limit.Limit}
		if limit.Size <= limit.Limit || !errors.Is(err, logbook.ErrLimit) {
			t.Errorf("%s: refused at %d with the limit %d: %v", name, limit.Size, limit.Limit, err)
		}
	case errors.As(err, &invalid):
		got = check{invalid.Field, 0}
		if !errors.Is(err, logbook.ErrInvalid) {
			t.Errorf("%s: not an ErrInvalid: %v", name, err)
		}
	case err != nil:
		t.Errorf("%s: an error of no kind: %v", name, err)
	}
	if got != want {
		t.Errorf("%s: got %+v (%v), want %+v", name, got, err, want)
	}
}

func text(n int) string { return strings.Repeat("x", n) }

func TestCheckName(t *testing.T) {
	for _, row := range []struct {
		name string
		want check
	}{
		{"a", fine},
		{"ä/ €", fine},
		{text(8), fine},
		{text(9), check{"f", 8}},
		{"€€", fine},
		{"€€€", check{"f", 8}}, // bytes count, not characters
		{"", check{"f", 0}},
		{"a\nb", check{"f", 0}},
		{"a\x00", check{"f", 0}},
		{"\x7f", check{"f", 0}},
		{"\u0085", check{"f", 0}},
		{"\xff", check{"f", 0}},
	} {
		row.want.compare(t, fmt.Sprintf("%q", row.name), small.CheckName("f", row.name))
	}
	fine.compare(t, "the largest name", logbook.MaxLimits.CheckName("f", text(255)))
	check{"f", 255}.compare(t, "a larger name", logbook.MaxLimits.CheckName("f", text(256)))
}

func TestCheckValue(t *testing.T) {
	for _, row := range []struct {
		value string
		want  check
	}{
		{"", fine},
		{"null", fine},
		{` {"a": [1.5e3]}`, fine},
		{`"` + text(14) + `"`, fine},
		{`"` + text(15) + `"`, check{"f", 16}},
		{"{", check{"f", 0}},
		{"1 2", check{"f", 0}},
		{"{'a':1}", check{"f", 0}},
		{"NaN", check{"f", 0}},
		{"\"\xff\"", check{"f", 0}},
		{" ", check{"f", 0}},
		{`{"a":1,"b":1}`, fine},
	} {
		row.want.compare(t, fmt.Sprintf("%q", row.value), small.CheckValue("f", json.RawMessage(row.value)))
	}
}

// TestUnclearValues checks that a value that programs read differently is refused by name.
func TestUnclearValues(t *testing.T) {
	many := func(last string) string {
		var text strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&text, `"key %d":1,`, i)
		}
		return "{" + text.String() + last + "}"
	}
	for _, row := range []struct{ value, want string }{
		{`{"a":1,"b":2,"a":3}`, `the key "a" twice`},
		{`{"a":1,"b":2,"\u0061":3}`, `the key "a" twice`},
		{"{\"a\":1,\"a\" \t\r\n" + strings.Repeat(" ", 100) + ":2}", `the key "a" twice`},
		{`[{"b":[{"a":{"x":1},"a":2}]}]`, `the key "a" twice`},
		{`{"":1,"":2}`, `the key "" twice`},
		{many(`"key 9":2`), `the key "key 9" twice`},
		{many(`"last":2`), ""},
		{`{"a":1,"A":2,"a ":3,"á":4}`, ""},
		{`[{"a":1},{"a":1},{"b":{"a":1},"a":{"a":2}}]`, ""},
		{`["a","a",{"a":"a"}]`, ""},
		{`{"a":"b\":1","b":{"a\"":1,"a":2}}`, ""},
		{`1e400`, "the number 1e400"},
		{`{"a":[-1.5E+999]}`, "the number -1.5E+999"},
		{strings.Repeat("9", 400), "the number 999"},
		{"0." + strings.Repeat("9", 400), ""},
		{strings.Repeat("9", 308), ""},
		{`[1e308,-1e308,1e-400,12345678901234567890123456789012345678901234567890,0e999]`, ""},
		{`"1e400"`, ""},
		{`"\ud800"`, `surrogate pair in "\ud800`},
		{`"\udc00\ud800"`, `surrogate pair in "\udc00`},
		{`"\ud800\\udc00"`, `surrogate pair in "\ud800`},
		{`"\uD83D\u0041"`, `surrogate pair in "\uD83D`},
		{`{"\udc00":1}`, `surrogate pair in "\udc00`},
		{`"\ud83d\ude00\u0000\\ud800 \\\\ud800"`, ""},
	} {
		err := logbook.MaxLimits.CheckValue("f", json.RawMessage(row.value))
		if row.want == "" && err != nil || row.want != "" && (!errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), "f is invalid: ") || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%.80s: %v, want %q", row.value, err, row.want)
		}
	}
}

// BenchmarkCheckValue measures the check of a value that is posted, reported or recorded.
func BenchmarkCheckValue(b *testing.B) {
	const order = `{"id":"01a218e4-9ead-7bf7-8354-64a4fe02ef3f","customer":{"name":"Ada \"L\"","city":"Wien"},"lines":[{"sku":"A-17","count":2,"price":19.9},{"sku":"B-4","count":1,"price":5}]}`
	for name, value := range map[string]string{
		"512 letters": `"` + strings.Repeat("x", 510) + `"`, "an order": order,
		"1000 orders": "[" + strings.Repeat(order+",", 999) + order + "]",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				if err := logbook.MaxLimits.CheckValue("f", json.RawMessage(value)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestCheckValueAtTheDeepest(t *testing.T) {
	nested := func(open, close string, depth int) json.RawMessage {
		return json.RawMessage(strings.Repeat(open, depth) + "1" + strings.Repeat(close, depth))
	}
	limits := logbook.MaxLimits
	for _, row := range []struct {
		name  string
		value json.RawMessage
		want  check
	}{
		{"lists at the limit", nested("[", "]", logbook.MaxJSONDepth), fine},
		{"lists over it", nested("[", "]", logbook.MaxJSONDepth+1), check{"f", logbook.MaxJSONDepth}},
		{"objects at the limit", nested(`{"a":`, "}", logbook.MaxJSONDepth), fine},
		{"objects over it", nested(`{"a":`, "}", logbook.MaxJSONDepth+1), check{"f", logbook.MaxJSONDepth}},
		{"side by side", json.RawMessage("[" + strings.Repeat("[],", 1000) + "[]]"), fine},
		{"within a string", json.RawMessage(`"` + strings.Repeat("[", 1000) + `"`), fine},
		{"within a string with a quote", json.RawMessage(`"\"` + strings.Repeat("[", 1000) + `"`), fine},
		{"never closed", json.RawMessage(strings.Repeat("[", 100_000)), check{"f", logbook.MaxJSONDepth}},
	} {
		row.want.compare(t, row.name, limits.CheckValue("f", row.value))
	}
}

func TestCheckValues(t *testing.T) {
	many := func(n int) logbook.Values {
		values := logbook.Values{}
		for i := range n {
			values[fmt.Sprint("n", i)] = json.RawMessage("1")
		}
		return values
	}
	for _, row := range []struct {
		name   string
		values logbook.Values
		want   check
	}{
		{"none", nil, fine},
		{"at the limit", many(logbook.MaxValues), fine},
		{"over it", many(logbook.MaxValues + 1), check{"f", logbook.MaxValues}},
		{"name at the limit", logbook.Values{text(8): json.RawMessage("1")}, fine},
		{"name over it", logbook.Values{text(9): json.RawMessage("1")}, check{"f name", 8}},
		{"no name", logbook.Values{"": json.RawMessage("1")}, check{"f name", 0}},
		{"no value", logbook.Values{"a": nil}, check{"f.a", 0}},
		{"bad value", logbook.Values{"a": json.RawMessage("]")}, check{"f.a", 0}},
		{"value over the limit", logbook.Values{"a": json.RawMessage(`"` + text(15) + `"`)}, check{"f.a", 16}},
	} {
		row.want.compare(t, row.name, small.CheckValues("f", row.values))
	}
}

func TestCheckBook(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*logbook.Book)
		want  check
	}{
		{"as it is", func(*logbook.Book) {}, fine},
		{"without flows", func(b *logbook.Book) { b.Flows = nil }, fine},
		{"no id", func(b *logbook.Book) { b.ID = logbook.BookID{} }, check{"book id", 0}},
		{"name over the limit", func(b *logbook.Book) { b.Name = text(9) }, check{"book name", 8}},
		{"bad meta", func(b *logbook.Book) { b.Meta = logbook.Values{"a": nil} }, check{"book meta.a", 0}},
		{"a flow twice", func(b *logbook.Book) { b.Flows = append(b.Flows, b.Flows[0]) }, check{"flow id", 0}},
		{"flow without an id", func(b *logbook.Book) { b.Flows[0].ID = logbook.FlowID{} }, check{"flow id", 0}},
		{"flow name over the limit", func(b *logbook.Book) { b.Flows[0].Name = text(9) }, check{"flow name", 8}},
		{"flow without a factory", func(b *logbook.Book) { b.Flows[0].Factory.Name = "" }, check{"flow factory", 0}},
		{"bad factory args", func(b *logbook.Book) { b.Flows[0].Factory.Args = json.RawMessage("{") }, check{"flow factory args", 0}},
		{"bad store", func(b *logbook.Book) { b.Flows[0].Store = logbook.Values{"a": nil} }, check{"flow store.a", 0}},
		{"bad flow meta", func(b *logbook.Book) { b.Flows[0].Meta = logbook.Values{"a": nil} }, check{"flow meta.a", 0}},
		{"steps at the limit", func(b *logbook.Book) { b.Flows[0].Atoms = make([]logbook.AtomDetail, 2) }, fine},
		{"steps over it", func(b *logbook.Book) { b.Flows[0].Atoms = make([]logbook.AtomDetail, 3) }, check{"flow atoms", 2}},
	} {
		book := logbook.Book{ID: logbook.NewBookID(), Name: "trip", Flows: []logbook.FlowDetail{{
			ID: logbook.NewFlowID(), Name: "travel", Factory: logbook.Factory{Name: "travel"},
		}}}
		row.spoil(&book)
		row.want.compare(t, row.name, small.CheckBook(&book))
	}
}

func TestCheckUpdate(t *testing.T) {
	attempt := func(a logbook.Attempt) func(*logbook.Update) {
		return func(u *logbook.Update) { u.Atoms[0].Attempts = []logbook.Attempt{a} }
	}
	for _, row := range []struct {
		name  string
		spoil func(*logbook.Update)
		want  check
	}{
		{"as it is", func(*logbook.Update) {}, fine},
		{"no flow", func(u *logbook.Update) { u.Flow = logbook.FlowID{} }, check{"update flow", 0}},
		{"steps at the limit", func(u *logbook.Update) { u.Atoms = append(u.Atoms, logbook.AtomChange{Name: "b"}) }, fine},
		{"steps over it", func(u *logbook.Update) { u.Atoms = make([]logbook.AtomChange, 3) }, check{"update atoms", 2}},
		{"atom without a name", func(u *logbook.Update) { u.Atoms[0].Name = "" }, check{"atom name", 0}},
		{"version over the limit", func(u *logbook.Update) { u.Atoms[0].Version = text(9) }, check{"version of pay", 8}},
		{"attempts of a change at the limit", func(u *logbook.Update) {
			u.Atoms[0].Attempts = make([]logbook.Attempt, logbook.MaxChangeAttempts)
		}, fine},
		{"attempts of a change over it", func(u *logbook.Update) {
			u.Atoms[0].Attempts = make([]logbook.Attempt, logbook.MaxChangeAttempts+1)
		}, check{"attempts of pay", logbook.MaxChangeAttempts}},
		{"cause without a kind", func(u *logbook.Update) { u.Cause = &logbook.Failure{} }, check{"update cause kind", 0}},
		{"result at the limit", attempt(logbook.Attempt{Result: json.RawMessage(`"` + text(14) + `"`)}), fine},
		{"result over it", attempt(logbook.Attempt{Result: json.RawMessage(`"` + text(15) + `"`)}), check{"result of pay", 16}},
		{"stderr at the limit", attempt(logbook.Attempt{Stderr: text(logbook.MaxStderr)}), fine},
		{"stderr over it", attempt(logbook.Attempt{Stderr: text(logbook.MaxStderr + 1)}), check{"stderr of pay", logbook.MaxStderr}},
		{"owner over the limit", attempt(logbook.Attempt{Owner: text(9)}), check{"owner of pay", 8}},
		{"failures before it at the limit", attempt(logbook.Attempt{Failures: []logbook.Failure{{Kind: "k", Message: text(8)}, {Kind: "k", Message: text(8)}}}), fine},
		{"failures before it over the limit", attempt(logbook.Attempt{Failures: []logbook.Failure{{Kind: "k", Message: text(8)}, {Kind: "k", Message: text(9)}}}), check{"earlier failure of pay", 16}},
		{"failures before it without a kind", attempt(logbook.Attempt{Failures: []logbook.Failure{{}}}), check{"earlier failure kind of pay", 0}},
		{"failure over the limit", attempt(logbook.Attempt{Failure: &logbook.Failure{Kind: "k", Stack: text(17)}}), check{"failure of pay", 16}},
	} {
		update := logbook.Update{Flow: logbook.NewFlowID(), Sequence: 1, Atoms: []logbook.AtomChange{{
			Name: "pay", RetryAt: time.Unix(1, 0),
		}}}
		row.spoil(&update)
		row.want.compare(t, row.name, small.CheckUpdate(&update))
	}
}

func TestCheckFailure(t *testing.T) {
	chain := func(n int) *logbook.Failure {
		f := logbook.Failure{Kind: "k"}
		for range n - 1 {
			f = logbook.Failure{Kind: "k", Causes: []logbook.Failure{f}}
		}
		return &f
	}
	details := func(n int) logbook.Values {
		values := logbook.Values{}
		for i := range n {
			values[fmt.Sprintf("%02d", i)] = []byte("1")
		}
		return values
	}
	wide := &logbook.Failure{Kind: "k", Causes: make([]logbook.Failure, logbook.MaxFailures)}
	for i := range wide.Causes {
		wide.Causes[i].Kind = "k"
	}
	for _, row := range []struct {
		name    string
		failure *logbook.Failure
		want    check
	}{
		{"none", nil, fine},
		{"any bytes", &logbook.Failure{Kind: "k", Message: "\xff\x00", Stack: "\n\t"}, fine},
		{"details", &logbook.Failure{Kind: "k", Details: details(4)}, fine},
		{"details over it", &logbook.Failure{Kind: "k", Details: details(logbook.MaxDetails + 1)}, check{"f details", logbook.MaxDetails}},
		{"details that are too long", &logbook.Failure{Kind: "k", Message: text(15), Details: details(1)}, check{"f", 16}},
		{"a detail that is no JSON", &logbook.Failure{Kind: "k", Details: logbook.Values{"a": []byte("x")}}, check{"f details.a", 0}},
		{"no kind", &logbook.Failure{Message: "m"}, check{"f kind", 0}},
		{"kind over the limit", &logbook.Failure{Kind: text(9)}, check{"f kind", 8}},
		{"step over the limit", &logbook.Failure{Kind: "k", Step: text(9)}, check{"f step", 8}},
		{"cause without a kind", &logbook.Failure{Kind: "k", Causes: []logbook.Failure{{}}}, check{"f kind", 0}},
		{"text at the limit", &logbook.Failure{Kind: "k", Message: text(8), Stack: text(8)}, fine},
		{"text over it", &logbook.Failure{Kind: "k", Message: text(8), Stack: text(9)}, check{"f", 16}},
		{"text of the causes over it", &logbook.Failure{Kind: "k", Message: text(8), Causes: []logbook.Failure{
			{Kind: "k", Message: text(9)},
		}}, check{"f", 16}},
		{"chain at the limit", chain(logbook.MaxFailures), fine},
		{"chain over it", chain(logbook.MaxFailures + 1), check{"f", logbook.MaxFailures}},
		{"too many side by side", wide, check{"f", logbook.MaxFailures}},
	} {
		row.want.compare(t, row.name, small.CheckFailure("f", row.failure))
	}
}
