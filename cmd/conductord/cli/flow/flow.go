// Package flow has the commands about flows and books: run, show and repair a flow.
package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/document"
	jobcmd "github.com/conductord/conductord/cmd/conductord/cli/job"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// Command makes the noun of flows.
func Command(p *cli.Program) *cobra.Command {
	commands := []*cobra.Command{
		runCommand(p), showCommand(p),
		checkCommand(p), planCommand(p), graphCommand(p),
	}
	return cli.Noun("flow", "Run, show, check and repair flows",
		append(commands, flowInterveneCommands(p)...)...)
}

// CheckedFlow is the output of flow check for a valid document.
type CheckedFlow struct {
	File   string       `json:"file"`
	Name   string       `json:"name,omitempty"`
	Steps  int          `json:"steps,omitempty"`
	Faults []spec.Fault `json:"faults,omitempty"`
}

func checkCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE…",
		Aliases: []string{"validate"},
		Short:   "Check flow documents without a server, and report all errors",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var faults []error
			checked := []CheckedFlow{}
			for _, path := range args {
				_, plan, err := document.ReadDocument(p, path)
				if err == nil {
					checked = append(checked, CheckedFlow{File: path, Name: plan.Name(), Steps: plan.Len()})
					continue
				}
				faults = append(faults, err)
				found := &spec.FaultError{Faults: []spec.Fault{{Reason: err.Error()}}}
				_ = errors.As(err, &found) // of a file that is not a document
				checked = append(checked, CheckedFlow{File: path, Faults: found.Faults})
			}
			return errors.Join(writeCheckedFlows(p, checked), errors.Join(faults...))
		},
	}
}

func writeCheckedFlows(p *cli.Program, checked []CheckedFlow) error {
	if p.JSON() {
		return p.WriteJSON(map[string][]CheckedFlow{"flows": checked})
	}
	lines := make([]string, 0, len(checked))
	for _, c := range checked {
		if c.Faults == nil {
			steps := "1 step"
			if c.Steps != 1 {
				steps = fmt.Sprintf("%d steps", c.Steps)
			}
			lines = append(lines, fmt.Sprintf("%s: flow %q, %s: good", cli.Clean(c.File), cli.Clean(c.Name), steps))
		}
	}
	return p.WriteLines(lines)
}

// Plan is the JSON output of flow plan.
type Plan struct {
	Name   string   `json:"name"`
	Inputs []string `json:"inputs"` // with or without a default
	// Defaults are the inputs with a default.
	Defaults logbook.Values `json:"defaults"`
	Steps    []PlanStep     `json:"steps"` // by level, so in an order in which they could run one after another
	Flows    []PlanFlow     `json:"flows"` // the flow and its nested flows, outer ones first
}

// PlanFlow is one flow of a Plan.
type PlanFlow struct {
	Name    string       `json:"name"`
	Pattern flow.Pattern `json:"pattern"`
	In      string       `json:"in,omitempty"` // the flow around it
	Level   int          `json:"level"`        // the lowest of its steps
	OnlyIf  string       `json:"only_if,omitempty"`
	Notes   []string     `json:"notes"`
}

// PlanStep is one step of a Plan.
type PlanStep struct {
	Name      string            `json:"name"`
	In        string            `json:"in"`                // the innermost flow around it
	Level     int               `json:"level"`             // steps of one level do not wait for each other
	OnlyIf    string            `json:"only_if,omitempty"` // its condition, and the consequence of a no
	Worker    *PlanWorker       `json:"worker,omitempty"`  // nil: the conductor runs the step
	Ignored   bool              `json:"ignore_failure,omitempty"`
	UndoLast  bool              `json:"undo_last,omitempty"` // a takeover undoes it, if it was cut off or finished last
	Holds     bool              `json:"hold,omitempty"`      // its failure holds the flow
	NoReturn  bool              `json:"point_of_no_return,omitempty"`
	OnError   bool              `json:"on_error,omitempty"`
	Finally   bool              `json:"finally,omitempty"`
	Arguments map[string]string `json:"arguments"` // where each comes from
	Provides  []string          `json:"provides"`
	After     []string          `json:"after"` // the steps that it waits for
	Notes     []string          `json:"notes"` // all that the outline says of it, in words
}

