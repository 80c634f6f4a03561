package job

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// ClaimCommand makes the noun of claims.
func ClaimCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("claim", "List claims, extend and transfer them, end reservations", claimListCommand(p), claimExtendCommand(p), claimTransferCommand(p), claimUnreserveCommand(p))
}

func claimListCommand(p *cli.Program) *cobra.Command {
	var (
		query        jobs.ClaimQuery
		job, session string
	)
	listed := HeldClaims
	listed.Read = func(ctx context.Context, cluster cli.Cluster, after string, limit int) ([]jobs.HeldClaim, string, error) {
		query.After, query.Limit = after, limit
		page, err := cluster.Claims(ctx, query)
		return page.Items, page.Next, err
	}
	cmd := listed.Command(p, &cobra.Command{
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
	flags.StringVar(&query.Owner, "owner", "", "only claims of sessions with this name")
	flags.StringVar(&job, "job", "", "only claims of this job")
	flags.StringVar(&session, "session", "", "only claims of this session")
	flags.StringVar(&query.Board, "board", "", "only claims of jobs on this board")
	return cmd
}

// HeldClaims is a list of claims.
var HeldClaims = cli.List[jobs.HeldClaim]{
	What: "claims",
	Answer: func(held []jobs.HeldClaim, next string) proto.Message {
		return &v1.ListClaimsResponse{Claims: cli.Messages(held, command.HeldClaimToProto), Next: next}
	},
	Header: []string{"job", "name", "board", "owner", "health", "since", "token", "to go", "expiry", "extended"},
	Row: func(h *jobs.HeldClaim) []string {
		health := "alive"
		if h.Suspect {
			health = "silent " + cli.DurationText(h.Silent)
		}
		return []string{
			h.Job.String(), cli.OrDash(h.Name), h.Board, h.Claim.Owner, health, cli.AgoText(h.Claim.Since), h.Claim.Token.String(),
			cli.OrDash(cli.SpanText(h.Left)), cli.OrDash(cli.SpanText(h.Claim.Expiry)), cli.OrDash(cli.CountText(h.Claim.Extensions)),
		}
	},
}

func claimExtendCommand(p *cli.Program) *cobra.Command {
	var (
		token  string
		expiry time.Duration
	)
	cmd := &cobra.Command{
		Use:   "extend JOB --token TOKEN --for DURATION",
		Short: "Set the expiry of a claim",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobs.ParseJobID(args[0])
			if err != nil {
				return err
			}
			parsed, err := logbook.ParseToken(token)
			if err != nil {
				return cli.UsageError(err)
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cluster.Extend(ctx, id, parsed, expiry); err != nil {
					return cli.Because(err, "extend the claim of job %s", id)
				}
				return readJob(ctx, p, cluster, id)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&token, "token", "", "token of the claim; see job get")
	flags.DurationVar(&expiry, "for", 0, "time from now until the claim expires, such as 10m")
	return cmd
}

func claimTransferCommand(p *cli.Program) *cobra.Command {
	var request jobs.JobCommand
	cmd := &cobra.Command{
		Use:   "transfer JOB --to CONDUCTOR",
		Short: "Hand a job over to a given conductor",
		Long: "Hand a job over to a conductor. The owner of a claimed job stops it as in a drain: running steps finish, or are\n" +
			"stopped after the grace. The job is then reserved: only the given conductor can claim it during --within, any\n" +
			"conductor afterwards. A claimable job is reserved immediately. The command is idempotent.",
		Args: cobra.ExactArgs(1),
		RunE: cli.About(p, jobs.ParseJobID, func(ctx context.Context, cluster cli.Cluster, id jobs.JobID) error {
			request.Job, request.By = id, cli.OperatorName()
			if err := cluster.Transfer(ctx, request); err != nil {
				return cli.Because(err, "transfer job %s", id)
			}
			return showChanged(ctx, p, cluster, id, func(job *jobs.Job) string {
				switch {
				case job.Reserved != nil:
					return HowEnded(job) + ", reserved for " + reservedText(p, job.Reserved)
				case job.StopRequest != nil && job.StopRequest.Kind == jobs.RequestTransfer:
					return HowEnded(job) + ", to be transferred to " + cli.Clean(job.StopRequest.To)
				}
				return HowEnded(job)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&request.To, "to", "", "name of the conductor")
	flags.DurationVar(&request.Within, "within", jobs.DefaultReservation, fmt.Sprintf("time during which only this conductor can claim the job, at most %s", jobs.MaxReservation))
	flags.StringVar(&request.Reason, "reason", "", "reason, in one sentence")
	return cmd
}

func claimUnreserveCommand(p *cli.Program) *cobra.Command {
	return correctionCommand(p, &cobra.Command{
		Use:   "unreserve JOB…",
		Short: "End the reservation of jobs that claim transfer has reserved",
		Long:  "End the reservation of jobs: every conductor that accepts these jobs can claim them again. The command is idempotent.",
	}, func(ctx context.Context, cluster cli.Cluster, request jobs.JobCommand) error {
		if err := cluster.Unreserve(ctx, request); err != nil {
			return cli.Because(err, "unreserve job %s", request.Job)
		}
		return showCorrected(ctx, p, cluster, request.Job, "")
	})
}

// reservedText describes a job's reservation: conductor and end.
func reservedText(p *cli.Program, reserved *jobs.Reservation) string {
	if reserved == nil {
		return ""
	}
	return cli.Clean(reserved.Conductor) + " until " + p.TimeText(reserved.Until)
}
