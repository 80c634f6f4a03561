package logbook

import (
	"fmt"
	"math/bits"
	"time"
)

// Backoff is how often work is tried that fails, and how long the pauses between are: of
// a step, of a job, and without Attempts of the rounds of a flow. The zero value tries once.
type Backoff struct {
	Attempts int           // in all; 0 and 1: once
	Delay    time.Duration // before the second attempt
	// BackoffPercent is how long each further delay is, in percent of the one
	// before; 0: 100.
	BackoffPercent int
	MaxDelay       time.Duration // 0: DefaultMaxDelay, or Delay if that is longer
	// JitterPercent is the share of a delay that is left to chance, so that what
	// failed together does not come back together: 20 makes 10 s anything from
	// 8 s to 10 s.
	JitterPercent int
}

const (
	// MaxAttempts bounds the attempts: each leaves a record, see KeptAttempts.
	MaxAttempts = 100
	// DefaultMaxDelay bounds a delay that grows: a step that waits longer looks stuck.
	DefaultMaxDelay = 5 * time.Minute
	// MaxDelay bounds every delay.
	MaxDelay = 365 * 24 * time.Hour
	// MaxBackoffPercent bounds how fast delays grow. With MaxDelay it keeps Longest
	// from overflowing.
	MaxBackoffPercent = 10_000
)

// Check names the field of the owner's policy that is out of bounds.
func (b Backoff) Check(owner string) error {
	longest := b.MaxDelay
	switch {
	case b.Attempts < 0:
		return &InvalidError{owner + " attempts", "negative"}
	case b.Attempts > MaxAttempts:
		return &LimitError{owner + " attempts", MaxAttempts, int64(b.Attempts), "attempts"}
	case b.Delay < 0 || b.Delay > MaxDelay:
		return &InvalidError{owner + " delay", fmt.Sprintf("%s is not between 0s and %s", b.Delay, MaxDelay)}
	case longest < 0 || longest > MaxDelay:
		return &InvalidError{owner + " max_delay", fmt.Sprintf("%s is not between 0s and %s", longest, MaxDelay)}
	case longest != 0 && longest < b.Delay:
		return &InvalidError{owner + " max_delay", fmt.Sprintf("%s is shorter than the first delay, %s", longest, b.Delay)}
	case b.BackoffPercent != 0 && b.BackoffPercent < 100:
		return &InvalidError{owner + " backoff_percent", fmt.Sprintf("%d is below 100", b.BackoffPercent)}
	case b.BackoffPercent > MaxBackoffPercent:
		return &LimitError{owner + " backoff_percent", MaxBackoffPercent, int64(b.BackoffPercent), "percent"}
	case b.JitterPercent < 0 || b.JitterPercent > 100:
		return &InvalidError{owner + " jitter_percent", fmt.Sprintf("%d is not between 0 and 100", b.JitterPercent)}
	}
	return nil
}

// Tries is how many attempts are planned.
func (b Backoff) Tries() int { return max(b.Attempts, 1) }

// Longest is the delay after so many failures, before chance shortens it. It does not look at
// Attempts.
func (b Backoff) Longest(failures int) time.Duration {
	longest, delay := b.MaxDelay, b.Delay
	switch {
	case failures < 1:
		return 0
	case longest == 0:
		longest = max(DefaultMaxDelay, delay)
	}
	if b.BackoffPercent > 100 {
		for ; failures > 1 && delay > 0 && delay < longest; failures-- {
			delay = delay / 100 * time.Duration(b.BackoffPercent)
		}
	}
	return min(delay, longest)
}

// Wait is Longest less the part of the jitter that chance, any number, picks.
func (b Backoff) Wait(failures int, chance uint64) time.Duration {
	delay := b.Longest(failures)
	cut, _ := bits.Mul64(uint64(delay/100*time.Duration(b.JitterPercent)), chance)
	return delay - time.Duration(cut)
}
