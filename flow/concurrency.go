package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// MaxConcurrency bounds the limit of a concurrency key. A higher limit would rarely matter beside
// the limit on all running steps.
const MaxConcurrency = 1_000

// Concurrency limits the steps with the same key that run in parallel, over all flows of one
// engine.Pool. A daemon has one pool, so the limit applies to each daemon. It covers execute and
// revert. A waiting step stays pending, takes no worker from other steps, and starts in turn with
// other flows that wait for the key. A step that returns NotYet keeps its permit until the attempt
// ends, unless ReleaseWhileWaiting is given.
//
// The key can contain arguments of the step in braces, as in "disk-{host}". A string is inserted
// as its text, any other value as JSON, and an absent argument as nothing.
func Concurrency(key string, limit int, options ...ConcurrencyOption) StepOption {
	return stepOption(func(s *Step) {
		s.concurrency = concurrency{key: key, limit: limit, given: true}
		for _, option := range options {
			option(&s.concurrency)
		}
	})
}

// ConcurrencyOption configures a Concurrency.
type ConcurrencyOption func(*concurrency)

// ReleaseWhileWaiting releases the permit when the step returns NotYet, until its next call.
func ReleaseWhileWaiting() ConcurrencyOption { return func(c *concurrency) { c.releases = true } }

type concurrency struct {
	key      string
	limit    int
	given    bool
	releases bool
}

// KeepsKey reports whether the step keeps its permit when it returns NotYet.
func (s *Step) KeepsKey() bool { return s.concurrency.given && !s.concurrency.releases }

// Concurrency returns the key with its braces, and the limit of steps that run with it; 0: the
// step has no key.
func (s *Step) Concurrency() (key string, limit int) { return s.concurrency.key, s.concurrency.limit }

// ConcurrencyKey is the key with the values of arguments in place of the braces.
func (s *Step) ConcurrencyKey(value func(argument string) (json.RawMessage, bool)) string {
	var key strings.Builder
	rest := s.concurrency.key
	for {
		before, after, found := strings.Cut(rest, "{")
		key.WriteString(before)
		if !found {
			return key.String()
		}
		name, behind, _ := strings.Cut(after, "}")
		rest = behind
		encoded, ok := value(name)
		if !ok {
			continue
		}
		var text string
		if err := json.Unmarshal(encoded, &text); err != nil {
			text = compact(encoded)
		}
		key.WriteString(text)
	}
}

func (s *Step) checkConcurrency() {
	c := &s.concurrency
	if !c.given {
		return
	}
	if c.limit < 1 || c.limit > MaxConcurrency {
		s.fault("its concurrency must be between 1 and %d, not %d", MaxConcurrency, c.limit)
	}
	if err := logbook.MaxLimits.CheckName("concurrency key", c.key); err != nil {
		s.fault("%w", err)
	}
	for _, name := range placeholders(c.key) {
		if !slices.Contains(argumentNames(s.requires), name) {
			s.fault("its concurrency key %q names %q, which it does not require", c.key, name)
		}
	}
	if pairs := strings.Count(c.key, "{"); pairs != strings.Count(c.key, "}") || pairs != len(placeholders(c.key)) {
		s.fault("its concurrency key %q has braces that are not pairs around a name", c.key)
	}
}

// placeholders are the names in braces.
func placeholders(key string) []string {
	var names []string
	for {
		_, after, found := strings.Cut(key, "{")
		name, behind, closed := strings.Cut(after, "}")
		if !found || !closed {
			return names
		}
		if !strings.Contains(name, "{") {
			names = append(names, name)
		}
		key = behind
	}
}

// String is the concurrency in words.
func (c *concurrency) String() string {
	words := fmt.Sprintf("%d at once with the key %q", c.limit, c.key)
	if c.releases {
		words += ", released while it waits"
	}
	return words
}
