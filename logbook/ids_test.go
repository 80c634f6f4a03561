package logbook_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/conductord/conductord/logbook"
)

func TestParseID(t *testing.T) {
	const canonical = "0190c7e2-0000-7000-8000-00000000000a"
	if id, err := logbook.ParseID("id", canonical); err != nil || id.String() != canonical {
		t.Errorf("%s: got %s, %v", canonical, id, err)
	}
	for _, text := range []string{
		"", "17", "{" + canonical + "}", "urn:uuid:" + canonical, strings.ReplaceAll(canonical, "-", ""),
		canonical + "0", strings.Replace(canonical, "a", "g", 1), strings.Replace(canonical, "-", "0", 1),
		"00000000-0000-0000-0000-000000000000", strings.Repeat("x", 1<<20),
	} {
		_, err := logbook.ParseID("trip id", text)
		var invalid *logbook.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "trip id" || len(err.Error()) > 300 {
			t.Errorf("%.50q: got %.300v", text, err)
		}
	}
}

func TestIDsHaveOneText(t *testing.T) {
	book, flow := logbook.NewBookID(), logbook.NewFlowID()
	if got, err := logbook.ParseBookID(book.String()); err != nil || got != book || got.IsZero() {
		t.Errorf("book %s came back as %s, %v", book, got, err)
	}
	if got, err := logbook.ParseFlowID(flow.String()); err != nil || got != flow || got.IsZero() {
		t.Errorf("flow %s came back as %s, %v", flow, got, err)
	}
	if !(logbook.BookID{}).IsZero() || !(logbook.FlowID{}).IsZero() {
		t.Error("an unset id is not zero")
	}
	text, err := json.Marshal(map[string]any{"book": book})
	if err != nil || string(text) != `{"book":"`+book.String()+`"}` {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}

func TestNewIDsSortByTime(t *testing.T) {
	last := logbook.NewFlowID().String()
	for range 1000 {
		next := logbook.NewFlowID().String()
		if next <= last {
			t.Fatalf("%s was made after %s", next, last)
		}
		last = next
	}
}

func TestTokensAreOrderedAsPairs(t *testing.T) {
	for _, row := range []struct {
		a, b logbook.Token
		want int
	}{
		{logbook.Token{}, logbook.Token{}, 0},
		{logbook.Token{Generation: 1, Index: 5}, logbook.Token{Generation: 1, Index: 5}, 0},
		{logbook.Token{Generation: 1, Index: 5}, logbook.Token{Generation: 1, Index: 6}, -1},
		{logbook.Token{Generation: 2, Index: 5}, logbook.Token{Generation: 1, Index: 600}, 1},
	} {
		if got := row.a.Compare(row.b); got != row.want {
			t.Errorf("%s to %s: got %d, want %d", row.a, row.b, got, row.want)
		}
		if got := row.b.Compare(row.a); got != -row.want {
			t.Errorf("%s to %s: got %d, want %d", row.b, row.a, got, -row.want)
		}
	}
}

func TestParseToken(t *testing.T) {
	for text, want := range map[string]logbook.Token{
		"0-0":                      {},
		"1-42":                     {Generation: 1, Index: 42},
		"3-18446744073709551615":   {Generation: 3, Index: 1<<64 - 1},
		"18446744073709551615-000": {Generation: 1<<64 - 1},
	} {
		if got, err := logbook.ParseToken(text); err != nil || got != want {
			t.Errorf("%q: got %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "-", "1-", "-1", "1-2-3", "1--2", "a-b", "1-18446744073709551616", " 1-2"} {
		if got, err := logbook.ParseToken(text); !errors.Is(err, logbook.ErrInvalid) {
			t.Errorf("%q: got %s and %v", text, got, err)
		}
	}
	var token logbook.Token
	if err := json.Unmarshal([]byte(`"1-42"`), &token); err != nil || token != (logbook.Token{Generation: 1, Index: 42}) {
		t.Errorf("from JSON: %s, %v", token, err)
	}
	if text, err := json.Marshal(token); err != nil || string(text) != `"1-42"` {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}
