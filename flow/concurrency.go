package flow

import (
	"encoding/json"
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// MaxConcurrency bounds the limit of a concurrency key. The limit on all running steps usually
// makes a higher limit useless.
const MaxConcurrency = 1_000

// Concurrency limits the steps with the same key that run in parallel, over all flows of one
// engine.Pool. A daemon has one pool, so the limit applies to each daemon. It covers execute and
// revert. A waiting step stays pending, takes no worker from other steps, and starts in turn with
// other flows that wait for the key. A step that returns NotYet keeps its permit until the attempt
// ends, unless ReleaseWhileWaiting is given.
//
// The key can contain arguments of the step in braces, as in "disk-{host}", and values inside them,
// as in "{order.region}": see CheckPath. A string is inserted as its text, any other value as JSON,
// and an absent argument as nothing. If a required argument lacks the inner value, the step fails
// with the kind logbook.FailureArgument.
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

// ConcurrencyKey is the key with the values of arguments in place of the braces. The error is about
// a value that a required argument lacks; the key is then without that value.
func (s *Step) ConcurrencyKey(value func(argument string) (json.RawMessage, bool)) (string, error) {
	return fillTemplate(s.concurrency.key, s.hasArgument, value, func(argument string) bool {
		return !s.isRequired(argument)
	})
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
	s.checkTemplate("concurrency key", c.key)
}

// String is the concurrency in words.
func (c *concurrency) String() string {
	words := fmt.Sprintf("%d in parallel with the key %q", c.limit, c.key)
	if c.releases {
		words += ", released while it waits"
	}
	return words
}
