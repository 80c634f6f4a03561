package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func (p *Program) flowCommand() *cobra.Command {
	commands := []*cobra.Command{
		p.flowRunCommand(), p.flowShowCommand(),
		p.flowValidateCommand(), p.flowPlanCommand(), p.flowGraphCommand(),
	}
	return Noun("flow", "Run, show, check and repair flows",
		append(commands, p.flowInterveneCommands()...)...)
}

// readDocument reads a flow document and makes its plan, which finds all that
// can be wrong with it here.
func (p *Program) readDocument(path string, targets ...string) (*spec.Document, *flow.Plan, error) {
	text, err := p.readInput(path)
	if err != nil {
		return nil, nil, because(err, "read the flow")
	}
	return p.compileDocument(text, path, targets...)
}

// compileDocument is readDocument for a text; the path is for messages.
func (p *Program) compileDocument(text []byte, path string, targets ...string) (*spec.Document, *flow.Plan, error) {
	document, err := spec.Parse(text, path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the flow %s:\n%w", path, err)
	}
	plan, err := document.Compile(targets...)
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("cannot compile the flow %s:\n%w", path, err)}
	}
	for _, shadow := range plan.Shadowed() {
		p.Note("warning: %s", shadow)
	}
	return document, plan, nil
}

// attachDocuments makes documents the work of a posting: a book of one flow,
// whose store is the documents' with what the posting brings over it.
func (p *Program) attachDocuments(order spec.Pattern, paths []string, posting *jobs.Posting, targets ...string) error {
	documents := make([]*spec.Document, len(paths))
	var err error
	var plan *flow.Plan
	inEach := targets
	if len(paths) > 1 {
		inEach = nil // targets are steps of all of them together
	}
	for i, path := range paths {
		if documents[i], plan, err = p.readDocument(path, inEach...); err != nil {
			return err
		}
	}
	document, err := spec.Together(order, documents...)
	if err == nil && len(paths) > 1 {
		plan, err = document.Compile(targets...)
	}
	if err != nil {
		return usageError{fmt.Errorf("cannot run these flows as one job:\n%w", err)}
	}
	p.warnOfUntaken(document, plan, posting.Store)
	if err := attach(document, posting, targets...); err != nil {
		return fmt.Errorf("cannot run the flow %s: %w; pass it with --set", strings.Join(paths, " "), err)
	}
	return nil
}

// warnOfUntaken warns of values that no step takes: their names may be misspelt. They are kept with the job.
func (p *Program) warnOfUntaken(document *spec.Document, plan *flow.Plan, given logbook.Values) {
	known := document.Symbols()
	for step := range plan.Len() {
		for _, wire := range slices.Concat(plan.Arguments(step), plan.RevertArguments(step)) {
			if wire.From == flow.FromNowhere { // optional
				known = append(known, wire.Symbol)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, name) {
			p.Note("warning: no step of the flow takes the value %q%s", name, meant.Hint(name, known))
		}
	}
}

func attach(document *spec.Document, posting *jobs.Posting, targets ...string) error {
	store, err := document.Fill(posting.Store, targets...)
	if err != nil {
		return err
	}
	if posting.Name == "" {
		posting.Name = document.Name
	}
	book := logbook.BookID{UUID: derive(posting.ID, "book")}
	detail := document.Detail(logbook.FlowID{UUID: derive(posting.ID, "flow")}, book, store)
	if len(targets) > 0 {
		detail.Targets = targets
	}
	posting.Book = &logbook.Book{ID: book, Name: document.Name, Flows: []logbook.FlowDetail{detail}}
	return nil
}

// derive makes the id of something that belongs to a job from the job's, so
// that posting again under the same --id is the same posting as a whole. The
// front half, which holds the time and the marks of a UUID, stays.
func derive(id jobs.JobID, what string) uuid.UUID {
	const kept = 9
	derived := id.UUID
	sum := sha256.Sum256(append(id.UUID[:], what...))
	copy(derived[kept:], sum[:])
	return derived
}

// CheckedFlow is what flow validate says of a document.
type CheckedFlow struct {
	File   string       `json:"file"`
	Name   string       `json:"name,omitempty"`
	Steps  int          `json:"steps,omitempty"`
	Faults []spec.Fault `json:"faults,omitempty"`
}

func (p *Program) flowValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE…",
		Short: "Check flow documents without a server, and report all errors",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var faults []error
			checked := []CheckedFlow{}
			for _, path := range args {
				_, plan, err := p.readDocument(path)
				if err == nil {
					checked = append(checked, CheckedFlow{File: path, Name: plan.Name(), Steps: plan.Len()})
					continue
				}
				faults = append(faults, err)
				found := &spec.FaultError{Faults: []spec.Fault{{Reason: err.Error()}}}
				_ = errors.As(err, &found) // of a file that is no document
				checked = append(checked, CheckedFlow{File: path, Faults: found.Faults})
			}
			return errors.Join(p.writeCheckedFlows(checked), errors.Join(faults...))
		},
	}
}

