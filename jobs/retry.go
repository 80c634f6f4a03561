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

// RetryPolicy decides what happens to a job whose work failed. An attempt is one complete run of
// the work. It has failed when the job is consumed with OutcomeReverted or OutcomeFailed. After
// OutcomeReverted, the next attempt runs the flow from its start. A flow that could not be undone
// is never retried by a policy. Lost owners and abandons with a failure are not attempts:
// Job.Crashes and Job.Failures count them.
//
// The zero value tries once, and completes the job. If Delay is 0, it is DefaultRetryDelay.
// If MaxDelay is 0, it is one hour, or Delay if that is longer.
type RetryPolicy struct {
	logbook.Backoff
	logbook.RetryFilter           // permanent failures are never retried
	PriorityStep        Priority  // added to the job's priority before each further attempt
	OnFailure           OnFailure // empty: FailureCompletes
}

// OnFailure decides what happens to a job after its last attempt, or after a failure that
// is not retried.
type OnFailure string

// The values of OnFailure.
const (
	FailureCompletes OnFailure = "complete" // the job is completed, as without a policy
	// FailureRetries: the job is retried without end, with the last delay. A failure that
	// is not retried completes the job.
	FailureRetries OnFailure = "retry"
	FailureParks   OnFailure = "park" // the job is held until an operator releases it by a Change
)

const (
	// MinRetryDelay is the shortest delay. It keeps a job that always fails from occupying
	// its conductor.
	MinRetryDelay = 100 * time.Millisecond
	// DefaultRetryDelay is the default delay before the second attempt.
	DefaultRetryDelay    = 10 * time.Second
	defaultMaxRetryDelay = time.Hour
)

// ByRetryPolicy is the By of the intervention with which a retry policy runs a flow again.
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
		return &logbook.InvalidError{Field: "retry delay", Reason: fmt.Sprintf("%s is below the minimum, %s", b.Delay, MinRetryDelay)}
	case !slices.Contains(known, p.OnFailure):
		return &logbook.InvalidError{Field: "retry on_failure", Reason: fmt.Sprintf("%.64q is not one of %v", string(p.OnFailure), known[1:])}
	}
	if err := b.Check("retry"); err != nil {
		return err
	}
	return p.RetryFilter.Check(l, "retry")
}

// backoff returns the backoff with the defaults of a job, which differ from the defaults
// of a step.
func (p *RetryPolicy) backoff() logbook.Backoff {
	b := p.Backoff
	b.Delay = cmp.Or(b.Delay, DefaultRetryDelay)
	b.MaxDelay = cmp.Or(b.MaxDelay, max(defaultMaxRetryDelay, b.Delay))
	return b
}

// After returns what happens to a job after the given number of failed attempts. failure is
// the failure of the latest attempt.
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

// Last returns what happens to a job that is not retried.
func (p *RetryPolicy) Last() OnFailure {
	if p.OnFailure == FailureParks {
		return FailureParks
	}
	return FailureCompletes
}

// forbids reports whether the failure must not be retried.
func (p *RetryPolicy) forbids(failure *logbook.Failure) bool {
	return failure != nil && (failure.Permanent || !p.Allows(failure))
}

// Wait returns the delay before a job's next attempt, after the given number of failed
// attempts. The jitter depends only on the job and the attempt, so every caller gets the
// same delay.
func (p *RetryPolicy) Wait(job JobID, failed int) time.Duration {
	planned := max(p.Tries()-1, 1) // FailureRetries repeats the delay before the last planned attempt
	return max(p.backoff().Wait(min(failed, planned), chance(job, failed)), MinRetryDelay)
}

// chance is a pseudo-random number that depends only on the job and the attempt.
func chance(job JobID, failed int) uint64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(job.UUID[:], uint64(failed)))
	return binary.BigEndian.Uint64(sum[:])
}
