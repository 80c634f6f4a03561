package logbook_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/conductord/conductord/logbook"
)

func TestValuesOf(t *testing.T) {
	type guest struct {
		Name   string `json:"name"`
		Nights int    `json:"nights,omitempty"`
		room   int
	}
	for _, row := range []struct {
		name string
		of   any
		want string // empty: refused
	}{
		{"a struct", guest{Name: "Ada", room: 7}, `{"name":"Ada"}`},
		{"a pointer", &guest{Nights: 2}, `{"name":"","nights":2}`},
		{"a map", map[string]any{"b": nil, "a": []int{1, 2}}, `{"a":[1,2],"b":null}`},
		{"values", logbook.Values{"a": json.RawMessage("12345678901234567890")}, `{"a":12345678901234567890}`},
		{"an object", json.RawMessage(`{"a": 1}`), `{"a":1}`},
		{"nil", nil, `null`},
		{"a list", []int{1}, ""},
		{"a text", "a", ""},
		{"no JSON", map[string]any{"a": math.NaN()}, ""},
		{"a function", func() {}, ""},
	} {
		values, err := logbook.ValuesOf(row.of)
		got := ""
		if err == nil {
			got = string(must(json.Marshal(values)))
		} else if !errors.Is(err, logbook.ErrInvalid) {
			t.Errorf("%s: %v", row.name, err)
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s (%v)", row.name, got, row.want, err)
		}
	}
}

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return raw
}
