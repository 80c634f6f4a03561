package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// errorFlags are the filters of a listing of errors, as given.
type errorFlags struct {
	query        jobs.ErrorQuery
	how          string
	since, until string
	code, limit  int
}

func (p *Program) jobErrorsCommand() *cobra.Command {
	given := errorFlags{limit: defaultListed}
	cmd := &cobra.Command{
		Use:   "errors [ID]",
		Short: "List what went wrong, of one job or of all, the latest first",
		Long: "List the attempts at jobs that did not succeed, of one job or of all, the latest first: abandoned with a\n" +
			"failure, crashed, trashed, reverted or failed. -o json shows causes and stacks; what a step wrote to stderr\n" +
			"is shown by `flow show`. Of each job the latest " + strconv.Itoa(jobs.MaxJobErrors) + " are kept, for as long as the job itself.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := given.read(cmd, args)
			if err != nil {
				return err
			}
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				return p.listErrors(ctx, cluster, query, given.limit)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&given.query.Board, "board", "", "only of jobs of this board")
	flags.StringVar(&given.query.Key, "key", "", "only of jobs with this key")
	flags.StringVar(&given.query.Kind, "kind", "", "only of jobs of this kind")
	flags.StringVar(&given.query.Type, "type", "", "only failures of this kind, such as handler.exit or timeout")
	flags.IntVar(&given.code, "code", 0, "only failures with this code, such as the status of a handler")
	flags.StringVar(&given.how, "how", "", "only what has ended so: abandoned, crashed, trashed, reverted or failed")
	flags.StringVar(&given.since, "since", "", "only from this moment on (2030-01-02T15:04:05Z, or -1h for an hour ago)")
	flags.StringVar(&given.until, "until", "", "only before this moment")
	flags.IntVar(&given.limit, "limit", given.limit, "at most so many; 0: all")
	return cmd
}

func (f *errorFlags) read(cmd *cobra.Command, args []string) (query jobs.ErrorQuery, err error) {
	query = f.query
	if len(args) > 0 {
		if query.Job, err = jobs.ParseJobID(args[0]); err != nil {
			return query, err
		}
	}
	if cmd.Flags().Changed("code") {
		query.Code = &f.code
	}
	now := time.Now()
	if query.From, err = parseMoment("--since", f.since, now); err != nil {
		return query, err
	}
	if query.To, err = parseMoment("--until", f.until, now); err != nil {
		return query, err
	}
	query.How = jobs.How(f.how)
	if err := jobs.CheckErrorQuery(&query); err != nil {
		return query, usageError{fmt.Errorf("--how must be one of %v", jobs.Hows)}
	}
	return query, checkLimit(f.limit)
}

func (p *Program) listErrors(ctx context.Context, cluster Cluster, query jobs.ErrorQuery, limit int) error {
	listed := []jobs.JobError{}
	for {
		query.Limit = logbook.MaxPage
		if limit > 0 {
			query.Limit = min(limit-len(listed), logbook.MaxPage)
		}
		page, err := cluster.Errors(ctx, query)
		if err != nil {
			return because(err, "list errors")
		}
		if listed = append(listed, page.Errors...); page.Next == nil {
			break
		}
		if limit > 0 && len(listed) >= limit {
			p.Note("there are more: these are the latest %d, and --limit 0 lists all", len(listed))
			break
		}
		query.Before = page.Next
	}
	if p.JSON() {
		return p.WriteJSON(listed)
	}
	rows := make([][]string, 0, len(listed))
	for i := range listed {
		e := &listed[i]
		rows = append(rows, []string{
			timeText(e.At), e.Job.String(), OrDash(e.Name), string(e.How), e.Failure.Kind, OrDash(countText(e.Failure.Code)),
			OrDash(e.Failure.Step), OrDash(e.Owner), e.Failure.Message,
		})
	}
	return p.writeTable([]string{"at", "job", "name", "how", "type", "code", "step", "owner", "message"}, rows)
}
