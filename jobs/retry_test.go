package jobs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestRetryDelays: the delay of each attempt, without jitter.
func TestRetryDelays(t *testing.T) {
	for _, row := range []struct {
		name   string
		policy jobs.RetryPolicy
		want   string
	}{
		{"even", jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 4, Delay: time.Second}}, "[1s 1s 1s]"},
		{"doubled", jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 5, Delay: time.Second, BackoffPercent: 200}}, "[1s 2s 4s 8s]"},
		{"up to a longest", jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 6, Delay: time.Second, BackoffPercent: 300, MaxDelay: 10 * time.Second}}, "[1s 3s 9s 10s 10s]"},
		{"by half as much again", jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 4, Delay: time.Second, BackoffPercent: 150}}, "[1s 1.5s 2.25s]"},
		{"an hour, where nothing is said", jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 4, Delay: time.Minute, BackoffPercent: 10_000}}, "[1m0s 1h0m0s 1h0m0s]"},
		{"nothing said at all", jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 3}}, "[10s 10s]"},
		{"a first one of a year", jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 3, Delay: jobs.MaxDelay, BackoffPercent: 10_000}}, "[8760h0m0s 8760h0m0s]"},
	} {
		var got []time.Duration
		for failed := 1; failed < row.policy.Attempts; failed++ {
			got = append(got, row.policy.Wait(jobs.NewJobID(), failed))
		}
		if text := fmt.Sprint(got); text != row.want {
			t.Errorf("%s: %s, want %s", row.name, text, row.want)
		}
	}
	ever := jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 3, Delay: time.Second, BackoffPercent: 200}, OnFailure: jobs.FailureRetries}
	if got := ever.Wait(jobs.NewJobID(), 1_000_000); got != 2*time.Second {
		t.Errorf("without a limit of tries, it waits %s, want the last delay", got)
	}
}

// TestRetryJitter: the jitter is within its limit, differs between jobs and attempts, and is the
// same for each evaluation.
func TestRetryJitter(t *testing.T) {
	policy := jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 100, Delay: 10 * time.Second, JitterPercent: 20}}
	seen := map[time.Duration]bool{}
	for n := range 100 {
		job := jobs.JobID{UUID: uuid.NewSHA1(uuid.NameSpaceOID, []byte{byte(n)})}
		for failed := 1; failed < 10; failed++ {
			wait := policy.Wait(job, failed)
			if wait < 8*time.Second || wait > 10*time.Second {
				t.Errorf("it waits %s", wait)
			}
			if again := policy.Wait(job, failed); again != wait {
				t.Errorf("it waits %s and then %s", wait, again)
			}
			seen[wait] = true
		}
	}
	if len(seen) != 900 {
		t.Errorf("900 attempts wait %d different times", len(seen))
	}
	whole := jobs.RetryPolicy{Backoff: logbook.Backoff{Delay: jobs.MinRetryDelay, JitterPercent: 100}}
	if got := whole.Wait(jobs.NewJobID(), 1); got != jobs.MinRetryDelay {
		t.Errorf("all left to chance, it waits %s", got)
	}
	const pinned = "8.599296645s" // part of the state: all nodes must compute the same value
	if got := policy.Wait(jobs.JobID{UUID: uuid.NameSpaceOID}, 1); got.String() != pinned {
		t.Errorf("it waits %s, and waited %s before", got, pinned)
	}
}

// TestCheckRetryPolicy: values at the limits, and the refusals beyond them.
func TestCheckRetryPolicy(t *testing.T) {
	for name, row := range map[string]struct {
		policy jobs.RetryPolicy
		want   error
	}{
		"nothing said":            {jobs.RetryPolicy{}, nil},
		"as many as can be":       {jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: logbook.MaxAttempts, BackoffPercent: logbook.MaxBackoffPercent, JitterPercent: 100}}, nil},
		"too many attempts":       {jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: logbook.MaxAttempts + 1}}, jobs.ErrLimit},
		"negative attempts":       {jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: -1}}, jobs.ErrInvalid},
		"too short a delay":       {jobs.RetryPolicy{Backoff: logbook.Backoff{Delay: jobs.MinRetryDelay - 1}}, jobs.ErrInvalid},
		"the shortest":            {jobs.RetryPolicy{Backoff: logbook.Backoff{Delay: jobs.MinRetryDelay}}, nil},
		"too long a delay":        {jobs.RetryPolicy{Backoff: logbook.Backoff{Delay: jobs.MaxDelay + 1}}, jobs.ErrInvalid},
		"shrinking delays":        {jobs.RetryPolicy{Backoff: logbook.Backoff{BackoffPercent: 99}}, jobs.ErrInvalid},
		"delays that leap":        {jobs.RetryPolicy{Backoff: logbook.Backoff{BackoffPercent: logbook.MaxBackoffPercent + 1}}, jobs.ErrLimit},
		"a longest below a first": {jobs.RetryPolicy{Backoff: logbook.Backoff{Delay: time.Minute, MaxDelay: time.Second}}, jobs.ErrInvalid},
		"more chance than delay":  {jobs.RetryPolicy{Backoff: logbook.Backoff{JitterPercent: 101}}, jobs.ErrInvalid},
		"no such policy":          {jobs.RetryPolicy{OnFailure: "hope"}, jobs.ErrInvalid},
		"too many kinds":          {jobs.RetryPolicy{RetryFilter: logbook.RetryFilter{Never: strings.Split("abcdefghijklmnopq", "")}}, jobs.ErrLimit},
		"a kind twice":            {jobs.RetryPolicy{RetryFilter: logbook.RetryFilter{Only: []string{"a", "a"}}}, jobs.ErrInvalid},
	} {
		if err := jobs.CheckRetryPolicy(logbook.MaxLimits, &row.policy); !errors.Is(err, row.want) || (err == nil) != (row.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
	}
}
