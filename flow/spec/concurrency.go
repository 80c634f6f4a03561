package spec

import (
	"strings"

	"github.com/conductord/conductord/flow"
)

// Concurrency limits the parallel steps with one key in a daemon.
type Concurrency struct {
	Key   string `json:"key"` // can contain {argument} and {argument.field}
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
		inner.fault("limit", "missing: set the maximum of parallel steps with this key")
	}
	s.checkTemplate(inner, "key", c.Key)
	inner.rest()
	return c
}

// checkTemplate checks that the references in braces are arguments of the step, or values inside
// them.
func (s *Step) checkTemplate(t *table, key, template string) {
	for _, reference := range placeholders(template) {
		if name, _ := flow.CutPath(reference, s.hasArgument); !s.hasArgument(name) {
			t.fault(key, "%s is not an argument of the step", quoted(reference))
		}
	}
}

func (s *Step) hasArgument(name string) bool {
	_, required := s.Requires[name]
	_, optional := s.Optional[name]
	_, injected := s.Inject[name]
	return required || optional || injected
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

func (c *Concurrency) option() flow.StepOption {
	var while []flow.ConcurrencyOption
	if c.ReleaseWhileWaiting {
		while = append(while, flow.ReleaseWhileWaiting())
	}
	return flow.Concurrency(c.Key, c.Limit, while...)
}