// PlanWorker is the worker that a step needs.
type PlanWorker struct {
	Type   string   `json:"type"`
	Revert string   `json:"revert,omitempty"` // the type that undoes the step
	Labels []string `json:"labels"`
	SameAs string   `json:"same_as,omitempty"` // the step whose worker also gets this step
}

func planCommand(p *cli.Program) *cobra.Command {
	revert := false
	cmd := &cobra.Command{
		Use:   "plan FILE|JOB-OR-FLOW-ID",
		Short: "Show the order and dependencies of a flow document's steps",
		Long: "Show the order and dependencies of a flow document's steps. The number of a step is its level: steps with the same\n" +
			"number do not wait for each other. With --revert, show the steps of a job's flow that a cancellation or failure\n" +
			"would revert now, in order.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if revert {
				return planRevert(cmd.Context(), p, args[0])
			}
			document, plan, err := document.ReadDocument(p, args[0])
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.WriteJSON(describePlan(plan, document.Store))
			}
			return p.WriteLines(cli.CleanLines(plan.Outline() + defaultsText(plan, document.Store)))
		},
	}
	cmd.Flags().BoolVar(&revert, "revert", false, "show which steps of a job's flow would be reverted now")
	return cmd
}

// defaultsText is a line with the inputs that have a default.
func defaultsText(plan *flow.Plan, store logbook.Values) string {
	var said []string
	for _, name := range plan.Inputs() {
		if value, known := store[name]; known {
			said = append(said, name+" = "+cli.Shorten(string(value)))
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "defaults: " + strings.Join(said, ", ") + "\n"
}

func describePlan(plan *flow.Plan, store logbook.Values) Plan {
	described := Plan{Name: plan.Name(), Inputs: append([]string{}, plan.Inputs()...), Defaults: logbook.Values{}, Steps: []PlanStep{}, Flows: []PlanFlow{}}
	for _, name := range plan.Inputs() {
		if value, known := store[name]; known {
			described.Defaults[name] = value
		}
	}
	var around []string // the flows around the entry, the outermost first
	plan = plan.Template()
	for _, entry := range plan.Entries() {
		around = around[:entry.Depth]
		in := ""
		if entry.Depth > 0 {
			in = around[entry.Depth-1]
		}
		notes := append([]string{}, entry.Notes...)
		if inner := entry.Part.Flow; inner != nil {
			around = append(around, inner.Name())
			described.Flows = append(described.Flows, PlanFlow{Name: inner.Name(), Pattern: inner.Pattern(), In: in, Level: entry.Level, OnlyIf: entry.OnlyIf, Notes: notes})
			continue
		}
		planned := describeStep(plan, entry.Part.First)
		planned.In, planned.Level, planned.OnlyIf, planned.Notes = in, entry.Level, entry.OnlyIf, notes
		described.Steps = append(described.Steps, planned)
	}
	slices.SortStableFunc(described.Steps, func(a, b PlanStep) int { return a.Level - b.Level })
	return described
}

func describeStep(plan *flow.Plan, number int) PlanStep {
	step := plan.Step(number)
	planned := PlanStep{Name: step.Name(), UndoLast: plan.UndoesLast(number), Holds: plan.Holds(number), NoReturn: step.PointOfNoReturn(), OnError: step.IsOnError(), Finally: step.IsFinal(),
		Ignored: step.IgnoresFailure() && !step.IsLate(), Arguments: map[string]string{}, Provides: []string{}, After: []string{}}
	for _, wire := range plan.Arguments(number) {
		planned.Arguments[wire.Name] = plan.Source(wire)
	}
	for _, provision := range step.Provides() {
		planned.Provides = append(planned.Provides, provision.Symbol)
	}
	for _, previous := range plan.Predecessors(number) {
		planned.After = append(planned.After, plan.Step(previous).Name())
	}
	if work, is := step.WorkerStep(); is {
		planned.Worker = &PlanWorker{Type: work.Type, Revert: work.Revert, Labels: append([]string{}, work.Labels...)}
		if earlier, bound := plan.SameWorkerAs(number); bound {
			planned.Worker.SameAs = plan.Step(earlier).Name()
		}
	}
	return planned
}

func graphCommand(p *cli.Program) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "graph FILE",
		Aliases: []string{"draw"},
		Short:   "Draw a flow document for Graphviz (dot) or Mermaid, or as text",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if format != "dot" && format != "mermaid" && format != "text" {
				return cli.UsageError(fmt.Errorf("--format must be dot, mermaid or text, not %.64q", format))
			}
			_, plan, err := document.ReadDocument(p, args[0])
			if err != nil {
				return err
			}
			drawing := map[string]func() string{"dot": plan.Graphviz, "mermaid": plan.Mermaid, "text": plan.Outline}[format]()
			if p.JSON() {
				return p.WriteJSON(map[string]string{"format": format, "graph": drawing})
			}
			return p.WriteLines(cli.CleanLines(drawing))
		},
	}
	cmd.Flags().StringVar(&format, "format", "dot", "dot, mermaid or text")
	return cmd
}