func (p *Program) writeCheckedFlows(checked []CheckedFlow) error {
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
			lines = append(lines, fmt.Sprintf("%s: flow %q, %s: good", Clean(c.File), Clean(c.Name), steps))
		}
	}
	return p.WriteLines(lines)
}

// Plan is what flow plan gives as JSON.
type Plan struct {
	Name   string   `json:"name"`
	Inputs []string `json:"inputs"` // with or without a default
	// Defaults are the inputs with a default.
	Defaults logbook.Values `json:"defaults"`
	Steps    []PlanStep     `json:"steps"` // in an order in which they could run one after another
}

// PlanStep is one step of a Plan.
type PlanStep struct {
	Name      string            `json:"name"`
	UndoLast  bool              `json:"undo_last,omitempty"` // a takeover undoes it, if it was cut off or finished last
	Arguments map[string]string `json:"arguments"`           // where each comes from
	Provides  []string          `json:"provides"`
	After     []string          `json:"after"` // the steps that it waits for
	Notes     []string          `json:"notes"` // all that the outline says of it, in words
}

func (p *Program) flowPlanCommand() *cobra.Command {
	revert := false
	cmd := &cobra.Command{
		Use:     "plan FILE|JOB-OR-FLOW-ID",
		Aliases: []string{"check"},
		Short:   "Show the order and dependencies of a flow document's steps",
		Long: "Show the order and dependencies of a flow document's steps. With --revert, show the steps of a job's flow that a\n" +
			"cancellation or failure would revert now, in order.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if revert {
				return p.planRevert(cmd.Context(), args[0])
			}
			document, plan, err := p.readDocument(args[0])
			if err != nil {
				return err
			}
			if p.JSON() {
				return p.WriteJSON(describePlan(plan, document.Store))
			}
			return p.WriteLines(cleanLines(plan.Outline() + defaultsText(plan, document.Store)))
		},
	}
	cmd.Flags().BoolVar(&revert, "revert", false, "show the steps to revert in the flow of a job")
	return cmd
}

// defaultsText is a line with the inputs that have a default.
func defaultsText(plan *flow.Plan, store logbook.Values) string {
	var said []string
	for _, name := range plan.Inputs() {
		if value, known := store[name]; known {
			said = append(said, name+" = "+shorten(string(value)))
		}
	}
	if len(said) == 0 {
		return ""
	}
	return "defaults: " + strings.Join(said, ", ") + "\n"
}

func describePlan(plan *flow.Plan, store logbook.Values) Plan {
	described := Plan{Name: plan.Name(), Inputs: append([]string{}, plan.Inputs()...), Defaults: logbook.Values{}, Steps: []PlanStep{}}
	for _, name := range plan.Inputs() {
		if value, known := store[name]; known {
			described.Defaults[name] = value
		}
	}
	for number, step := range plan.Steps() {
		planned := PlanStep{Name: step.Name(), UndoLast: plan.UndoesLast(number), Arguments: map[string]string{}, Provides: []string{}, After: []string{}, Notes: append([]string{}, plan.Notes(number)...)}
		for _, wire := range plan.Arguments(number) {
			planned.Arguments[wire.Name] = plan.Source(wire)
		}
		for _, provision := range step.Provides() {
			planned.Provides = append(planned.Provides, provision.Symbol)
		}
		for _, previous := range plan.Predecessors(number) {
			planned.After = append(planned.After, plan.Step(previous).Name())
		}
		described.Steps = append(described.Steps, planned)
	}
	return described
}

