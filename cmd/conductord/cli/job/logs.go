package job

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steplog"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
	"github.com/conductord/conductord/valuekeys"
)

// logsPause is the interval of --follow for a job that no conductor runs.
const logsPause = 500 * time.Millisecond

func logsCommand(p *cli.Program) *cobra.Command {
	var (
		logs   jobLogs
		follow bool
	)
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print the output of a job's steps, even while they run",
		Long: "Print the output of a job's steps: the stderr of handlers and the log of Go steps. The node that runs a step\n" +
			"keeps the latest 256 KiB in memory, until it needs the memory or restarts; any node can serve it. After an\n" +
			"attempt, the logbook keeps the end of its stderr.\n\n" +
			"A conductor outside the nodes publishes the output of a step only after the step has ended.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if logs.query.Job, err = jobs.ParseJobID(args[0]); err != nil {
				return err
			}
			logs.p, logs.seen = p, map[attemptKey]printed{}
			return logs.run(cmd.Context(), follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new lines until the job is finished, even if its conductor changes")
	cmd.Flags().StringVar(&logs.query.Step, "step", "", "only lines of this step")
	return cmd
}

// attemptKey identifies an attempt at a step of a job, in the memory of one node or of any
// node.
type attemptKey struct {
	buffer  string // steplog.BufferOf its lines; empty: any
	step    string
	action  logbook.Action
	attempt int
}

// printed is the position of a printed line in the plain output of its attempt, in bytes.
type printed struct{ offset, end int64 }

// jobLogs prints the lines of one job.
type jobLogs struct {
	p     *cli.Program
	query steplog.Query
	seen  map[attemptKey]printed // last line of each attempt, by buffer; for any buffer: the attempt has lines
	node  string                 // node of the last lines
}

func (l *jobLogs) run(ctx context.Context, follow bool) error {
	if !follow {
		return l.p.With(ctx, func(ctx context.Context, cluster cli.Cluster) error { return l.print(ctx, cluster) })
	}
	return l.p.Watching(ctx, func(ctx context.Context, cluster cli.Cluster) error { return l.follow(ctx, cluster) })
}

// logReader reads the output of steps, and the records of their flows.
type logReader interface {
	cli.FlowReader
	ReadLogs(ctx context.Context, query steplog.Query) (steplog.Page, error)
}

// print shows the available lines, first the lines of attempts that only the logbook has. The
// number of pages is limited, because steps may write faster than print reads.
func (l *jobLogs) print(ctx context.Context, cluster logReader) error {
	job, err := cluster.Job(ctx, l.query.Job) // later calls then see at least this state
	if err != nil {
		return cli.Because(err, "get job %s", l.query.Job)
	}
	var pages []steplog.Page
	for range steplog.MaxPages {
		page, err := cluster.ReadLogs(ctx, l.query)
		if err != nil {
			return cli.Because(err, "read the logs of job %s", job.ID)
		}
		l.query.After, l.node = page.Next, page.Node
		if len(page.Lines) == 0 {
			break
		}
		pages = append(pages, page)
		for i := range page.Lines {
			l.seen[keyOf(&page.Lines[i])] = printed{}
		}
	}
	if job.Claim != nil && l.node == "" {
		l.p.Note("job %s runs in the program %s: read the end of a step's stderr after the step has ended", job.ID, job.Claim.Owner)
	}
	err = l.writeRecorded(ctx, cluster, &job)
	if err == nil && job.Claim == nil && job.LastOwner != "" && len(l.seen) == 0 {
		l.p.Note("job %s has no log lines: its steps wrote none, or the nodes have dropped them", job.ID)
	}
	for i := 0; i < len(pages) && err == nil; i++ {
		err = l.write(pages[i])
	}
	return err
}

// follow then prints further lines until the job is finished.
func (l *jobLogs) follow(ctx context.Context, cluster logReader) error {
	if err := l.print(ctx, cluster); err != nil {
		return err
	}
	l.query.Wait = wire.MaxPoll
	for {
		page, err := cluster.ReadLogs(ctx, l.query)
		if err == nil {
			l.query.After = page.Next
			if page.Node != "" && page.Node != l.node && l.node != "" {
				l.p.Note("job %s continues at node %s", l.query.Job, page.Node)
			}
			if page.Node != "" {
				l.node = page.Node
			}
			err = l.write(page)
		}
		if err != nil {
			return cli.Because(err, "read the logs of job %s", l.query.Job)
		}
		if page.Running || len(page.Lines) > 0 {
			continue
		}
		job, err := cluster.Job(ctx, l.query.Job)
		switch {
		case err != nil:
			return cli.Because(err, "get job %s", l.query.Job)
		case job.State.Finished():
			l.p.Note("job %s is %s", job.ID, HowEnded(&job))
			return l.writeRecorded(ctx, cluster, &job)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(logsPause):
		}
	}
}

