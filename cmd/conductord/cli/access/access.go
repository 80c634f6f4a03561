// Package access has the commands about access: principals, tokens, quotas and the audit log, and the
// certificates and value keys that a client or node needs.
package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/access"
)

const grantHelp = "Roles: viewer reads; signaller sends signals; approver decides approvals; poster posts jobs; worker claims jobs\n" +
	"and records their progress; operator posts jobs and controls jobs, schedules and conductors; administrator does\n" +
	"everything. BOARDS is the name of a board, or a prefix with \"*\". \"*\" alone covers all boards, nodes, sessions\n" +
	"and conductors."

// Command makes the noun of principals and grants.
func Command(p *cli.Program) *cobra.Command {
	return cli.Noun("access", "Manage principals and their grants", saveCommand(p), listCommand(p), deleteCommand(p), whoAmICommand(p))
}

func saveCommand(p *cli.Program) *cobra.Command {
	var grants []string
	var hide bool
	var approves []string
	var revision uint64
	cmd := &cobra.Command{
		Use:   "save PRINCIPAL --grant ROLE=BOARDS",
		Short: "Create a principal, or replace its grants",
		Long: "Create a principal, or replace all its grants. Its tokens stay valid. Without --approves, its approval roles\n" +
			"do not change. If the principal changes while the command runs, the command fails, and changes nothing. With\n" +
			"--revision, it also fails if the principal has changed since you read the revision with \"access list\". A client authenticates with a certificate whose common name is the principal, or with a token from\n" +
			"\"token create\".\n\n" + grantHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			principal, err := principalOf(args[0], grants, hide)
			if err != nil {
				return cli.UsageError(err)
			}
			read := revisionRead{known: cmd.Flags().Changed("revision"), revision: revision, keepsRoles: !cmd.Flags().Changed("approves")}
			principal.Approves = slices.DeleteFunc(approves, func(role string) bool { return role == "" }) // --approves= removes all
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := savePrincipal(ctx, cluster, &principal, read); err != nil {
					return err
				}
				return p.Show(cli.Part{Message: command.PrincipalToProto(&principal)}, "saved principal %s: %s%s", cli.Quoted(principal.Name), grantsText(principal.Grants), approvesText(principal.Approves))
			})
		},
	}
	grantFlags(cmd, &grants, &hide)
	cmd.Flags().Uint64Var(&revision, "revision", 0, "fail unless the principal has this revision; 0: unless it is new")
	cmd.Flags().StringSliceVar(&approves, "approves", nil, "roles that the principal fills in approvals, such as dba; repeatable or comma-separated; --approves= removes all; without the flag, the roles do not change")
	return cmd
}

// revisionRead is the revision of a principal on which a save is based.
type revisionRead struct {
	known      bool // the user has read revision; otherwise the command reads the present one
	revision   uint64
	keepsRoles bool // the principal keeps its roles in approvals
}

// savePrincipal saves a principal, unless the principal has changed since the revision was read.
func savePrincipal(ctx context.Context, cluster cli.Principals, principal *access.Principal, read revisionRead) error {
	present, err := presentPrincipal(ctx, cluster, principal.Name)
	if err != nil {
		return cli.Because(err, "read the present grants of principal %s", cli.Quoted(principal.Name))
	}
	if read.keepsRoles {
		principal.Approves = present.Approves
	}
	saved := *principal
	if saved.Revision = present.Revision; read.known {
		saved.Revision = read.revision
	}
	return cluster.UpdatePrincipal(ctx, saved)
}

// presentPrincipal reads a principal; zero if there is none.
func presentPrincipal(ctx context.Context, cluster cli.Principals, name string) (access.Principal, error) {
	for after := ""; ; {
		page, err := cluster.Principals(ctx, after)
		if err != nil {
			return access.Principal{}, err
		}
		for i := range page.Items {
			if page.Items[i].Name == name {
				return page.Items[i], nil
			}
		}
		if after = page.Next; after == "" {
			return access.Principal{}, nil
		}
	}
}

func approvesText(roles []string) string {
	if len(roles) == 0 {
		return ""
	}
	return "; approves as " + strings.Join(roles, ",")
}

