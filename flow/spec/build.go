package spec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/internal/tomlpos"
	"github.com/conductord/conductord/logbook"
)

// Factory builds flows from documents, with the handlers of one daemon. Its arguments are the
// result of JSON. If the set lacks a handler, Factory returns an error with the handler's name
// and the searched directories: a conductor that cannot run a step must not start the flow.
func Factory(handlers *handler.Set, options ...handler.Option) flow.Factory {
	return func(args json.RawMessage) (*flow.Flow, error) {
		document, err := Parse(args, "flow document.json")
		if err != nil {
			return nil, err
		}
		return document.Build(handlers, options...)
	}
}

// Build makes the flow. Without handlers (nil), its steps refuse to run: the flow can only be
// compiled, planned and drawn.
func (d *Document) Build(handlers *handler.Set, options ...handler.Option) (*flow.Flow, error) {
	b := &builder{handlers: handlers, options: options, checked: map[string]bool{}}
	built := b.flow(d.Name, d.Pattern, d.Retry, d.expanded, d.late).OnTakeover(d.OnTakeover).OnFailure(d.OnFailure).Timeout(time.Duration(d.Timeout))
	if len(b.faults) > 0 {
		return nil, errors.Join(b.faults...)
	}
	return built, nil
}

// Compile checks the flow as a whole, without handlers, for missing requirements, ambiguous
// providers and cycles. The error is a *FaultError, which wraps the errors of package flow.
// Compile assumes that every input and everything in the store exists. The plan covers the
// targets, or else the document's own, and the steps that they wait for: see flow.Plan.Targeted.
func (d *Document) Compile(targets ...string) (*flow.Plan, error) {
	built, err := d.Build(nil)
	if err != nil {
		return nil, err
	}
	if len(targets) == 0 {
		targets = d.Targets
	}
	plan, err := flow.Compilation{Inputs: d.Symbols(), Targets: targets}.Compile(built)
	if err != nil {
		return nil, d.located(err)
	}
	return plan, nil
}

// named finds what an error of package flow is about.
var named = regexp.MustCompile(`(?:step|retry|flow|graph) ("(?:[^"\\]|\\.)*")`)

// located adds positions in the document to the faults of a compilation: the position of the
// first thing that a fault names. errors.Is still finds the original errors.
func (d *Document) located(err error) error {
	f := &faults{source: d.source}
	for _, found := range joinedErrors(err) {
		var at tomlpos.Position
		for _, match := range named.FindAllStringSubmatch(found.Error(), -1) {
			name, _ := strconv.Unquote(match[1])
			if known, ok := d.places[name]; ok {
				at = known
				break
			}
		}
		if errors.Is(found, flow.ErrCycle) {
			text := found.Error()
			if step, known := d.places[text[strings.LastIndex(text, " → ")+len(" → "):]]; known {
				at = step
			}
		}
		reason := found.Error()
		if errors.Is(found, flow.ErrMissing) {
			reason += "; name it in inputs if the job supplies it, or give it a default in store"
		}
		f.note(at, Fault{Reason: reason, Err: found})
	}
	return f.err()
}

// joinedErrors returns the single errors of an errors.Join, below any errors that wrap it.
func joinedErrors(err error) []error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		if joined, ok := inner.(interface{ Unwrap() []error }); ok {
			return joined.Unwrap()
		}
	}
	return []error{err}
}

// Symbols are the names of all values in a job's store: the inputs and the values with a default.
func (d *Document) Symbols() []string {
	return append(slices.Clone(d.Inputs), slices.Sorted(maps.Keys(d.Store))...)
}

// Fill merges the values of a job over the defaults of the document. It refuses a job without one
// of the inputs: with targets, only the inputs that these steps, or the steps that they wait for,
// require.
func (d *Document) Fill(given logbook.Values, targets ...string) (logbook.Values, error) {
	required := d.Inputs
	if len(targets) > 0 {
		plan, err := d.Compile(targets...)
		if err != nil {
			return nil, err
		}
		taken := plan.Inputs()
		required = slices.DeleteFunc(slices.Clone(required), func(input string) bool { return !slices.Contains(taken, input) })
	}
	store := maps.Clone(d.Store)
	if store == nil {
		store = logbook.Values{}
	}
	maps.Copy(store, given)
	for _, input := range required {
		if _, ok := store[input]; !ok {
			return nil, &logbook.InvalidError{Field: "input " + input, Reason: fmt.Sprintf("the flow %q requires it, but it has no value", d.Name)}
		}
	}
	return store, nil
}

