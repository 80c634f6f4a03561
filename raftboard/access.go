package raftboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// SavePrincipal makes a principal, or replaces its grants and HideValues. The cluster sets
// everything else, and the principal's tokens stay. It replaces any revision, so of two parallel changes only the later
// one stays: see UpdatePrincipal. A repeat is harmless. Errors: ErrInvalid; ErrLimit at access.MaxPrincipals.
func (c *Client) SavePrincipal(ctx context.Context, p access.Principal) error {
	return c.savePrincipal(ctx, &p, nil)
}

// UpdatePrincipal is SavePrincipal for a principal that the caller has read: ErrConflict, and no change, unless the
// principal still has p.Revision, or with 0, unless it is new. A repeat is harmless.
func (c *Client) UpdatePrincipal(ctx context.Context, p access.Principal) error {
	return c.savePrincipal(ctx, &p, &p.Revision)
}

func (c *Client) savePrincipal(ctx context.Context, p *access.Principal, revision *uint64) error {
	name := fmt.Sprintf("save principal %q", p.Name)
	if err := access.CheckPrincipal(logbook.MaxLimits, p); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	_, err := execute(ctx, c.others, name, &v1.Command{Kind: &v1.Command_SavePrincipal{SavePrincipal: &v1.SavePrincipalCommand{
		Name: p.Name, Grants: command.GrantsToProto(p.Grants), HideValues: p.HideValues, Approves: p.Approves, Revision: revision,
	}}})
	return err
}

// DeletePrincipal deletes a principal and its tokens: its calls are refused from then on. Error:
// ErrNotFound, unless an earlier try of this call may have deleted it.
func (c *Client) DeletePrincipal(ctx context.Context, name string) error {
	message := &v1.Command{Kind: &v1.Command_DeletePrincipal{DeletePrincipal: &v1.DeletePrincipalCommand{Name: name}}}
	return c.remove(ctx, fmt.Sprintf("delete principal %q", name), message, logbook.ErrNotFound)
}

// AddAccessToken gives a principal another token, made by access.Draw. A repeat is harmless.
// Errors: ErrNotFound; ErrLimit at access.MaxTokens.
func (c *Client) AddAccessToken(ctx context.Context, principal string, token access.Token) error {
	name := fmt.Sprintf("add a token of principal %q", principal)
	if err := access.CheckToken(&token); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	_, err := execute(ctx, c.others, name, &v1.Command{Kind: &v1.Command_AddAccessToken{AddAccessToken: &v1.AddAccessTokenCommand{
		Principal: principal, Id: token.ID.String(), Hash: token.Hash[:], Expires: command.TimeToProto(token.Expires),
	}}})
	return err
}

// RevokeAccessToken revokes a token of a principal. All later calls with the token are refused,
// except stale reads at a node that has not yet applied the command. Error: ErrNotFound, unless an
// earlier try of this call may have revoked the token.
func (c *Client) RevokeAccessToken(ctx context.Context, principal string, id access.TokenID) error {
	message := &v1.Command{Kind: &v1.Command_RevokeAccessToken{RevokeAccessToken: &v1.RevokeAccessTokenCommand{Principal: principal, Id: id.String()}}}
	return c.remove(ctx, "revoke token "+id.String(), message, logbook.ErrNotFound)
}

// Principals reads a page of the principals, sorted by name, without the hashes of their tokens.
func (c *Client) Principals(ctx context.Context, after string) (logbook.Page[access.Principal], error) {
	op := operation{name: "list principals", reads: true, stale: c.stale}
	request := &v1.ListPrincipalsRequest{After: after, Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListPrincipalsRequest, v1.ListPrincipalsResponse] {
		return p.access.ListPrincipals
	})
	page, err := paged(op, answer.GetPrincipals(), answer.GetNext(), command.PrincipalFromProto, err)
	return page, onward(op, page, err)
}

