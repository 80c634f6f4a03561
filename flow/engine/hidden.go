package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

const (
	// minPart is the shortest part of a secret that is hidden in a text for people. The engine
	// and other programs cut such texts, and a cut can leave half a secret.
	minPart = 8
	// minRun is the shortest part of a longer secret that is hidden in a value. Programs use
	// values, and a shorter part, such as https://, can occur in a value without the secret.
	minRun = 16
	// maxNested is the number of nested JSON texts that are read. Each level of nesting adds
	// one level of quoting.
	maxNested = 2
)

// hidden holds the secrets of one attempt, and keeps them out of the attempt's record. nil:
// the attempt has no secrets.
type hidden struct {
	secrets    map[string]string // by name
	references int
	parts      map[string]part   // by their bytes, as flat returns them
	sizes      []int             // of the parts, largest first
	begun      map[string]bool   // beginnings of parts, up to the end of a line
	documents  map[uint64]string // names of secrets by the sums of the JSON values in them
	seed       maphash.Seed      // of the sums
}

// part is a part of a secret.
type part struct {
	name   string // of the secret, or of one of several secrets with this form
	shared bool   // by several secrets
	least  int    // bytes that a run of parts must have to be hidden in a value
}

// join combines the facts about two adjacent parts.
func (p part) join(next part) part {
	if p.shared && !next.shared {
		p.name, p.shared = next.name, false
	}
	p.least = min(p.least, next.least)
	return p
}

// hiddenForm is a text that must not be recorded: a secret, a text within a JSON secret, or a
// line of either.
type hiddenForm struct{ name, text string }

// forms are the texts to hide, the longest first.
func (h *hidden) forms() []hiddenForm {
	var forms []hiddenForm
	for name, secret := range h.secrets {
		add := func(text string, least int) {
			if len(text) < least {
				return
			}
			forms = append(forms, hiddenForm{name, text})
			for line := range strings.Lines(text) {
				if line = strings.TrimSpace(line); len(line) >= minSecret && line != text {
					forms = append(forms, hiddenForm{name, line})
				}
			}
		}
		add(secret, minSecret)
		h.addDocuments(name, secret, 0, add)
	}
	slices.SortFunc(forms, func(a, b hiddenForm) int {
		return cmp.Or(len(b.text)-len(a.text), strings.Compare(a.name, b.name), strings.Compare(a.text, b.text))
	})
	return slices.Compact(forms)
}

// addDocuments adds the texts and numbers in a secret that is JSON, and notes the sums of the
// document and of its larger objects and lists. Its texts may be JSON, too.
func (h *hidden) addDocuments(name, secret string, depth int, add func(text string, least int)) {
	documents := documentsIn(secret)
	for _, document := range documents {
		_, sum, size := h.walk(document, func(value any, sum uint64, size int) any {
			switch value := value.(type) {
			case string:
				if add(value, minPart); depth < maxNested {
					h.addDocuments(name, value, depth+1, add)
				}
			case json.Number:
				add(value.String(), minPart)
			case map[string]any, []any:
				if size >= minRun {
					h.documents[sum] = name
				}
			}
			return value
		})
		if depth == 0 && len(documents) == 1 && size > 0 {
			h.documents[sum] = name
			if text, isText := document.(string); isText {
				add(text, minSecret)
			}
		}
	}
}

// documentsIn returns the JSON values of a text that has nothing else.
func documentsIn(text string) (documents []any) {
	if text = strings.TrimSpace(text); text == "" || !strings.Contains("{[\"-0123456789", text[:1]) {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for {
		var document any
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return documents
		case err != nil:
			return nil
		}
		documents = append(documents, document)
	}
}

