package fsmtest

import (
	"context"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
)

// SavePrincipal makes a principal, or replaces its permissions.
func (b *Board) SavePrincipal(ctx context.Context, p access.Principal) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_SavePrincipal{SavePrincipal: &v1.SavePrincipalCommand{
		Name: p.Name, Grants: command.GrantsToProto(p.Grants), HideValues: p.HideValues,
	}}})
	return err
}

// DeletePrincipal forgets a principal and its tokens.
func (b *Board) DeletePrincipal(ctx context.Context, name string) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_DeletePrincipal{DeletePrincipal: &v1.DeletePrincipalCommand{Name: name}}})
	return err
}

// AddAccessToken gives a principal another token.
func (b *Board) AddAccessToken(ctx context.Context, principal string, token access.Token) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_AddAccessToken{AddAccessToken: &v1.AddAccessTokenCommand{
		Principal: principal, Id: token.ID.String(), Hash: token.Hash[:], Expires: command.TimeToProto(token.Expires),
	}}})
	return err
}

// RevokeAccessToken takes a token from a principal.
func (b *Board) RevokeAccessToken(ctx context.Context, principal string, id access.TokenID) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_RevokeAccessToken{RevokeAccessToken: &v1.RevokeAccessTokenCommand{Principal: principal, Id: id.String()}}})
	return err
}

// Principals reads all principals by name.
func (b *Board) Principals(ctx context.Context, _ string) (logbook.Page[access.Principal], error) {
	all, _, err := b.machine.Principals()
	return logbook.Page[access.Principal]{Items: all}, err
}

// SaveQuota makes a quota, or replaces its limits.
func (b *Board) SaveQuota(ctx context.Context, q access.Quota) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_SaveQuota{SaveQuota: command.SaveQuotaToProto(&q)}})
	return err
}

// DeleteQuota removes a quota.
func (b *Board) DeleteQuota(ctx context.Context, of access.Subject) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_DeleteQuota{DeleteQuota: &v1.DeleteQuotaCommand{Principal: of.Principal, Boards: of.Boards}}})
	return err
}

// Quotas reads a page of the quotas.
func (b *Board) Quotas(_ context.Context, after string) (logbook.Page[access.Quota], error) {
	page, next, err := b.machine.QuotaPage(after, b.now())
	return logbook.Page[access.Quota]{Items: page, Next: next}, err
}

// Audit reads a page of the audit log.
func (b *Board) Audit(_ context.Context, query access.RecordQuery) (logbook.Page[access.Record], error) {
	return b.machine.Audit(query)
}

// Refusals returns none: this board authenticates no caller.
func (b *Board) Refusals(context.Context) ([]access.Refusal, error) { return nil, nil }

// ReadLogs reads nothing: the board keeps no output of steps.
func (b *Board) ReadLogs(context.Context, steplog.Query) (steplog.Page, error) {
	return steplog.Page{}, nil
}

// WhoAmI answers like a cluster without access control.
func (b *Board) WhoAmI(context.Context) (access.Identity, error) { return access.Identity{}, nil }
