package access

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// QuotaCommand makes the noun of quotas.
func QuotaCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("quota", "Manage quotas of principals and boards", quotaSaveCommand(p), quotaListCommand(p), quotaDeleteCommand(p))
}

// subjectFlags adds the flags that name the subject of a quota.
func subjectFlags(cmd *cobra.Command, of *access.Subject) {
	cmd.Flags().StringVar(&of.Principal, "principal", "", "quota of this principal")
	cmd.Flags().StringVar(&of.Boards, "boards", "", "quota of these boards together: a name, or a prefix with \"*\"")
}

func quotaSaveCommand(p *cli.Program) *cobra.Command {
	var quota access.Quota
	cmd := &cobra.Command{
		Use:   "save {--principal NAME | --boards BOARDS} LIMITS",
		Short: "Create a quota, or replace its limits",
		Long: "Create a quota, or replace all its limits. An omitted limit, or 0, means unlimited. The cluster refuses calls\n" +
			"that would exceed a limit. Existing jobs and sessions stay. A posting must satisfy all matching quotas and the\n" +
			"limits of its board.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := access.CheckQuota(logbook.MaxLimits, &quota); err != nil {
				return cli.UsageError(err)
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cluster.SaveQuota(ctx, quota); err != nil {
					return err
				}
				return p.Show(cli.Part{Message: command.QuotaToProto(&quota)}, "saved the quota of %s", quota.Subject)
			})
		},
	}
	subjectFlags(cmd, &quota.Subject)
	flags, limits := cmd.Flags(), &quota.Limits
	flags.Uint64Var(&limits.Jobs, "jobs", 0, "maximum unfinished jobs posted by the principal, or on the boards")
	flags.Uint64Var(&limits.Bytes, "bytes", 0, "maximum bytes of the postings of these jobs")
	flags.Uint64Var(&limits.PostingsPerSecond, "postings-per-second", 0, "maximum postings per second, in bursts of one second's worth")
	flags.Uint64Var(&limits.Sessions, "sessions", 0, "maximum open sessions of the principal")
	flags.Uint64Var(&limits.Watches, "watches", 0, "maximum watches and long polls of the principal at each node")
	return cmd
}

// amount is one number of a quota.
type amount struct{ used, limit uint64 }

func amountsOf(q *access.Quota) []amount {
	return []amount{
		{q.Used.Jobs, q.Limits.Jobs}, {q.Used.Bytes, q.Limits.Bytes}, {q.Used.PostingsPerSecond, q.Limits.PostingsPerSecond},
		{q.Used.Sessions, q.Limits.Sessions}, {q.Used.Watches, q.Limits.Watches},
	}
}

// String returns used/limit, or the used amount alone when there is no limit.
func (a amount) String() string {
	if a.limit == 0 {
		return cli.NumberText(a.used)
	}
	return fmt.Sprintf("%d/%d", a.used, a.limit)
}

// full returns the used share of the fullest limit, in percent.
func full(amounts []amount) (percent uint64) {
	for _, a := range amounts {
		if a.limit > 0 {
			percent = max(percent, a.used*100/a.limit)
		}
	}
	return percent
}

// quotaText returns the text of a quota to append to its principal; empty for nil.
func quotaText(q *access.Quota) string {
	if q == nil {
		return ""
	}
	text := "; quota:"
	for i, name := range []string{"jobs", "bytes", "postings/s", "sessions", "watches"} {
		text += fmt.Sprintf(" %s %s", name, amountsOf(q)[i])
	}
	return text
}

func quotaListCommand(p *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List quotas: usage and limit",
		Long: "List quotas as used/limit; without a limit, only the usage. FULL is the usage of the limit that is closest to being\n" +
			"reached. The usage of watches includes only the answering node.",
	}
	return cli.List[access.Quota]{
		What: "quotas",
		Read: func(ctx context.Context, cluster cli.Cluster, after string, _ int) ([]access.Quota, string, error) {
			page, err := cluster.Quotas(ctx, after)
			return page.Items, page.Next, err
		},
		Answer: func(quotas []access.Quota, next string) proto.Message {
			return &v1.ListQuotasResponse{Quotas: cli.Messages(quotas, command.QuotaToProto), Next: next}
		},
		Header: []string{"QUOTA OF", "FULL", "JOBS", "BYTES", "POSTINGS/S", "SESSIONS", "WATCHES", "UPDATED", "BY"},
		Row: func(q *access.Quota) []string {
			amounts := amountsOf(q)
			row := []string{q.Subject.String(), fmt.Sprintf("%d%%", full(amounts))}
			for _, a := range amounts {
				row = append(row, a.String())
			}
			if q.Boards != "" { // boards have no sessions or watches
				row[5], row[6] = "-", "-"
			}
			return append(row, cli.AgoText(q.UpdatedAt), q.By)
		},
	}.Command(p, cmd, nil)
}

func quotaDeleteCommand(p *cli.Program) *cobra.Command {
	var of access.Subject
	cmd := &cobra.Command{
		Use:   "delete {--principal NAME | --boards BOARDS}",
		Short: "Delete a quota and its limits",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := access.CheckSubject(logbook.MaxLimits, of); err != nil {
				return cli.UsageError(err)
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cluster.DeleteQuota(ctx, of); err != nil {
					return err
				}
				return p.Show(cli.Part{Message: &v1.Done{}}, "deleted the quota of %s", of)
			})
		},
	}
	subjectFlags(cmd, &of)
	return cmd
}
