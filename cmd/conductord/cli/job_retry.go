package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// retryFlags say what becomes of a job whose work has failed.
type retryFlags struct {
	attempts        int
	delay, longest  time.Duration
	backoff, jitter float64
	step            int32
	never           []string
	onFailure       string
}

func (f *retryFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.attempts, "attempts", 0, "how often the work is tried in all, if it fails (default once)")
	flags.DurationVar(&f.delay, "retry-delay", 0, "how long the job waits for its second attempt (default 10s)")
	flags.Float64Var(&f.backoff, "retry-backoff", 0, "how many times as long each further delay is (default 1)")
	flags.DurationVar(&f.longest, "retry-max", 0, "the longest delay (default 1h)")
	flags.Float64Var(&f.jitter, "retry-jitter", 0, "the share of each delay that is left to chance, from 0 to 1")
	flags.Int32Var(&f.step, "priority-step", 0, "is added to the priority before each further attempt")
	flags.StringSliceVar(&f.never, "retry-never", nil, "a kind of failure after which nobody tries again; may be given several times")
	flags.StringVar(&f.onFailure, "on-failure", "", "after the last attempt: complete, retry for ever, or park the job for a person (default complete)")
}

// policy makes what the flags say; nil if they say nothing.
func (f *retryFlags) policy() (*jobs.RetryPolicy, error) {
	backoff, err := percent("--retry-backoff", f.backoff)
	if err != nil {
		return nil, err
	}
	jitter, err := percent("--retry-jitter", f.jitter)
	if err != nil {
		return nil, err
	}
	policy := &jobs.RetryPolicy{
		Attempts: f.attempts, Delay: f.delay, BackoffPercent: backoff, MaxDelay: f.longest, JitterPercent: jitter,
		PriorityStep: jobs.Priority(f.step), Never: f.never, OnFailure: jobs.OnFailure(f.onFailure),
	}
	said := policy.Attempts != 0 || policy.Delay != 0 || backoff != 0 || policy.MaxDelay != 0 || jitter != 0 ||
		policy.PriorityStep != 0 || len(policy.Never) > 0 || policy.OnFailure != ""
	if !said {
		return nil, nil
	}
	return policy, jobs.CheckRetryPolicy(logbook.MaxLimits, policy)
}

// percent is a number in whole percent, as the board keeps it.
func percent(flag string, number float64) (int, error) {
	const most = 1e6 // what is larger is over every bound
	scaled := number * 100
	if whole := math.Round(scaled); math.Abs(scaled) < most && math.Abs(scaled-whole) < 1e-6 {
		return int(whole), nil
	}
	return 0, usageError{fmt.Errorf("%s takes two decimals at most, and %v is not such a number", flag, number)}
}

// retryText shows a policy in a line.
func retryText(p *jobs.RetryPolicy) string {
	if p == nil {
		return ""
	}
	parts := []string{fmt.Sprintf("%d attempts", p.Tries())}
	if p.Tries() == 1 {
		parts[0] = "1 attempt"
	}
	add := func(given bool, format string, args ...any) {
		if given {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	delay := p.Delay
	if delay == 0 {
		delay = jobs.DefaultRetryDelay
	}
	add(true, "after %s", delay)
	add(p.BackoffPercent > 100, "each further delay %g times as long", float64(p.BackoffPercent)/100)
	add(p.MaxDelay != 0, "at most %s", p.MaxDelay)
	add(p.JitterPercent != 0, "%d %% of it by chance", p.JitterPercent)
	add(p.PriorityStep != 0, "priority %+d each time", int(p.PriorityStep))
	add(len(p.Never) > 0, "never after %s", strings.Join(p.Never, ", "))
	add(p.OnFailure != "", "then %s", p.OnFailure)
	return strings.Join(parts, ", ")
}

// attemptText says which attempt a job with a retry policy is at.
func (p *Program) attemptText(job *jobs.Job) string {
	if job.Retry == nil {
		return ""
	}
	tries := job.Retry.Tries()
	if job.Parked || job.State.Finished() {
		return fmt.Sprintf("%d of %d failed", job.Attempts, max(tries, job.Attempts))
	}
	text := fmt.Sprintf("%d of %d", job.Attempts+1, max(tries, job.Attempts+1))
	if job.Attempts > 0 && job.State == jobs.StateCooling {
		text += ", next at " + p.timeText(job.DueAt)
	}
	return text
}