func grantFlags(cmd *cobra.Command, grants *[]string, hide *bool) {
	cmd.Flags().StringSliceVar(grants, "grant", nil, "role on boards, such as poster=orders/*; repeatable or comma-separated")
	cmd.Flags().BoolVar(hide, "hide-values", false, "hide the values of jobs, flows and steps from the principal")
}

func principalOf(name string, grants []string, hide bool) (access.Principal, error) {
	principal := access.Principal{Name: name, HideValues: hide}
	for _, text := range grants {
		grant, err := access.ParseGrant(text)
		if err != nil {
			return principal, err
		}
		principal.Grants = append(principal.Grants, grant)
	}
	if len(grants) == 0 {
		return principal, errors.New("name at least one role: --grant viewer=BOARDS")
	}
	return principal, nil
}

func grantsText(grants []access.Grant) string {
	var texts []string
	for _, grant := range grants {
		texts = append(texts, grant.String())
	}
	return strings.Join(texts, ",")
}

// principalList is the document of access list and token list.
func principalList(principals []access.Principal, next string) proto.Message {
	return &v1.ListPrincipalsResponse{Principals: cli.Messages(principals, command.PrincipalToProto), Next: next}
}

func principals() cli.List[access.Principal] {
	return cli.List[access.Principal]{
		What: "principals", Answer: principalList,
		Read: func(ctx context.Context, cluster cli.Cluster, after string, _ int) ([]access.Principal, string, error) {
			page, err := cluster.Principals(ctx, after)
			return page.Items, page.Next, err
		},
		Header: []string{"PRINCIPAL", "GRANTS", "APPROVES", "VALUES", "TOKENS", "REVISION", "UPDATED", "BY"},
		Row: func(principal *access.Principal) []string {
			values := "shown"
			if principal.HideValues {
				values = "hidden"
			}
			return []string{principal.Name, grantsText(principal.Grants), cli.OrDash(strings.Join(principal.Approves, ",")), values, fmt.Sprint(len(principal.Tokens)), fmt.Sprint(principal.Revision), cli.AgoText(principal.UpdatedAt), principal.By}
		},
	}
}

func listCommand(p *cli.Program) *cobra.Command {
	return principals().Command(p, &cobra.Command{Use: "list", Short: "List principals: grants, roles in approvals, and number of tokens"}, nil)
}

func deleteCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "delete PRINCIPAL",
		Short: "Delete a principal and its tokens; the cluster refuses its calls from then on",
		Args:  cobra.ExactArgs(1),
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, args []string) error {
			if err := cluster.DeletePrincipal(ctx, args[0]); err != nil {
				return err
			}
			return p.Show(cli.Part{Message: &v1.Done{}}, "deleted principal %s", cli.Quoted(args[0]))
		}),
	}
}

func whoAmICommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show your principal and its grants",
		Args:  cobra.NoArgs,
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
			who, err := cluster.WhoAmI(ctx)
			if err != nil {
				return err
			}
			answer := &v1.WhoAmIResponse{
				Enforced: who.Enforced, Name: who.Name, Grants: command.GrantsToProto(who.Grants), HideValues: who.HideValues,
				Quota: command.QuotaToProto(who.Quota), Approves: who.Approves,
			}
			if !who.Enforced {
				return p.Show(cli.Part{Message: answer}, "everyone: access control is off, so this cluster does not identify its callers")
			}
			return p.Show(cli.Part{Message: answer}, "%s: %s%s%s", cli.Quoted(who.Name), grantsText(who.Grants), approvesText(who.Approves), quotaText(who.Quota))
		}),
	}
}

// TokenCommand makes the noun of tokens.
func TokenCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("token", "Manage tokens of principals", tokenCreateCommand(p), tokenListCommand(p), tokenRevokeCommand(p))
}

// MadeToken is the output of token create.
type MadeToken struct {
	Principal string     `json:"principal"`
	ID        string     `json:"id"`
	Token     string     `json:"token,omitempty"`
	File      string     `json:"file,omitempty"`
	Expires   *time.Time `json:"expires,omitempty"`
}

