package job

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// errorFlags are the filters of a listing of errors.
type errorFlags struct {
	query        jobs.ErrorQuery
	how          string
	since, until string
	code         int
}

func errorsCommand(p *cli.Program) *cobra.Command {
	var given errorFlags
	cmd := &cobra.Command{
		Use:   "errors [ID]",
		Short: "List failed attempts at one job or all jobs, the latest first",
		Long: "List failed attempts at one job or all jobs, the latest first: abandoned with a failure, crashed, trashed,\n" +
			"reverted or failed. -o json includes causes and stacks; `flow show` includes the stderr of steps.\n" +
			"The cluster keeps the latest " + strconv.Itoa(jobs.MaxJobErrors) + " failed attempts of each job.",
		Args: cobra.MaximumNArgs(1),
	}
	var query jobs.ErrorQuery
	errorList(&query).Command(p, cmd, func(args []string) (err error) {
		query, err = given.read(cmd, args)
		return err
	})
	flags := cmd.Flags()
	flags.StringVar(&given.query.Board, "board", "", "only attempts at jobs on this board")
	flags.StringVar(&given.query.Key, "key", "", "only attempts at jobs with this key")
	flags.StringVar(&given.query.Kind, "kind", "", "only attempts at jobs of this kind")
	flags.StringVar(&given.query.Type, "error", "", "only failures of this kind, such as handler.exit or timeout")
	flags.IntVar(&given.code, "code", 0, "only failures with this code, such as the exit status of a handler")
	flags.StringVar(&given.how, "how", "", "only attempts that ended this way: abandoned, crashed, trashed, reverted or failed")
	flags.StringVar(&given.since, "since", "", cli.SinceUsage)
	flags.StringVar(&given.until, "until", "", "only before this time")
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
	if query.From, err = cli.ParsePast("--since", f.since, now); err != nil {
		return query, err
	}
	if query.To, err = cli.ParsePast("--until", f.until, now); err != nil {
		return query, err
	}
	query.How = jobs.How(f.how)
	if err := jobs.CheckErrorQuery(&query); err != nil {
		return query, cli.UsageError(fmt.Errorf("--how must be one of %v", jobs.Hows))
	}
	return query, nil
}

// errorList lists the errors that a query selects.
func errorList(query *jobs.ErrorQuery) cli.List[jobs.JobError] {
	return cli.List[jobs.JobError]{
		What: "errors",
		Read: func(ctx context.Context, cluster cli.Cluster, after string, limit int) ([]jobs.JobError, string, error) {
			query.After, query.Limit = after, limit
			page, err := cluster.Errors(ctx, *query)
			return page.Items, page.Next, err
		},
		Answer: func(errors []jobs.JobError, next string) proto.Message {
			return &v1.ListErrorsResponse{Errors: cli.Messages(errors, command.JobErrorToProto), Next: next}
		},
		Header: []string{"at", "job", "how", "step", "type", "code", "name", "owner", "message"},
		Row: func(e *jobs.JobError) []string {
			return []string{
				cli.AgoText(e.At), e.Job.String(), string(e.How), cli.OrDash(e.Failure.Step), e.Failure.Kind, cli.OrDash(cli.CountText(e.Failure.Code)),
				cli.OrDash(e.Name), cli.OrDash(e.Owner), e.Failure.Message,
			}
		},
	}
}