func showCommand(p *cli.Program) *cobra.Command {
	attempts, iteration := false, 0
	cmd := &cobra.Command{
		Use:   "show JOB-OR-FLOW-ID",
		Short: "Show the steps of a flow: state, attempts, results, and repairs of a failed flow",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := logbook.ParseID("job or flow id", args[0])
			if err != nil {
				return err
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				detail, err := cli.FindFlow(ctx, cluster, id)
				if err == nil && iteration > 0 {
					detail, err = earlierIteration(ctx, cluster, detail, iteration)
				}
				if err != nil {
					return err
				}
				return writeFlow(p, &detail, attempts)
			})
		},
	}
	cmd.Flags().BoolVar(&attempts, "attempts", false, "include every attempt of every step, with its stderr (-o json always includes attempts)")
	cmd.Flags().IntVar(&iteration, "iteration", 0, "show this iteration of a flow that continues; the latest 10 are kept")
	return cmd
}

// earlierIteration reads an iteration of the job of a flow.
func earlierIteration(ctx context.Context, cluster cli.Cluster, latest logbook.FlowDetail, iteration int) (logbook.FlowDetail, error) {
	detail := latest
	for max(detail.Iteration, 1) > iteration && !detail.Previous.IsZero() {
		var err error
		if detail, err = cluster.FlowDetail(ctx, detail.Previous); err != nil {
			return detail, err
		}
	}
	if kept := max(detail.Iteration, 1); kept != iteration {
		return detail, fmt.Errorf("iteration %d of flow %s: %w: iterations %d to %d are kept", iteration, latest.ID, logbook.ErrNotFound, kept, max(latest.Iteration, 1))
	}
	return detail, nil
}

// iterationText is the number of a flow's iteration, and its place; empty: the flow has not continued.
func iterationText(detail *logbook.FlowDetail) string {
	switch {
	case detail.Continued:
		return fmt.Sprintf("%d, and the job has continued", max(detail.Iteration, 1))
	case detail.Iteration == 0:
		return ""
	}
	return fmt.Sprintf("%d; show an earlier one with --iteration %d", detail.Iteration, detail.Iteration-1)
}

func writeFlow(p *cli.Program, detail *logbook.FlowDetail, attempts bool) error {
	if p.JSON() {
		message := command.FlowDetailToProto(detail)
		if message.Definition != nil {
			message.Definition.Packed = nil // bytes that only programs of ours unpack
		}
		return p.WriteJSON(message)
	}
	fields := []cli.Field{
		{"flow", detail.ID.String()}, {"name", detail.Name}, {"book", detail.Book.String()},
		{"factory", detail.Factory.Name}, {"targets", strings.Join(detail.Targets, "\n")},
		{"on change", string(detail.OnChange)}, {"on takeover", takeoverText(detail)}, {"on failure", onFailureText(detail)}, {"definition", definitionText(detail.Definition)},
		{"state", string(detail.State)}, {"iteration", iterationText(detail)}, {"no return", PassedText(detail)}, {"failures", tree.IgnoredText(detail)}, {"store", cli.ValuesText(detail.Store)}, {"updated", p.TimeText(detail.UpdatedAt)},
	}
	if detail.Cause != nil {
		fields = append(fields, tree.CauseFields(detail.Cause, detail)...)
	}
	fields = append(fields,
		cli.Field{"interventions", interventionLines(p, detail)},
		cli.Field{"next steps", strings.Join(waysOn(detail), "\n")})
	if err := p.WriteFields(fields); err != nil {
		return err
	}
	if err := p.WriteLines(append([]string{""}, tree.Lines(detail)...)); err != nil || !attempts {
		return err
	}
	return writeAttempts(p, detail)
}

