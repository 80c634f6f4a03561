package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/clock"
	"github.com/conductord/conductord/raftboard/wire"
)

// recordPatience limits the time that RecordSoon waits for a leader.
const recordPatience = 2 * time.Second

// accessService answers calls about principals, quotas and the audit log.
type accessService struct {
	machine *fsm.Machine
	router  *Router
	node    string // name
}

// listPrincipals omits the hashes of tokens, because only a node compares them.
func (s *accessService) listPrincipals(message *conductordv1.ListPrincipalsRequest) (*conductordv1.ListPrincipalsResponse, error) {
	page, next, err := s.machine.PrincipalPage(message.After)
	for i := range page {
		for j := range page[i].Tokens {
			page[i].Tokens[j].Hash = [sha256.Size]byte{}
		}
	}
	return &conductordv1.ListPrincipalsResponse{Next: next, Principals: ToProto(page, command.PrincipalToProto)}, err
}

// listQuotas adds the watches that this node counts.
func (s *accessService) listQuotas(message *conductordv1.ListQuotasRequest) (*conductordv1.ListQuotasResponse, error) {
	guard := s.router.Guard
	page, next, err := s.machine.QuotaPage(message.After, guard.Now())
	for i := range page {
		if page[i].Principal != "" {
			page[i].Used.Watches = guard.Watchers.Of(page[i].Principal)
		}
	}
	return &conductordv1.ListQuotasResponse{Next: next, Quotas: ToProto(page, command.QuotaToProto)}, err
}

func (s *accessService) listAudit(message *conductordv1.ListAuditRequest) (*conductordv1.ListAuditResponse, error) {
	query, err := command.RecordQueryFromProto(message)
	if err != nil {
		return nil, err
	}
	page, err := s.machine.Audit(query)
	return &conductordv1.ListAuditResponse{Next: page.Next, Records: ToProto(page.Items, command.RecordToProto)}, err
}

func (s *accessService) listRefusals(context.Context, *connect.Request[conductordv1.ListRefusalsRequest]) (*connect.Response[conductordv1.ListRefusalsResponse], error) {
	refusals := s.router.Guard.Refused.Latest()
	for i := range refusals {
		refusals[i].Node = s.node
	}
	return connect.NewResponse(&conductordv1.ListRefusalsResponse{Refusals: ToProto(refusals, command.RefusalToProto)}), nil
}

// whoAmI returns the caller's identity.
func (s *accessService) whoAmI(ctx context.Context, _ *connect.Request[conductordv1.WhoAmIRequest]) (*connect.Response[conductordv1.WhoAmIResponse], error) {
	g := s.router.Guard
	answer := &conductordv1.WhoAmIResponse{Enforced: g.Enforced}
	who := admission.CallerOf(ctx)
	if who == nil {
		return connect.NewResponse(answer), nil
	}
	answer.Name = who.Name
	switch p, err := g.Rights(who); {
	case err != nil:
		return nil, wire.ErrorToConnect(err)
	case p == nil:
		answer.Grants = command.GrantsToProto([]access.Grant{{Role: access.Administrator, Boards: access.AllBoards}})
	default:
		quota, err := g.Machine.Quota(who.Name, g.Now())
		if err != nil {
			return nil, wire.ErrorToConnect(err)
		}
		if quota != nil {
			quota.Used.Watches = g.Watchers.Of(who.Name)
		}
		answer.Grants, answer.HideValues, answer.Quota = command.GrantsToProto(p.Grants), p.HideValues, command.QuotaToProto(quota)
		answer.Approves = p.Approves
	}
	return connect.NewResponse(answer), nil
}

// record writes an action of the caller into the audit log before the action happens. It is for
// actions that are not commands. Without a caller, it records nothing.
func (r *Router) record(ctx context.Context, verb, target, change string) error {
	if admission.CallerOf(ctx) == nil {
		return nil
	}
	act := connect.NewRequest(&conductordv1.AuditRecord{Verb: verb, Target: target, Change: change})
	_, err := atLeader(ctx, r, "AccessService/RecordAct", act, r.recordAct)
	if err != nil {
		return wire.ErrorFromConnect(err)
	}
	return nil
}

// RecordSoon is record with a short wait for the leader, for actions that must also be
// possible without a leader.
func (r *Router) RecordSoon(ctx context.Context, verb, target string) error {
	ctx, cancel := context.WithTimeout(ctx, recordPatience)
	defer cancel()
	err := r.record(ctx, verb, target, "")
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", jobs.ErrUnavailable, err)
	}
	return err
}

// recordAct writes a record under the name of the caller.
func (r *Router) recordAct(ctx context.Context, message *conductordv1.AuditRecord) (*conductordv1.Done, uint64, error) {
	act := &conductordv1.AuditRecord{Verb: message.Verb, Target: message.Target, Change: message.Change}
	index, _, err := r.Submit.One(ctx, &conductordv1.Command{Kind: &conductordv1.Command_RecordAct{RecordAct: act}})
	return &conductordv1.Done{}, index, err
}

// ReportTokenUses reports used tokens to the leader, which records them, once per period. It
// ends with ctx.
func (r *Router) ReportTokenUses(ctx context.Context, period time.Duration) {
	for range clock.Every(ctx, period) {
		uses := r.Guard.Uses.Take(r.Guard.Now())
		if len(uses) == 0 {
			continue
		}
		trying, cancel := context.WithTimeout(ctx, recordPatience)
		message := connect.NewRequest(&conductordv1.NoteTokenUsesCommand{Uses: uses})
		if _, err := atLeader(trying, r, "AccessService/NoteTokenUses", message, r.noteTokenUses); err != nil {
			r.Guard.Uses.Forget(uses) // the next use is recorded again
		}
		cancel()
	}
}

func (r *Router) noteTokenUses(ctx context.Context, message *conductordv1.NoteTokenUsesCommand) (*conductordv1.Done, uint64, error) {
	index, _, err := r.Submit.One(ctx, &conductordv1.Command{Kind: &conductordv1.Command_NoteTokenUses{NoteTokenUses: message}})
	return &conductordv1.Done{}, index, err
}