// walk replaces a JSON value, and each value inside it, by the result of visit, inner values
// first. The sum covers the original value: equal values have equal sums, whatever the order of
// keys and the form of numbers. The size counts the bytes of texts, keys and numbers.
func (h *hidden) walk(value any, visit func(value any, sum uint64, size int) any) (visited any, sum uint64, size int) {
	switch value := value.(type) {
	case string:
		sum, size = maphash.Comparable(h.seed, value), len(value)
	case json.Number:
		sum, size = maphash.Comparable(h.seed, value), len(value)
		if number, err := value.Float64(); err == nil {
			sum = maphash.Comparable(h.seed, number)
		}
	case []any:
		for i := range value {
			inner, part, more := h.walk(value[i], visit)
			value[i], size = inner, size+more
			sum = maphash.Comparable(h.seed, [2]uint64{sum, part})
		}
	case map[string]any:
		for key := range value {
			inner, part, more := h.walk(value[key], visit)
			value[key], size = inner, size+len(key)+more
			sum += maphash.Comparable(h.seed, member{key, part})
		}
	case bool:
		sum = maphash.Comparable(h.seed, value)
	}
	return visit(value, sum, size), sum, size
}

// member is a member of an object: its key, and the sum of its value.
type member struct {
	key string
	sum uint64
}

// prepare makes what replaces the secrets.
func (h *hidden) prepare() {
	if h == nil {
		return
	}
	h.parts, h.begun, h.documents = make(map[string]part), make(map[string]bool), make(map[uint64]string)
	h.seed = maphash.MakeSeed()
	for _, form := range h.forms() {
		size, least := min(len(form.text), minPart), min(len(form.text), max(minRun, len(form.text)/2))
		if !slices.Contains(h.sizes, size) {
			h.sizes = append(h.sizes, size)
		}
		flattened := flat(form.text)
		for at := range len(flattened) - size + 1 {
			key := flattened[at : at+size]
			found := part{name: form.name, least: least}
			if known, ok := h.parts[key]; ok {
				found.shared = known.shared || known.name != form.name
				found.least = min(found.least, known.least)
			}
			h.parts[key] = found
			written := form.text[at : at+size]
			for end := strings.LastIndexAny(written[:size-1], "\r\n"); end >= 0; end = strings.LastIndexAny(written[:end], "\r\n") {
				h.begun[written[:end+1]] = true
			}
		}
	}
}

// mark replaces a secret in the record.
func mark(name string) string { return "[secret " + name + "]" }

// flat replaces each control character of a text by a space, as failure messages do.
func flat(text string) string {
	if strings.IndexFunc(text, unicode.IsControl) < 0 {
		return text
	}
	return string(flatten([]byte(text)))
}

func flatten(text []byte) []byte {
	for i, b := range text {
		if b < ' ' || b == 0x7f {
			text[i] = ' '
		}
	}
	return text
}

// text removes secrets from a text. A text for people loses every part of a secret; a text in
// a value loses only parts that are too long for a coincidence. text first replaces bytes that
// are not UTF-8, so that it searches exactly the text that is recorded.
func (h *hidden) text(text string, ofValue bool) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	flattened := flat(text)
	var shown strings.Builder
	copied := 0 // text[:copied] is in shown, or hidden
	for at := 0; at < len(text); at++ {
		end, found := h.partAt(flattened, at)
		if end == 0 {
			continue
		}
		begin := at
		for at++; at < end || at == end && !ofValue; at++ { // a longer part is hidden under one mark
			if further, next := h.partAt(flattened, at); further > 0 {
				end, found = max(end, further), found.join(next)
			}
		}
		if at = end - 1; ofValue && end-begin < found.least {
			continue
		}
		shown.WriteString(text[copied:begin])
		shown.WriteString(mark(found.name))
		copied = end
	}
	shown.WriteString(text[copied:])
	return strings.ToValidUTF8(shown.String(), "") // a part can start or end within a character
}

// partAt returns the end of a secret's part, plain or quoted, that starts at a position of a
// text; 0: no part starts there.
func (h *hidden) partAt(text string, at int) (end int, found part) {
	for _, size := range h.sizes {
		for depth := 0; depth <= maxNested; depth++ {
			var plain [minPart + utf8.UTFMax]byte
			behind, quoted := unquote(plain[:], text, at, size, depth)
			if known, ok := h.parts[string(plain[:size])]; ok && behind > end {
				end, found = behind, known
			}
			if !quoted {
				break // so unquoting it again does not change it
			}
		}
	}
	return end, found
}