// Detail is the flow as recorded in a logbook before it starts. The store is the result of Fill.
func (d *Document) Detail(id logbook.FlowID, book logbook.BookID, store logbook.Values) logbook.FlowDetail {
	return logbook.FlowDetail{
		ID: id, Book: book, Name: d.Name, Factory: logbook.Factory{Name: Kind, Args: d.JSON()}, Store: store,
		Targets: d.Targets, OnChange: d.OnChange, State: logbook.FlowPending,
	}
}

// PlanOf is the plan of a flow that is a document. It is nil for other flows, and if the text
// cannot be read here because it is encrypted or hidden from the caller. The plan is for display:
// its steps do nothing.
func PlanOf(detail *logbook.FlowDetail) *flow.Plan {
	if detail.Factory.Name != Kind {
		return nil
	}
	document, err := Parse(detail.Factory.Args, "flow.json")
	if err != nil {
		return nil
	}
	plan, err := document.Compile(detail.Targets...)
	if err != nil {
		return nil
	}
	return plan
}

// Handlers are the names of all handlers that the document uses, sorted, without the handlers of
// workers.
func (d *Document) Handlers() []string {
	names := map[string]bool{}
	collectHandlers(withLate(d.expanded, d.late), names)
	return slices.Sorted(maps.Keys(names))
}

func collectHandlers(steps []Step, names map[string]bool) {
	for i := range steps {
		for _, name := range []string{steps[i].Handler, steps[i].Revert} {
			if name != "" && !steps[i].Worker {
				names[name] = true
			}
		}
		collectHandlers(withLate(steps[i].Steps, steps[i].Late), names)
	}
}

// builder turns steps into nodes of a flow.
type builder struct {
	handlers *handler.Set
	options  []handler.Option
	checked  map[string]bool // the handlers that have been looked up
	faults   []error
}

func (b *builder) flow(name string, pattern Pattern, rounds *Rounds, steps []Step, late Late) *flow.Flow {
	built := b.ordered(name, pattern, steps).OnError(b.late(late.OnError)...).Finally(b.late(late.Finally)...)
	if rounds != nil {
		built.WithRetry(rounds.retrier())
	}
	return built
}

func (b *builder) ordered(name string, pattern Pattern, steps []Step) *flow.Flow {
	nodes := make([]flow.Node, len(steps))
	for i := range steps {
		nodes[i] = b.node(&steps[i])
	}
	switch pattern {
	case Linear:
		return flow.Linear(name, nodes...)
	case Unordered:
		return flow.Unordered(name, nodes...)
	}
	graph := flow.Graph(name, nodes...)
	for i := range steps {
		for _, before := range steps[i].After {
			graph.Link(before, steps[i].Name)
		}
		for n := range steps[i].When {
			steps[i].When[n].put(graph, steps[i].Name, func(step string) (string, bool) {
				from, found := holder(steps, nil, step)
				if !found {
					return "", false
				}
				return steps[from].Name, true
			})
		}
	}
	return graph
}

func (b *builder) node(s *Step) flow.Node {
	if s.Each != nil {
		each := s.Each.flow(s.Name, b.flow(s.Name, s.Pattern, nil, s.Steps, s.Late))
		if s.Rounds != nil {
			each.WithRetry(s.Rounds.retrier())
		}
		return each.OnTakeover(s.OnTakeover).OnFailure(s.OnFailure)
	}
	if s.Nested() {
		inner := b.flow(s.Name, s.Pattern, s.Rounds, s.Steps, s.Late).OnTakeover(s.OnTakeover).OnFailure(s.OnFailure)
		if s.Enough > 0 {
			inner.Enough(s.Enough)
		}
		return inner
	}
	options := []flow.StepOption{
		flow.Requires(s.ownArguments()...),
		flow.Requires(slices.Sorted(maps.Keys(s.Requires))...),
		flow.Optional(slices.Sorted(maps.Keys(s.Optional))...),
		flow.Rebind(s.Requires),
		flow.Rebind(s.Optional),
		flow.Inject(values(s.Inject)),
		flow.Timeout(time.Duration(s.Timeout)),
		flow.Deadline(time.Duration(s.Deadline.After)),
		flow.Version(s.Version),
		flow.Priority(s.Priority),
	}
	if s.Provides.Whole != "" {
		options = append(options, flow.Provides(s.Provides.Whole))
	}
	if len(s.Provides.Fields) > 0 {
		options = append(options, flow.ProvidesFields(s.Provides.Fields...))
	}
	if len(s.Provides.As) > 0 {
		options = append(options, flow.ProvidesAs(s.Provides.As))
	}
	if s.Deadline.At != "" {
		options = append(options, flow.DeadlineAt(s.Deadline.At))
	}
	if s.Retry != nil {
		options = append(options, s.Retry.options()...)
	}
	if s.WaitAtMost > 0 {
		options = append(options, flow.WaitAtMost(time.Duration(s.WaitAtMost)))
	}
	if len(s.Send) > 0 {
		options = append(options, s.sendOption())
	}
	if s.Concurrency != nil {
		options = append(options, s.Concurrency.option())
	}
	if len(s.Argv) > 0 {
		options = append(options, flow.Remark(fmt.Sprintf("argv %q", s.Argv)))
	}
	if s.AtMostOnce {
		options = append(options, flow.AtMostOnce())
	}
	if s.PointOfNoReturn {
		options = append(options, flow.PointOfNoReturn())
	}
	if s.SameWorkerAs != "" {
		options = append(options, flow.SameWorkerAs(s.SameWorkerAs))
	}
	if s.Uninterruptible {
		options = append(options, flow.Uninterruptible())
	}
	if s.Repeatable {
		options = append(options, flow.Repeatable())
	}
	if s.OnFailure == ignoreFailure || s.late != "" {
		var def []any
		if s.Default != nil {
			def = append(def, s.Default)
		}
		options = append(options, flow.IgnoreFailure(def...))
	}
	return b.step(s, options)
}

