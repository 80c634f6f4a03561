package job

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// addRetryFlags lets flags say what becomes of a job whose work has failed.
func addRetryFlags(cmd *cobra.Command, policy *jobs.RetryPolicy) {
	flags := cmd.Flags()
	flags.IntVar(&policy.Attempts, "attempts", 0, "maximum attempts (default 1)")
	flags.DurationVar(&policy.Delay, "retry-delay", 0, "delay before the second attempt (default 10s)")
	flags.IntVar(&policy.BackoffPercent, "retry-backoff-percent", 0, "next delay as a percentage of the previous delay (default 100)")
	flags.DurationVar(&policy.MaxDelay, "retry-max-delay", 0, "maximum delay between attempts (default 1h)")
	flags.IntVar(&policy.JitterPercent, "retry-jitter-percent", 0, "random variation of each delay, in percent, 0 to 100 (default 0)")
	flags.Int32Var((*int32)(&policy.PriorityStep), "priority-step", 0, "change of the priority before each further attempt (default 0)")
	flags.StringSliceVar(&policy.Never, "retry-never", nil, "failure kind that ends the attempts; repeatable or comma-separated")
	flags.StringVar((*string)(&policy.OnFailure), "on-failure", "", "action after the last attempt: complete, retry (without limit), or park (hold for an operator) (default complete)")
}

// givenRetry is the policy that the flags have set; nil if they have set none.
func givenRetry(policy *jobs.RetryPolicy) (*jobs.RetryPolicy, error) {
	if reflect.ValueOf(*policy).IsZero() {
		return nil, nil
	}
	return policy, jobs.CheckRetryPolicy(logbook.MaxLimits, policy)
}

// RetryText shows a policy in a line.
func RetryText(p *jobs.RetryPolicy) string {
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
	add(true, "after %s", cmp.Or(p.Delay, jobs.DefaultRetryDelay))
	add(p.BackoffPercent > 100, "each further delay %d %% of the one before", p.BackoffPercent)
	add(p.MaxDelay != 0, "at most %s", p.MaxDelay)
	add(p.JitterPercent != 0, "%d %% of it by chance", p.JitterPercent)
	add(p.PriorityStep != 0, "priority %+d each time", int(p.PriorityStep))
	add(len(p.Never) > 0, "never after %s", strings.Join(p.Never, ", "))
	add(p.OnFailure != "", "then %s", p.OnFailure)
	return strings.Join(parts, ", ")
}

// attemptText says which attempt a job with a retry policy is at.
func attemptText(p *cli.Program, job *jobs.Job) string {
	if job.Retry == nil {
		return ""
	}
	tries := job.Retry.Tries()
	if job.Parked || job.State.Finished() {
		return fmt.Sprintf("%d of %d failed", job.Attempts, max(tries, job.Attempts))
	}
	text := fmt.Sprintf("%d of %d", job.Attempts+1, max(tries, job.Attempts+1))
	if job.Attempts > 0 && job.State == jobs.StateCooling {
		text += ", next at " + p.TimeText(job.DueAt)
	}
	return text
}
