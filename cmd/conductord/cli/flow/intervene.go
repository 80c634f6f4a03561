package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	jobcmd "github.com/conductord/conductord/cmd/conductord/cli/job"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// interveneFlags are the flags of the commands that repair a failed flow.
type interveneFlags struct {
	word logbook.Intervention
	id   string
	wait bool
	dry  bool // list the steps that would run, and change nothing
}

// interveneCommand completes a command that repairs a flow. Its first argument names a flow, and a
// second one names a step. prepare, if it is not nil, reads and checks the command's own flags.
func interveneCommand(p *cli.Program, f *interveneFlags, cmd *cobra.Command, prepare func() error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			f.word.Step = args[1]
		}
		if prepare != nil {
			if err := prepare(); err != nil {
				return err
			}
		}
		return intervene(cmd.Context(), p, args[0], f)
	}
	flags := cmd.Flags()
	flags.StringVar(&f.word.By, "by", cli.OperatorName(), "name of the operator")
	flags.StringVar(&f.word.Reason, "reason", "", "reason, in one sentence")
	flags.StringVar(&f.id, "id", "", "id of this intervention (default: random); repeating the command with the same id has no effect")
	if f.word.Kind != logbook.InterveneTakeBack {
		states := "failure"
		if f.word.Kind == logbook.InterveneRerun {
			states = "failure or reverted"
		}
		cmd.Long += fmt.Sprintf(interventionHelp, states)
		flags.BoolVar(&f.dry, "dry-run", false, "list the steps to run, run again, revert or skip, and change nothing")
		flags.BoolVar(&f.wait, "wait", false, "show progress until the job has ended; exit 1 unless the flow ends as intended")
	}
	if f.word.Kind == logbook.InterveneSkip || f.word.Kind == logbook.InterveneComplete {
		flags.BoolVar(&f.word.Hold, "hold", false, "record the intervention without resuming the flow; the next intervention without --hold resumes it")
	}
	return cmd
}

func intervention(kind logbook.InterventionKind) *interveneFlags {
	return &interveneFlags{word: logbook.Intervention{Kind: kind}}
}

// interventionHelp is the common help text of the commands that repair a flow, with a place for the
// states that the command accepts.
const interventionHelp = "\n\nName the flow by its id or its job's id. The flow must be in state %s. The intervention is\n" +
	"recorded with operator, time and reason. Then the flow's last job is claimable again, and a\n" +
	"conductor applies the intervention."

func flowInterveneCommands(p *cli.Program) []*cobra.Command {
	return []*cobra.Command{
		interveneCommand(p, intervention(logbook.InterveneRetryRevert), &cobra.Command{
			Use:   "retry-revert FLOW|JOB",
			Short: "Retry the failed reverts of a flow, after their cause is fixed",
			Long:  "Retry the failed reverts of a failed flow. Each revert starts again with its first attempt.",
			Args:  cobra.ExactArgs(1),
		}, nil),
		interveneCommand(p, intervention(logbook.InterveneRevert), &cobra.Command{
			Use:   "revert FLOW|JOB",
			Short: "Revert a flow that is held at a failure",
			Long:  "Revert a flow that is held at a failure (on_failure = \"hold\"). In any other failed flow, retry the failed reverts.",
			Args:  cobra.ExactArgs(1),
		}, nil),
		interveneCommand(p, intervention(logbook.InterveneSkip), &cobra.Command{
			Use:   "skip FLOW|JOB STEP",
			Short: "Skip the failed revert of a step that has nothing left to undo",
			Long: "Skip the failed revert of a step that has nothing left to undo. The step counts as reverted, and\n" +
				"the flow reverts the remaining steps.",
			Args: cobra.ExactArgs(2),
		}, nil),
		completeCommand(p),
		rerunCommand(p),
		retryNowCommand(p),
		changeCommand(p),
		interveneCommand(p, intervention(logbook.InterveneTakeBack), &cobra.Command{
			Use:   "take-back FLOW|JOB [STEP]",
			Short: "Withdraw interventions in a failed flow that no conductor has applied yet",
			Long: "Withdraw interventions in a failed flow, or in one of its steps, that no conductor has applied yet.\n" +
				"When no intervention is left, the job is finished again. Name the flow by its id or its job's id.",
			Args: cobra.RangeArgs(1, 2),
		}, nil),
	}
}

