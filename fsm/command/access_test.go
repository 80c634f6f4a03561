package command_test

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

var accessTokens = rapid.Custom(func(t *rapid.T) access.Token {
	token := access.Token{
		ID: access.TokenID{UUID: ids.Draw(t, "id")}, Expires: times.Draw(t, "expires"), CreatedAt: times.Draw(t, "created"), LastUsed: times.Draw(t, "used"), By: rapid.String().Draw(t, "by"),
	}
	copy(token.Hash[:], rapid.SliceOfN(rapid.Byte(), 0, sha256.Size).Draw(t, "hash"))
	return token
})

var principals = rapid.Custom(func(t *rapid.T) access.Principal {
	grant := rapid.Custom(func(t *rapid.T) access.Grant {
		return access.Grant{Role: rapid.SampledFrom(access.Roles).Draw(t, "role"), Boards: rapid.String().Draw(t, "boards")}
	})
	return access.Principal{
		Name: rapid.String().Draw(t, "name"), Grants: list(grant).Draw(t, "grants"), HideValues: rapid.Bool().Draw(t, "hide"), Approves: list(rapid.String()).Draw(t, "approves"),
		Tokens: list(accessTokens).Draw(t, "tokens"), CreatedAt: times.Draw(t, "created"), UpdatedAt: times.Draw(t, "updated"),
		By: rapid.String().Draw(t, "by"), Revision: rapid.Uint64().Draw(t, "revision"),
	}
})

var amounts = rapid.Custom(func(t *rapid.T) access.Amounts {
	return access.Amounts{
		Jobs: rapid.Uint64().Draw(t, "jobs"), Bytes: rapid.Uint64().Draw(t, "bytes"), PostingsPerSecond: rapid.Uint64().Draw(t, "rate"),
		Sessions: rapid.Uint64().Draw(t, "sessions"), Watches: rapid.Uint64().Draw(t, "watches"),
	}
})

var quotas = rapid.Custom(func(t *rapid.T) access.Quota {
	return access.Quota{
		Subject: access.Subject{Principal: rapid.String().Draw(t, "principal"), Boards: rapid.String().Draw(t, "boards")},
		Limits:  amounts.Draw(t, "limits"), Used: amounts.Draw(t, "used"), UpdatedAt: times.Draw(t, "updated"), By: rapid.String().Draw(t, "by"),
	}
})

var auditRecords = rapid.Custom(func(t *rapid.T) access.Record {
	return access.Record{
		Position: jobs.Position{Index: rapid.Uint64().Draw(t, "index"), Item: rapid.Uint32().Draw(t, "item")}, At: times.Draw(t, "at"),
		Principal: rapid.String().Draw(t, "principal"), From: rapid.String().Draw(t, "from"), Verb: rapid.String().Draw(t, "verb"),
		Target: rapid.String().Draw(t, "target"), Error: rapid.String().Draw(t, "error"),
		Change: rapid.String().Draw(t, "change"),
	}
})

// ofBoards turns a quota of a principal into a quota of boards.
func ofBoards(c *v1.Command) *v1.SaveQuotaCommand {
	c.GetSaveQuota().Principal, c.GetSaveQuota().Boards = "", "orders/*"
	return c.GetSaveQuota()
}