func (p *Program) flowGraphCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "graph FILE",
		Aliases: []string{"draw"},
		Short:   "Draw a flow document for Graphviz (dot) or Mermaid, or as text",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if format != "dot" && format != "mermaid" && format != "text" {
				return usageError{fmt.Errorf("--format must be dot, mermaid or text, not %.64q", format)}
			}
			_, plan, err := p.readDocument(args[0])
			if err != nil {
				return err
			}
			drawing := map[string]func() string{"dot": plan.Graphviz, "mermaid": plan.Mermaid, "text": plan.Outline}[format]()
			if p.JSON() {
				return p.WriteJSON(map[string]string{"format": format, "graph": drawing})
			}
			return p.WriteLines(cleanLines(drawing))
		},
	}
	cmd.Flags().StringVar(&format, "format", "dot", "dot, mermaid or text")
	return cmd
}

func (p *Program) flowShowCommand() *cobra.Command {
	attempts := false
	cmd := &cobra.Command{
		Use:   "show JOB-OR-FLOW-ID",
		Short: "Show the steps of a flow: state, attempts, results, and repairs of a failed flow",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := logbook.ParseID("job or flow id", args[0])
			if err != nil {
				return err
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				detail, err := findFlow(ctx, cluster, id)
				if err != nil {
					return err
				}
				return p.writeFlow(&detail, attempts)
			})
		},
	}
	cmd.Flags().BoolVar(&attempts, "attempts", false, "include every attempt of every step, with its stderr (-o json always includes attempts)")
	return cmd
}

// findFlow reads the flow of a job, or the flow itself.
func findFlow(ctx context.Context, cluster Cluster, id uuid.UUID) (logbook.FlowDetail, error) {
	flowID := logbook.FlowID{UUID: id}
	job, err := cluster.Job(ctx, jobs.JobID{UUID: id})
	switch {
	case err == nil && job.Flow.IsZero():
		return logbook.FlowDetail{}, fmt.Errorf("job %s has no flow: %w", id, jobs.ErrNotFound)
	case err == nil:
		flowID = job.Flow
	case !errors.Is(err, jobs.ErrNotFound):
		return logbook.FlowDetail{}, because(err, "read job %s", id)
	}
	detail, err := cluster.FlowDetail(ctx, flowID)
	return detail, because(err, "read flow %s", flowID)
}

func (p *Program) writeFlow(detail *logbook.FlowDetail, attempts bool) error {
	if p.JSON() {
		message := command.FlowDetailToProto(detail)
		if message.Definition != nil {
			message.Definition.Packed = nil // bytes that only programs of ours unpack
		}
		return p.WriteJSON(message)
	}
	fields := []field{
		{"flow", detail.ID.String()}, {"name", detail.Name}, {"book", detail.Book.String()},
		{"factory", detail.Factory.Name}, {"targets", strings.Join(detail.Targets, "\n")},
		{"on change", string(detail.OnChange)}, {"on takeover", takeoverText(detail)}, {"definition", definitionText(detail.Definition)},
		{"state", string(detail.State)}, {"store", valuesText(detail.Store)}, {"updated", p.timeText(detail.UpdatedAt)},
	}
	if detail.Cause != nil {
		fields = append(fields, failureFields(detail.Cause)...)
		fields = append(fields, flowEvidence(detail.Cause, detail)...)
	}
	fields = append(fields,
		field{"interventions", p.interventionLines(detail)},
		field{"next steps", strings.Join(waysOn(detail), "\n")})
	if err := p.writeFields(fields); err != nil {
		return err
	}
	now := detail.UpdatedAt
	if !detail.State.Finished() {
		now = time.Now() // what runs is still running, and what waits is due from now
	}
	t := tree{rows: rowsOf(detail), detail: detail, now: now, results: true}
	if err := p.WriteLines(append([]string{""}, t.lines()...)); err != nil || !attempts {
		return err
	}
	return p.writeAttempts(detail)
}

