package raftboard

import (
	"context"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// Extend implements jobs.Claimer.
func (c *Client) Extend(ctx context.Context, job jobs.JobID, token jobs.Token, expiry time.Duration) error {
	message := &v1.Command{Kind: &v1.Command_ExtendClaim{ExtendClaim: &v1.ExtendClaimCommand{
		Job: job.String(), Token: command.TokenToProto(token), Expiry: command.DurationToProto(expiry),
	}}}
	return c.send(ctx, "extend the claim of job "+job.String(), message)
}

// Claims implements jobs.Attendant. The leader answers, even for a stale view: only the leader
// knows the remaining time of a claim.
func (c *Client) Claims(ctx context.Context, query jobs.ClaimQuery) (jobs.Page[jobs.HeldClaim], error) {
	op := operation{name: "list claims", reads: true}
	request := &v1.ListClaimsRequest{Owner: query.Owner, Board: query.Board, After: query.After, Limit: pageLimit(query.Limit)}
	if !query.Job.IsZero() {
		request.Job = query.Job.String()
	}
	if !query.Session.IsZero() {
		request.Session = query.Session.String()
	}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListClaimsRequest, v1.ListClaimsResponse] { return p.board.ListClaims })
	return paged(op, answer.GetClaims(), answer.GetNext(), command.HeldClaimFromProto, err)
}
