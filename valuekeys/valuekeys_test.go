package valuekeys_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// keyLine is a line of a file of keys, with a key of one repeated byte.
func keyLine(id string, secret byte) string {
	return id + ` = "` + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(secret)), 32))) + `"` + "\n"
}

func parse(t testing.TB, lines ...string) *valuekeys.Keys {
	t.Helper()
	keys, err := valuekeys.Parse([]byte(strings.Join(lines, "")))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

var place = valuekeys.Place{Owner: "f", Step: "s", Field: "result", Name: "execute 1"}

func TestValuesComeBack(t *testing.T) {
	keys := parse(t, keyLine("k", 1))
	for _, value := range []string{`null`, `"x"`, `{"a":[1,2]}`, ` 1 `, `"` + strings.Repeat("long", 10_000) + `"`} {
		encrypted := keys.EncryptJSON(place, json.RawMessage(value))
		if !json.Valid(encrypted) || strings.Contains(string(encrypted), value) {
			t.Errorf("%.20q became %.80q", value, encrypted)
		}
		if id, is := valuekeys.KeyID(encrypted); id != "k" || !is {
			t.Errorf("%.80q: %q, %v", encrypted, id, is)
		}
		plain, err := keys.DecryptJSON(encrypted, valuekeys.Place{}, place)
		if err != nil || string(plain) != value {
			t.Errorf("%.20q came back as %.20q: %v", value, plain, err)
		}
	}
}

// A golden text: every written value must stay readable.
func TestFormatStays(t *testing.T) {
	const written = `$encrypted:1:k:vHIQkWjXxSFQlHHoC6oXPrQIOFEnU1So91We3wCjJcm7y211Wnw=$`
	keys := parse(t, keyLine("k", 1))
	if got := keys.Encrypt(place, []byte("plain text")); got != written {
		t.Errorf("got %s", got)
	}
}

// A repeated call must write the same bytes; equal values in two places must not look equal.
func TestEqualValues(t *testing.T) {
	keys := parse(t, keyLine("k", 1))
	text := keys.Encrypt(place, []byte("1"))
	if again := parse(t, keyLine("k", 1)).Encrypt(place, []byte("1")); again != text {
		t.Errorf("%s and %s", text, again)
	}
	for name, change := range map[string]func(*valuekeys.Place){
		"owner": func(p *valuekeys.Place) { p.Owner = "g" },
		"step":  func(p *valuekeys.Place) { p.Step = "t" },
		"field": func(p *valuekeys.Place) { p.Field = "store" },
		"name":  func(p *valuekeys.Place) { p.Name = "execute 2" },
		"parts": func(p *valuekeys.Place) { p.Owner, p.Step = "fs", "" },
	} {
		other := place
		change(&other)
		if keys.Encrypt(other, []byte("1")) == text {
			t.Errorf("%s: the same text in another place", name)
		}
		if _, err := keys.Decrypt(text, other); !errors.Is(err, valuekeys.ErrRefused) {
			t.Errorf("%s: moved to another place: %v", name, err)
		}
	}
}

func TestEachChangedByteIsRefused(t *testing.T) {
	keys := parse(t, keyLine("k", 1), keyLine("l", 2))
	text := keys.Encrypt(place, []byte("the value"))
	for i := range text {
		for _, other := range []byte("$:lA0/=\n") {
			if other == text[i] {
				continue
			}
			changed := text[:i] + string(other) + text[i+1:]
			if plain, err := keys.Decrypt(changed, place); err == nil {
				t.Errorf("byte %d as %q gives %q", i, other, plain)
			}
		}
		if plain, err := keys.Decrypt(text[:i], place); err == nil {
			t.Errorf("the first %d bytes give %q", i, plain)
		}
	}
}

func TestRotation(t *testing.T) {
	before, between := parse(t, keyLine("old", 1)), parse(t, keyLine("old", 1), keyLine("new", 2))
	after, alone := parse(t, keyLine("new", 2), keyLine("old", 1)), parse(t, keyLine("new", 2))
	old, fresh := before.Encrypt(place, []byte("1")), after.Encrypt(place, []byte("1"))
	for name, row := range map[string]struct {
		keys *valuekeys.Keys
		text string
		want error
	}{
		"the old value between":                   {between, old, nil},
		"the old value after":                     {after, old, nil},
		"the old value without its key":           {alone, old, valuekeys.ErrNoKey},
		"the new value between":                   {between, fresh, nil},
		"the new value before":                    {before, fresh, valuekeys.ErrNoKey},
		"the new value with another key of an id": {parse(t, keyLine("new", 3)), fresh, valuekeys.ErrRefused},
	} {
		if _, err := row.keys.Decrypt(row.text, place); !errors.Is(err, row.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithinTexts(t *testing.T) {
	keys := parse(t, keyLine("k", 1))
	text, other := keys.Encrypt(place, []byte("the card is 4711")), parse(t, keyLine("l", 2)).Encrypt(place, []byte("x"))
	if got := keys.DecryptWithin("attempt 1 has failed: "+text+", and "+other, place); got != "attempt 1 has failed: the card is 4711, and "+other {
		t.Error(got)
	}
	for given, want := range map[string]string{
		"plain":                             "plain",
		text:                                "[encrypted with key k]",
		`a = "` + text + `", b`:             "a = [encrypted with key k], b",
		"failed: " + text[:len(text)-9]:     "failed: [encrypted with key k, and cut short]",
		text[:len(text)-9] + "…":            "[encrypted with key k, and cut short]",
		text + " and " + other:              "[encrypted with key k] and [encrypted with key l]",
		"$encrypted:2:k:AAAA$ is of no use": "$encrypted:2:k:AAAA$ is of no use",
	} {
		if got := valuekeys.Shown(given); got != want {
			t.Errorf("%q is shown as %q", given, got)
		}
	}
	for _, plain := range []string{`1`, `null`, `"$encrypted:"`, `"$encrypted:1:k:AAAA"`, `"$encrypted:1:k:AAAA$ and more$"`, `{"a":"$encrypted:1:k:AAAA$"}`} {
		if id, is := valuekeys.KeyID(json.RawMessage(plain)); is {
			t.Errorf("%s counts as encrypted with %q", plain, id)
		}
	}
}

func TestSizes(t *testing.T) {
	keys := parse(t, keyLine(strings.Repeat("k", 32), 1))
	for size := 200; size < 5000; size++ {
		most := valuekeys.PlainSize(size)
		if got := len(keys.EncryptJSON(place, make([]byte, most))); got > size {
			t.Fatalf("%d plain bytes take %d, of %d", most, got, size)
		}
	}
	for size := range 100 {
		plain := strings.Repeat("x", size)
		for _, text := range []string{plain, keys.Encrypt(place, []byte(plain))} {
			if got := valuekeys.PlainTextSize(text); got != size {
				t.Errorf("%q: got %d, want %d", text, got, size)
			}
		}
	}
	if got := valuekeys.PlainSize(10); got != 0 {
		t.Error(got)
	}
	var none *valuekeys.Keys
	if got := none.PlainLimits(logbook.MaxLimits); got != logbook.MaxLimits {
		t.Errorf("%+v", got)
	}
}

func TestFaultyFiles(t *testing.T) {
	const secret = "c2VjcmV0" // of an error, nobody may learn a key
	for name, row := range map[string]struct{ text, want string }{
		"nothing":        {"# only this\n", "value-key add"},
		"no key":         {"a\n", `line 1 is invalid: not ID = "KEY"`},
		"a short key":    {"\na = \"" + secret + "\"\n", "line 2 is invalid: its key is not base64 of 32 bytes"},
		"a bad id":       {strings.Replace(keyLine("a", 1), "a", "a:b", 1), `"a:b" must have`},
		"an id twice":    {keyLine("a", 1) + keyLine("a", 2), "the id a occurs twice"},
		"a key twice":    {keyLine("a", 1) + keyLine("b", 1), "it has the same key as a"},
		"several faults": {"a\nb\n", "line 2"},
	} {
		_, err := valuekeys.Parse([]byte(row.text))
		if !errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := ""
	for i := range byte(65) {
		many += keyLine("k"+string(rune('A'+i%26))+string(rune('A'+i/26)), i+1)
	}
	if _, err := valuekeys.Parse([]byte(many)); err == nil || !strings.Contains(err.Error(), "the limit is 64") {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if _, err := valuekeys.Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	first, err := valuekeys.Add(path, "a")
	if err != nil {
		t.Fatal(err)
	}
	text := first.Encrypt(place, []byte("1"))
	keys, err := valuekeys.Add(path, "b")
	if err != nil || keys.Current() != "a" {
		t.Fatalf("%v, %v", keys.IDs(), err)
	}
	if keys, err = valuekeys.Use(path, "b"); err != nil || strings.Join(keys.IDs(), " ") != "b a" {
		t.Fatalf("%v, %v", keys.IDs(), err)
	}
	if keys, err = valuekeys.Open(path); err != nil || keys.Current() != "b" {
		t.Fatal(err)
	}
	if _, err := keys.Decrypt(text, place); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := valuekeys.Add(path, "b"); !errors.Is(err, logbook.ErrConflict) {
		t.Error(err)
	}
	if _, err := valuekeys.Add(path, "b:c"); !errors.Is(err, logbook.ErrInvalid) {
		t.Error(err)
	}
	if _, err := valuekeys.Use(path, "c"); !errors.Is(err, logbook.ErrNotFound) {
		t.Error(err)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func() error{
		func() error { _, err := valuekeys.Open(path); return err },
		func() error { _, err := valuekeys.Add(path, "d"); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a file that others can read: %v", err)
		}
	}
}

// FuzzDecrypt: no text makes Decrypt panic, and it accepts only what Encrypt makes.
func FuzzDecrypt(f *testing.F) {
	keys := parse(f, keyLine("k", 1), keyLine("l", 2))
	f.Add(keys.Encrypt(place, []byte("1")))
	f.Add("$encrypted:1:k:AAAA$")
	f.Add(`"$encrypted:1:k:`)
	f.Fuzz(func(t *testing.T, text string) {
		plain, err := keys.Decrypt(text, place)
		if err == nil && keys.Encrypt(place, plain) != text {
			t.Errorf("%q was not made by Encrypt", text)
		}
		_, _ = keys.DecryptJSON(json.RawMessage(text), place)
		_ = keys.DecryptWithin(text, place)
		_ = valuekeys.Shown(text)
	})
}

// FuzzParse: no text makes Parse panic, and what it accepts can be used.
func FuzzParse(f *testing.F) {
	f.Add([]byte(keyLine("k", 1) + "# x\n\n"))
	f.Add([]byte(`k = "AAAA" # x`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := valuekeys.Parse(text)
		if err != nil {
			return
		}
		if plain, err := keys.Decrypt(keys.Encrypt(place, text), place); err != nil || string(plain) != string(text) {
			t.Error(err)
		}
	})
}
