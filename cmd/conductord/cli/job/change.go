package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func releaseCommand(p *cli.Program) *cobra.Command {
	return changeCommand(p, &cobra.Command{
		Use:   "release ID",
		Short: "Release a held job: posted with --hold, or parked",
		Long: "Release a held job: it is claimable immediately, or when it is due. A parked job starts again with all its\n" +
			"attempts; this fails if its flow is partly reverted, see flow show.",
	}, func(change *jobs.Change) error {
		change.Release = true
		return nil
	})
}

func alterCommand(p *cli.Program) *cobra.Command {
	var deadline, notBefore, priority string
	var front bool
	cmd := &cobra.Command{
		Use:   "change ID",
		Short: "Change the deadline, earliest start, priority or position of a job",
		Long: "Change a job's deadline, earliest start, priority or position among jobs of its priority, in one step. A claimed job\n" +
			"continues; its new earliest start and priority apply if it is abandoned. A suspended or held job also waits for\n" +
			"its resume or release. --not-before 0s means now. You cannot change the deadline of a job that is being cancelled.",
	}
	changeCommand(p, cmd, func(change *jobs.Change) (err error) {
		if deadline == "" && notBefore == "" && priority == "" && !front {
			return cli.UsageError(errors.New("name a change: --deadline, --not-before, --priority or --front"))
		}
		change.Front = front
		if change.NoDeadline = deadline == "none"; !change.NoDeadline {
			if change.Deadline, err = cli.ParseMoment("--deadline", deadline, time.Now()); err != nil {
				return err
			}
		}
		if change.NotBefore, err = cli.ParseMoment("--not-before", notBefore, time.Now()); err != nil || priority == "" {
			return err
		}
		wanted, err := jobs.ParsePriority(priority)
		change.Priority = &wanted
		return err
	})
	cmd.Flags().StringVar(&deadline, "deadline", "", "time, or duration from now, after which an unfinished job is cancelled and reverted; none: no deadline")
	cmd.Flags().StringVar(&notBefore, "not-before", "", "earliest start: a time (2030-01-02T15:04:05Z), or a duration from now (10m)")
	cmd.Flags().StringVar(&priority, "priority", "", "priority: very-low, low, normal, high, very-high, or a number; higher first")
	cmd.Flags().BoolVar(&front, "front", false, "claim the job before all others of its priority on its board")
	return cmd
}

func moveCommand(p *cli.Program) *cobra.Command {
	var change jobs.Change
	cmd := &cobra.Command{
		Use:   "move ID… BOARD",
		Short: "Move unclaimed, unfinished jobs to another board",
		Long: "Move unclaimed, unfinished jobs to another board, which must exist and be within its limits. The jobs keep their\n" +
			"priority and posting order; ageing restarts. The command is idempotent.",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			change.By, change.Board = cli.OperatorName(), args[len(args)-1]
			return eachJob(p, cmd, args[:len(args)-1], func(ctx context.Context, cluster cli.Cluster, id jobs.JobID) error {
				change.Job = id
				return moveJob(ctx, p, cluster, change)
			})
		},
	}
	cmd.Flags().StringVar(&change.Reason, "reason", "", "reason, in one sentence")
	return cmd
}

// controller stops and changes jobs, and reads them afterwards.
type controller interface {
	jobs.Controller
	jobReader
}

func moveJob(ctx context.Context, p *cli.Program, cluster controller, change jobs.Change) error {
	if err := cluster.Change(ctx, change); err != nil {
		switch job, unread := cluster.Job(ctx, change.Job); {
		case unread == nil && job.Claim != nil:
			err = cli.Advised(err, fmt.Sprintf("first `conductord job suspend %s`, and when its steps have ended `conductord job move %s %s`; then `conductord job resume %s`",
				job.ID, job.ID, cli.Operand(change.Board), job.ID))
		case unread == nil:
			err = cli.AdviseCreate(err, change.Board)
		}
		return cli.Because(err, "move job %s", change.Job)
	}
	return showCorrected(ctx, p, cluster, change.Job, ", board "+change.Board)
}

// changeCommand completes a command that changes one job. fill sets the change after the flags have
// been read.
func changeCommand(p *cli.Program, cmd *cobra.Command, fill func(*jobs.Change) error) *cobra.Command {
	var change jobs.Change
	var id string
	cmd.Long += "\n\nThe command is idempotent, and does not change finished jobs. To start the next attempt of a job or step, use\n`flow retry-now`."
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if change.Job, err = jobs.ParseJobID(args[0]); err != nil {
			return err
		}
		if err := fill(&change); err != nil {
			return err
		}
		if id != "" {
			if change.ID, err = logbook.ParseID("--id", id); err != nil {
				return err
			}
		}
		change.By = cli.OperatorName()
		return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
			if err := checkStart(ctx, cluster, &change); err != nil {
				return cli.Because(err, "change job %s", change.Job)
			}
			return changeJob(ctx, p, cluster, change)
		})
	}
	cmd.Flags().StringVar(&change.Reason, "reason", "", "reason, in one sentence")
	cmd.Flags().StringVar(&id, "id", "", "id of this change (a UUID); repeating a change with the same id has no effect, even after other changes")
	return cmd
}

// checkStart refuses a change that should start a job now, if a conductor has the job and waits for the next attempt of
// a step: the change would have no effect. A change with an id can be a repeat, which is never refused.
func checkStart(ctx context.Context, cluster cli.FlowReader, change *jobs.Change) error {
	job, err := cluster.Job(ctx, change.Job)
	if err != nil || job.Claim == nil || job.Flow.IsZero() || change.ID != uuid.Nil {
		return nil // the change itself reports an error
	}
	detail, err := cluster.FlowDetail(ctx, job.Flow)
	if err != nil {
		return nil
	}
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		if job.DueAt = atom.RetryAt; !atom.RetryAt.IsZero() && !atom.OpenWait().Open() && change.Starts(&job) {
			return fmt.Errorf("%w: a conductor has the job, and step %q waits until %s for its next attempt; `conductord flow retry-now %s` starts it now",
				jobs.ErrConflict, atom.Name, atom.RetryAt.UTC().Format(time.RFC3339), job.ID)
		}
	}
	return nil
}

// changeJob changes a job, and then shows it.
func changeJob(ctx context.Context, p *cli.Program, cluster controller, change jobs.Change) error {
	if err := cluster.Change(ctx, change); err != nil {
		return cli.Because(err, "change job %s", change.Job)
	}
	return showChanged(ctx, p, cluster, change.Job, func(job *jobs.Job) string {
		line := fmt.Sprintf("%s, priority %s", HowEnded(job), job.Priority)
		if !job.DueAt.IsZero() {
			line += ", due " + p.TimeText(job.DueAt)
		}
		if !job.Deadline.IsZero() {
			line += ", deadline " + p.TimeText(job.Deadline)
		}
		return line
	})
}
