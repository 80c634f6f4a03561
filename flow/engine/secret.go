package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

const (
	// minSecret: hiding a shorter text wherever it stands would tear results apart.
	minSecret = 6
	// MaxSecret is how many bytes a secret may have: a certificate chain with its key fits.
	MaxSecret = 64 << 10
	// maxReferences is how many references to secrets the arguments of one attempt may
	// have. With MaxSecret it bounds what an attempt can grow by.
	maxReferences = 64
	// minPart is how many bytes of a secret are hidden wherever they stand in a text for
	// people. Such texts are cut, by us and by programs, and a cut can leave half a secret.
	minPart = 8
)

// secretKey is the only field of an object that refers to a secret.
const secretKey = "secret"

// hidden are the secrets that one attempt was given, kept out of what is recorded of it.
// nil: it was given none.
type hidden struct {
	secrets    map[string]string // by name
	references int
	whole      *strings.Replacer // of secrets and their lines, for values
	parts      map[string]string // the names of secrets by the parts that texts must not have
	sizes      []int             // of the parts
	begun      map[string]bool   // beginnings of parts, up to the end of a line
}

// resolveSecrets puts secrets in the place of the references in a call's arguments. It
// looks at arguments that come from the flow's definition and from the store. It never
// looks at the result of a step: otherwise a system that answers a step could ask for any secret.
func (l *loop) resolveSecrets(ctx context.Context, s start) (h *hidden, err error) {
	defer func() { h.prepare() }()
	defer flow.CatchPanic(&err)
	wires := s.plan.Arguments(s.step)
	if s.call.Action == logbook.ActionRevert {
		wires = s.plan.RevertArguments(s.step)
	}
	for i := range wires {
		value := s.call.Arguments[wires[i].Name]
		written := wires[i].From == flow.FromStep || wires[i].From == flow.FromStore
		if !written || !bytes.Contains(value, []byte(`"`+secretKey+`"`)) {
			continue
		}
		if h == nil {
			h = &hidden{secrets: make(map[string]string)}
		}
		before := h.references
		resolved, err := l.resolve(ctx, value, h)
		if err != nil {
			return h, flow.Fail(logbook.FailureSecret, fmt.Errorf("cannot resolve a secret in its argument %q: %w", wires[i].Name, err))
		}
		if s.call.Arguments[wires[i].Name] = resolved; h.references > before {
			s.call.Secrets = append(s.call.Secrets, wires[i].Name)
		}
	}
	return h, nil
}

func (l *loop) resolve(ctx context.Context, value json.RawMessage, h *hidden) (json.RawMessage, error) {
	tree, err := logbook.DecodeJSON(value)
	if err != nil {
		return nil, err
	}
	before := h.references
	if tree, err = l.resolveTree(ctx, tree, h); err != nil || h.references == before {
		return value, err
	}
	return logbook.EncodeJSON(tree)
}