func completeCommand(p *cli.Program) *cobra.Command {
	f, result := intervention(logbook.InterveneComplete), ""
	cmd := interveneCommand(p, f, &cobra.Command{
		Use:   "complete FLOW|JOB STEP",
		Short: "Mark a step as done with a given result and continue",
		Long: "Mark a step as done with a given result. Use this if you did the work of the step by hand, or know that it is\n" +
			"done. The step counts as a success, and the flow continues with every step that has not succeeded.",
		Args: cobra.ExactArgs(2),
	}, func() (err error) {
		f.word.Result, err = readResult(p, result)
		return err
	})
	cmd.Flags().StringVar(&result, "result", "", "result of the step, as JSON; @FILE reads a file, - reads stdin (default null)")
	return cmd
}

// readResult reads --result: JSON, @FILE that holds JSON, or - for stdin.
func readResult(p *cli.Program, given string) (json.RawMessage, error) {
	text := []byte(given)
	path, isFile := strings.CutPrefix(given, "@")
	if given == "-" {
		path, isFile = given, true
	}
	if isFile {
		read, err := p.ReadInput(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read --result: %w", err)
		}
		if len(strings.TrimSpace(string(read))) == 0 {
			return nil, cli.UsageError(fmt.Errorf("--result: %s is empty; write null for no result", path))
		}
		text = read
	}
	if err := logbook.MaxLimits.CheckValue("--result", text); err != nil {
		return nil, err
	}
	return text, nil
}

func rerunCommand(p *cli.Program) *cobra.Command {
	f := intervention(logbook.InterveneRerun)
	var cmd *cobra.Command
	cmd = interveneCommand(p, f, &cobra.Command{
		Use:   "rerun FLOW|JOB",
		Short: "Rerun a failed or reverted flow: all steps, or a step and its dependents",
		Long: "Rerun a failed or reverted flow. With --from, run the given step, its dependents, and all steps that\n" +
			"have not succeeded. Without --from, run all steps. No step is reverted first.",
		Args: cobra.ExactArgs(1),
	}, func() error {
		if cmd.Flags().Changed("from") && f.word.Step == "" {
			// A script whose variable is empty must not run all of it again.
			return cli.UsageError(errors.New("--from is empty; without --from, all steps run again"))
		}
		return nil
	})
	cmd.Flags().StringVar(&f.word.Step, "from", "", "first step to run again")
	return cmd
}

// intervened is the output of these commands.
type intervened struct {
	Intervention logbook.Intervention
	Flow         logbook.FlowID
	FlowState    logbook.FlowState // when the intervention was recorded, or with --wait at the end
	Job          *jobs.Job
	Next         string

	backwards bool // the flow is undone further
	pending   bool // an intervention waits or holds
}

// MarshalJSON writes the API's messages for the intervention and the job.
func (i *intervened) MarshalJSON() ([]byte, error) {
	shown := struct {
		Intervention cli.Part  `json:"intervention"`
		Flow         string    `json:"flow"`
		FlowState    string    `json:"flow_state"`
		Job          *cli.Part `json:"job,omitempty"`
		Next         string    `json:"next,omitempty"`
	}{Intervention: cli.Part{Message: command.InterventionToProto(&i.Intervention)}, Flow: i.Flow.String(), FlowState: string(i.FlowState), Next: i.Next}
	if i.Job != nil {
		shown.Job = &cli.Part{Message: command.JobToProto(i.Job)}
	}
	return cli.Document(shown)
}