func tokenCreateCommand(p *cli.Program) *cobra.Command {
	var grants []string
	var hide bool
	var days int
	var out string
	cmd := &cobra.Command{
		Use:   "create PRINCIPAL",
		Short: "Create a token of a principal, and show it once",
		Long: "Create a token. The command shows it once, or writes it to a file of mode 600; the cluster stores only its hash.\n" +
			"With --grant, create the principal or replace its grants, like \"access save\". The principal keeps its approval\n" +
			"roles. A principal can have several tokens. To rotate a token without a pause, create a new token, deploy it,\n" +
			"and revoke the old token.\n\n" + grantHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if days < 0 {
				return cli.UsageError(fmt.Errorf("--days must not be negative: %d", days))
			}
			principal := access.Principal{Name: args[0]}
			if len(grants) > 0 || hide {
				var err error
				if principal, err = principalOf(args[0], grants, hide); err != nil {
					return cli.UsageError(err)
				}
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				return createToken(ctx, p, cluster, principal, days, out)
			})
		},
	}
	grantFlags(cmd, &grants, &hide)
	cmd.Flags().IntVar(&days, "days", IssuedDays, "validity in days; 0: unlimited")
	cmd.Flags().StringVar(&out, "out", "", "write the token to this new file instead of showing it")
	return cmd
}

func createToken(ctx context.Context, p *cli.Program, cluster cli.Principals, principal access.Principal, days int, out string) error {
	if len(principal.Grants) > 0 {
		if err := savePrincipal(ctx, cluster, &principal, revisionRead{keepsRoles: true}); err != nil {
			return err
		}
	}
	var expires time.Time
	if days > 0 {
		expires = time.Now().Add(validity(days)).UTC().Truncate(time.Second)
	}
	text, token := access.Draw(expires)
	if out != "" { // first, so that no token is created that cannot be saved
		if err := WriteNew(out, []byte(text+"\n"), 0o600); err != nil {
			return err
		}
	}
	if err := cluster.AddAccessToken(ctx, principal.Name, token); err != nil {
		if out != "" {
			err = errors.Join(err, os.Remove(out))
		}
		return err
	}
	said := MadeToken{Principal: principal.Name, ID: token.ID.String(), File: out}
	if !expires.IsZero() {
		said.Expires = &expires
	}
	if out == "" {
		said.Token = text
	}
	if p.JSON() {
		return p.WriteJSON(said)
	}
	lines := []string{text}
	if out != "" {
		lines = []string{"wrote the token to " + out}
	}
	p.Note("token %s of %s; it cannot be shown again", said.ID, cli.Quoted(said.Principal))
	return p.WriteLines(lines)
}

func tokenListCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List tokens: principal, expiry, last use and creator",
		Args:  cobra.NoArgs,
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
			principals, _, err := principals().Collect(ctx, cluster, "", 0)
			if err != nil {
				return cli.Because(err, "list tokens")
			}
			if p.JSON() {
				return p.WriteJSON(cli.Part{Message: principalList(principals, "")})
			}
			var rows [][]string
			for i := range principals {
				for _, token := range principals[i].Tokens {
					expires, used := cmp.Or(cli.AgoText(token.Expires), "never"), cmp.Or(cli.AgoText(token.LastUsed), "never")
					rows = append(rows, []string{principals[i].Name, token.ID.String(), expires, used, cli.AgoText(token.CreatedAt), token.By})
				}
			}
			return p.WriteTable([]string{"PRINCIPAL", "TOKEN", "EXPIRES", "LAST USED", "CREATED", "BY"}, rows)
		}),
	}
}

func tokenRevokeCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke PRINCIPAL TOKEN",
		Short: "Revoke a token by its id; the cluster refuses calls with it from then on",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := uuid.Parse(args[1])
			if err != nil {
				return cli.UsageError(fmt.Errorf("%.64q is not a token id: see token list", args[1]))
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cluster.RevokeAccessToken(ctx, args[0], access.TokenID{UUID: id}); err != nil {
					return err
				}
				return p.Show(cli.Part{Message: &v1.Done{}}, "revoked token %s of %s", id, cli.Quoted(args[0]))
			})
		},
	}
}
