package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func (p *Program) claimCommand() *cobra.Command {
	return Noun("claim", "List claims, and extend them", p.claimListCommand(), p.claimExtendCommand())
}

func (p *Program) claimListCommand() *cobra.Command {
	var (
		query        jobs.ClaimQuery
		job, session string
	)
	listed := heldClaims
	listed.read = func(ctx context.Context, cluster Cluster, after string, limit int) ([]jobs.HeldClaim, string, error) {
		query.After, query.Limit = after, limit
		page, err := cluster.Claims(ctx, query)
		return page.Items, page.Next, err
	}
	cmd := listed.command(p, &cobra.Command{
		Use:   "list",
		Short: "List held claims: owner, age, and time left before they expire",
	}, func([]string) (err error) {
		if job != "" {
			if query.Job, err = jobs.ParseJobID(job); err != nil {
				return err
			}
		}
		if session != "" {
			query.Session, err = jobs.ParseSessionID(session)
		}
		return err
	})
	flags := cmd.Flags()
	flags.StringVar(&query.Owner, "owner", "", "only of sessions of this name")
	flags.StringVar(&job, "job", "", "only of this job")
	flags.StringVar(&session, "session", "", "only of this session")
	flags.StringVar(&query.Board, "board", "", "only of jobs of this board")
	return cmd
}

// heldClaims is a list of claims.
var heldClaims = list[jobs.HeldClaim]{
	what: "claims",
	answer: func(held []jobs.HeldClaim, next string) proto.Message {
		return &v1.ListClaimsResponse{Claims: messages(held, command.HeldClaimToProto), Next: next}
	},
	header: []string{"job", "name", "board", "owner", "health", "since", "token", "to go", "expiry", "extended"},
	row: func(h *jobs.HeldClaim) []string {
		health := "alive"
		if h.Suspect {
			health = "silent " + durationText(h.Silent)
		}
		return []string{
			h.Job.String(), OrDash(h.Name), h.Board, h.Claim.Owner, health, agoText(h.Claim.Since), h.Claim.Token.String(),
			OrDash(spanText(h.Left)), OrDash(spanText(h.Claim.Expiry)), OrDash(countText(h.Claim.Extensions)),
		}
	},
}

// spanText shows a duration, and nothing for none.
func spanText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return durationText(d)
}

func (p *Program) claimExtendCommand() *cobra.Command {
	var (
		token  string
		expiry time.Duration
	)
	cmd := &cobra.Command{
		Use:   "extend JOB --token TOKEN --for DURATION",
		Short: "Set the time after which a claim ends unless it is extended again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobs.ParseJobID(args[0])
			if err != nil {
				return err
			}
			parsed, err := logbook.ParseToken(token)
			if err != nil {
				return usageError{err}
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				if err := cluster.Extend(ctx, id, parsed, expiry); err != nil {
					return because(err, "extend the claim of job %s", id)
				}
				return p.readJob(ctx, cluster, id)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&token, "token", "", "the token of the claim; job get shows it")
	flags.DurationVar(&expiry, "for", 0, "end the claim this long from now, such as 10m")
	return cmd
}