// step makes a step that is no flow.
func (b *builder) step(s *Step, options []flow.StepOption) *flow.Step {
	switch {
	case s.Again != nil:
		return s.Again.step(s.Name, options)
	case s.waits():
		return flow.NewStep(s.Name, nil, append(options, flow.Waits(s.wait()))...)
	}
	return flow.NewStep(s.Name, b.task(s), options...)
}

// ownArguments are the arguments whose values only the step itself has.
func (s *Step) ownArguments() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.Inject)) {
		_, required := s.Requires[name]
		_, optional := s.Optional[name]
		if !required && !optional {
			names = append(names, name)
		}
	}
	return names
}

func values(given logbook.Values) map[string]any {
	values := make(map[string]any, len(given))
	for name, value := range given {
		values[name] = value
	}
	return values
}

// options are the retry of a step.
func (b *Backoff) options() []flow.StepOption {
	options := []flow.StepOption{flow.Retry(b.backoff())}
	for _, filter := range b.filter() {
		options = append(options, filter)
	}
	return options
}

// filter selects the failures of a step or of a round.
func (b *Backoff) filter() (options []flow.Option) {
	if len(b.Only) > 0 {
		options = append(options, flow.RetryOnly(b.Only...))
	}
	if len(b.Never) > 0 {
		options = append(options, flow.RetryNever(b.Never...))
	}
	return options
}

func (b Backoff) backoff() flow.Backoff {
	return flow.Backoff{
		Attempts: b.Attempts, Delay: time.Duration(b.Delay), BackoffPercent: b.BackoffPercent, MaxDelay: time.Duration(b.MaxDelay), JitterPercent: b.JitterPercent,
	}
}

func (b *builder) task(s *Step) flow.Task {
	if s.Worker {
		return flow.OnWorker(flow.WorkerStep{Type: s.Handler, Revert: s.Revert, Labels: s.WorkerLabels, Patience: time.Duration(s.NoWorkerTimeout)})
	}
	if b.handlers == nil {
		if s.Revert == "" {
			return absent{}
		}
		return absentReverter{}
	}
	for _, name := range []string{s.Handler, s.Revert} {
		if name == "" || b.checked[name] {
			continue
		}
		b.checked[name] = true
		if err := b.handlers.Check(name); err != nil {
			b.faults = append(b.faults, fmt.Errorf("step %q: %w", s.Name, err))
		}
	}
	return b.handlers.Task(s.Handler, s.Revert, append(slices.Clip(b.options), handler.Argv(s.Argv...), handler.MayLack(slices.Sorted(maps.Keys(s.Optional))...))...)
}

// absent replaces a handler if there is no handler set.
type absent struct{}

func (absent) Execute(context.Context, *flow.Call) (any, error) { return nil, errAbsent() }

// absentReverter replaces a pair of handlers.
type absentReverter struct{ absent }

func (absentReverter) Revert(context.Context, *flow.Call) error { return errAbsent() }

func errAbsent() error {
	return &logbook.Failure{
		Kind: logbook.FailureHandler, Message: "this flow was built without handlers, so it cannot run", Permanent: true,
	}
}
