package command

import (
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// RetryPolicyToProto converts a policy; nil stays nil.
func RetryPolicyToProto(p *jobs.RetryPolicy) *v1.RetryPolicy {
	if p == nil {
		return nil
	}
	return &v1.RetryPolicy{
		Attempts: countOf(p.Attempts), Delay: DurationToProto(p.Delay), BackoffPercent: countOf(p.BackoffPercent),
		MaxDelay: DurationToProto(p.MaxDelay), JitterPercent: countOf(p.JitterPercent), PriorityStep: int32(p.PriorityStep),
		Never: slices.Clone(p.Never), OnFailure: string(p.OnFailure),
	}
}

// RetryPolicyFromProto converts a policy; nil stays nil. It keeps an unknown word,
// which the check of the posting refuses.
func RetryPolicyFromProto(message *v1.RetryPolicy) (*jobs.RetryPolicy, error) {
	if message == nil {
		return nil, nil
	}
	var r reader
	p := &jobs.RetryPolicy{
		Backoff: logbook.Backoff{
			Attempts:       r.count("retry attempts", message.GetAttempts()),
			Delay:          r.duration("retry delay", message.GetDelay()),
			BackoffPercent: r.count("retry backoff_percent", message.GetBackoffPercent()),
			MaxDelay:       r.duration("retry max_delay", message.GetMaxDelay()),
			JitterPercent:  r.count("retry jitter_percent", message.GetJitterPercent()),
		},
		PriorityStep: jobs.Priority(message.GetPriorityStep()), Never: slices.Clone(message.GetNever()), OnFailure: jobs.OnFailure(message.GetOnFailure()),
	}
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}