// intervene records an operator's intervention in a flow and prints its consequence. With --wait,
// it waits for the end.
func intervene(ctx context.Context, p *cli.Program, target string, f *interveneFlags) error {
	id, err := logbook.ParseID("job or flow id", target)
	if err != nil {
		return err
	}
	if f.word.ID = uuid.New(); f.id != "" {
		if f.word.ID, err = logbook.ParseID("intervention id", f.id); err != nil {
			return err
		}
	}
	if f.wait && f.word.Hold {
		return cli.UsageError(errors.New("--wait and --hold exclude each other: a held intervention does not run"))
	}
	how := p.With
	if f.wait {
		how = p.Waiting
	}
	return how(ctx, func(ctx context.Context, cluster cli.Cluster) error {
		detail, err := cli.FindFlow(ctx, cluster, id)
		if err != nil {
			return err
		}
		f.word.Flow = detail.ID
		c, err := consequence(ctx, cluster, id, &detail, &f.word)
		if f.dry && err == nil {
			return writeConsequence(p, &c)
		}
		if f.dry || errors.Is(err, engine.ErrNoReturn) || errors.Is(err, engine.ErrLoopStep) { // the conductor would refuse it too, but later
			return advised(ctx, cluster, err, &detail, &f.word)
		}
		job, err := cluster.Intervene(ctx, f.word)
		if err != nil {
			return advised(ctx, cluster, cli.Because(err, "intervene in flow %s", detail.ID), &detail, &f.word)
		}
		return tellIntervened(ctx, p, cluster, f, job, goesBackwards(&detail, &f.word))
	})
}

// consequence returns what would follow from an intervention.
func consequence(ctx context.Context, cluster cli.FlowReader, id uuid.UUID, detail *logbook.FlowDetail, word *logbook.Intervention) (tree.Consequence, error) {
	if _, err := detail.Admit(word); err != nil {
		return tree.Consequence{}, err
	}
	return tree.ConsequenceOf(detail, spec.PlanOf(detail), storeOf(ctx, cluster, id, detail), *word)
}

// writeConsequence is the output of --dry-run.
func writeConsequence(p *cli.Program, c *tree.Consequence) error {
	if p.JSON() {
		return p.WriteJSON(c)
	}
	behind := ""
	if c.Behind != "" {
		behind = "all steps that wait for " + c.Behind
	}
	if len(c.RunsAgain)+len(c.Runs)+len(c.Undoes) == 0 && c.Behind == "" {
		p.Note("no step would run or be reverted")
	}
	return p.WriteFields([]cli.Field{
		{"runs again", strings.Join(c.RunsAgain, "\n")}, {"runs", strings.Join(c.Runs, "\n")}, {"runs too", behind}, {"reverts", strings.Join(c.Undoes, "\n")}, {"skips", strings.Join(c.Skips, "\n")},
	})
}

// tellIntervened prints the recorded intervention, and the direction in which the flow continues.
func tellIntervened(ctx context.Context, p *cli.Program, cluster jobcmd.Work, f *interveneFlags, id jobs.JobID, back bool) error {
	detail, err := cluster.FlowDetail(ctx, f.word.Flow)
	if err != nil {
		return cli.Because(err, "read flow %s (the intervention is recorded)", f.word.Flow)
	}
	told := intervened{Intervention: f.word, Flow: detail.ID, FlowState: detail.State, backwards: back, pending: len(detail.Pending()) > 0}
	for i := range detail.Interventions {
		if detail.Interventions[i].ID == f.word.ID {
			told.Intervention = detail.Interventions[i]
		}
	}
	var job jobs.Job
	if !id.IsZero() {
		if job, err = cluster.Job(ctx, id); err != nil {
			return cli.Because(err, "read job %s, which performs the intervention", id)
		}
		told.Job = &job
	}
	told.Next = nextOf(&told, told.Job)
	if p.JSON() && !f.wait {
		return p.WriteJSON(&told)
	}
	if !p.JSON() {
		err := p.WriteLines([]string{"recorded: " + interventionText(p, &told.Intervention), "next:     " + told.Next})
		if err != nil {
			return err
		}
	}
	if told.Job == nil || f.word.Hold || f.word.Kind == logbook.InterveneTakeBack {
		return nil
	}
	if err := jobcmd.NoteIdle(ctx, p, cluster, &job); err != nil || !f.wait {
		return err
	}
	return followIntervened(ctx, p, cluster, &told)
}

