package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	flowcmd "github.com/conductord/conductord/cmd/conductord/cli/flow"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/cmd/conductord/dashboard/graph"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// Limits of the shown parts of one step, so that the page stays below its limit.
const (
	maxInstances = 100
	maxAttempts  = 5        // the latest attempts
	maxResult    = 2 << 10  // bytes of a result, an argument, a message or stderr
	maxLog       = 16 << 10 // bytes of the last lines of the log
	maxLogPages  = 8        // pages that are read to find them: a step can write faster than they are read
	maxSaved     = 20       // checkpoints: the latest, and the first others by name
	maxSave      = 512      // bytes of the value of a checkpoint
)

// stepData is one step, or the instances of one.
type stepData struct {
	Name       string
	Close      string // address of the page without the step
	Part       *graph.Part
	Status     graph.Status
	Atom       *logbook.AtomDetail // nil: it has not started, or has instances
	Instances  []stepLink
	More       int // instances that are not shown
	Waits      []stepLink
	Offered    *logbook.Attempt // attempt that no worker has taken; nil: none
	Wanted     string           // type and labels of the awaited worker; empty: unknown
	Arguments  []argument
	Attempts   []attempt   // the latest first
	Saved      []namedText // checkpoints: the latest, then others by name
	Unshown    int         // checkpoints that are not shown
	Earlier    int         // attempts that are not shown
	Hidden     bool        // the user may not see values
	Log        string
	NoLog      string // why there is no log
	Follow     string // the command that follows the log
	Operations []operation
}

type stepLink struct {
	Name, Link, Sign, State string
}

// attempt is an attempt with shortened texts.
type attempt struct {
	*logbook.Attempt
	Class, Failed, Value, Tail string
	WorkerName                 string   // name of its worker; empty: none, or unknown
	Sent                       []string // the signals that it has sent, with their answers
}

type argument struct{ Name, Source, Value string }

// loadStep shows a step of the flow, or an instance of a step.
func (v *visit) loadStep(ctx context.Context, d *flowData, name string) error {
	part := d.root.Find(name)
	if part == nil {
		return fmt.Errorf("flow %s has no step %.64q: %w", d.Flow.Name, name, jobs.ErrNotFound)
	}
	s := &stepData{Name: name, Part: part, Status: part.Status(), Close: v.flowAddress("step"), Hidden: v.who.GetHideValues()}
	d.Step = s
	if atom, ok := d.Flow.Atom(name); ok {
		s.Atom, s.Status = atom, graph.States[graph.PlaceOf(atom)]
		if atom.AwaitsWorker() {
			s.Offered = &atom.Attempts[len(atom.Attempts)-1]
		}
	}
	if s.Atom == nil && len(part.Atoms) > 0 {
		v.instances(s)
	}
	if d.plan != nil {
		v.planned(d, s)
	}
	if s.Atom != nil {
		s.attempts(v)
		if err := v.nameWorkers(ctx, s); err != nil {
			return err
		}
		if err := v.checkpoints(ctx, d, s); err != nil {
			return err
		}
	}
	s.Operations = v.interventions(d, name, logbook.InterveneSkip, logbook.InterveneComplete, logbook.InterveneRerun)
	if d.Job != nil && len(part.Parts) == 0 {
		return v.loadLog(ctx, d, s)
	}
	return nil
}

// attempts are the latest attempts at the step.
func (s *stepData) attempts(v *visit) {
	kept, longest := s.Atom.Attempts, v.bound(maxResult)
	for i := len(kept) - 1; i >= max(0, len(kept)-v.bound(maxAttempts)); i-- {
		a := attempt{Attempt: &kept[i], Class: attemptClass(&kept[i]), Failed: causeText(kept[i].Failure), Tail: cut(kept[i].Stderr, longest)}
		if len(a.Result) > 0 {
			a.Value = cut(jsonText(a.Result), longest)
		}
		for j := range a.Sends {
			a.Sent = append(a.Sent, flowcmd.SendText(&a.Sends[j]))
		}
		s.Attempts = append(s.Attempts, a)
	}
	s.Earlier = len(kept) + s.Atom.Folded.Len() - len(s.Attempts)
}

