package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// StepCommands are the commands about one step of a job.
func StepCommands(p *cli.Program) []*cobra.Command {
	return []*cobra.Command{stepGetCommand(p), stepWaitCommand(p), stepLogsCommand(p)}
}

// stepOf reads the arguments of these commands, JOB/STEP or JOB STEP. The id is a whole one: the program has replaced a
// short one.
func stepOf(args []string) (job jobs.JobID, step string, err error) {
	job, step, err = jobAndStep(args)
	if err == nil && step == "" {
		err = cli.UsageError(fmt.Errorf("%.80q names no step: write JOB/STEP, such as %.40s/NAME", args[0], job))
	}
	return job, step, err
}

func stepGetCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "get JOB/STEP",
		Short: "Show one step of a job: state, attempts, result, failure, and what it waits for",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, name, err := stepOf(args)
			if err != nil {
				return err
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				step, err := cluster.Step(ctx, job, name)
				if err != nil {
					return stepFault(ctx, cluster, job, name, "read", err)
				}
				return writeStep(ctx, p, cluster, &step)
			})
		},
	}
}

func stepWaitCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "wait JOB/STEP",
		Short: "Wait until one step of a job has ended; exit 1 unless it is a success",
		Long: "Wait until one step of a job has ended, and print its result. The command also waits for a step that has not\n" +
			"started, and for an instance of a step in a loop, such as send[2]. If a retry runs the step again, the\n" +
			"command continues to wait. Exit code 1 means that the step failed, was skipped or undone, or did not run: stderr\n" +
			"shows the outcome. A held, parked or suspended job also ends the wait with exit code 1.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, name, err := stepOf(args)
			if err != nil {
				return err
			}
			return p.Waiting(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				step, err := cluster.WaitStep(ctx, job, name)
				if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, jobs.ErrUnavailable) {
					return cli.Advised(fmt.Errorf("step %s of job %s has not ended: %w", name, job, context.DeadlineExceeded), fmt.Sprintf("`conductord step get %s` shows what it waits for", cli.Operand(job.String()+"/"+name)))
				}
				if err != nil {
					return stepFault(ctx, cluster, job, name, "wait for", err)
				}
				return writeEndedStep(ctx, p, cluster, &step)
			})
		},
	}
}

func stepLogsCommand(p *cli.Program) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs JOB/STEP",
		Short: "Print the output of one step of a job, even while it runs",
		Long: "Print the output of one step of a job, as `conductord job logs --step` does. With --follow, follow new lines until\n" +
			"the job is finished.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			logs := jobLogs{p: p, seen: map[attemptKey]printed{}}
			if logs.query.Job, logs.query.Step, err = stepOf(args); err != nil {
				return err
			}
			return logs.run(cmd.Context(), follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new lines until the job is finished, even if its conductor changes")
	return cmd
}

// stepFault adds to the error of a missing step the steps of the flow.
func stepFault(ctx context.Context, cluster cli.FlowReader, id jobs.JobID, name, verb string, err error) error {
	told := cli.Because(err, "%s step %s of job %s", verb, name, id)
	if !errors.Is(err, jobs.ErrNotFound) {
		return told
	}
	job, readErr := cluster.Job(ctx, id)
	if readErr != nil || job.Flow.IsZero() {
		return told
	}
	detail, readErr := cluster.FlowDetail(ctx, job.Flow)
	if readErr != nil {
		return told
	}
	known := cli.StepsOf(&detail)
	return cli.Advised(fmt.Errorf("%w%s", told, meant.Hint(name, known)), cli.Listed("its steps", known))
}

// writeEndedStep prints the result of a step, and notes another outcome than success on stderr.
func writeEndedStep(ctx context.Context, p *cli.Program, cluster cli.FlowReader, step *jobs.Step) error {
	var err error
	if result, ok := step.Atom.Result(); p.JSON() {
		err = p.WriteJSON(command.StepToProto(step))
	} else if ok {
		err = p.WriteLines([]string{string(result)})
	}
	switch {
	case err != nil || step.Outcome == jobs.StepSuccess:
		return err
	case step.Outcome == "":
		return NoteStopped(ctx, p, cluster, step.Job)
	}
	note := fmt.Sprintf("step %s of job %s ended: %s", step.Atom.Name, step.Job, stepOutcomeText(step))
	if failure := step.Atom.Failure(); failure != nil && step.Outcome == jobs.StepFailure {
		note += ": " + failure.Kind + ": " + failure.Message
	}
	p.Note("%s", cli.Clean(note))
	return cli.ErrRunFailed
}