// followIntervened waits for the end that the operator requested.
func followIntervened(ctx context.Context, p *cli.Program, cluster cli.FlowReader, told *intervened) error {
	finished, err := tree.Follow(ctx, p, cluster, *told.Job)
	if err != nil {
		p.Note("the job continues; wait for it with `conductord job wait %s`", told.Job.ID)
		return cli.Because(err, "wait for job %s", told.Job.ID)
	}
	if p.JSON() {
		detail, err := cluster.FlowDetail(ctx, told.Flow)
		if err != nil {
			return cli.Because(err, "read flow %s", told.Flow)
		}
		told.Job, told.FlowState, told.Next = &finished, detail.State, ""
		if err := p.WriteJSON(told); err != nil {
			return err
		}
	}
	err = jobcmd.Verdict(ctx, p, cluster, &finished)
	if errors.Is(err, cli.ErrRunFailed) && told.backwards && (finished.Outcome == jobs.OutcomeReverted || finished.Outcome == jobs.OutcomeCancelled) {
		return nil // undone, as requested
	}
	return err
}

// goesBackwards reports whether the flow continues backwards after an intervention. It continues
// forwards if this intervention, or one that is carried out with it, goes forwards. before is the
// flow before the intervention.
func goesBackwards(before *logbook.FlowDetail, word *logbook.Intervention) bool {
	said := slices.Concat(before.Pending(), []logbook.Intervention{*word})
	return !logbook.Forwards(logbook.Standing(said))
}

// nextOf describes the effect of an intervention.
func nextOf(told *intervened, job *jobs.Job) string {
	word := &told.Intervention
	switch {
	case job == nil:
		return "nothing: the intervention was recorded before, and its job has been removed"
	case word.Kind == logbook.InterveneTakeBack && !told.pending:
		return fmt.Sprintf("nothing: job %s is %s", job.ID, jobcmd.HowEnded(job))
	case word.Hold, word.Kind == logbook.InterveneTakeBack && job.State.Finished():
		return "nothing until an intervention without --hold follows: see `conductord flow show " + job.Flow.String() + "`"
	case job.State == jobs.StateSuspended:
		return fmt.Sprintf("job %s is suspended; it continues after `conductord job resume %s`", job.ID, job.ID)
	case job.State.Finished():
		return fmt.Sprintf("job %s is %s", job.ID, jobcmd.HowEnded(job))
	}
	does := "runs its flow forwards"
	if told.backwards {
		does = "reverts its flow further"
	}
	if job.State == jobs.StateClaimed {
		return fmt.Sprintf("%s has claimed job %s and %s", cli.Clean(jobcmd.OwnerOf(job)), job.ID, does)
	}
	return fmt.Sprintf("job %s is %s; the conductor that claims it next %s", job.ID, job.State, does)
}

// interventionText is an intervention in a line.
func interventionText(p *cli.Program, word *logbook.Intervention) string {
	said := string(word.Kind)
	if word.Step != "" {
		said += " " + cli.Clean(word.Step)
	}
	if word.To != "" {
		said += " to " + cli.Clean(word.To)
	}
	if len(word.Result) > 0 {
		said += " = " + cli.Shorten(string(word.Result))
	}
	if word.Hold {
		said += " (held)"
	}
	if !word.At.IsZero() {
		said += ", at " + p.TimeText(word.At)
	}
	said += " by " + cli.Clean(word.By)
	if word.Reason != "" {
		said += ": " + cli.Clean(word.Reason)
	}
	return said
}