// checkpoints reads the checkpoints of the step. The node omits the values for a user who may not see values.
func (v *visit) checkpoints(ctx context.Context, d *flowData, s *stepData) error {
	if s.Atom.Checkpoints == nil {
		return nil
	}
	answer, err := ask(ctx, v.api.logbook.GetCheckpoints, &v1.GetCheckpointsRequest{Flow: d.Flow.ID.String(), Step: s.Atom.Name, Stale: true})
	if err != nil {
		return err
	}
	saved := answer.GetCheckpoints()
	if at := slices.IndexFunc(saved, func(c *v1.Checkpoint) bool { return c.GetName() == s.Atom.Checkpoints.Last }); at > 0 {
		latest := saved[at]
		saved = slices.Insert(slices.Delete(saved, at, at+1), 0, latest)
	}
	for _, c := range most(v, saved, maxSaved) {
		s.Saved = append(s.Saved, namedText{c.GetName(), cut(jsonText(command.ValueFromProto(c.GetValue())), v.bound(maxSave))})
	}
	s.Unshown = len(saved) - len(s.Saved)
	return nil
}

// causeText is a failure on one line; empty: none.
func causeText(f *logbook.Failure) string {
	if f == nil {
		return ""
	}
	text := f.Kind
	if f.Step != "" {
		text = "step " + f.Step + ": " + text
	}
	if f.Message != "" {
		text += ": " + f.Message
	}
	return cut(text, maxResult)
}

// causesOf returns the failures of a flow in order. The last cause of a failed undo, or of a refused
// intervention, is the flow's earlier failure.
func causesOf(f *logbook.Failure) (texts []string) {
	for last := -1; f != nil; f = &f.Causes[last] {
		text := causeText(f)
		last = len(f.Causes) - 1
		first := last < 0 || f.Causes[last].Step == "" && f.Causes[last].Kind != logbook.FailureOperator
		if !first && f.Kind != logbook.FailureIntervention {
			text = "revert of " + text
		}
		if texts = slices.Insert(texts, 0, text); first {
			break
		}
	}
	return texts
}

// consequence lists the steps that run, run again or are undone after an intervention. It is false if a
// conductor would refuse the intervention.
func (d *flowData) consequence(said logbook.Intervention) (text string, allowed bool) {
	c, err := tree.ConsequenceOf(&d.Flow, d.plan, d.store(), said)
	if errors.Is(err, engine.ErrNoReturn) {
		return "", false
	}
	if err != nil { // such as a value of the store that the caller may not see
		c, _ = tree.ConsequenceOf(&d.Flow, nil, nil, said) // a record alone gives no error
	}
	return cut(c.String(), maxLine), true
}

// ran returns the steps that have run. A rerun without a step runs all of them again.
func (d *flowData) ran() string {
	var names []string
	for i := range d.Flow.Atoms {
		if a := &d.Flow.Atoms[i]; a.Kind == logbook.KindTask && a.Number(logbook.ActionExecute) > 0 {
			names = append(names, a.Name)
		}
	}
	return cut(strings.Join(names, ", "), maxLine)
}

// instances are links to the instances of a step, the most urgent first.
func (v *visit) instances(s *stepData) {
	atoms := slices.Clone(s.Part.Atoms)
	slices.SortStableFunc(atoms, func(a, b *logbook.AtomDetail) int { return graph.PlaceOf(a) - graph.PlaceOf(b) })
	for _, atom := range most(v, atoms, maxInstances) {
		s.Instances = append(s.Instances, v.stepLink(atom.Name, graph.PlaceOf(atom)))
	}
	s.More = len(atoms) - len(s.Instances)
}

func (v *visit) stepLink(name string, state int) stepLink {
	return stepLink{name, v.flowAddress("step", name) + "#step", graph.States[state].Sign, graph.States[state].Name}
}

