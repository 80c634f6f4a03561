package jobs

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
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
// The zero value tries once, and completes the job. A Delay of 0 is DefaultRetryDelay, and a
// MaxDelay of 0 an hour, or Delay if that is longer.
type RetryPolicy struct {
	logbook.Backoff
	PriorityStep Priority // is added to the job's priority before each further attempt
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
	// MinRetryDelay keeps a job that fails at once from being all that its
	// conductor does.
	MinRetryDelay = 100 * time.Millisecond
	// DefaultRetryDelay is before the second attempt, where nothing is said.
	DefaultRetryDelay = 10 * time.Second
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
	b := p.backoff()
	switch {
	case b.Delay >= 0 && b.Delay < MinRetryDelay:
		return &logbook.InvalidError{Field: "retry delay", Reason: fmt.Sprintf("%s is below %s", b.Delay, MinRetryDelay)}
	case !slices.Contains(known, p.OnFailure):
		return &logbook.InvalidError{Field: "retry on_failure", Reason: fmt.Sprintf("%.64q is none of %v", string(p.OnFailure), known[1:])}
	}
	if err := b.Check("retry"); err != nil {
		return err
	}
	return checkNames(l, "retry never", p.Never, MaxNever, "kinds")
}

// backoff has the defaults of a job in the place of those of a step.
func (p *RetryPolicy) backoff() logbook.Backoff {
	b := p.Backoff
	b.Delay = cmp.Or(b.Delay, DefaultRetryDelay)
	b.MaxDelay = cmp.Or(b.MaxDelay, max(defaultMaxRetryDelay, b.Delay))
	return b
}

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
	planned := max(p.Tries()-1, 1) // the last delay is that before the last attempt that was planned
	return max(p.backoff().Wait(min(failed, planned), chance(job, failed)), MinRetryDelay)
}

// chance is a number that looks drawn, and is the same for the same attempt at
// the same job.
func chance(job JobID, failed int) uint64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(job.UUID[:], uint64(failed)))
	return binary.BigEndian.Uint64(sum[:])
}