// advised adds to a refusal what can be done instead. The flow is read again, because it may
// have continued between the first read and the refusal.
func advised(ctx context.Context, cluster cli.FlowReader, err error, detail *logbook.FlowDetail, word *logbook.Intervention) error {
	if !errors.Is(err, jobs.ErrConflict) && !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	if now, again := cluster.FlowDetail(ctx, detail.ID); again == nil {
		detail = &now
	}
	if advice := adviceFor(detail, word); advice != "" {
		return fmt.Errorf("%w\n%s", err, advice)
	}
	return err
}

func adviceFor(detail *logbook.FlowDetail, word *logbook.Intervention) string {
	switch detail.State {
	case logbook.FlowSuccess:
		return "the flow has succeeded: there is nothing to repair"
	case logbook.FlowReverted:
		if word.Kind != logbook.InterveneRerun {
			return "the flow is reverted: only a rerun is possible: `conductord flow rerun " + detail.ID.String() + "`"
		}
	case logbook.FlowFailure:
	case logbook.FlowSuspended:
		return "the flow is suspended: it continues with `conductord job resume` of its job, or, if the job has ended, " +
			"with a new job: `conductord job post --book " + detail.Book.String() + " --flow-id " + detail.ID.String() + "`"
	case logbook.FlowPending:
		if !detail.Begun.IsZero() {
			return "the flow may have started, but no step is recorded yet: the next conductor of its job records it"
		}
		return "the flow has not started: `conductord job explain` of its job shows the reason"
	default:
		return "the flow has not ended: see `conductord flow show " + detail.ID.String() + "`"
	}
	atom, begun := detail.Atom(word.Step)
	switch {
	case word.Step == "":
		return ""
	case word.Kind == logbook.InterveneSkip && detail.Held():
		return "the flow is held, and no revert has failed: see `conductord flow show " + detail.ID.String() + "`"
	case word.Kind == logbook.InterveneSkip:
		return cli.Listed("steps whose revert has failed or was interrupted", stuckSteps(detail))
	case begun && atom.State == logbook.AtomSuccess && word.Kind == logbook.InterveneComplete:
		return fmt.Sprintf("to run it again: `conductord flow rerun %s --from %s`", detail.ID, cli.Quoted(word.Step))
	case !begun:
		return cli.Listed("its steps", cli.StepsOf(detail))
	}
	return ""
}

// stepsIn are the names of the steps that are in a state.
func stepsIn(detail *logbook.FlowDetail, state logbook.AtomState) []string {
	var names []string
	for i := range detail.Atoms {
		if detail.Atoms[i].State == state {
			names = append(names, detail.Atoms[i].Name)
		}
	}
	return names
}

// stuckSteps returns the steps that can be skipped in a flow in state failure: steps whose revert
// failed, or was interrupted by the failure of another step.
func stuckSteps(detail *logbook.FlowDetail) []string {
	return append(stepsIn(detail, logbook.AtomRevertFailure), stepsIn(detail, logbook.AtomReverting)...)
}

