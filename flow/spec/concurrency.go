package spec

import (
	"strings"

	"github.com/conductord/conductord/flow"
)

// Concurrency limits the parallel steps with one key in a daemon.
type Concurrency struct {
	Key   string `json:"key"` // can contain {argument}
	Limit int    `json:"limit"`
	// ReleaseWhileWaiting releases the key while the step waits after "not yet".
	ReleaseWhileWaiting bool `json:"release_while_waiting,omitempty"`
}

// concurrency reads a key and its limit of parallel steps.
func (r *reader) concurrency(t *table, s *Step) *Concurrency {
	inner := t.inner("concurrency")
	if inner == nil {
		return nil
	}
	c := &Concurrency{Key: r.name(inner, "key"), Limit: inner.integer("limit", 1, flow.MaxConcurrency), ReleaseWhileWaiting: inner.truth("release_while_waiting")}
	if !inner.has("limit") {
		inner.fault("limit", "missing; it is how many steps of the key run at once")
	}
	for _, argument := range placeholders(c.Key) {
		_, required := s.Requires[argument]
		_, optional := s.Optional[argument]
		_, injected := s.Inject[argument]
		if !required && !optional && !injected {
			inner.fault("key", "%s is no argument of the step", quoted(argument))
		}
	}
	inner.rest()
	return c
}

// placeholders are the names in braces.
func placeholders(key string) []string {
	var names []string
	for {
		_, after, found := strings.Cut(key, "{")
		if !found {
			return names
		}
		name, rest, _ := strings.Cut(after, "}")
		names, key = append(names, name), rest
	}
}