// value is a JSON value without secrets.
func (h *hidden) value(value json.RawMessage) (json.RawMessage, error) {
	if h == nil || len(value) == 0 {
		return value, nil
	}
	tree, err := logbook.DecodeJSON(value)
	if err != nil {
		return nil, err
	}
	return logbook.EncodeJSON(h.tree(tree, 0))
}

func (h *hidden) tree(value any, depth int) any {
	shown, _, _ := h.walk(value, func(value any, sum uint64, _ int) any {
		if name, ok := h.documents[sum]; ok {
			return mark(name)
		}
		switch value := value.(type) {
		case string:
			return h.text(h.nested(value, depth), true)
		case json.Number:
			if shown := h.text(value.String(), true); shown != value.String() {
				return shown
			}
		case map[string]any:
			shown := make(map[string]any, len(value))
			for key, part := range value {
				shown[h.text(key, true)] = part
			}
			return shown
		}
		return value
	})
	return shown
}

// nested is a text without the JSON of secrets, if it is JSON itself.
func (h *hidden) nested(text string, depth int) string {
	if depth == maxNested || len(h.documents) == 0 {
		return text
	}
	documents := documentsIn(text)
	if len(documents) != 1 {
		return text
	}
	before, err := logbook.EncodeJSON(documents[0])
	if err != nil {
		return text
	}
	shown := h.tree(documents[0], depth+1)
	if name, isMark := shown.(string); isMark {
		return name
	}
	if after, err := logbook.EncodeJSON(shown); err == nil && !bytes.Equal(before, after) {
		return string(after)
	}
	return text
}

// failure is a copy of a failure without secrets.
func (h *hidden) failure(f logbook.Failure) logbook.Failure {
	f.Kind, f.Message, f.Stack = h.text(f.Kind, false), h.text(f.Message, false), h.text(f.Stack, false)
	details := f.Details
	f.Details = nil
	for name, value := range details {
		if shown, err := h.value(value); err == nil { // only JSON can be a detail
			if f.Details == nil {
				f.Details = make(logbook.Values, len(details))
			}
			f.Details[h.text(name, true)] = shown
		}
	}
	f.Causes = slices.Clone(f.Causes)
	for i := range f.Causes {
		f.Causes[i] = h.failure(f.Causes[i])
	}
	return f
}

// report removes the secrets from an attempt's report. A mark can be longer than its secret,
// so a text can exceed its limit afterwards.
func (h *hidden) report(r *report, limits *logbook.Limits) {
	if h == nil {
		return
	}
	var err error
	if r.result, err = h.value(r.result); err == nil && r.result != nil {
		err = limits.CheckValue("result", r.result)
	}
	if err == nil && r.notYet != nil {
		var details json.RawMessage
		if details, err = h.value(r.notYet.Details); err == nil && details != nil {
			checked := logbook.Limits{Value: detailsLimit(limits)}
			err = checked.CheckValue("details of \"not yet\"", details)
		}
		r.notYet = &flow.NotYetError{After: r.notYet.After, Details: details}
	}
	if err != nil {
		r.result, r.notYet = nil, nil
		r.failure = flow.FailureOf(flow.Fail(logbook.FailureResult, fmt.Errorf("cannot hide secrets in its result: %w", err)))
	}
	if r.failure != nil {
		shown := h.failure(*r.failure)
		r.failure = flow.FitFailure(&shown, *limits)
	}
	r.stderr = h.text(r.stderr, false)
}

// reporter takes the secrets out of the progress of a call.
func (h *hidden) reporter(to flow.Reporter) flow.Reporter {
	if h == nil {
		return to
	}
	return hiddenReporter{h, to}
}

// hide is the function that takes the secrets out of a value; nil without secrets.
func (h *hidden) hide() func(json.RawMessage) (json.RawMessage, error) {
	if h == nil {
		return nil
	}
	return h.value
}

type hiddenReporter struct {
	hidden *hidden
	to     flow.Reporter
}

// Report implements flow.Reporter.
func (r hiddenReporter) Report(call *flow.Call, progress logbook.Progress) error {
	var err error
	if progress.Details, err = r.hidden.value(progress.Details); err != nil {
		return err
	}
	return r.to.Report(call, progress)
}