// waysOn returns the commands with which a failed or reverted flow can continue, each with the steps that
// it runs, reruns or undoes.
func waysOn(detail *logbook.FlowDetail) (lines []string) {
	if detail.State != logbook.FlowFailure && detail.State != logbook.FlowReverted {
		return nil
	}
	if detail.Resumable() {
		return []string{"none: a conductor applies the recorded intervention when it claims the job",
			"conductord flow take-back " + detail.ID.String() + "   # withdraw it"}
	}
	id, plan := detail.ID.String(), spec.PlanOf(detail)
	if len(detail.Pending()) > 0 {
		lines = append(lines, fmt.Sprintf("conductord flow take-back %s   # withdraw held interventions", id))
	}
	add := func(kind logbook.InterventionKind, step, arguments, when string) {
		i := logbook.Intervention{Kind: kind, Step: step}
		_, begun := detail.Atom(step)
		if _, err := detail.Admit(&i); err != nil || kind == logbook.InterveneComplete && !begun {
			return
		}
		c, err := tree.ConsequenceOf(detail, plan, detail.Store, i)
		if errors.Is(err, engine.ErrNoReturn) {
			return
		}
		if err != nil { // such as a value of the job's store that is not known here
			c = tree.RecordedConsequence(detail, i)
		}
		lines = append(lines, fmt.Sprintf("conductord flow %s %s%s   # %s%s", kind, id, arguments, when, c))
	}
	const most = 3 // steps to skip; of more, the steps above tell
	switch {
	case detail.Held():
		step, when := unfinishedStep(detail), "after you have fixed the cause of the failure: "
		if step == "" {
			step, when = stoppedStep(detail), ""
		}
		if step != "" {
			add(logbook.InterveneRerun, step, " --from "+cli.Quoted(step), when)
			add(logbook.InterveneComplete, step, " --result JSON "+cli.Operand(step), "if its work is done: ")
		}
		add(logbook.InterveneRevert, "", "", "")
	case detail.State == logbook.FlowFailure:
		add(logbook.InterveneRetryRevert, "", "", "after you have fixed the cause of the failed revert: ")
		stuck := stuckSteps(detail)
		for _, step := range stuck[:min(len(stuck), most)] {
			add(logbook.InterveneSkip, step, " "+cli.Operand(step), "if it has nothing left to undo: ")
		}
		if step := cmp.Or(unfinishedStep(detail), stoppedStep(detail)); step != "" {
			add(logbook.InterveneComplete, step, " --result JSON "+cli.Operand(step), "if its work is done: ")
			add(logbook.InterveneRerun, step, " --from "+cli.Quoted(step), "")
		}
	}
	add(logbook.InterveneRerun, "", "", "")
	return lines
}

// unfinishedStep returns the step that caused the revert, or else a failed step; empty if every
// step has succeeded.
func unfinishedStep(detail *logbook.FlowDetail) string {
	unfinished := func(name string) bool {
		atom, found := detail.Atom(name)
		return found && atom.Kind == logbook.KindTask && atom.State != logbook.AtomSuccess && !atom.FailureIgnored() && !atom.IsDropped()
	}
	// The cause of a failed undo is the failure that started the revert.
	if step := deepestStep(detail.Cause, unfinished); step != "" {
		return step
	}
	for _, state := range []logbook.AtomState{logbook.AtomFailure, logbook.AtomRevertFailure} {
		for _, name := range stepsIn(detail, state) {
			if unfinished(name) {
				return name
			}
		}
	}
	return ""
}

// stoppedStep returns the step at which a flow without a failed step has stopped: a step that was interrupted, or
// else the first step that has not started; empty if there is none.
func stoppedStep(detail *logbook.FlowDetail) (stopped string) {
	finals, onError := detail.Definition.Finals(), detail.Definition.ErrorSteps()
	for _, name := range cli.StepsOf(detail) {
		atom, begun := detail.Atom(name)
		switch {
		case logbook.IsPoint(finals, name) || logbook.IsPoint(onError, name):
		case begun && atom.Kind == logbook.KindTask && atom.State == logbook.AtomPending:
			return name
		case begun || stopped != "":
		case !slices.ContainsFunc(detail.Atoms, func(a logbook.AtomDetail) bool { return strings.HasPrefix(a.Name, name+"[") }):
			stopped = name // and not the template of a loop's steps
		}
	}
	return stopped
}

// deepestStep returns the deepest step in a failure's causes, among the steps for which counts is
// true; empty if there is none.
func deepestStep(failure *logbook.Failure, counts func(name string) bool) string {
	if failure == nil {
		return ""
	}
	for i := range failure.Causes {
		if step := deepestStep(&failure.Causes[i], counts); step != "" {
			return step
		}
	}
	if failure.Step != "" && counts(failure.Step) {
		return failure.Step
	}
	return ""
}
