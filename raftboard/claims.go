package raftboard

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Extend implements jobs.Claimer.
func (c *Client) Extend(ctx context.Context, job jobs.JobID, token jobs.Token, expiry time.Duration) error {
	name := "extend the claim of job " + job.String()
	message := &v1.Command{Kind: &v1.Command_ExtendClaim{ExtendClaim: &v1.ExtendClaimCommand{
		Job: job.String(), Token: command.TokenToProto(token), Expiry: command.DurationToProto(expiry),
	}}}
	if err := command.Check(logbook.MaxLimits, message); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	_, err := execute(ctx, c.others, name, message)
	return err
}

// Claims implements jobs.Attendant. The leader answers, even for a stale view:
// only it knows how long a claim still lasts.
func (c *Client) Claims(ctx context.Context, query jobs.ClaimQuery) (jobs.ClaimPage, error) {
	op := operation{name: "list claims", reads: true}
	request := &v1.ListClaimsRequest{Owner: query.Owner, Board: query.Board, After: query.After, Limit: pageLimit(query.Limit)}
	if !query.Session.IsZero() {
		request.Session = query.Session.String()
	}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListClaimsRequest, v1.ListClaimsResponse] { return p.board.ListClaims })
	if err != nil {
		return jobs.ClaimPage{}, err
	}
	page := jobs.ClaimPage{Next: answer.GetNext()}
	for _, message := range answer.GetClaims() {
		held, err := command.HeldClaimFromProto(message)
		if err != nil {
			return jobs.ClaimPage{}, fmt.Errorf("cannot %s: the answer cannot be read: %w", op.name, err)
		}
		page.Claims = append(page.Claims, held)
	}
	return page, nil
}
