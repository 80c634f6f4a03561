package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

const (
	// minSecret is the shortest secret: hiding every occurrence of a shorter text would damage
	// results.
	minSecret = 6
	// MaxSecret is the maximum size of a secret in bytes: a certificate chain with its key fits.
	MaxSecret = 64 << 10
	// maxReferences limits the references to secrets in the arguments of one attempt. With
	// MaxSecret it bounds how much an attempt can grow.
	maxReferences = 64
)

// secretKey is the only field of an object that refers to a secret.
const secretKey = "secret"

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
		written := wires[i].From == flow.FromStep || wires[i].From == flow.FromStore || slices.Contains(s.stored, wires[i].Name)
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
