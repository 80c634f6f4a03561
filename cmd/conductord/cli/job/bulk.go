package job

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// maxShownRefusals limits the refusals that are printed one by one.
const maxShownRefusals = 20

// BulkCommand makes the noun of changes to many jobs.
func BulkCommand(p *cli.Program) *cobra.Command {
	commands := make([]*cobra.Command, 0, len(jobs.Actions))
	for _, verb := range []struct {
		action      jobs.Action
		short, long string
	}{
		{jobs.ActionCancel, "Cancel many unfinished jobs", "With --revert, the default, conductors revert their flows first."},
		{jobs.ActionSuspend, "Suspend many unfinished jobs", ""},
		{jobs.ActionResume, "Resume many suspended jobs", "The command also withdraws pending requests to suspend a job."},
		{jobs.ActionRetry, "Retry many trashed, failed, reverted or parked jobs", "See `job retry`."},
		{jobs.ActionPurge, "Remove many finished jobs and their books permanently", "See `trash purge`."},
	} {
		commands = append(commands, bulkVerb(p, verb.action, verb.short, verb.long))
	}
	return cli.Noun("bulk", "Apply one action to all jobs that match a filter", commands...)
}

func bulkVerb(p *cli.Program, action jobs.Action, short, long string) *cobra.Command {
	bulk := jobs.Bulk{Action: action}
	var filter jobFilter
	yes := false
	cmd := &cobra.Command{
		Use:   string(action),
		Short: short,
		Long: strings.TrimSpace(short+". "+long) + "\n\nRequires at least one filter. The command counts the jobs first. After your confirmation, or with --yes, it\n" +
			"applies the action page by page. If the command is interrupted, repeat it for the remaining jobs.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if bulk.Query, err = filter.read(time.Now()); err != nil {
				return err
			}
			if !filter.given(cmd) {
				return cli.UsageError(errors.New("no jobs are selected: add at least one filter"))
			}
			bulk.By = cli.OperatorName()
			if _, err := bulk.Narrowed(); err != nil {
				return cli.UsageError(err)
			}
			return p.Waiting(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cli.CheckBoards(ctx, cluster, cmd); err != nil {
					return err
				}
				return doBulk(ctx, p, cluster, bulk, yes)
			})
		},
	}
	filter.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&bulk.Reason, "reason", "", "reason, in one sentence")
	flags.BoolVar(&bulk.DryRun, "dry-run", false, "count the jobs, and change nothing")
	flags.BoolVarP(&yes, "yes", "y", false, "skip the confirmation")
	if action == jobs.ActionCancel {
		flags.BoolVar(&bulk.Revert, "revert", true, "revert finished steps")
	}
	return cmd
}

// bulkResult is the result of a bulk over all its pages.
type bulkResult struct {
	*v1.BulkResponse
	dryRun bool
}

// doBulk counts the jobs, asks for confirmation, and performs the bulk.
func doBulk(ctx context.Context, p *cli.Program, cluster jobs.Historian, bulk jobs.Bulk, yes bool) error {
	counting := bulk
	counting.DryRun = true
	counted, err := pages(ctx, p, cluster, counting, logbook.MaxPage, 0)
	if err != nil || bulk.DryRun || counted.Matched == 0 {
		return errors.Join(err, writeBulk(p, err, counted))
	}
	if !yes {
		if err := confirm(p, fmt.Sprintf("%s %s?", bulk.Action, numberOfJobs(counted.GetMatched()))); err != nil {
			return err
		}
	}
	done, err := pages(ctx, p, cluster, bulk, jobs.MaxBulk, counted.GetMatched())
	if err := errors.Join(err, writeBulk(p, nil, done)); err != nil {
		return err
	}
	if len(done.Refused) > 0 {
		return cli.ErrRunFailed
	}
	return nil
}

// pages performs a bulk page by page, and prints its progress.
func pages(ctx context.Context, p *cli.Program, cluster jobs.Historian, bulk jobs.Bulk, size int, of uint32) (bulkResult, error) {
	result := bulkResult{&v1.BulkResponse{}, bulk.DryRun}
	bulk.Query.Limit = size
	for {
		report, err := cluster.Bulk(ctx, bulk)
		if err != nil {
			return result, cli.Because(err, "%s more jobs; %d are done", bulk.Action, result.Done)
		}
		result.Matched += uint32(report.Matched)
		result.Done += uint32(report.Done)
		for _, refused := range report.Refused {
			result.Refused = append(result.Refused, &v1.BulkRefusal{Job: refused.Job.String(), Error: command.ErrorToProto(refused.Err)})
		}
		if report.Next == "" {
			return result, nil
		}
		if bulk.Query.After = report.Next; !bulk.DryRun {
			p.Note("%d of %d", result.Matched, of)
		}
	}
}

func numberOfJobs(count uint32) string {
	if count == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", count)
}

// confirm asks for confirmation at a terminal. Without a terminal, it refuses.
func confirm(p *cli.Program, question string) error {
	if !p.Terminal {
		return cli.UsageError(fmt.Errorf("%s Add --yes to confirm, or --dry-run to count only", question))
	}
	fmt.Fprintf(p.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(p.In).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
		return cli.UsageError(errors.New("not confirmed: nothing changed"))
	}
	return nil
}

// writeBulk prints the result of a bulk, unless even the count failed.
func writeBulk(p *cli.Program, failed error, result bulkResult) error {
	switch {
	case failed != nil:
		return nil
	case p.JSON():
		return p.WriteJSON(result.BulkResponse)
	case result.dryRun:
		return p.WriteLines([]string{fmt.Sprintf("%s matched", numberOfJobs(result.Matched))})
	}
	lines := []string{fmt.Sprintf("%s: %d done, %d refused", numberOfJobs(result.Matched), result.Done, len(result.Refused))}
	for i, refused := range result.Refused {
		if i == maxShownRefusals {
			lines = append(lines, fmt.Sprintf("… and %d more; -o json shows all", len(result.Refused)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("%s: %s", refused.Job, cli.Clean(refused.GetError().GetMessage())))
	}
	return p.WriteLines(lines)
}
