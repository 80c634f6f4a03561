package node

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// heldClaim names a claim for its timer.
type heldClaim struct {
	job   jobs.JobID
	token jobs.Token
}

// timeClaims arms and disarms the timers of claims.
func (r *reign) timeClaims(timers []fsm.ClaimTimer, now time.Time) {
	for _, timer := range timers {
		id := heldClaim{timer.Job, timer.Token}
		if timer.Expiry == 0 {
			r.claims.disarm(id)
			continue
		}
		r.claims.arm(id, timer.Expiry, timer.Extensions, now)
	}
}

// expireClaims proposes the end of claims whose own time is up. An extension
// that is under way meanwhile wins if it comes first in the log: then the
// expiry names the wrong round and is refused, and the timer has been armed
// anew.
func (n *Node) expireClaims(ctx context.Context, current *reign, now time.Time) {
	late := current.claims.due(now, expiriesAtOnce)
	if len(late) == 0 {
		return
	}
	commands := make([]*conductordv1.Command, len(late))
	for i := range late {
		commands[i] = &conductordv1.Command{Kind: &conductordv1.Command_ExpireClaim{ExpireClaim: &conductordv1.ExpireClaimCommand{
			Job: late[i].id.job.String(), Token: command.TokenToProto(late[i].id.token), Extensions: uint32(late[i].round),
			TimerEpoch: current.epoch, CoolDown: durationpb.New(n.options.Sessions.CoolDown),
			MaxCrashes: uint32(max(n.options.Sessions.MaxCrashes, 0)),
		}}}
	}
	_, results, err := n.proposer.propose(ctx, commands...)
	for i := range late {
		id, verdict := late[i].id, verdictOf(err, results, i)
		switch {
		case verdict == nil, errors.Is(verdict, jobs.ErrFenced), errors.Is(verdict, jobs.ErrNotFound):
			n.logger.Info("a claim's own time was up", "job", id.job, "token", id.token, "already over", verdict != nil)
			current.claims.disarm(id)
		default:
			n.logger.Warn("cannot expire a claim yet", "job", id.job, "token", id.token, "error", verdict)
			current.claims.spare(id, time.Now().Add(spareTime))
		}
	}
}

// Extend implements conductordv1connect.BoardServiceHandler.
func (s *boardService) Extend(ctx context.Context, request *connect.Request[conductordv1.ExtendRequest]) (*connect.Response[conductordv1.ExtendResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.ExtendRequest, conductordv1.ExtendResponse] {
			return c.board.Extend
		},
		func(ctx context.Context, message *conductordv1.ExtendRequest) (*conductordv1.ExtendResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_ExtendClaim{
				ExtendClaim: &conductordv1.ExtendClaimCommand{Job: message.Job, Token: message.Token, Expiry: message.Expiry},
			}})
			return &conductordv1.ExtendResponse{}, index, err
		})
}

// ListClaims implements conductordv1connect.BoardServiceHandler. Only the
// leader answers it, for the times are its own.
func (s *boardService) ListClaims(ctx context.Context, request *connect.Request[conductordv1.ListClaimsRequest]) (*connect.Response[conductordv1.ListClaimsResponse], error) {
	return read(ctx, s.Node, request, false,
		func(c *clients) method[conductordv1.ListClaimsRequest, conductordv1.ListClaimsResponse] {
			return c.board.ListClaims
		},
		s.listClaims)
}

func (s *boardService) listClaims(message *conductordv1.ListClaimsRequest) (*conductordv1.ListClaimsResponse, error) {
	query := jobs.ClaimQuery{Owner: message.Owner, Board: message.Board, After: message.After, Limit: int(min(message.Limit, logbook.MaxPage))}
	if message.Session != "" {
		session, err := jobs.ParseSessionID(message.Session)
		if err != nil {
			return nil, err
		}
		query.Session = session
	}
	page, err := s.machine.Claims(query)
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.ListClaimsResponse{Next: page.Next}
	for i := range page.Claims {
		s.timeHolder(&page.Claims[i])
		answer.Claims = append(answer.Claims, command.HeldClaimToProto(&page.Claims[i]))
	}
	return answer, nil
}

// timeHolder adds to a claim what the timers of this node know of it, if it
// leads.
func (n *Node) timeHolder(held *jobs.HeldClaim) {
	current, err := n.serving()
	if err != nil {
		return
	}
	now := time.Now()
	left, silent, known := current.deadlines.look(held.Claim.Session, now)
	if !known {
		return
	}
	own, _, timed := current.claims.look(heldClaim{held.Job, held.Claim.Token}, now)
	if timed {
		held.Left = min(left, own)
	} else {
		held.Left = left
	}
	// All that is left of the time to live is silence and what is to go.
	ttl := left + silent - n.options.Sessions.Grace
	held.Silent, held.Suspect = silent, silent > jobs.SuspectAfter(ttl)
}
