package job

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

func EventsCommand(p *cli.Program) *cobra.Command {
	var (
		watch      jobs.Watch
		kinds      []string
		job, after string
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Watch events of jobs and boards; optionally of flows, sessions and entities",
		Long: "Watch events in order, without gaps or duplicates. Each line starts with the event's position; --after continues\n" +
			"from a position. With -o json, each line is a JSON document.\n\nKinds: " + strings.Join(cli.Texts(jobs.EventKinds), ", ") + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if job != "" {
				if watch.Job, err = jobs.ParseJobID(job); err != nil {
					return err
				}
			}
			if watch.After, err = parsePosition(after); err != nil {
				return err
			}
			for _, kind := range kinds {
				watch.Kinds = append(watch.Kinds, jobs.EventKind(kind))
			}
			if err := jobs.CheckWatch(&watch); err != nil {
				return err
			}
			return p.Watching(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cli.CheckBoards(ctx, cluster, cmd); err != nil {
					return err
				}
				return tellEvents(ctx, p, cluster, watch)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&watch.Boards, "board", nil, "only events of these boards; repeatable or comma-separated")
	flags.StringSliceVar(&kinds, "event", nil, "only events of these kinds; repeatable or comma-separated")
	flags.StringVar(&job, "job", "", "only events of this job")
	flags.StringVar(&watch.JobKind, "kind", "", "only events of jobs of this kind")
	flags.StringVar(&watch.Key, "key", "", "only events of jobs with this key")
	flags.StringSliceVar(&watch.Tags, "tag", nil, "only events of jobs with all of these tags; repeatable or comma-separated")
	flags.StringVar(&watch.Owner, "owner", "", "only events of claims of sessions with this name")
	flags.BoolVar(&watch.Flows, "flows", false, "include events of the steps of flows")
	flags.BoolVar(&watch.Sessions, "sessions", false, "include events of sessions and entities")
	flags.StringVar(&after, "after", "", "start after this position (INDEX-ITEM, as shown; 0-0: the oldest event) instead of now")
	return cmd
}

// tellEvents writes events until the context ends. From the very first on means
// from the first that is kept.
func tellEvents(ctx context.Context, p *cli.Program, cluster cli.Cluster, watch jobs.Watch) error {
	for event, err := range cluster.Watch(ctx, watch) {
		var compacted *jobs.CompactedError
		if errors.As(err, &compacted) && *watch.After == (jobs.Position{}) {
			p.Note("events up to %s are no longer kept", compacted.Since)
			watch.After = &compacted.Since
			return tellEvents(ctx, p, cluster, watch)
		}
		if err != nil {
			return cli.Because(err, "watch")
		}
		if err := writeEvent(p, event); err != nil {
			return err
		}
	}
	return ctx.Err()
}
