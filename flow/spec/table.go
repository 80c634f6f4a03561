package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/internal/tomlpos"
)

// MaxDuration limits every time in a document: no step takes longer than a month.
const MaxDuration = 31 * 24 * time.Hour

// table is one table (TOML) or object (JSON) of a document while it is read.
// Its methods take a key, note what is wrong with its value, and remember the
// key as known; rest then notes the keys that were not read.
type table struct {
	faults    *faults
	path      string // of the table, for the line: steps[0]
	where     string // of the table, for display: step "book-flight"
	values    map[string]any
	known     map[string]bool
	bad       map[string]bool   // keys with a fault
	elsewhere map[string]string // keys of tables of another shape, with their message
}

func newTable(f *faults, path, where string, values map[string]any) *table {
	return &table{faults: f, path: path, where: where, values: values, known: map[string]bool{}, bad: map[string]bool{}}
}

func (t *table) pathOf(key string) string { return tomlpos.Join(t.path, key) }

func (t *table) fault(key, format string, args ...any) {
	where := t.where
	if where != "" && key != "" {
		where += ", "
	}
	t.bad[key] = true
	t.faults.add(t.pathOf(key), where+key, fmt.Sprintf(format, args...))
}

func (t *table) has(key string) bool {
	t.known[key] = true
	_, present := t.values[key]
	return present
}

// rest notes unknown keys. It is called when all known keys have been asked for.
func (t *table) rest() {
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if why, is := t.elsewhere[key]; is && !t.known[key] {
			t.fault(key, "%s", why)
		} else if !t.known[key] {
			known := slices.Sorted(maps.Keys(t.known))
			t.fault(shortened(key), "unknown key%s; known are %s", meant.Hint(key, known), strings.Join(known, ", "))
		}
	}
}

func (t *table) text(key string) string {
	if !t.has(key) {
		return ""
	}
	text, ok := t.values[key].(string)
	if !ok {
		t.fault(key, "must be a string, not %s", kindOf(t.values[key]))
	}
	return text
}

func (t *table) truth(key string) bool {
	if !t.has(key) {
		return false
	}
	truth, ok := t.values[key].(bool)
	if !ok {
		t.fault(key, "must be true or false, not %s", kindOf(t.values[key]))
	}
	return truth
}

func (t *table) integer(key string, least, most int) int {
	if !t.has(key) {
		return 0
	}
	number, ok := numberOf(t.values[key])
	switch {
	case !ok:
		t.fault(key, "must be a number, not %s", kindOf(t.values[key]))
	case math.IsNaN(number) || number < float64(least) || number > float64(most):
		t.fault(key, "must be %v to %v, not %s", least, most, shortened(fmt.Sprint(t.values[key])))
	case number != math.Trunc(number):
		t.fault(key, "%v is not a whole number", number)
	default:
		return int(number)
	}
	return 0
}

func (t *table) duration(key string) Duration { return t.durationUpTo(key, MaxDuration) }

func (t *table) durationUpTo(key string, most time.Duration) Duration {
	text := t.text(key)
	if text == "" {
		if _, isText := t.values[key].(string); isText {
			t.fault(key, "empty; write a time such as 30s")
		}
		return 0
	}
	parsed, err := time.ParseDuration(text)
	switch {
	case err != nil:
		t.fault(key, "%.40q is not a time; write 500ms, 30s, 5m or 1h30m", text)
	case parsed <= 0 || parsed > most:
		t.fault(key, "must be above 0 and at most %s, not %s", duration.Text(most), text)
	default:
		return Duration(parsed)
	}
	return 0
}

// texts reads a list of strings, none of them twice.
func (t *table) texts(key string) []string {
	if !t.has(key) {
		return nil
	}
	list, ok := t.values[key].([]any)
	if !ok {
		t.fault(key, "must be a list of strings, not %s", kindOf(t.values[key]))
		return nil
	}
	var texts []string
	seen := make(map[string]bool, len(list))
	for _, item := range list {
		text, ok := item.(string)
		switch {
		case !ok:
			t.fault(key, "the list must contain only strings, not %s", kindOf(item))
		case seen[text]:
			t.fault(key, "%.80q occurs twice in the list", text)
		default:
			texts = append(texts, text)
		}
		seen[text] = true
	}
	return texts
}

func (t *table) table(key string) map[string]any {
	if !t.has(key) {
		return nil
	}
	values, ok := t.values[key].(map[string]any)
	if !ok {
		t.fault(key, "must be a table, not %s", kindOf(t.values[key]))
	}
	return values
}

// inner is the table under a key; nil if there is none.
func (t *table) inner(key string) *table {
	values := t.table(key)
	if values == nil {
		return nil
	}
	return newTable(t.faults, t.pathOf(key), strings.TrimPrefix(t.where+", "+key, ", "), values)
}

// choice reads one of several words; empty if the key is absent, or has another value.
func (t *table) choice(key string, words []string) string {
	word := t.text(key)
	if t.failed(key) || !t.has(key) {
		return ""
	}
	if !slices.Contains(words, word) {
		t.fault(key, "must be one of %s, not %s%s", strings.Join(words, ", "), quoted(word), meant.Hint(word, words))
		return ""
	}
	return word
}

func (t *table) tables(key string) []map[string]any {
	if !t.has(key) {
		return nil
	}
	list, ok := t.values[key].([]any)
	if !ok {
		t.fault(key, "must be a list of tables, not %s", kindOf(t.values[key]))
		return nil
	}
	var tables []map[string]any
	for i, item := range list {
		values, ok := item.(map[string]any)
		if !ok {
			t.fault(fmt.Sprintf("%s[%d]", key, i), "must be a table, not %s", kindOf(item))
			values = nil // keeps the place, so that later ones keep their lines
		}
		tables = append(tables, values)
	}
	return tables
}

func numberOf(value any) (float64, bool) {
	switch number := value.(type) {
	case int64:
		return float64(number), true
	case float64:
		return number, true
	case json.Number:
		parsed, err := strconv.ParseFloat(number.String(), 64)
		return parsed, err == nil
	}
	return 0, false
}

func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case int64, float64, json.Number:
		return "a number"
	case time.Time:
		return "a date or time"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return fmt.Sprintf("a %T", value)
}

// shortened keeps a message readable whatever the document contains.
func shortened(key string) string {
	const enough = 80
	if len(key) > enough {
		key = key[:enough] + "…"
	}
	if quoted := strconv.Quote(key); quoted != `"`+key+`"` {
		return quoted
	}
	return key
}

// failed reports whether a fault was noted at the key: a value of the wrong type must not be
// reported as missing or misspelt too.
func (t *table) failed(key string) bool { return t.bad[key] }

// quoted shows a name of any length and content in a message.
func quoted(name string) string { return fmt.Sprintf("%.80q", name) }
