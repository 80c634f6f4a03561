package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
)

func watchCommand(p *cli.Program) *cobra.Command {
	var (
		watch jobs.Watch
		after string
	)
	cmd := &cobra.Command{
		Use:   "watch [ID]",
		Short: "Watch events of jobs; with an ID, until this job is finished",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				if watch.Job, err = jobs.ParseJobID(args[0]); err != nil {
					return err
				}
			}
			if watch.After, err = parsePosition(after); err != nil {
				return err
			}
			return p.Watching(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cli.CheckBoards(ctx, cluster, cmd); err != nil {
					return err
				}
				return watchJobs(ctx, p, cluster, watch)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&watch.Board, "board", "", "only events of this board")
	flags.BoolVar(&watch.Flows, "flows", false, "include events of the steps of flows")
	flags.StringVar(&after, "after", "", "start after this position (INDEX-ITEM, as shown) instead of now")
	return cmd
}

// parsePosition reads INDEX-ITEM; empty means no position.
func parsePosition(text string) (*jobs.Position, error) {
	if text == "" {
		return nil, nil
	}
	position, err := jobs.ParsePosition(text)
	if err != nil {
		return nil, cli.UsageError(fmt.Errorf("--after must be INDEX-ITEM, not %.64q", text))
	}
	return &position, nil
}

// watchJobs writes events until the context ends or, if one job is watched, until that job is
// finished.
func watchJobs(ctx context.Context, p *cli.Program, cluster jobs.Reader, watch jobs.Watch) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !watch.Job.IsZero() && watch.After == nil {
		job, err := cluster.Job(ctx, watch.Job)
		if err != nil {
			return cli.Because(err, "watch job %s", watch.Job)
		}
		if job.State.Finished() {
			p.Note("job %s is already %s", job.ID, HowEnded(&job))
			return nil
		}
		ended := make(chan struct{})
		defer func() { cancel(nil); <-ended }()
		go endWatch(ctx, p, cluster, watch.Job, cancel, ended)
	}
	for event, err := range cluster.Watch(ctx, watch) {
		if errors.Is(context.Cause(ctx), errFinished) {
			return nil
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return cli.Because(err, "watch")
		}
		if err := writeEvent(p, event); err != nil {
			return err
		}
		if !watch.Job.IsZero() && event.State.Finished() && over(ctx, cluster, &event) {
			return nil
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errFinished) {
		return fmt.Errorf("cannot watch: %w", cause)
	}
	return nil
}

// over reports whether the watch of a job is complete after an event that finished it. An
// intervention may have reopened the job since then.
func over(ctx context.Context, reader jobs.Reader, event *jobs.Event) bool {
	job, err := reader.Job(ctx, event.Job)
	return err != nil || job.State.Finished() && !job.FinishedAt.After(event.Time)
}

// errFinished ends a watch that does not see the end of its job.
var errFinished = errors.New("the job is finished")

// lastEvents is the maximum time until the watch of a finished job shows its end.
const lastEvents = 2 * time.Second

// endWatch ends the watch of a job that finished between the first read and the start of the
// watch: no more events come for that job. Its goroutine ends with its context.
func endWatch(ctx context.Context, p *cli.Program, reader jobs.Reader, id jobs.JobID, cancel context.CancelCauseFunc, ended chan<- struct{}) {
	defer close(ended)
	unfinished := slices.DeleteFunc(slices.Clone(jobs.States), jobs.State.Finished)
	_, err := await.Jobs(ctx, reader, await.Waiting{Jobs: []jobs.JobID{id}, States: unfinished})
	job := jobs.Job{}
	if err == nil {
		job, err = reader.Job(ctx, id)
	}
	if err != nil {
		cancel(err)
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(lastEvents):
		p.Note("job %s is %s", id, HowEnded(&job))
		cancel(errFinished)
	}
}

// HowEnded describes the end of a finished job in one or two words.
func HowEnded(job *jobs.Job) string {
	if job.Outcome == "" {
		return string(job.State)
	}
	return string(job.State) + ": " + string(job.Outcome)
}

func writeEvent(p *cli.Program, event jobs.Event) error {
	if p.JSON() {
		return p.WriteJSONLine(command.EventToProto(&event))
	}
	return p.WriteLines([]string{eventText(p, event)})
}

// eventText is one event on one line.
func eventText(p *cli.Program, event jobs.Event) string {
	parts := []string{
		event.Position.String(),
		p.TimeText(event.Time), string(event.Kind),
	}
	if event.Kind.OfSessions() {
		return strings.Join(append(parts, sessionParts(&event)...), " ")
	}
	if event.Job.IsZero() { // event of a board
		parts = append(parts, "board="+strconv.Quote(cli.Clean(event.Board)))
		if event.Kind == jobs.EventPublicationExpired {
			parts = append(parts, "topic="+strconv.Quote(cli.Clean(event.Signal)), "key="+strconv.Quote(cli.Clean(event.Key)))
		}
	} else {
		parts = append(parts, event.Job.String())
	}
	if event.Name != "" {
		parts = append(parts, strconv.Quote(cli.Clean(event.Name)))
	}
	if event.Kind == jobs.EventFlow {
		if event.FlowState != "" {
			parts = append(parts, "flow="+event.FlowState)
		}
		for _, step := range event.Steps {
			parts = append(parts, cli.Clean(step.Name)+"="+step.State)
		}
		return strings.Join(parts, " ")
	}
	if event.State != "" {
		parts = append(parts, string(event.State))
	}
	if event.Outcome != "" {
		parts = append(parts, "outcome="+string(event.Outcome))
	}
	if event.Owner != "" {
		parts = append(parts, "owner="+cli.Clean(event.Owner))
	}
	if event.Request == nil && event.By != "" {
		parts = append(parts, "by="+cli.Clean(event.By))
	}
	if event.Request != nil {
		parts = append(parts, "request="+string(event.Request.Kind))
		if event.Request.Revert {
			parts = append(parts, "revert=true")
		}
		if event.Request.By != "" {
			parts = append(parts, "by="+cli.Clean(event.Request.By))
		}
	}
	if event.Reason != "" {
		parts = append(parts, "reason="+strconv.Quote(cli.Clean(event.Reason)))
	}
	return strings.Join(parts, " ")
}

// sessionParts describes an event of a session or of an entity.
func sessionParts(event *jobs.Event) []string {
	parts := []string{event.Session.String()}
	if event.Entity != "" {
		parts = append(parts, cli.Clean(event.EntityKind)+"="+strconv.Quote(cli.Clean(event.Entity)))
	}
	return append(parts, "owner="+cli.Clean(event.Owner))
}

// EventsCommand makes the command that watches events.
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

// tellEvents writes events until the context ends. A watch from the very first event starts
// with the oldest stored event.
func tellEvents(ctx context.Context, p *cli.Program, cluster jobs.Reader, watch jobs.Watch) error {
	for event, err := range cluster.Watch(ctx, watch) {
		var compacted *jobs.CompactedError
		if errors.As(err, &compacted) && *watch.After == (jobs.Position{}) {
			p.Note("events up to %s have been removed", compacted.Since)
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
