package access

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// AuditCommand makes the noun of the audit log.
func AuditCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("audit", "Show the audit log and refused calls", auditSearchCommand(p), auditTailCommand(p), auditRefusalsCommand(p))
}

var recordHeader = []string{"AT", "POSITION", "PRINCIPAL", "FROM", "VERB", "TARGET", "CHANGE", "REFUSED"}

func recordRow(p *cli.Program, r *access.Record) []string {
	return []string{p.TimeText(r.At), r.Position.String(), r.Principal, r.From, r.Verb, r.Target, r.Change, r.Error}
}

func recordList(records []access.Record, next string) proto.Message {
	return &v1.ListAuditResponse{Records: cli.Messages(records, command.RecordToProto), Next: next}
}

func auditSearchCommand(p *cli.Program) *cobra.Command {
	var query access.RecordQuery
	var since, until string
	cmd := &cobra.Command{
		Use:   "search",
		Short: "List audit records, latest first: principal, action, address and log index",
		Long: "List what principals did to other principals' jobs and schedules, to boards, to the cluster and to principals,\n" +
			"including refused calls. Posts, claims and ends of jobs are not in this list: use events.",
	}
	cmd.Flags().StringVar(&query.Principal, "principal", "", "only records of this principal")
	cmd.Flags().StringVar(&query.Verb, "verb", "", "only records with this verb, such as cancel or save_principal")
	cmd.Flags().StringVar(&query.Target, "target", "", "only records whose target contains this text, such as the id of a job")
	cmd.Flags().StringVar(&since, "since", "", cli.SinceUsage)
	cmd.Flags().StringVar(&until, "until", "", "only before this time")
	return cli.List[access.Record]{
		What: "the audit log", Answer: recordList, Header: recordHeader, Row: func(r *access.Record) []string { return recordRow(p, r) },
		Read: func(ctx context.Context, cluster cli.Cluster, after string, limit int) ([]access.Record, string, error) {
			query.After, query.Limit = after, limit
			page, err := cluster.Audit(ctx, query)
			if err == nil && len(page.Items) == 0 && page.Next == "" {
				noteNoPrincipals(ctx, p, cluster)
			}
			return page.Items, page.Next, err
		},
	}.Command(p, cmd, func([]string) (err error) {
		now := time.Now()
		if query.From, err = cli.ParsePast("--since", since, now); err != nil {
			return err
		}
		query.To, err = cli.ParsePast("--until", until, now)
		return err
	})
}

// noteNoPrincipals explains why the audit log of a cluster without access control is empty.
func noteNoPrincipals(ctx context.Context, p *cli.Program, cluster cli.Principals) {
	if who, err := cluster.WhoAmI(ctx); err == nil && !who.Enforced {
		p.Note("access control is off, so calls have no principal and are not recorded; for the events of a job: `conductord events --job ID --after 0-0`")
	}
}

// tailPause is the interval at which audit tail reads new records.
const tailPause = 2 * time.Second

func auditTailCommand(p *cli.Program) *cobra.Command {
	var follow bool
	last := 20
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the latest audit records; --follow continues with new records",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if last < 1 {
				return cli.UsageError(fmt.Errorf("--lines must be at least 1: %d", last))
			}
			return p.Watching(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error { return tailAudit(ctx, p, cluster, last, follow) })
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for new records until interrupted")
	cmd.Flags().IntVarP(&last, "lines", "n", last, "start with this many records")
	return cmd
}

func tailAudit(ctx context.Context, p *cli.Program, cluster cli.Principals, last int, follow bool) error {
	var shown jobs.Position
	for {
		records, err := recordsAfter(ctx, cluster, shown, last)
		if err != nil {
			return cli.Because(err, "read the audit log")
		}
		if len(records) == 0 && shown == (jobs.Position{}) && !follow {
			noteNoPrincipals(ctx, p, cluster)
		}
		for i := range records {
			if err := writeRecord(p, &records[i]); err != nil {
				return err
			}
			shown = records[i].Position
		}
		if !follow {
			return nil
		}
		last = maxTail
		select {
		case <-time.After(tailPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// maxTail limits the records that audit tail shows at once. If records arrive faster, use audit
// search.
const maxTail = 10_000

// recordsAfter reads the last records after a position, the oldest first.
func recordsAfter(ctx context.Context, cluster cli.Principals, shown jobs.Position, most int) ([]access.Record, error) {
	var records []access.Record
	for after := ""; len(records) < most; {
		page, err := cluster.Audit(ctx, access.RecordQuery{After: after, Limit: most - len(records)})
		if err != nil {
			return nil, err
		}
		for _, record := range page.Items {
			if record.Position.Compare(shown) <= 0 {
				page.Next = ""
				break
			}
			records = append(records, record)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	slices.Reverse(records)
	return records, nil
}

// writeRecord writes a record on one line.
func writeRecord(p *cli.Program, r *access.Record) error {
	if p.JSON() {
		return p.WriteJSONLine(command.RecordToProto(r))
	}
	done := "done"
	if r.Error != "" {
		done = "refused: " + r.Error
	}
	return p.WriteLines([]string{cli.Clean(fmt.Sprintf("%s %s %s from %s: %s: %s", p.TimeText(r.At), r.Position, r.Principal, r.From,
		strings.Join(strings.Fields(r.Verb+" "+r.Target+" "+r.Change), " "), done))})
}

func auditRefusalsCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "refusals",
		Short: "List refused calls since each node's start, grouped by kind",
		Long: "List calls that were refused because the caller was unknown or lacked permission. Each node counts its own\n" +
			"refusals by principal, host and verb, keeps the latest 1,000 of these counts, and logs a sample.",
		Args: cobra.NoArgs,
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
			refusals, err := cluster.Refusals(ctx)
			if err != nil && len(refusals) == 0 {
				return cli.Because(err, "list refusals")
			}
			if err != nil {
				p.Note("%v", err)
			}
			slices.SortStableFunc(refusals, func(a, b access.Refusal) int { return b.Last.Compare(a.Last) })
			answer := &v1.ListRefusalsResponse{}
			var rows [][]string
			for i := range refusals {
				r := &refusals[i]
				answer.Refusals = append(answer.Refusals, command.RefusalToProto(r))
				rows = append(rows, []string{p.TimeText(r.Last), r.Node, r.Principal, r.From, r.Verb, strconv.FormatUint(r.Count, 10), r.Error})
			}
			if p.JSON() {
				return p.WriteJSON(cli.Part{Message: answer})
			}
			return p.WriteTable([]string{"LAST", "NODE", "PRINCIPAL", "FROM", "VERB", "COUNT", "WHY"}, rows)
		}),
	}
}
