package logbook_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/conductord/conductord/logbook"
)

// squeezed packs a text, which may be no valid steps.
func squeezed(t testing.TB, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	out.WriteByte(0x64) // "d", for compressed
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestStepsThatAreNone(t *testing.T) {
	for _, row := range []struct {
		name   string
		packed []byte
		want   error
		says   string
	}{
		{"no packed bytes", []byte("steps"), logbook.ErrInvalid, "start with"},
		{"plain, and no JSON", []byte("p["), logbook.ErrInvalid, "not packed"},
		{"compressed, and not", []byte("d["), logbook.ErrInvalid, "not packed"},
		{"no JSON", squeezed(t, "["), logbook.ErrInvalid, "not packed"},
		{"no list", squeezed(t, `{"n":"a"}`), logbook.ErrInvalid, "not a list"},
		{"a list of something else", squeezed(t, `[1]`), logbook.ErrInvalid, "not packed"},
		{"a list that does not end", squeezed(t, `[{"n":"a"}`), logbook.ErrInvalid, "not packed"},
		{"something behind the list", squeezed(t, `[{"n":"a"}]1`), logbook.ErrInvalid, "unexpected data"},
		{"more steps than a flow has", squeezed(t, "["+strings.Repeat("{},", logbook.MaxLimits.Steps)+"{}]"), logbook.ErrLimit, "steps"},
		{"more text than a flow has", squeezed(t, strings.Repeat(" ", 16<<20+1)), logbook.ErrLimit, "unpacked"},
	} {
		steps, err := (&logbook.Definition{Packed: row.packed}).Steps()
		if !errors.Is(err, row.want) || !strings.Contains(fmt.Sprint(err), row.says) || steps != nil {
			t.Errorf("%s: %d steps, %v", row.name, len(steps), err)
		}
	}
	for _, steps := range [][]logbook.DefinedStep{nil, {{Name: "a", Kind: logbook.KindTask}}, {{Name: "a", Kind: logbook.KindRetry, Version: "1"}, {Name: "b", Kind: logbook.KindTask}},
		slices.Repeat([]logbook.DefinedStep{{Name: "s", Kind: logbook.KindTask}}, logbook.MaxLimits.Steps)} {
		packed, err := logbook.PackSteps(steps)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := (&logbook.Definition{Packed: packed}).Steps(); err != nil || !sameSteps(got, steps) {
			t.Errorf("%d steps came back as %d, %v", len(steps), len(got), err)
		}
	}
}

func sameSteps(a, b []logbook.DefinedStep) bool {
	return slices.EqualFunc(a, b, func(a, b logbook.DefinedStep) bool {
		was, errA := json.Marshal(a)
		is, errB := json.Marshal(b)
		return errA == nil && errB == nil && string(was) == string(is)
	})
}

// FuzzDefinitionSteps: for any stored text, reading returns steps that are the same after packing
// and reading again, or one of two errors.
func FuzzDefinitionSteps(f *testing.F) {
	for _, text := range []string{"null", "[]", `[{"n":"a"}]`, `[{"n":"a","k":"retry","v":"1","p":"x","w":"y"},{"n":"b"}]`, `[{"n":"a"}`, "[1]",
		`[{"n":"a","o":[{"s":"x","f":"y","b":["c"]},{"s":"l","l":{"n":"a","l":{"n":"a","e":true}}}]}]`} {
		f.Add(squeezed(f, text))
	}
	f.Add([]byte(`p[{"n":"a"}]`))
	f.Add([]byte("steps"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		steps, err := (&logbook.Definition{Packed: packed}).Steps()
		if err != nil {
			if !errors.Is(err, logbook.ErrInvalid) && !errors.Is(err, logbook.ErrLimit) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		list := logbook.AtomDetail{Name: "a", State: logbook.AtomSuccess, Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, EndedAt: time.Unix(1, 0), Result: json.RawMessage(`[1]`)}}}
		if _, err := (&logbook.FlowDetail{Definition: &logbook.Definition{Packed: packed}, Atoms: []logbook.AtomDetail{list}}).Values(); err != nil && steps != nil {
			t.Fatalf("cannot read values: %v", err)
		}
		again, err := logbook.PackSteps(steps)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := (&logbook.Definition{Packed: again}).Steps(); err != nil || !sameSteps(got, steps) {
			t.Fatalf("%v came back as %v, %v", steps, got, err)
		}
	})
}

// FuzzCheckValue: an accepted text is one JSON value of limited depth that every reader can read; a
// refused text is not.
func FuzzCheckValue(f *testing.F) {
	for _, text := range []string{"null", `{"a":[1,{"b":"\"[{"}]}`, strings.Repeat("[", 65) + strings.Repeat("]", 65), `"\ud800"`, `"\ud83d\ude00"`, `{"a":1,"\u0061":2}`, `{"a":1 , "b" :{"a":1e309}}`, "1 2", "\xff", ""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		limits := logbook.MaxLimits
		limits.Value = 1 << 10
		err := limits.CheckValue("value", value)
		good := len(value) == 0 || len(value) <= limits.Value && json.Valid(value) && depthOf(t, value) <= logbook.MaxJSONDepth && isClear(value)
		switch {
		case err == nil && !good:
			t.Fatalf("accepted: %q", value)
		case err != nil && good && !strings.Contains(err.Error(), "UTF-8"):
			t.Fatalf("refused: %q: %v", value, err)
		}
	})
}

// isClear uses protojson, which refuses values that programs read differently.
func isClear(value []byte) bool {
	// protojson accepts a cut-off surrogate pair near the end of a text, unless enough bytes follow
	// for the other half.
	return protojson.Unmarshal(append(bytes.Clone(value), "      "...), new(structpb.Value)) == nil
}

// depthOf counts the nesting of a valid value by reading it.
func depthOf(t *testing.T, value []byte) int {
	depth, deepest := 0, 0
	decoder := json.NewDecoder(bytes.NewReader(value))
	for {
		token, err := decoder.Token()
		if token == nil && err != nil {
			return deepest
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			depth++
			deepest = max(deepest, depth)
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
	}
}

// FuzzIDs: an id or token that is parsed, formatted and parsed again is the same.
func FuzzIDs(f *testing.F) {
	f.Add("0190b7f3-8f7e-7c3a-9d2e-5b1f0c7a4e21")
	f.Add("1-17")
	f.Add("18446744073709551615-0")
	f.Fuzz(func(t *testing.T, text string) {
		if token, err := logbook.ParseToken(text); err == nil {
			if again, err := logbook.ParseToken(token.String()); err != nil || again != token {
				t.Fatalf("token %q became %v, %v", text, again, err)
			}
		}
		if id, err := logbook.ParseFlowID(text); err == nil {
			if again, err := logbook.ParseFlowID(id.String()); err != nil || again != id {
				t.Fatalf("id %q became %v, %v", text, again, err)
			}
		}
	})
}
