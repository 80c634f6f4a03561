package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conductord/conductord/jobs"
)

// checkTakeover makes the owner of a job silent in a healthy cluster. Another owner must get
// the job, after the session's TTL and within the promised time. The first owner must no
// longer be able to end the job.
func (r *Runner) checkTakeover(ctx context.Context) error {
	const ttl = time.Second
	posting := jobs.Posting{ID: jobs.NewJobID(), Name: "silent", Kind: "silent"}
	if _, err := r.postHealthy(ctx, posting); err != nil {
		return err
	}
	silent, next := jobs.NewSessionID(), jobs.NewSessionID()
	if _, err := r.client.OpenSession(ctx, jobs.Opening{ID: next, Name: "the next owner", TTL: jobs.MaxTTL}); err != nil {
		return fmt.Errorf("a session of a healthy cluster: %w", err)
	}
	began := time.Now()
	if _, err := r.client.OpenSession(ctx, jobs.Opening{ID: silent, Name: "a silent owner", TTL: ttl}); err != nil {
		return fmt.Errorf("a session of a healthy cluster: %w", err)
	}
	first, err := r.client.Claim(ctx, silent, posting.ID, jobs.NewNonce())
	if err != nil {
		return fmt.Errorf("a claim in a healthy cluster: %w", err)
	}
	claimed := time.Now()
	second, err := r.client.ClaimNext(ctx, jobs.ClaimRequest{
		Session: next, Nonce: jobs.NewNonce(), Kinds: []string{posting.Kind}, Wait: r.Settle,
	})
	took := time.Since(claimed)
	switch {
	case err != nil || len(second) == 0:
		return fmt.Errorf("the job of a silent owner is not claimable after %v: %w", took, err)
	case second[0].Job.Token.Compare(first.Job.Token) <= 0:
		return fmt.Errorf("the token of a job fell from %v to %v", first.Job.Token, second[0].Job.Token)
	case time.Since(began) < ttl+r.Cooled:
		return fmt.Errorf("the job of a silent owner was claimable after %v, which is less than TTL and %v", took, r.Cooled)
	case r.Takeover > 0 && took > ttl+r.Takeover:
		return fmt.Errorf("the job of a silent owner was claimable after %v, which is more than TTL and %v", took, r.Takeover)
	}
	ending := jobs.Ending{Job: posting.ID, Token: first.Job.Token, Outcome: jobs.OutcomeSuccess}
	if err := r.client.Consume(ctx, ending); !errors.Is(err, jobs.ErrFenced) {
		return fmt.Errorf("an owner that has lost its job consumes it: %w", err)
	}
	ending.Token = second[0].Job.Token
	if err := r.client.Consume(ctx, ending); err != nil {
		return fmt.Errorf("the owner of a job can't consume it: %w", err)
	}
	return r.client.CloseSession(ctx, next)
}