// definitionText is short: people compare it, and read the steps below.
func definitionText(definition *logbook.Definition) string {
	if definition == nil {
		return ""
	}
	return definition.Hash
}

// takeoverText names the steps that a takeover undoes, if the plan is known; empty: none.
func takeoverText(detail *logbook.FlowDetail) string {
	plan := spec.PlanOf(detail)
	if plan == nil || !plan.UndoesAnyLast() {
		return ""
	}
	for step := range plan.Len() {
		if !plan.UndoesLast(step) {
			return "in some nested flows, a takeover first reverts interrupted and last finished steps: `conductord flow plan` shows these flows"
		}
	}
	return "first reverts interrupted and last finished steps"
}

// onFailureText is the failure policy of the flow, where that can be read; empty: it reverts.
func onFailureText(detail *logbook.FlowDetail) string {
	plan := spec.PlanOf(detail)
	if detail.OnFailure != "" || plan == nil {
		return string(detail.OnFailure)
	}
	holds := 0
	for step := range plan.Len() {
		if plan.Holds(step) {
			holds++
		}
	}
	switch holds {
	case 0:
		return ""
	case plan.Len():
		return string(logbook.HoldOnFailure)
	}
	return "hold in some nested flows: `conductord flow plan` shows these flows"
}

// PassedText names the point of no return that keeps the flow from being reverted; empty: none does.
func PassedText(detail *logbook.FlowDetail) string {
	point := detail.Passed()
	switch {
	case point == "" || detail.State == logbook.FlowSuccess:
		return ""
	case detail.State == logbook.FlowFailure:
		return "the flow is not reverted, because step " + point + " is a point of no return and has succeeded"
	}
	return "a failure holds the flow, because step " + point + " is a point of no return and has succeeded"
}