// stepOutcomeText is an outcome in words; empty: the step has not ended.
func stepOutcomeText(step *jobs.Step) string {
	if step.Outcome == jobs.StepFailure && step.Atom.FailureIgnored() {
		return "failure, which the flow ignores"
	}
	return strings.ReplaceAll(string(step.Outcome), "_", " ")
}

func writeStep(ctx context.Context, p *cli.Program, cluster cli.FlowReader, step *jobs.Step) error {
	if p.JSON() {
		return p.WriteJSON(command.StepToProto(step))
	}
	atom := &step.Atom
	fields := []cli.Field{
		{"step", atom.Name}, {"job", step.Job.String() + " " + string(step.JobState)}, {"flow", step.Flow.String() + " " + string(step.FlowState)},
		{"kind", string(atom.Kind)}, {"version", atom.Version}, {"state", string(atom.State)}, {"outcome", stepOutcomeText(step)},
	}
	if !step.IsKnown() {
		fields = append(fields, cli.Field{"waits for", "the start of this step: the flow has not recorded the step yet"})
	}
	if step.Outcome == "" && step.IsKnown() {
		detail, err := cluster.FlowDetail(ctx, step.Flow)
		if err != nil {
			return cli.Because(err, "read flow %s", step.Flow)
		}
		fields = append(fields, cli.Field{"waits for", strings.Join(waitsOfStep(p, &detail, atom), "\n")})
	}
	if saved := atom.Checkpoints; saved != nil {
		fields = append(fields, cli.Field{"checkpoints", tree.CheckpointsText(saved) + ", " + p.TimeText(saved.At)})
	}
	fields = append(fields, attemptFields(p, atom)...)
	return p.WriteFields(fields)
}

// attemptFields describe the latest attempt of a step.
func attemptFields(p *cli.Program, atom *logbook.AtomDetail) []cli.Field {
	if len(atom.Attempts) == 0 {
		return nil
	}
	last := &atom.Attempts[len(atom.Attempts)-1]
	fields := []cli.Field{
		{"attempts", fmt.Sprint(len(atom.Attempts) + atom.Folded.Len())}, {"last attempt", fmt.Sprintf("%s %d", last.Action, last.Number)},
		{"by", last.Owner}, {"worker", last.WorkerName}, {"started", p.TimeText(last.StartedAt)},
	}
	if last.Ended() {
		fields = append(fields, cli.Field{"ended", p.TimeText(last.EndedAt)}, cli.Field{"took", cli.DurationText(last.EndedAt.Sub(last.StartedAt))})
	}
	if result, ok := atom.Result(); ok {
		fields = append(fields, cli.Field{"result", string(result)})
	}
	return append(append(fields, tree.FailureFields(atom.Failure())...), cli.Field{"stderr", strings.TrimRight(last.Stderr, "\n")})
}

// waitsOfStep names what a step waits for. The order of the steps is known only for documents.
func waitsOfStep(p *cli.Program, detail *logbook.FlowDetail, atom *logbook.AtomDetail) (waits []string) {
	switch {
	case atom.AwaitsWorker():
		return []string{"a worker"}
	case atom.RetryAt.After(time.Now()):
		return []string{"its next attempt at " + p.TimeText(atom.RetryAt)}
	case atom.State != logbook.AtomPending:
		return nil
	}
	plan := spec.PlanOf(detail)
	if plan == nil {
		return nil
	}
	name := atom.Name
	for base, more := logbook.CutInstance(name); more; base, more = logbook.CutInstance(name) {
		name = base
	}
	number, found := plan.Find(name)
	if !found {
		return nil
	}
	for _, before := range plan.Predecessors(number) {
		earlier, begun := detail.Atom(plan.Step(before).Name())
		if !begun || earlier.State != logbook.AtomSuccess && earlier.State != logbook.AtomIgnored && !earlier.FailureIgnored() {
			waits = append(waits, "step "+plan.Step(before).Name())
		}
	}
	return waits
}
