package jobs

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/conductord/conductord/logbook"
)

// RetryPolicy says what becomes of a job whose work has failed. An attempt is
// one run of all of it: it has failed when the job is consumed with
// OutcomeReverted or OutcomeFailed. A flow that was reverted is run again from
// its beginning. One that could not be undone is half undone, and never run
// again by itself. Owners that vanish, and trouble that is not the work's
// fault, are counted apart: Crashes and Failures.
//
// The zero value tries once, and completes the job.
type RetryPolicy struct {
	Attempts int           // in all; 0 and 1: once
	Delay    time.Duration // before the second attempt; 0: DefaultRetryDelay
	// BackoffPercent is how long each further delay is, in percent of the one
	// before; 0: 100.
	BackoffPercent int
	MaxDelay       time.Duration // 0: an hour, or Delay if that is longer
	// JitterPercent is the share of a delay that is left to chance, so that jobs
	// which failed together do not come back together: 20 makes 10 s anything
	// from 8 s to 10 s.
	JitterPercent int
	PriorityStep  Priority // is added to the job's priority before each further attempt
	// Never are kinds of failure after which nobody tries again, besides those
	// that are permanent. The causes of a failure count too.
	Never     []string
	OnFailure OnFailure // empty: FailureCompletes
}

// OnFailure says what becomes of a job when its attempts are used up, or its
// failure is one after which nobody tries again.
type OnFailure string

// The ways to go on after the last attempt.
const (
	FailureCompletes OnFailure = "complete" // it is completed, as without a policy
	// FailureRetries: it is tried for ever, after the last delay. A failure that must
	// not be tried again completes the job.
	FailureRetries OnFailure = "retry"
	FailureParks   OnFailure = "park" // it is held for a person, and released by a Change
)

const (
	// MaxAttempts bounds the attempts of a policy: every one leaves a record,
	// and its flow keeps what each step did.
	MaxAttempts = 100
	// MinRetryDelay keeps a job that fails at once from being all that its
	// conductor does.
	MinRetryDelay = 100 * time.Millisecond
	// DefaultRetryDelay is before the second attempt, where nothing is said.
	DefaultRetryDelay = 10 * time.Second
	// MaxBackoffPercent bounds how fast delays grow.
	MaxBackoffPercent = 10_000
	// MaxNever bounds the kinds of failure that a policy names: it stands with
	// the job, which is written often.
	MaxNever = 8

	defaultMaxRetryDelay = time.Hour
)

// ByRetryPolicy is who has the flow of a job run again by the job's policy.
const ByRetryPolicy = "retry policy"

// CheckRetryPolicy checks a policy before it is written.
func CheckRetryPolicy(l logbook.Limits, p *RetryPolicy) error {
	if p == nil {
		return nil
	}
	known := []OnFailure{"", FailureCompletes, FailureRetries, FailureParks}
	switch {
	case p.Attempts < 0:
		return &logbook.InvalidError{Field: "retry attempts", Reason: "negative"}
	case p.Attempts > MaxAttempts:
		return &logbook.LimitError{Field: "retry attempts", Limit: MaxAttempts, Size: int64(p.Attempts), Unit: "attempts"}
	case p.BackoffPercent != 0 && p.BackoffPercent < 100:
		return &logbook.InvalidError{Field: "retry backoff_percent", Reason: fmt.Sprintf("%d is below 100", p.BackoffPercent)}
	case p.BackoffPercent > MaxBackoffPercent:
		return &logbook.LimitError{Field: "retry backoff_percent", Limit: MaxBackoffPercent, Size: int64(p.BackoffPercent), Unit: "percent"}
	case p.JitterPercent < 0 || p.JitterPercent > 100:
		return &logbook.InvalidError{Field: "retry jitter_percent", Reason: fmt.Sprintf("%d is not between 0 and 100", p.JitterPercent)}
	case !slices.Contains(known, p.OnFailure):
		return &logbook.InvalidError{Field: "retry on_failure", Reason: fmt.Sprintf("%.64q is none of %v", string(p.OnFailure), known[1:])}
	}
	if err := checkRetryDelay("retry delay", p.Delay); err != nil {
		return err
	}
	if err := checkRetryDelay("retry max_delay", p.MaxDelay); err != nil {
		return err
	}
	if p.MaxDelay != 0 && p.MaxDelay < p.firstDelay() {
		return &logbook.InvalidError{Field: "retry max_delay", Reason: fmt.Sprintf("%s is shorter than the first delay, %s", p.MaxDelay, p.firstDelay())}
	}
	return checkNames(l, "retry never", p.Never, MaxNever, "kinds")
}

func checkRetryDelay(field string, delay time.Duration) error {
	if delay != 0 && (delay < MinRetryDelay || delay > MaxDelay) {
		return &logbook.InvalidError{Field: field, Reason: fmt.Sprintf("%s is not between %s and %s", delay, MinRetryDelay, MaxDelay)}
	}
	return nil
}

func (p *RetryPolicy) firstDelay() time.Duration {
	if p.Delay == 0 {
		return DefaultRetryDelay
	}
	return p.Delay
}

// Tries is how many attempts the policy plans.
func (p *RetryPolicy) Tries() int { return max(p.Attempts, 1) }

// After is what happens to a job after so many failed attempts, the last one with this
// failure.
func (p *RetryPolicy) After(failed int, failure *logbook.Failure) OnFailure {
	last := p.Last()
	if p.forbids(failure) {
		return last
	}
	if failed < p.Tries() || p.OnFailure == FailureRetries {
		return FailureRetries
	}
	return last
}

// Last says what becomes of a job that is not tried again.
func (p *RetryPolicy) Last() OnFailure {
	if p.OnFailure == FailureParks {
		return FailureParks
	}
	return FailureCompletes
}

// forbids reports whether nobody is to try again after a failure.
func (p *RetryPolicy) forbids(failure *logbook.Failure) bool {
	return failure != nil && (failure.Permanent || slices.ContainsFunc(p.Never, failure.Matches))
}

// Wait is how long a job waits for its next attempt, when so many have failed.
// The share that is left to chance follows from the job and the attempt, so
// that everybody who asks gets the same answer.
func (p *RetryPolicy) Wait(job JobID, failed int) time.Duration {
	delay := p.firstDelay()
	longest := p.MaxDelay
	if longest == 0 {
		longest = max(defaultMaxRetryDelay, delay)
	}
	// The last delay is that before the last attempt that was planned.
	for range min(failed, max(p.Tries()-1, 1)) - 1 {
		if p.BackoffPercent <= 100 || delay >= longest {
			break
		}
		delay = delay / 100 * time.Duration(p.BackoffPercent) // neither number is so large that this overflows
	}
	delay = min(delay, longest)
	share := uint64(delay / 100 * time.Duration(p.JitterPercent))
	cut, _ := bits.Mul64(share, chance(job, failed))
	return max(delay-time.Duration(min(cut, math.MaxInt64)), MinRetryDelay)
}

// chance is a number that looks drawn, and is the same for the same attempt at
// the same job.
func chance(job JobID, failed int) uint64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(job.UUID[:], uint64(failed)))
	return binary.BigEndian.Uint64(sum[:])
}