// writeRecorded writes the logbook's lines of attempts that were not shown yet.
func (l *jobLogs) writeRecorded(ctx context.Context, cluster cli.FlowReader, job *jobs.Job) error {
	if job.Flow.IsZero() {
		return l.checkStep(job, nil)
	}
	detail, err := cluster.FlowDetail(ctx, job.Flow)
	if err != nil {
		return cli.Because(err, "read flow %s of job %s", job.Flow, job.ID)
	}
	if err := l.checkStep(job, &detail); err != nil {
		return err
	}
	var lines []steplog.Line
	for i := range detail.Atoms {
		for _, a := range detail.Atoms[i].Attempts {
			line := steplog.Line{Step: detail.Atoms[i].Name, Action: a.Action, Attempt: a.Number, Time: a.EndedAt}
			if _, seen := l.seen[keyOf(&line)]; seen || a.Stderr == "" || l.query.Step != "" && l.query.Step != line.Step {
				continue
			}
			l.seen[keyOf(&line)] = printed{}
			for line.Text = range strings.Lines(a.Stderr) {
				line.Text = strings.TrimRight(line.Text, "\r\n")
				lines = append(lines, line)
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b steplog.Line) int { return a.Time.Compare(b.Time) })
	return l.write(steplog.Page{Lines: lines})
}

// checkStep refuses a step that the job does not have, if the job's steps are known. For an
// instance such as send[3], the step send must exist.
func (l *jobLogs) checkStep(job *jobs.Job, detail *logbook.FlowDetail) error {
	step := l.query.Step
	if step == "" || len(l.seen) > 0 { // its lines have been read
		return nil
	}
	if detail == nil {
		return fmt.Errorf("job %s has no flow, and no step %.64q: %w", job.ID, step, jobs.ErrNotFound)
	}
	base, _, _ := strings.Cut(step, "[")
	known := cli.StepsOf(detail)
	if len(cli.PlannedSteps(detail)) == 0 || slices.Contains(known, base) || slices.Contains(known, step) {
		return nil
	}
	err := fmt.Errorf("the flow of job %s has no step %.64q%s: %w", job.ID, step, meant.Hint(step, known), jobs.ErrNotFound)
	return cli.Advised(err, cli.Listed("its steps", known))
}

func keyOf(line *steplog.Line) attemptKey {
	return attemptKey{step: line.Step, action: line.Action, attempt: line.Attempt}
}

// write writes the lines of a page. When a job returns to a node, the page starts with lines that
// were already written.
func (l *jobLogs) write(page steplog.Page) error {
	for i := range page.Lines {
		line := &page.Lines[i]
		key := keyOf(line)
		l.seen[key] = printed{}
		key.buffer = steplog.BufferOf(page.Next)
		last, seen := l.seen[key]
		if seen && line.Offset <= last.offset && key.buffer != "" {
			continue
		}
		dropped := line.Offset - last.end
		l.seen[key] = printed{line.Offset, line.Offset + int64(valuekeys.PlainTextSize(line.Text)) + 1}
		if l.p.JSON() {
			if err := l.p.WriteJSONLine(command.LogLineToProto(line)); err != nil {
				return err
			}
			continue
		}
		label := line.Step
		if line.Action == logbook.ActionRevert {
			label += " (revert)"
		}
		if line.Attempt > 1 {
			label += fmt.Sprintf(" #%d", line.Attempt)
		}
		var texts []string
		if dropped > 0 {
			texts = append(texts, fmt.Sprintf("%s | … %d bytes dropped", label, dropped))
		}
		texts = append(texts, label+" | "+strings.ReplaceAll(line.Text, "\t", "    "))
		if err := l.p.WriteLines(texts); err != nil {
			return err
		}
	}
	return nil
}