// definitionText is short: people compare it, and read the steps below.
func definitionText(definition *logbook.Definition) string {
	if definition == nil {
		return ""
	}
	return definition.Hash
}

// takeoverText is which steps a takeover undoes, where that can be read; empty: none.
func takeoverText(detail *logbook.FlowDetail) string {
	plan := spec.PlanOf(detail)
	if plan == nil || !plan.UndoesAnyLast() {
		return ""
	}
	for step := range plan.Len() {
		if !plan.UndoesLast(step) {
			return "in some flows of it, reverts interrupted and last finished steps first: `conductord flow plan` shows them"
		}
	}
	return "reverts interrupted and last finished steps first"
}

// interventionLines are the interventions in a flow, one on each line.
func (p *Program) interventionLines(detail *logbook.FlowDetail) string {
	lines := make([]string, 0, len(detail.Interventions))
	pending := detail.Pending()
	for i := range detail.Interventions {
		said := &detail.Interventions[i]
		line := p.interventionText(said)
		switch {
		case slices.ContainsFunc(pending, func(p logbook.Intervention) bool { return p.ID == said.ID }):
			line += " [not applied yet]"
		case said.Kind != logbook.InterveneTakeBack && said.Token.Compare(detail.Fence) > 0:
			line += " [withdrawn]"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// writeAttempts lists the attempts that are kept of every step.
func (p *Program) writeAttempts(detail *logbook.FlowDetail) error {
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
				took = durationText(attempt.EndedAt.Sub(attempt.StartedAt))
			}
			rows = append(rows, []string{
				detail.Atoms[i].Name, string(attempt.Action), strconv.Itoa(attempt.Number), p.timeText(attempt.StartedAt), OrDash(took),
				OrDash(attempt.Owner), OrDash(cmp.Or(attempt.WorkerName, attempt.Worker)), attempt.Token.String(), attemptOutcome(attempt),
			})
		}
	}
	if err := p.WriteLines([]string{""}); err != nil {
		return err
	}
	if err := p.WriteTable([]string{"step", "action", "attempt", "started", "took", "by", "worker", "token", "outcome"}, rows); err != nil {
		return err
	}
	return p.writeWords(detail)
}

// writeWords tells of every attempt that failed what does not fit a line of
// the table: all of the message, and what the step wrote to stderr.
func (p *Program) writeWords(detail *logbook.FlowDetail) error {
	var lines []string
	for i := range detail.Atoms {
		for j := range detail.Atoms[i].Attempts {
			attempt := &detail.Atoms[i].Attempts[j]
			said := ""
			if attempt.Failure != nil {
				said = attempt.Failure.Kind + ": " + attempt.Failure.Message
			}
			if attempt.Stderr == "" && said == shorten(said) {
				continue
			}
			lines = append(lines, "", fmt.Sprintf("%s %s %d", Clean(detail.Atoms[i].Name), attempt.Action, attempt.Number))
			if said != "" {
				lines = append(lines, "  "+Clean(said))
			}
			if attempt.Stderr != "" {
				for _, line := range cleanLines(attempt.Stderr) {
					lines = append(lines, "  stderr: "+line)
				}
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return p.WriteLines(lines)
}

// attemptOutcome says how an attempt ended, if that is known.
func attemptOutcome(attempt *logbook.Attempt) string {
	switch {
	case attempt.Failure != nil:
		return shorten(attempt.Failure.Kind + ": " + attempt.Failure.Message)
	case attempt.Shortened && attempt.Ended() && len(attempt.Result) == 0:
		return "done; a result is left out of this answer"
	case attempt.Ended() && len(attempt.Result) > 0:
		return "done: " + shorten(string(attempt.Result))
	case attempt.Ended():
		return "done"
	case attempt.Asked > 0:
		return fmt.Sprintf("not yet, asked %d times", attempt.Asked)
	case attempt.IsUntaken():
		return string(waitsForWorker)
	}
	return "begun"
}
