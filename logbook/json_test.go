package logbook_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/logbook"
)

// jsonRows are values of all forms, good and bad.
var jsonRows = []string{
	`null`, `true`, `false`, `nul`, `tru`, `falsee`, `nullnull`, ` null `, "\t\r\n1\n", "\v1", "\u00a01",
	`0`, `-0`, `-`, `+1`, `00`, `01`, `1.`, `1.5`, `.5`, `-1.5e+10`, `1e`, `1e+`, `1E-7`, `1ee2`, `0x10`, `1 2`, `-a`, `9999999999999999999999`,
	`""`, `"`, `"a`, `"a"b`, `"\`, `"\"`, `"\""`, `"\x"`, `"\/\b\f\n\r\t\\"`, `"\u00e4"`, `"\u00e"`, `"\u00eg"`, `"\ud800"`, `"\uDFFF"`,
	"\"a\nb\"", "\"a\x1fb\"", "\"a\x7fb\"", `"Zürich, 東京, 🚲"`, `"12345678"`, `"1234567\"9"`, "\"1234567\x008\"", `"12345678` + "\x01" + `"`,
	`[]`, `[ ]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[1,2`, `[`, `]`, `[1}`, `[[[]]]`, `[ 1 , "a" , null ]`,
	`{}`, `{ }`, `{"a":1}`, `{"a" : 1 , "b":[{}]}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{1:1}`, `{"a":1 "b":2}`, `{"a":1`, `{"a":`, `{"a"`, `{"`, `{`, `}`, `{"a":1]`,
}

// agreesOnJSON holds our verdict on a value against that of encoding/json.
func agreesOnJSON(t interface {
	Helper()
	Fatalf(string, ...any)
}, value []byte) {
	t.Helper()
	err := logbook.MaxLimits.CheckValue("value", value)
	if errors.Is(err, logbook.ErrLimit) || !utf8.Valid(value) || len(value) == 0 {
		return // nobody asks whether it is JSON
	}
	if valid := json.Valid(value); valid != (err == nil) {
		t.Fatalf("%q: valid JSON is %t, and it was checked with %v", value, valid, err)
	}
}

func TestCheckValueKnowsJSON(t *testing.T) {
	for _, row := range jsonRows {
		agreesOnJSON(t, []byte(row))
		for at := range len(row) { // cut short, and in other places of eight bytes
			agreesOnJSON(t, []byte(row[:at]))
			agreesOnJSON(t, []byte(strings.Repeat(" ", at)+row))
		}
	}
	for c := range 0x80 {
		for at := range 17 {
			text := []byte(strings.Repeat("x", 17))
			text[at] = byte(c)
			agreesOnJSON(t, []byte(`"`+string(text)+`"`))
		}
	}
}

// TestCheckValueKnowsMixedJSON puts good and bad pieces together.
func TestCheckValueKnowsMixedJSON(t *testing.T) {
	pieces := append([]string{"[", "]", "{", "}", ",", ":", `"`, `\`, `"a":`, "u00ff", "e", "1", "-"}, jsonRows...)
	rapid.Check(t, func(t *rapid.T) {
		agreesOnJSON(t, []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 12).Draw(t, "pieces"), "")))
	})
}

func BenchmarkCheckValue(b *testing.B) {
	for name, value := range map[string]string{
		"text":   `"` + strings.Repeat("x", 510) + `"`,
		"object": `{"order":17,"lines":[` + strings.Repeat(`{"article":"A-1","count":2},`, 16) + `{}],"to":"Zürich"}`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := logbook.MaxLimits.CheckValue("value", json.RawMessage(value)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
