package flow

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// DefaultMaxDelay bounds a delay that grows, if the policy does not: a step that waits
	// longer looks stuck. A longer first delay is kept.
	DefaultMaxDelay = 5 * time.Minute
	// MaxAttempts bounds a policy: all attempts that it counts are kept in the
	// logbook, see logbook.KeptAttempts.
	MaxAttempts = 100
)

// Again reports whether a step that has failed so many times is tried again, and after which
// delay. With Jitter, the delay differs each time. Attempts cut off by a crash do not count as
// failures.
func (p RetryPolicy) Again(failures int) (time.Duration, bool) {
	if failures < 1 || failures >= p.Attempts {
		return 0, false
	}
	delay := p.Longest(failures)
	if p.Jitter > 0 {
		delay -= time.Duration(rand.Float64() * p.Jitter * float64(delay))
	}
	return delay, true
}

// Longest is the longest delay that Again can return after so many failures. A recorded time
// that is further away was written by a clock ahead of ours.
func (p RetryPolicy) Longest(failures int) time.Duration {
	if failures < 1 || failures >= p.Attempts {
		return 0
	}
	limit := p.MaxDelay
	if limit == 0 {
		limit = max(DefaultMaxDelay, p.Delay)
	}
	multiplier := p.Multiplier
	if multiplier == 0 {
		multiplier = 1
	}
	// In floating point, so that a policy that grows beyond any duration
	// ends at the limit and not at a negative number.
	delay := float64(p.Delay)
	for i := 1; i < failures && delay < float64(limit); i++ {
		delay *= multiplier
	}
	if delay >= float64(limit) {
		return limit
	}
	return time.Duration(delay)
}

func (p RetryPolicy) check() error {
	switch {
	case p.Attempts < 0 || p.Attempts > MaxAttempts:
		return fmt.Errorf("attempts must be between 0 and %d, not %d", MaxAttempts, p.Attempts)
	case p.Delay < 0 || p.MaxDelay < 0:
		return errors.New("a delay is negative")
	case p.Multiplier < 0 || p.Multiplier != p.Multiplier:
		return fmt.Errorf("the multiplier must be positive, not %v", p.Multiplier)
	case p.Jitter < 0 || p.Jitter > 1 || p.Jitter != p.Jitter:
		return fmt.Errorf("the jitter must be between 0 and 1, not %v", p.Jitter)
	}
	return nil
}
