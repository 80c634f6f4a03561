package dashboard

import (
	"context"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/access"
)

// accessData is the data of the list of principals.
type accessData struct {
	Enforced   bool // without access control all callers have all permissions
	Principals []principalRow
	More       pager
}

// principalRow is a principal with the permitted operations.
type principalRow struct {
	*v1.Principal
	Operations []operation
}

// loadAccess lists the principals, their grants and their tokens, by name.
func loadAccess(ctx context.Context, v *visit) (view, error) {
	answer, err := ask(ctx, v.api.access.ListPrincipals, &v1.ListPrincipalsRequest{After: v.query("after"), Stale: true})
	shown, next := most(v, answer.GetPrincipals(), pageRows), answer.GetNext()
	if n := len(shown); n < len(answer.GetPrincipals()) {
		next = shown[n-1].GetName()
	}
	data := accessData{Enforced: v.who.GetEnforced(), More: v.more(next)}
	for _, p := range shown {
		data.Principals = append(data.Principals, principalRow{p, v.offered(principalOperations(p.GetName(), p), access.AllBoards, "access", p.GetName())})
	}
	return view{Title: "Access", Command: "conductord access list", Data: data}, err
}

// principalOperations is the table of operations on a principal; p is nil when an operation is
// performed.
func principalOperations(name string, p *v1.Principal) []operation {
	var tokens []string
	for _, token := range p.GetTokens() {
		tokens = append(tokens, token.GetId())
	}
	operand := cli.Operand(name)
	return []operation{
		{
			Verb: "revoke", Of: name, Text: "Revoke a token", Command: "conductord token revoke " + operand + " TOKEN", Help: "The cluster then refuses calls with this token.", Danger: true,
			Inputs:     []input{{Name: "token", Label: "Token", Choices: tokens}},
			permission: command.Administer, unfit: len(tokens) == 0, do: func(ctx context.Context, v *visit) (string, error) {
				_, err := ask(ctx, v.api.access.RevokeAccessToken, &v1.RevokeAccessTokenCommand{Principal: name, Id: v.form("token")})
				return "access", err
			},
		},
		{
			Verb: "delete", Of: name, Text: "Delete", Command: "conductord access delete " + operand, Help: "Remove the principal and its tokens. The cluster then refuses its calls.", Danger: true,
			permission: command.Administer, do: func(ctx context.Context, v *visit) (string, error) {
				_, err := ask(ctx, v.api.access.DeletePrincipal, &v1.DeletePrincipalCommand{Name: name})
				return "access", err
			},
		},
	}
}