// planned adds a step's facts from the plan: its predecessors and its arguments.
func (v *visit) planned(d *flowData, s *stepData) {
	number, ok := d.plan.Find(s.Part.Name)
	if !ok {
		return
	}
	if work, _ := d.plan.Step(number).WorkerStep(); s.Offered != nil && work.Type != "" {
		s.Wanted = ": " + tree.WantedWorker(tree.WorkerLabels(work, d.plan, &d.Flow, s.Name), s.Offered.Action)
	}
	for _, before := range d.plan.Predecessors(number) {
		if part := d.root.Find(d.plan.Step(before).Name()); part != nil && len(s.Waits) < v.bound(maxInstances) {
			s.Waits = append(s.Waits, v.stepLink(part.Name, part.State()))
		}
	}
	store := d.store()
	for _, wire := range most(v, d.plan.Arguments(number), maxInstances) {
		var value json.RawMessage
		switch source := d.source(&wire); {
		case source.From == flow.FromStore:
			value = store[wire.Symbol]
		case source.From >= 0 && source.Part == flow.PartWhole:
			if atom, found := d.Flow.Atom(d.plan.Step(source.From).Name()); found {
				value = fieldOf(atom, source.Field)
			}
		}
		value, _ = flow.Inner(wire.Symbol, value, wire.Path)
		s.Arguments = append(s.Arguments, argument{wire.Name, d.plan.Source(wire), cut(jsonText(value), v.bound(maxResult))})
	}
}

// source is the source of an argument that was not skipped.
func (d *flowData) source(wire *flow.Wire) flow.Wire {
	sources := wire.Sources()
	for _, source := range sources {
		step, ok := source.Provider()
		if atom, found := d.Flow.Atom(d.plan.Step(max(step, 0)).Name()); !ok || !found || atom.State != logbook.AtomIgnored {
			return source
		}
	}
	return sources[0]
}

// fieldOf is a field of a step's result, or all of it; nil: there is none.
func fieldOf(atom *logbook.AtomDetail, field string) json.RawMessage {
	result, _ := atom.Result()
	if field == "" {
		return result
	}
	var fields logbook.Values
	_ = json.Unmarshal(result, &fields) // a result that is not an object has no fields
	return fields[field]
}

// loadLog reads the last lines that the step has written on the node that runs it.
func (v *visit) loadLog(ctx context.Context, d *flowData, s *stepData) error {
	s.Follow = "conductord job logs " + d.Job.ID.String() + " --follow --step " + cli.Quoted(s.Name)
	request := &v1.ReadLogsRequest{Job: d.Job.ID.String(), Step: s.Name}
	for range maxLogPages {
		page, err := ask(ctx, v.api.board.ReadLogs, request)
		if errors.Is(err, jobs.ErrNotAllowed) || errors.Is(err, jobs.ErrUnavailable) {
			s.NoLog = err.Error()
			return nil
		}
		if err != nil {
			return err
		}
		for _, line := range page.GetLines() {
			s.Log += line.GetText() + "\n"
		}
		if longest := v.bound(maxLog); len(s.Log) > longest {
			_, s.Log, _ = strings.Cut(s.Log[len(s.Log)-longest:], "\n")
		}
		if request.After = page.GetNext(); len(page.GetLines()) == 0 {
			break
		}
	}
	return nil
}

