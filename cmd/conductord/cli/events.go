package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
)

func (p *Program) eventsCommand() *cobra.Command {
	var (
		watch      jobs.Watch
		kinds      []string
		job, after string
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Watch events as they happen: of jobs, boards and, on request, flows, sessions and entities",
		Long: "Watch events in order, without gap or repeat. Each begins with its position; --after continues after one.\n" +
			"With -o json there is one document on each line.\n\nKinds: " + strings.Join(texts(jobs.EventKinds), ", ") + ".",
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
			return p.watching(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				if err := checkBoards(ctx, cluster, cmd); err != nil {
					return err
				}
				return p.tellEvents(ctx, cluster, watch)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&watch.Boards, "board", nil, "only of this board; of any of them, if it is given several times")
	flags.StringSliceVar(&kinds, "event", nil, "only of this kind; of any of them, if it is given several times")
	flags.StringVar(&job, "job", "", "only of this job")
	flags.StringVar(&watch.JobKind, "kind", "", "only of jobs of this kind")
	flags.StringVar(&watch.Key, "key", "", "only of jobs with this key")
	flags.StringSliceVar(&watch.Tags, "tag", nil, "only of jobs with this tag; with all of them, if it is given several times")
	flags.StringVar(&watch.Owner, "owner", "", "only about claims of sessions of this name")
	flags.BoolVar(&watch.Flows, "flows", false, "also what happens to the steps of their flows")
	flags.BoolVar(&watch.Sessions, "sessions", false, "also sessions and entities, as they come and go")
	flags.StringVar(&after, "after", "", "begin after this position (INDEX-ITEM, as shown; 0-0: the first that is kept) instead of now")
	return cmd
}

// tellEvents writes events until the context ends. From the very first on means
// from the first that is kept.
func (p *Program) tellEvents(ctx context.Context, cluster Cluster, watch jobs.Watch) error {
	for event, err := range cluster.Watch(ctx, watch) {
		var compacted *jobs.CompactedError
		if errors.As(err, &compacted) && *watch.After == (jobs.Position{}) {
			p.Note("events up to %s are no longer kept", compacted.Since)
			watch.After = &compacted.Since
			return p.tellEvents(ctx, cluster, watch)
		}
		if err != nil {
			return because(err, "watch")
		}
		if err := p.writeEvent(event); err != nil {
			return err
		}
	}
	return ctx.Err()
}