func (l *loop) resolveTree(ctx context.Context, value any, h *hidden) (any, error) {
	var err error
	switch value := value.(type) {
	case []any:
		for i := range value {
			if value[i], err = l.resolveTree(ctx, value[i], h); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		if name, isName := value[secretKey].(string); isName && len(value) == 1 {
			return l.secret(ctx, name, h)
		}
		for key := range value {
			if value[key], err = l.resolveTree(ctx, value[key], h); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// secret returns the secret of one reference. It asks once for each name.
func (l *loop) secret(ctx context.Context, name string, h *hidden) (string, error) {
	if h.references++; h.references > maxReferences {
		return "", &logbook.LimitError{Field: "the list of references to secrets", Size: int64(h.references), Limit: maxReferences, Unit: "references"}
	}
	if secret, ok := h.secrets[name]; ok {
		return secret, nil
	}
	if l.options.Secrets == nil {
		return "", fmt.Errorf("secret %q: %w: this conductor has no secrets", name, logbook.ErrNotFound)
	}
	secret, err := l.options.Secrets(ctx, name)
	switch {
	case err != nil:
		return "", fmt.Errorf("secret %q: %w", name, err)
	case !utf8.ValidString(secret):
		return "", fmt.Errorf("secret %q is not UTF-8, and could not be hidden; keep it as base64", name)
	case len(secret) < minSecret:
		return "", fmt.Errorf("secret %q has fewer than %d bytes: it is too short to be hidden", name, minSecret)
	case len(secret) > MaxSecret:
		return "", &logbook.LimitError{Field: fmt.Sprintf("secret %q", name), Size: int64(len(secret)), Limit: MaxSecret, Unit: "bytes"}
	}
	h.secrets[name] = secret
	return secret, nil
}

// hiddenForm is one form in which a secret must not be recorded.
type hiddenForm struct{ name, text string }

// forms are the secrets and their lines, the longest first: so no form is torn by
// another one that is a part of it.
func (h *hidden) forms() []hiddenForm {
	var forms []hiddenForm
	for name, secret := range h.secrets {
		forms = append(forms, hiddenForm{name, secret})
		for line := range strings.Lines(secret) {
			if line = strings.TrimSpace(line); len(line) >= minSecret && line != secret {
				forms = append(forms, hiddenForm{name, line})
			}
		}
	}
	slices.SortFunc(forms, func(a, b hiddenForm) int {
		return cmp.Or(len(b.text)-len(a.text), strings.Compare(a.name, b.name), strings.Compare(a.text, b.text))
	})
	return forms
}

// prepare makes what replaces the secrets.
func (h *hidden) prepare() {
	if h == nil {
		return
	}
	h.parts, h.begun = make(map[string]string), make(map[string]bool)
	var pairs []string
	for _, form := range h.forms() {
		pairs = append(pairs, form.text, mark(form.name))
		size := min(len(form.text), minPart)
		if !slices.Contains(h.sizes, size) {
			h.sizes = append(h.sizes, size)
		}
		for at := range len(form.text) - size + 1 {
			part := form.text[at : at+size]
			h.parts[part] = form.name
			for end := strings.LastIndexAny(part[:size-1], "\r\n"); end >= 0; end = strings.LastIndexAny(part[:end], "\r\n") {
				h.begun[part[:end+1]] = true
			}
		}
	}
	h.whole = strings.NewReplacer(pairs...)
}

// mark stands in the record in the place of a secret.
func mark(name string) string { return "[secret " + name + "]" }

// text is a text for people without secrets, and without parts of them. It replaces bytes
// that are not UTF-8 first: what hides a secret must see the text that is recorded.
func (h *hidden) text(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	var shown strings.Builder
	copied := 0 // text[:copied] is in shown, or hidden
	for at := 0; at < len(text); at++ {
		end, name := h.partAt(text, at)
		if end == 0 {
			continue
		}
		shown.WriteString(text[copied:at])
		shown.WriteString(mark(name))
		for next := at + 1; next <= end; next++ { // a longer part is hidden under one mark
			if further, _ := h.partAt(text, next); further > end {
				end = further
			}
		}
		copied, at = end, end-1
	}
	shown.WriteString(text[copied:])
	return strings.ToValidUTF8(shown.String(), "") // a part can begin or end within a character
}

// partAt returns the end and the secret of a part that begins at a place of a text; 0:
// none does.
func (h *hidden) partAt(text string, at int) (end int, name string) {
	for _, size := range h.sizes {
		if at+size > len(text) {
			continue
		}
		if name, ok := h.parts[text[at:at+size]]; ok {
			return at + size, name
		}
	}
	return 0, ""
}

// value is a JSON value without secrets.
func (h *hidden) value(value json.RawMessage) (json.RawMessage, error) {
	if len(value) == 0 {
		return value, nil
	}
	tree, err := logbook.DecodeJSON(value)
	if err != nil {
		return nil, err
	}
	return logbook.EncodeJSON(h.tree(tree))
}

func (h *hidden) tree(value any) any {
	switch value := value.(type) {
	case string:
		return h.whole.Replace(value)
	case json.Number:
		if shown := h.whole.Replace(value.String()); shown != value.String() {
			return shown
		}
	case []any:
		for i := range value {
			value[i] = h.tree(value[i])
		}
	case map[string]any:
		shown := make(map[string]any, len(value))
		for key, part := range value {
			shown[h.whole.Replace(key)] = h.tree(part)
		}
		return shown
	}
	return value
}

// failure is a copy of a failure without secrets.
func (h *hidden) failure(f logbook.Failure) logbook.Failure {
	f.Kind, f.Message, f.Stack = h.text(f.Kind), h.text(f.Message), h.text(f.Stack)
	details := f.Details
	f.Details = nil
	for name, value := range details {
		if shown, err := h.value(value); err == nil { // what is no JSON is no detail
			if f.Details == nil {
				f.Details = make(logbook.Values, len(details))
			}
			f.Details[h.whole.Replace(name)] = shown
		}
	}
	f.Causes = slices.Clone(f.Causes)
	for i := range f.Causes {
		f.Causes[i] = h.failure(f.Causes[i])
	}
	return f
}

// report takes the secrets out of what an attempt reports. A mark can be longer than its
// secret, so what was within its limit may be over it now.
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
		r.failure = flow.FailureOf(flow.Fail(logbook.FailureResult, fmt.Errorf("cannot hide secrets in what it returned: %w", err)))
	}
	if r.failure != nil {
		shown := h.failure(*r.failure)
		r.failure = flow.FitFailure(&shown, *limits)
	}
	r.stderr = h.text(r.stderr)
}

// reporter takes the secrets out of the progress of a call.
func (h *hidden) reporter(to flow.Reporter) flow.Reporter {
	if h == nil {
		return to
	}
	return hiddenReporter{h, to}
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