// interventions returns the interventions, of the given kinds, that the flow accepts now and
// that the user has permission for.
func (v *visit) interventions(d *flowData, step string, kinds ...logbook.InterventionKind) (offered []operation) {
	if !v.may(command.Operate, d.board()) {
		return nil
	}
	for _, kind := range kinds {
		said := logbook.Intervention{Kind: kind, Step: step, ID: d.interventionID(kind, step)}
		if _, err := d.Flow.Admit(&said); err != nil {
			continue
		}
		o := map[logbook.InterventionKind]operation{
			logbook.InterveneRetryRevert: {Text: "Retry the failed reverts", Help: "Each failed revert runs again, with all attempts of its policy.", Command: "retry-revert " + d.ID},
			logbook.InterveneRevert:      {Text: "Revert the flow", Help: "The flow is held at a failure.", Command: "revert " + d.ID},
			logbook.InterveneSkip:        {Text: "Skip its revert", Help: "The step counts as reverted. The flow reverts the remaining steps.", Command: "skip " + d.ID + " " + cli.Operand(step)},
			logbook.InterveneComplete: {
				Text: "Mark as done", Help: "The step counts as done with this result, and the flow continues.", Command: "complete " + d.ID + " --result JSON " + cli.Operand(step),
				Inputs: []input{{Name: "result", Label: "Result, as JSON", Kind: "lines"}},
			},
			logbook.InterveneRerun:    {Text: "Run the whole flow again", Help: "No step is reverted first. These steps run a second time: " + d.ran() + ".", Command: "rerun " + d.ID},
			logbook.InterveneTakeBack: {Text: "Withdraw interventions", Help: "Withdraw the interventions that no conductor has applied yet.", Command: "take-back " + d.ID},
		}[kind]
		if kind == logbook.InterveneRerun && step != "" {
			o.Text, o.Help, o.Command = "Run again from here", "No step is reverted first.", o.Command+" --from "+cli.Quoted(step)
		}
		if kind != logbook.InterveneTakeBack && !(kind == logbook.InterveneRerun && step == "") {
			effect, allowed := d.consequence(said)
			if !allowed {
				continue
			}
			o.Help += " The flow " + effect + "."
		}
		o.Verb, o.Of, o.Command, o.Inputs = string(kind), step, "conductord flow "+o.Command, append(o.Inputs, why)
		offered = append(offered, v.onFlow(o, said.ID.String()))
	}
	return offered
}

// onFlow makes the action for an operation on a flow. Each intervention has an id, so a second
// press of the button is harmless.
func (v *visit) onFlow(o operation, id string) operation {
	o.Address = v.flowAddress("")
	o.Inputs = append([]input{{Name: "do", Kind: "hidden", Value: o.Verb}, {Name: "step", Kind: "hidden", Value: o.Of}, {Name: "id", Kind: "hidden", Value: id}}, o.Inputs...)
	return o
}

// interventionID does not change until the flow changes.
func (d *flowData) interventionID(kind logbook.InterventionKind, step string) uuid.UUID {
	return uuid.NewSHA1(d.Flow.ID.UUID, fmt.Append(nil, d.Flow.Fence, d.Flow.Sequence, len(d.Flow.Interventions), kind, step))
}

// stops are the operations on the flow's job that the user may perform.
func (v *visit) stops(d *flowData) (offered []operation) {
	if d.Job == nil {
		return nil
	}
	for _, o := range v.offered(jobOperations(d.ID, jobData{Job: d.message}), d.board()) {
		if stopVerbs[o.Verb] {
			offered = append(offered, v.onFlow(o, ""))
		}
	}
	return offered
}

// stopVerbs are the actions on jobs that the page of a flow offers too.
var stopVerbs = map[string]bool{"resume": true, "suspend": true, "cancel": true}

func (d *flowData) board() string {
	if d.Job != nil {
		return d.Job.Board
	}
	return access.AllBoards
}

// changeFlow performs the operation of a button on the page.
func changeFlow(ctx context.Context, v *visit) (next string, err error) {
	data := &flowData{ID: v.part("id")}
	if err := v.findFlow(ctx, data); err != nil {
		return "", err
	}
	if next = "flows/" + data.ID + "?" + v.request.URL.RawQuery; stopVerbs[v.form("do")] {
		v.request.SetPathValue("verb", v.form("do"))
		v.request.SetPathValue("name", data.ID)
		_, err = operate(jobOperations)(ctx, v)
		return next, err
	}
	said := &v1.Intervention{
		Id: v.form("id"), Flow: data.Flow.ID.String(), Kind: v.form("do"), Step: v.form("step"), By: dashboardName, Reason: v.form("reason"),
	}
	if result := v.form("result"); result != "" {
		said.Result = command.ValueToProto(json.RawMessage(result))
	}
	_, err = ask(ctx, v.api.board.Intervene, said)
	return next, err
}