// TestAccessCommandsAreChecked invalidates each sample in one place.
func TestAccessCommandsAreChecked(t *testing.T) {
	long := strings.Repeat("x", logbook.MaxLimits.Name+1)
	for _, row := range []struct {
		name  string
		spoil func(*v1.Command)
		want  error
	}{
		{"save_principal", func(c *v1.Command) { c.GetSavePrincipal().Name = "" }, logbook.ErrInvalid},
		{"save_principal", func(c *v1.Command) { c.GetSavePrincipal().Name = long }, logbook.ErrLimit},
		{"save_principal", func(c *v1.Command) { c.GetSavePrincipal().Name = "node/node1" }, logbook.ErrInvalid},
		{"save_principal", func(c *v1.Command) { c.GetSavePrincipal().Grants[0].Role = "king" }, logbook.ErrInvalid},
		{"save_principal", func(c *v1.Command) { c.GetSavePrincipal().Grants[0].Boards = "" }, logbook.ErrInvalid},
		{"save_principal", func(c *v1.Command) { c.GetSavePrincipal().Grants[0].Boards = "a*b" }, logbook.ErrInvalid},
		{"save_principal", func(c *v1.Command) { c.GetSavePrincipal().Grants = make([]*v1.Grant, access.MaxGrants+1) }, logbook.ErrLimit},
		{"delete_principal", func(c *v1.Command) { c.GetDeletePrincipal().Name = "" }, logbook.ErrInvalid},
		{"add_access_token", func(c *v1.Command) { c.GetAddAccessToken().Principal = "" }, logbook.ErrInvalid},
		{"add_access_token", func(c *v1.Command) { c.GetAddAccessToken().Id = "" }, logbook.ErrInvalid},
		{"add_access_token", func(c *v1.Command) { c.GetAddAccessToken().Hash = nil }, logbook.ErrInvalid},
		{"add_access_token", func(c *v1.Command) { c.GetAddAccessToken().Hash = []byte("short") }, logbook.ErrInvalid},
		{"note_token_uses", func(c *v1.Command) { c.GetNoteTokenUses().Uses = nil }, logbook.ErrInvalid},
		{"note_token_uses", func(c *v1.Command) { c.GetNoteTokenUses().Uses[0].Id = "none" }, logbook.ErrInvalid},
		{"note_token_uses", func(c *v1.Command) { c.GetNoteTokenUses().Uses[0].Principal = "" }, logbook.ErrInvalid},
		{"note_token_uses", func(c *v1.Command) { c.GetNoteTokenUses().Uses = make([]*v1.TokenUse, access.MaxTokenUses+1) }, logbook.ErrInvalid},
		{"revoke_access_token", func(c *v1.Command) { c.GetRevokeAccessToken().Principal = "" }, logbook.ErrInvalid},
		{"revoke_access_token", func(c *v1.Command) { c.GetRevokeAccessToken().Id = "none" }, logbook.ErrInvalid},
		{"save_quota", func(c *v1.Command) { c.GetSaveQuota().Principal = "" }, logbook.ErrInvalid},
		{"save_quota", func(c *v1.Command) { c.GetSaveQuota().Boards = "orders" }, logbook.ErrInvalid},
		{"save_quota", func(c *v1.Command) { c.GetSaveQuota().Principal = "node/node1" }, logbook.ErrInvalid},
		{"save_quota", func(c *v1.Command) { c.GetSaveQuota().Limits = nil }, logbook.ErrInvalid},
		{"save_quota", func(c *v1.Command) { c.GetSaveQuota().Limits.Jobs = jobs.MaxBoardLimit + 1 }, logbook.ErrLimit},
		{"save_quota", func(c *v1.Command) { c.GetSaveQuota().Limits.PostingsPerSecond = jobs.MaxPostingRate + 1 }, logbook.ErrLimit},
		{"save_quota", func(c *v1.Command) { ofBoards(c).Limits.Watches = 0 }, logbook.ErrInvalid},
		{"save_quota", func(c *v1.Command) { ofBoards(c).Limits.Sessions = 0 }, logbook.ErrInvalid},
		{"delete_quota", func(c *v1.Command) { c.GetDeleteQuota().Boards = "" }, logbook.ErrInvalid},
		{"delete_quota", func(c *v1.Command) { c.GetDeleteQuota().Boards = "a*b" }, logbook.ErrInvalid},
		{"record_act", func(c *v1.Command) { c.GetRecordAct().Verb = "" }, logbook.ErrInvalid},
		{"record_act", func(c *v1.Command) { c.GetRecordAct().Target = strings.Repeat("x", 1<<10+1) }, logbook.ErrLimit},
	} {
		for _, c := range samples() {
			if command.Name(c) != row.name {
				continue
			}
			row.spoil(c)
			if err := command.Check(logbook.MaxLimits, c); !errors.Is(err, row.want) {
				t.Errorf("%s: got %v, want %v", c, err, row.want)
			}
		}
	}
}
