package tomlpos_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/conductord/conductord/internal/tomlpos"
)

// The text of a row is at LINE:COLUMN of its path.
func TestPositions(t *testing.T) {
	for _, row := range []struct{ name, text, path, at string }{
		{"key", "a = 1\nb = 2", "b", "2:1"},
		{"indented key", "  a = 1", "a", "1:3"},
		{"key of a table", "[a]\n\nb = 1", "a.b", "3:1"},
		{"table", "x = 1\n [a.b]", "a.b", "2:2"},
		{"dotted key names its tables", "a.b.c = 1", "a.b", "1:1"},
		{"quoted key", "\"a b\" = 1", "a b", "1:1"},
		{"element of an array of tables", "[[s]]\na = 1\n[[s]]\na = 2", "s[1].a", "4:1"},
		{"array of tables", "[[s]]\n[[s]]", "s", "1:1"},
		{"array of tables in another", "[[a]]\n[[a.b]]\n[[a]]\n[[a.b]]\nc = 1", "a[1].b[0].c", "5:1"},
		{"table of an element", "[[s]]\n[s.r]\nk = 1", "s[0].r.k", "3:1"},
		{"key of an inline table", "a = {b = 1, c = {d = 2}}", "a.c.d", "1:18"},
		{"inline table in an array", "a = [\n  1, # one\n  {b = 2},\n]", "a[1]", "3:3"},
		{"key of that", "a = [\n  1, # one\n  {b = 2},\n]", "a[1].b", "3:4"},
		{"after a string that ends in five quotes", "a = \"\"\"x\"\"\"\"\"\nb = 1", "b", "2:1"},
		{"after raw lines with brackets", "a = '''\n[x]\n'''\nb = 1", "b", "4:1"},
		{"after carriage returns", "a = 1\r\n[t]\r\nb = 1", "t.b", "3:1"},
		{"unknown, but its table is known", "[a]\nb = 1", "a.x", "1:1"},
		{"unknown", "[a]", "x", "0:0"},
		{"before a syntax error", "a = 1\nb = = 2", "a", "1:1"},
	} {
		at := tomlpos.New(row.text).Of(row.path)
		if got := fmt.Sprintf("%d:%d", at.Line, at.Column); got != row.at {
			t.Errorf("%s: %s is at %s, want %s", row.name, row.path, got, row.at)
		}
	}
}

func TestDeepest(t *testing.T) {
	for text, want := range map[string]int{
		"a = 1":                              1,
		"a.b.c = 1":                          3,
		"[a.b]":                              2,
		"a = [[1]]":                          2,
		"a = {b = {c = 1}}":                  2,
		"a = \"[[[[\"":                       1,
		strings.Repeat("[", 20) + "x":        20,
		"a = " + strings.Repeat("[", 50_000): 50_000,
	} {
		if got := tomlpos.New(text).Deepest; got != want {
			t.Errorf("%.40q is %d deep, want %d", text, got, want)
		}
	}
}

// FuzzPositions: any text is handled, every position is within the text, and every key of a valid
// document has a position.
func FuzzPositions(f *testing.F) {
	f.Add("a = 1\n[[b]]\nc = [{d = 1}]")
	f.Add("\"a.b\" = '''\n'''\n[x.\"y z\"]\n")
	f.Fuzz(func(t *testing.T, text string) {
		index := tomlpos.New(text)
		lines := strings.Split(text, "\n")
		for path, at := range index.Positions {
			if at.Line < 1 || at.Line > len(lines) || at.Column < 1 || at.Column > len(lines[at.Line-1])+1 {
				t.Fatalf("%q is at %+v of %q", path, at, text)
			}
		}
		var document map[string]any
		meta, err := toml.Decode(text, &document)
		if err != nil || len(text) > 400 {
			return
		}
		for _, key := range meta.Keys() {
			if len(key) == 1 && index.Of(key[0]) == (tomlpos.Position{}) && key[0] != "" && !strings.ContainsAny(key[0], ".[") {
				t.Fatalf("key %q of %q has no position", key, text)
			}
		}
	})
}