// SaveQuota is access.Quotas.SaveQuota.
func (c *Client) SaveQuota(ctx context.Context, q access.Quota) error {
	name := "save the quota of " + q.Subject.String()
	if err := access.CheckQuota(logbook.MaxLimits, &q); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	_, err := execute(ctx, c.others, name, &v1.Command{Kind: &v1.Command_SaveQuota{SaveQuota: command.SaveQuotaToProto(&q)}})
	return err
}

// DeleteQuota is access.Quotas.DeleteQuota.
func (c *Client) DeleteQuota(ctx context.Context, of access.Subject) error {
	name := "delete the quota of " + of.String()
	if err := access.CheckSubject(logbook.MaxLimits, of); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	message := &v1.Command{Kind: &v1.Command_DeleteQuota{DeleteQuota: &v1.DeleteQuotaCommand{Principal: of.Principal, Boards: of.Boards}}}
	return c.remove(ctx, name, message, logbook.ErrNotFound)
}

// Quotas is access.Quotas.Quotas.
func (c *Client) Quotas(ctx context.Context, after string) (logbook.Page[access.Quota], error) {
	op := operation{name: "list quotas", reads: true, stale: c.stale}
	request := &v1.ListQuotasRequest{After: after, Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListQuotasRequest, v1.ListQuotasResponse] { return p.access.ListQuotas })
	page, err := paged(op, answer.GetQuotas(), answer.GetNext(), command.QuotaFromProto, err)
	return page, onward(op, page, err)
}

// Audit reads a page of the audit log, the latest records first.
func (c *Client) Audit(ctx context.Context, query access.RecordQuery) (logbook.Page[access.Record], error) {
	op := operation{name: "read the audit log", reads: true, stale: c.stale}
	if err := access.CheckRecordQuery(&query); err != nil {
		return logbook.Page[access.Record]{}, fmt.Errorf("cannot %s: %w", op.name, err)
	}
	request := command.RecordQueryToProto(&query)
	request.Stale = c.stale
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListAuditRequest, v1.ListAuditResponse] { return p.access.ListAudit })
	return paged(op, answer.GetRecords(), answer.GetNext(), command.RecordFromProto, err)
}

// Refusals reads from each known node the calls that it has refused since its start. If some
// nodes do not answer, it returns their error together with the answers of the others.
func (c *Client) Refusals(ctx context.Context) ([]access.Refusal, error) {
	var all []access.Refusal
	var silent []error
	for _, p := range c.peers.known() {
		bounded, cancel := c.bounded(ctx, statusTime)
		op := operation{name: "read the refusals of " + p.String(), reads: true, try: statusTime}
		answer, failed := exchange(bounded, c.core, p, op, &v1.ListRefusalsRequest{}, p.access.ListRefusals)
		cancel(nil)
		if failed != nil {
			silent = append(silent, cannot(op.name, failed.err))
			continue
		}
		refusals, err := listed(op, answer.GetRefusals(), command.RefusalFromProto)
		if err != nil {
			return nil, err
		}
		all = append(all, refusals...)
	}
	return all, errors.Join(silent...)
}

// WhoAmI reads this client's principal, as authenticated by the cluster, and its grants.
func (c *Client) WhoAmI(ctx context.Context) (access.Identity, error) {
	op := operation{name: "ask who the caller is", reads: true}
	answer, err := call(ctx, c.core, op, &v1.WhoAmIRequest{}, func(p *peer) unary[v1.WhoAmIRequest, v1.WhoAmIResponse] { return p.access.WhoAmI })
	if err != nil {
		return access.Identity{}, err
	}
	who := access.Identity{
		Enforced: answer.GetEnforced(), Name: answer.GetName(), Grants: command.GrantsFromProto(answer.GetGrants()), HideValues: answer.GetHideValues(),
		Approves: answer.GetApproves(),
	}
	if answer.GetQuota() != nil {
		quota, err := command.QuotaFromProto(answer.GetQuota())
		if err != nil {
			return who, cannot(op.name, err)
		}
		who.Quota = &quota
	}
	return who, nil
}

// authorized sends a token with every call.
type authorized struct {
	connect.HTTPClient
	token string
}

func (a authorized) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("Authorization", "Bearer "+a.token)
	return a.HTTPClient.Do(request)
}