// interventionLines are the interventions in a flow, one on each line.
func interventionLines(p *cli.Program, detail *logbook.FlowDetail) string {
	lines := make([]string, 0, len(detail.Interventions))
	pending := detail.Pending()
	for i := range detail.Interventions {
		said := &detail.Interventions[i]
		line := interventionText(p, said)
		switch {
		case slices.ContainsFunc(pending, func(p logbook.Intervention) bool { return p.ID == said.ID }):
			line += " [not applied yet]"
		case said.Kind != logbook.InterveneTakeBack && said.Kind != logbook.InterveneRename && said.Token.Compare(detail.Fence) > 0:
			line += " [withdrawn]"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// writeAttempts lists the attempts that are kept of every step.
func writeAttempts(p *cli.Program, detail *logbook.FlowDetail) error {
	var rows [][]string
	for i := range detail.Atoms {
		if folded := &detail.Atoms[i].Folded; folded.Len() > 0 {
			rows = append(rows, []string{detail.Atoms[i].Name, "-", "-", "-", "-", "-", "-", "-", fmt.Sprintf(
				"earlier attempts, no longer kept: %d executions, %d reverts, %d resets", folded.Executions, folded.Reverts, folded.Resets)})
		}
		for j := range detail.Atoms[i].Attempts {
			attempt := &detail.Atoms[i].Attempts[j]
			took := ""
			if attempt.Ended() {
				took = cli.DurationText(attempt.EndedAt.Sub(attempt.StartedAt))
			}
			rows = append(rows, []string{
				detail.Atoms[i].Name, string(attempt.Action), strconv.Itoa(attempt.Number), p.TimeText(attempt.StartedAt), cli.OrDash(took),
				cli.OrDash(attempt.Owner), cli.OrDash(cmp.Or(attempt.WorkerName, attempt.Worker)), attempt.Token.String(), attemptOutcome(attempt),
			})
		}
	}
	if err := p.WriteLines([]string{""}); err != nil {
		return err
	}
	if err := p.WriteTable([]string{"step", "action", "attempt", "started", "took", "by", "worker", "token", "outcome"}, rows); err != nil {
		return err
	}
	return writeWords(p, detail)
}

// writeWords prints the parts of attempts that do not fit into a line of the table: the whole message of a failure,
// the step's stderr, and the signals that the step has sent.
func writeWords(p *cli.Program, detail *logbook.FlowDetail) error {
	var lines []string
	for i := range detail.Atoms {
		for j := range detail.Atoms[i].Attempts {
			attempt := &detail.Atoms[i].Attempts[j]
			said := ""
			if attempt.Failure != nil {
				said = attempt.Failure.Kind + ": " + attempt.Failure.Message
			}
			if attempt.Stderr == "" && said == cli.Shorten(said) && len(attempt.Sends) == 0 {
				continue
			}
			lines = append(lines, "", fmt.Sprintf("%s %s %d", cli.Clean(detail.Atoms[i].Name), attempt.Action, attempt.Number))
			if said != "" {
				lines = append(lines, "  "+cli.Clean(said))
			}
			if attempt.Stderr != "" {
				for _, line := range cli.CleanLines(attempt.Stderr) {
					lines = append(lines, "  stderr: "+line)
				}
			}
			for k := range attempt.Sends {
				lines = append(lines, "  "+SendText(&attempt.Sends[k]))
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return p.WriteLines(lines)
}

// SendText describes a signal that a step has sent, and its answer.
func SendText(sent *logbook.Sending) string {
	to := "job " + sent.Job
	if sent.Key != "" {
		to = fmt.Sprintf("key %q", sent.Key)
	}
	return cli.Clean(fmt.Sprintf("signal %s to %s: %s", sent.Signal.Name, to, sent.Answer))
}

// attemptOutcome describes the end of an attempt, if it is known.
func attemptOutcome(attempt *logbook.Attempt) string {
	switch {
	case attempt.Failure != nil:
		return cli.Shorten(attempt.Failure.Kind + ": " + attempt.Failure.Message)
	case attempt.Shortened && attempt.Ended() && len(attempt.Result) == 0:
		return "done; this answer omits the result"
	case attempt.Ended() && len(attempt.Result) > 0:
		return "done: " + cli.Shorten(string(attempt.Result))
	case attempt.Unbegun:
		return "nothing to undo"
	case attempt.Ended():
		return "done"
	case attempt.Wait != nil && attempt.Wait.Signal != nil:
		return "took signal " + attempt.Wait.Signal.Name
	case attempt.Wait != nil:
		return attempt.Wait.Text()
	case attempt.Asked > 0:
		return fmt.Sprintf("not yet, asked %d times", attempt.Asked)
	case attempt.IsUntaken():
		return string(tree.WaitsForWorker)
	}
	return "begun"
}

func runCommand(p *cli.Program) *cobra.Command {
	var (
		f      jobcmd.PostFlags
		only   []string
		atOnce bool
		fails  jobcmd.FailurePolicyFlag
	)
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run a flow document: post it as a job, and print the job's id",
		Long: "Run a flow document: post it as a job, and print the job's id. With --wait, print the results of the flow, and\n" +
			"exit 1 unless the job succeeds; stderr shows the id and the progress. The job continues after ctrl-C. A held,\n" +
			"parked or suspended job ends the wait. Several documents become one job; their flows run one after another.\n" +
			"If one fails, all are reverted.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			posting, err := jobcmd.Posting(p, &f)
			if err != nil {
				return err
			}
			order := spec.Linear
			if atOnce {
				order = spec.Unordered
			}
			if err := document.AttachFiles(p, order, args, &posting, nil, only...); err != nil {
				return err
			}
			f.Override(&posting)
			fails.Fill(&posting)
			return jobcmd.RunOrPost(cmd.Context(), p, posting, f.Wait)
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&atOnce, "at-once", false, "run the flows of several documents in parallel")
	fails.Add(cmd)
	cmd.Flags().StringArrayVar(&only, "only", nil, "run only this step and its dependencies; repeatable (default the document's targets)")
	return cmd
}
