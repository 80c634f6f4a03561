package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// maxDrawnSteps bounds one generated flow: a few steps show every fault, and each further step
// adds a crash.
const maxDrawnSteps = 11

// drawnStore is the store of every generated flow.
var drawnStore = logbook.Values{"input": json.RawMessage("1"), "list": json.RawMessage("[101,102,103]"), "none": json.RawMessage("[]"), "pair": json.RawMessage("[1,2]")}

// drawnLimits make a result that is too large a small one.
var drawnLimits = logbook.Limits{Value: 4 << 10}

// drawing builds a flow from rapid's draws. The behaviour of each step is fixed, and depends
// only on the record at the time of the call. An interrupted flow therefore has exactly one
// right end.
type drawing struct {
	rt      *rapid.T
	world   *actors
	steps   int
	retries []drawnRetry // around the node that is drawn, outermost first
	gives   []string     // the symbols that are seen by the node that is drawn

	features map[string]bool
	parallel bool // some steps have no order
	breaks   bool // some revert fails permanently
	once     bool
	walls    bool // some retry answers otherwise than its neighbours
	late     bool // some step waits for its deadline
	holds    bool // some failure holds the flow
	uneven   bool // some wait fails a number of times in all rounds together, or some flow needs only some members
	timed    bool // the timeout of the flow can pass
	member   bool // the node that is drawn is in a member of such a flow
	tolerant bool // the node that is drawn is in an each whose elements may fail
	notes    []string
	also     string   // what the next step provides besides
	joined   []string // what the next step is given by a join, from the step from
	from     string
	counts   map[string]int // the elements of each, by name
	around   []string       // the openings of the each around the node that is drawn
	elements map[string]int // of all openings, in all instances
}

type drawnRetry struct {
	symbol string
	rounds int
}

func (d *drawing) has(feature string) { d.features[feature] = true }

// oneIn is true with a chance of one in n, and shrinks to false.
func (d *drawing) oneIn(n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(d.rt, label) == n-1
}

func (d *drawing) node(name string, depth int) flow.Node {
	if name != "f" && (depth == 0 || d.steps >= maxDrawnSteps || rapid.IntRange(0, 2).Draw(d.rt, "leaf of "+name) == 0) {
		return d.leaf()
	}
	if depth > 0 && !d.tolerant && d.steps+4 <= maxDrawnSteps && d.oneIn(20, "enough of "+name) {
		return d.enough(name)
	}
	if depth > 0 && d.steps+4 <= maxDrawnSteps && d.oneIn(10, "join of "+name) {
		return d.join(name)
	}
	if depth > 0 && len(d.around) < 2 && d.oneIn(6, "each of "+name) {
		return d.each(name, depth-1)
	}
	retry, leave := d.retry(name)
	defer leave()
	pattern := rapid.SampledFrom([]flow.Pattern{flow.PatternLinear, flow.PatternUnordered, flow.PatternGraph}).Draw(d.rt, "pattern of "+name)
	d.has(string(pattern))
	n := rapid.SampledFrom([]int{1, 2, 3, 4, 2, 3, 0}).Draw(d.rt, "children of "+name)
	if n == 0 {
		d.has("empty flow")
	}
	if depth < 3 {
		d.has("nested")
	}
	d.parallel = d.parallel || n > 1 && pattern != flow.PatternLinear
	around := len(d.gives)
	children := make([]flow.Node, n)
	for i := range children {
		seen := len(d.gives)
		children[i] = d.node(fmt.Sprintf("%s.%d", name, i), depth-1)
		if pattern == flow.PatternUnordered {
			d.gives = d.gives[:seen]
		}
	}
	if pattern == flow.PatternUnordered {
		d.gives = d.gives[:around]
	}
	var f *flow.Flow
	switch pattern {
	case flow.PatternLinear:
		f = flow.Linear(name, children...)
	case flow.PatternUnordered:
		f = flow.Unordered(name, children...)
	default:
		f = d.links(flow.Graph(name, children...), children)
	}
	if retry != nil {
		f.WithRetry(retry)
	}
	if n > 0 {
		d.handles(f)
		d.finals(f)
	}
	return d.policy(f)
}

// leaf draws a step with a task, or a step that waits.
func (d *drawing) leaf() *flow.Step {
	if d.oneIn(6, "wait") {
		return d.wait()
	}
	return d.step()
}

// finals draws finally steps of a flow.
func (d *drawing) finals(f *flow.Flow) {
	if !d.oneIn(4, "finally") {
		return
	}
	d.has("finally")
	for range rapid.IntRange(1, 2).Draw(d.rt, "finally steps") {
		f.Finally(d.lateStep("finally"))
	}
}

// handles draws on_error steps of a flow. Only the late steps of the flow see their values.
func (d *drawing) handles(f *flow.Flow) {
	if !d.oneIn(4, "on_error") {
		return
	}
	d.has("on_error")
	seen := d.gives
	for range rapid.IntRange(1, 2).Draw(d.rt, "on_error steps") {
		f.OnError(d.lateStep("on_error"))
	}
	d.gives = seen
}

// lateStep draws a finally or on_error step. It may have all values that are seen behind its flow.
func (d *drawing) lateStep(word string) *flow.Step {
	d.steps++
	a := &actor{world: d.world, name: fmt.Sprintf("s%d", d.steps), attempts: 1}
	options := []flow.StepOption{flow.Requires("input"), flow.ProvidesFields("r" + a.name)}
	for _, retry := range d.retries {
		a.values = append(a.values, retry.symbol)
		options = append(options, flow.Optional(retry.symbol))
	}
	if len(d.gives) > 0 && d.oneIn(2, "takes a result") {
		d.has(word + " takes a result")
		a.given = []string{rapid.SampledFrom(d.gives).Draw(d.rt, "taken")}
		options = append(options, flow.Optional(a.given...))
	}
	if d.oneIn(2, "default") {
		options = append(options, flow.IgnoreFailure(map[string]any{"r" + a.name: a.name + "@default"}))
	} else {
		d.world.omits = true
	}
	if d.oneIn(2, "tried again") {
		a.attempts = 2
		options = append(options, flow.Retry(flow.Backoff{Attempts: 2, Delay: time.Duration(rapid.IntRange(0, 1).Draw(d.rt, "delay")) * time.Minute}))
	}
	if d.oneIn(5, "not yet") {
		a.asks = 1
	}
	d.failures(a)
	options = append(options, d.bounds(a)...)
	d.gives = append(d.gives, "r"+a.name)
	d.notes = append(d.notes, a.String()+", "+word)
	return flow.NewStep(a.name, a, options...)
}

// policy draws what a failure of a step in the flow means for all of it.
func (d *drawing) policy(f *flow.Flow) *flow.Flow {
	policy := rapid.SampledFrom([]flow.FailurePolicy{"", "", "", "", flow.HoldOnFailure, flow.RevertOnFailure}).Draw(d.rt, "on failure")
	d.holds = d.holds || policy == flow.HoldOnFailure
	return f.OnFailure(policy)
}

// countElements notes the number of elements of an each in every instance of the each.
func (d *drawing) countElements(name string, elements int) {
	d.counts[name] = elements
	openings := []string{name}
	for _, outer := range d.around {
		var deeper []string
		for _, opening := range openings {
			for i := range d.counts[outer] {
				deeper = append(deeper, fmt.Sprintf("%s[%d]", opening, i))
			}
		}
		openings = deeper
		d.has("each in an each")
	}
	for _, opening := range openings {
		d.elements[opening] = elements
	}
}

// each draws a part that is run for each of two elements, of three in turns, or of none. Steps
// after it do not see its values.
func (d *drawing) each(name string, depth int) flow.Node {
	retry, leave := d.retry(name)
	defer leave()
	list, elements := "pair", 2
	if d.oneIn(6, "nobody to run it for") {
		list, elements = "none", 0
	} else if d.oneIn(3, "turns") {
		d.has("turns")
		list, elements = "list", 3
	}
	d.has("each")
	d.countElements(name, elements)
	needsSome := !d.tolerant && elements > 0 && d.oneIn(5, "enough elements")
	var options []flow.EachOption
	if elements == 3 {
		d.parallel = true
		options = append(options, flow.AtOnce(2))
	} else if !needsSome && rapid.Bool().Draw(d.rt, "in order") {
		options = append(options, flow.InOrder())
	} else {
		d.parallel = true
	}
	if !needsSome && !d.tolerant && d.oneIn(2, "elements may fail") {
		d.has("elements may fail")
		d.tolerant, d.world.omits = true, true
		defer func() { d.tolerant = false }()
		options = append(options, flow.MaxFailures(rapid.IntRange(0, 2).Draw(d.rt, "most failures")))
	}
	seen, outer := len(d.gives), d.around
	d.around = append(outer[:len(outer):len(outer)], name)
	var body flow.Node
	if needsSome {
		body = d.memberOf(name + ".body")
	} else {
		body = d.node(name+".body", depth)
	}
	inside := d.gives[seen:]
	d.gives, d.around = d.gives[:seen], outer
	if len(inside) > 0 && rapid.Bool().Draw(d.rt, "gathers") {
		d.has("gathers")
		symbol := rapid.SampledFrom(inside).Draw(d.rt, "gathered")
		options = append(options, flow.Gather(symbol, "g"+symbol))
		d.gives = append(d.gives, "g"+symbol)
	}
	f := flow.Each(name, list, "x"+name, body, options...)
	if retry != nil {
		d.has("each under a retry")
		f.WithRetry(retry)
	}
	if needsSome {
		d.has("enough elements")
		f.Enough(rapid.IntRange(1, elements).Draw(d.rt, "needed"))
	}
	d.handles(f)
	d.finals(f)
	return f
}

// join draws two ways to one value, and a step that takes it. A step behind it sees none of the
// values.
func (d *drawing) join(name string) flow.Node {
	d.has("join")
	d.parallel = true
	seen, symbol := d.gives, "j"+name
	d.gives = nil // or a failure that is ignored could have a way left out
	way := d.step()
	graph := flow.Graph(name, way)
	from, otherwise := "", rapid.Bool().Draw(d.rt, "otherwise")
	var first *flow.Step
	for range 2 {
		d.also, d.gives = symbol, nil
		to, taken := d.step(), rapid.Bool().Draw(d.rt, "taken")
		depth := flow.Depth(rapid.IntRange(0, 3).Draw(d.rt, "depth"))
		if graph.Add(to); first != nil && otherwise {
			d.has("otherwise")
			taken = from == ""
			graph.Link(first.Name(), to.Name(), flow.Reaching(depth), flow.Otherwise())
		} else {
			graph.Link(way.Name(), to.Name(), flow.Reaching(depth), flow.Decide("taken", func(logbook.Values) (bool, error) { return taken, nil }))
		}
		if first = to; taken {
			from = to.Name()
		}
		d.notes = append(d.notes, fmt.Sprintf("decider behind %s: %v, to depth %s", way.Name(), taken, depth))
	}
	if d.joined, d.from = []string{symbol}, from; from == "" {
		d.has("no way is taken")
	}
	d.gives = seen
	graph.Add(d.step())
	d.gives = seen
	return graph
}

// links puts later children of a graph behind earlier ones, and deciders on
// some of the links.
func (d *drawing) links(graph *flow.Flow, children []flow.Node) *flow.Flow {
	for i, to := range children {
		for _, from := range children[:i] {
			if !rapid.Bool().Draw(d.rt, "link") {
				continue
			}
			d.has("link")
			var options []flow.LinkOption
			if holdsSteps(to) && rapid.Bool().Draw(d.rt, "decider") {
				options = d.decider(from)
			}
			graph.Link(from.Name(), to.Name(), options...)
		}
		if holdsSteps(to) && d.oneIn(6, "question") {
			yes := rapid.Bool().Draw(d.rt, "yes")
			d.has(fmt.Sprintf("question says %t", yes))
			d.notes = append(d.notes, fmt.Sprintf("question before %s: %t", to.Name(), yes))
			graph.Ask(to.Name(), flow.Question{Name: "question", Values: []string{"input"}, Depth: flow.Depth(rapid.IntRange(0, 3).Draw(d.rt, "depth")),
				Decide: func(found flow.Found) (bool, error) { return yes == (string(found.Values["input"]) == "1"), nil }})
		}
	}
	return graph
}

func (d *drawing) decider(from flow.Node) []flow.LinkOption {
	answer := rapid.SampledFrom([]string{"yes", "no", "later", "no", "panic", "error"}).Draw(d.rt, "answer")
	depth := flow.Depth(rapid.IntRange(0, 3).Draw(d.rt, "depth"))
	d.has("decider says " + answer)
	if answer == "no" {
		d.has("depth " + depth.String())
	}
	d.notes = append(d.notes, fmt.Sprintf("decider behind %s: %s, to depth %s", from.Name(), answer, depth))
	return []flow.LinkOption{flow.Reaching(depth), flow.Decide(answer, func(results logbook.Values) (bool, error) {
		switch answer {
		case "no":
			return false, nil
		case "later":
			// In any round but the first: results say in which they were made.
			for _, result := range results {
				if !strings.Contains(string(result), "@1") {
					return true, nil
				}
			}
			return len(results) == 0, nil
		case "panic":
			panic("the decider panics")
		case "error":
			return false, errors.New("the decider fails")
		}
		return true, nil
	})}
}

// drawnController is a controller of a program's own.
type drawnController struct{ rounds int }

func (c drawnController) Next(h *flow.History) (any, error) { return len(h.Rounds) + 1, nil }

func (c drawnController) OnFailure(h *flow.History) flow.Decision {
	switch n := len(h.Rounds); {
	case n < c.rounds:
		return flow.Decision{Verdict: flow.VerdictRetry, Delay: time.Duration(n) * time.Hour}
	case c.rounds == 1:
		panic("the controller panics")
	case c.rounds == 2:
		return flow.Decision{} // an invalid verdict
	}
	return flow.Decision{Verdict: flow.VerdictRevert}
}

// drawnRetries are the kinds of retry, repeated by their weight.
var drawnRetries = []string{"none", "none", "none", "none", "none", "none", "times", "times", "for each", "for each", "parameterized", "own", "own",
	"revert", "revert all", "no values"}

// retry draws a retry for a flow, or none. Steps under it can be made to fail
// in its first rounds.
func (d *drawing) retry(name string) (retry *flow.Retrier, leave func()) {
	kind := rapid.SampledFrom(drawnRetries).
		Draw(d.rt, "retry of "+name)
	if kind == "none" {
		return nil, func() {}
	}
	d.has("retry: " + kind)
	if len(d.retries) > 0 {
		d.has("nested retry: " + kind)
	}
	r := drawnRetry{symbol: "v" + name, rounds: rapid.IntRange(1, 3).Draw(d.rt, "rounds")}
	options := []flow.RetryOption{flow.Provides(r.symbol)}
	var policy []flow.RetryOption
	if d.oneIn(3, "pause") {
		d.has("pause")
		policy = append(policy, flow.Pause(flow.Backoff{Delay: time.Hour, JitterPercent: 50}))
	}
	if d.oneIn(4, "reverting all") {
		d.has("reverting all")
		d.walls = true
		policy = append(policy, flow.RevertingAll())
	}
	if d.oneIn(3, "ends at some failures") {
		d.walls = true
		policy = append(policy, d.selects()...)
	} else {
		policy = append(policy, flow.RetryPermanent())
	}
	retry = d.retrier(kind, "retry "+name, &r, options, policy)
	d.retries = append(d.retries, r)
	return retry, func() { d.retries = d.retries[:len(d.retries)-1] }
}

func (d *drawing) retrier(kind, name string, r *drawnRetry, options, policy []flow.RetryOption) *flow.Retrier {
	switch kind {
	case "times":
		return flow.Times(name, r.rounds, append(options, policy...)...)
	case "for each":
		return flow.ForEach(name, []int{101, 102, 103}[:r.rounds], append(options, policy...)...)
	case "parameterized":
		r.rounds = 3
		return flow.ParameterizedForEach(name, "list", append(options, policy...)...)
	case "no values":
		return flow.ParameterizedForEach(name, "none", append(options, policy...)...)
	case "own":
		return flow.NewRetrier(name, drawnController{r.rounds}, options...)
	}
	r.rounds = 1
	if kind == "revert" {
		return flow.AlwaysRevert(name, options...)
	}
	d.walls = true
	return flow.AlwaysRevertAll(name, options...)
}

// selects draws the failures that end a retry. Panics are among them, or no failure but permanent ones.
func (d *drawing) selects() []flow.RetryOption {
	switch rapid.IntRange(0, 2).Draw(d.rt, "selects") {
	case 0:
		d.has("retry never")
		return []flow.RetryOption{flow.RetryNever(logbook.FailurePanic)}
	case 1:
		d.has("retry only")
		return []flow.RetryOption{flow.RetryOnly(logbook.FailureError, logbook.FailureResult)}
	}
	return nil
}

func (d *drawing) step() *flow.Step {
	d.steps++
	a := &actor{world: d.world, name: fmt.Sprintf("s%d", d.steps), attempts: 1, also: d.also, from: d.from, given: slices.Clone(d.joined)}
	d.also, d.joined, d.from = "", nil, ""
	options := []flow.StepOption{flow.Requires("input"), flow.ProvidesFields("r" + a.name)}
	if a.also != "" {
		options = append(options, flow.ProvidesFields(a.also))
	}
	if len(a.given) > 0 {
		options = append(options, flow.Optional(a.given...))
	}
	for _, retry := range d.retries {
		a.values = append(a.values, retry.symbol)
		options = append(options, flow.Requires(retry.symbol))
	}
	options = append(options, d.arguments(a)...)
	options = append(options, d.ignoring(a)...)
	switch {
	case len(d.retries) == 0 && d.oneIn(7, "at most once"):
		d.once = d.once || !a.ignored
		d.has("at most once")
		options = append(options, flow.AtMostOnce())
		a.once = true
	case d.oneIn(3, "tried again"):
		a.attempts = rapid.IntRange(2, 3).Draw(d.rt, "attempts")
		delay := time.Duration(rapid.IntRange(0, 1).Draw(d.rt, "delay")) * time.Minute
		options = append(options, flow.Retry(flow.Backoff{Attempts: a.attempts, Delay: delay, BackoffPercent: 200, JitterPercent: 50}))
		if a.ends = d.oneIn(3, "ends at panics"); a.ends {
			d.has("step never")
			options = append(options, flow.RetryNever(logbook.FailurePanic))
		}
	}
	if d.oneIn(4, "priority") {
		options = append(options, flow.Priority(rapid.IntRange(-1, 1).Draw(d.rt, "its priority")))
	}
	if !a.once && d.oneIn(5, "not yet") {
		a.asks = rapid.IntRange(1, 2).Draw(d.rt, "asks")
	}
	if d.oneIn(4, "key") {
		d.has("concurrency key")
		a.key = rapid.SampledFrom([]string{"k", "l"}).Draw(d.rt, "name of the key")
		options = append(options, flow.Concurrency(a.key+"-{input}", drawnAtOnce))
	}
	if a.says = d.oneIn(5, "says how far it is"); a.says {
		d.has("progress")
	}
	d.failures(a)
	if a.repeatable = !d.member && len(d.retries) == 0 && !a.once && a.attempts == 1 && d.oneIn(2, "repeatable"); a.repeatable {
		d.has("repeatable")
		options = append(options, flow.Repeatable())
	} else if !a.ignored && !d.tolerant && d.oneIn(8, "point of no return") {
		d.holds = true
		d.has("point of no return")
		options = append(options, flow.PointOfNoReturn())
	}
	a.undo = !a.repeatable && !d.oneIn(4, "no revert")
	d.undoing(a)
	options = append(options, d.bounds(a)...)
	d.notes = append(d.notes, a.String())
	if !a.undo {
		d.has("no revert")
		return flow.NewStep(a.name, a, options...)
	}
	return flow.NewStep(a.name, &undoingActor{a}, options...)
}

// ignoring lets the flow continue after the failure of a step, with a default result or without.
func (d *drawing) ignoring(a *actor) []flow.StepOption {
	if a.ignored = !d.member && d.oneIn(5, "failure is ignored"); !a.ignored {
		return nil
	}
	d.has("failure is ignored")
	if a.also == "" && rapid.Bool().Draw(d.rt, "no default") {
		d.world.omits = true
		return []flow.StepOption{flow.IgnoreFailure()}
	}
	result := map[string]any{"r" + a.name: a.name + "@default"}
	if a.also != "" {
		result[a.also] = result["r"+a.name]
	}
	return []flow.StepOption{flow.IgnoreFailure(result)}
}

// drawnDeadline is longer than all that a step may wait for, but for another that has a deadline.
const drawnDeadline = time.Hour

// bounds ends a step that waits for the end of its context. One step of a flow does so at its
// deadline. Others may have one that is never over.
func (d *drawing) bounds(a *actor) []flow.StepOption {
	switch {
	case a.flaw == "timeout" && a.undoFlaw != "timeout" && !d.late && a.asks == 0 && a.key == "" && len(d.around) == 0:
		d.late = true
		d.has("deadline passes")
		return []flow.StepOption{flow.Deadline(drawnDeadline)}
	case a.flaw == "timeout" || a.undoFlaw == "timeout":
		return []flow.StepOption{flow.Timeout(time.Minute)}
	case d.oneIn(4, "deadline"):
		d.has("deadline")
		return []flow.StepOption{flow.Deadline(1000 * drawnDeadline)}
	}
	return nil
}

// arguments lets a step depend on steps before it.
func (d *drawing) arguments(a *actor) []flow.StepOption {
	var options []flow.StepOption
	if len(d.gives) > 0 && d.oneIn(3, "requires") {
		symbol := rapid.SampledFrom(d.gives).Draw(d.rt, "required")
		d.has("requires another's result")
		a.given = append(a.given, symbol)
		options = append(options, flow.Requires(symbol))
	}
	if d.oneIn(3, "optional") {
		symbol := rapid.SampledFrom(append([]string{"nowhere"}, d.gives...)).Draw(d.rt, "optional")
		if !slices.Contains(a.given, symbol) {
			d.has("optional")
			a.given = append(a.given, symbol)
			options = append(options, flow.Optional(symbol))
		}
	}
	if d.oneIn(4, "inner value") {
		d.has("inner value")
		options = append(options, flow.Requires("inner"), flow.Rebind(map[string]string{"inner": "list.1"}))
	}
	if d.oneIn(4, "revert arguments") {
		d.has("revert arguments")
		options = append(options, flow.RevertRequires("list"))
	}
	d.gives = append(d.gives, "r"+a.name)
	return options
}

// failures sets how often an actor fails: a number of times in each of the first rounds of one
// of its outer retries.
func (d *drawing) failures(a *actor) {
	if !d.oneIn(2, "fails") && !a.ignored {
		return
	}
	flaws := []string{"error", "permanent", "panic", "timeout", "not JSON", "too large", "no object", "goexit"}
	a.flaw = rapid.SampledFrom(flaws).Draw(d.rt, "flaw")
	a.fails = rapid.IntRange(1, a.attempts).Draw(d.rt, "failures")
	if len(d.retries) > 0 && !d.oneIn(4, "in every round") {
		n := rapid.IntRange(0, len(d.retries)-1).Draw(d.rt, "retry that counts")
		a.level, a.bad = n, rapid.IntRange(1, 2).Draw(d.rt, "bad rounds")
	}
}

func (d *drawing) undoing(a *actor) {
	if !a.undo || !d.oneIn(6, "undo fails") {
		return
	}
	a.undoFlaw = rapid.SampledFrom([]string{"error", "panic", "permanent", "timeout"}).Draw(d.rt, "undo flaw")
	a.undoFails = rapid.IntRange(1, a.attempts).Draw(d.rt, "undo failures")
	d.breaks = d.breaks || a.undoFails >= a.attempts || a.undoFlaw == "permanent" || a.ends && a.undoFlaw == "panic"
}

// actors is the outside world of one flow in one series of runs.
type actors struct {
	mu      sync.Mutex
	journal *journal // of the present run
	plan    *flow.Plan
	event   func() // called when a step begins
	begun   map[string]int
	seen    map[string]bool // executions that have begun: see executionOf
	effects map[string]bool // by step: it has done something that is not undone
	running map[string]int  // by key
	omits   bool            // some failure is ignored without a default: steps can lack a value
	early   map[string]bool // steps that may begin before their mark
	faults  []error

	waits   map[string]*drawnWait   // by step
	series  int                     // the number of the present series: messages of earlier ones are not given
	signals chan engine.TakenSignal // of the present run; nil: none
	hurry   chan struct{}           // a wait has taken a signal

	ranAhead atomic.Bool // some step that is repeatable
}

// drawnAtOnce is the limit of parallel steps of one key.
const drawnAtOnce = 1

func (w *actors) fault(format string, arguments ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Errorf(format, arguments...))
}

// firstSteps are the steps that may begin before their mark is durable, if the claim replaces
// it.
func firstSteps(plan *flow.Plan) map[string]bool {
	first := make(map[string]bool)
	for number, step := range plan.Steps() {
		if len(plan.Previous(number)) == 0 && step.Kind() == logbook.KindTask && !step.AtMostOnce() {
			first[step.Name()] = true
		}
	}
	return first
}

// mayBeUnmarked reports whether a step may begin without a mark in the record, because no earlier owner has begun: the
// record is empty, or the step follows a wait that a signal has ended, and this owner has recorded nothing.
func mayBeUnmarked(plan *flow.Plan, detail *logbook.FlowDetail, early map[string]bool, call *flow.Call) bool {
	if call.Action != logbook.ActionExecute || call.Attempt != 1 || early == nil || !detail.Begun.IsZero() {
		return false
	}
	return detail.Sequence == 0 && early[call.Step] || detail.Fence != call.Token && followsEndedWait(plan, detail, call.Step)
}

func followsEndedWait(plan *flow.Plan, detail *logbook.FlowDetail, step string) bool {
	number, found := plan.Find(step)
	if !found || plan.Step(number).AtMostOnce() {
		return false
	}
	return slices.ContainsFunc(plan.Predecessors(number), func(before int) bool {
		atom, recorded := detail.Atom(plan.Step(before).Name())
		return recorded && atom.OpenWait() != nil && atom.OpenWait().Signal != nil
	})
}

// actor is a step with drawn behaviour.
type actor struct {
	world    *actors
	name     string
	values   []string // of the retries around it
	given    []string // values that it may get from other steps
	also     string   // another symbol of its result, for a join
	from     string   // the step that supplies the value of its join; empty: none
	attempts int
	ends     bool // a panic is not tried again
	once     bool
	ignored  bool // its failure
	undo     bool
	asks     int // so often it says "not yet", before anything else
	key      string
	says     bool // how far it is

	repeatable bool

	flaw       string
	fails      int // number of recorded failures in a round
	level, bad int // number of rounds of the retry of that level; 0: all

	undoFlaw  string
	undoFails int
}

func (a *actor) String() string {
	text := fmt.Sprintf("%s: tried %d times", a.name, a.attempts)
	if a.once {
		text += ", at most once"
	}
	if a.ignored {
		text += ", its failure is ignored"
	}
	if a.asks > 0 {
		text += fmt.Sprintf(", says \"not yet\" %d times", a.asks)
	}
	if a.flaw != "" {
		text += fmt.Sprintf(", fails %d times (%s)", a.fails, a.flaw)
	}
	if a.bad > 0 {
		text += fmt.Sprintf(" in the first %d rounds of %s", a.bad, a.values[a.level])
	}
	if a.undoFlaw != "" {
		text += fmt.Sprintf(", its undo fails %d times (%s)", a.undoFails, a.undoFlaw)
	}
	return text
}

// begin notes a call, holds it against the record, and gives the atom as it
// is recorded: the mark is durable before a call, and everything before it.
func (a *actor) begin(call *flow.Call, want logbook.AtomState) *logbook.AtomDetail {
	w := a.world
	detail := w.journal.snapshot()
	atom, ok := detail.Atom(call.Step)
	switch unmarked := mayBeUnmarked(grown(w.plan, &detail), &detail, w.early, call); {
	case ok:
		last, _ := atom.Last(call.Action)
		if atom.State != want || last == nil || last.Ended() || last.Number != call.Attempt {
			w.fault("%s %d of step %s is called while it is recorded as %s", call.Action, call.Attempt, call.Step, dump(detail))
		}
	case unmarked:
		atom = &logbook.AtomDetail{}
	case a.repeatable && call.Attempt == 1:
		w.ranAhead.Store(true)
		atom = &logbook.AtomDetail{}
	default:
		w.fault("step %s is called, and the record does not know of it", call.Step)
		return &logbook.AtomDetail{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if call.Action == logbook.ActionExecute {
		w.begun[call.Step]++
		w.seen[executionOf(call.Step, call.Attempt)] = true
		w.effects[call.Step] = a.undo
	} else if neverBegan(atom, w.seen) {
		w.faults = append(w.faults, fmt.Errorf("step %s is reverted, and no execution of it has begun:\n%s", call.Step, dump(detail)))
	}
	if a.once && w.begun[call.Step] > 1 {
		w.faults = append(w.faults, fmt.Errorf("step %s is at most once, and has begun %d times", call.Step, w.begun[call.Step]))
	}
	if a.key != "" {
		if w.running[a.key]++; w.running[a.key] > drawnAtOnce {
			w.faults = append(w.faults, fmt.Errorf("%d steps run at once under the key %s", w.running[a.key], a.key))
		}
	}
	return atom
}

// lacks reports whether the record shows no result of a step, in some element of an each, because its failure is
// ignored there.
func (w *actors) lacks(step string) bool {
	detail := w.journal.snapshot()
	return slices.ContainsFunc(detail.Atoms, func(atom logbook.AtomDetail) bool {
		_, has := atom.Result()
		name, _, _ := strings.Cut(atom.Name, "[")
		return name == step && atom.FailureIgnored() && !has
	})
}

// over notes that a call has ended, whichever way.
func (a *actor) over() {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	a.world.running[a.key]--
}

// tell reports progress for long enough to be recorded on the way.
func (a *actor) tell(call *flow.Call) {
	if a.says {
		_ = call.Progress(1, 2, nil)
		<-time.After(1500 * time.Millisecond)
		_ = call.Progress(2, 2, nil)
	}
}

// isOf reports whether a value can be under a symbol: the result of the symbol's step or, if
// an each has gathered it, a list of such results for two or three elements or none.
func isOf(value json.RawMessage, symbol string) bool {
	if symbol[0] != 'g' {
		return strings.HasPrefix(string(value), `"`+symbol[1:]+`@`)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(value, &items); err != nil || len(items) == 1 || len(items) > 3 {
		return false
	}
	return !slices.ContainsFunc(items, func(item json.RawMessage) bool { return string(item) != "null" && !isOf(item, symbol[1:]) })
}

// failuresIn counts the failures of one action in the present round, from the record.
// Interrupted attempts, and attempts that a crash cut off, do not count.
func failuresIn(atom *logbook.AtomDetail, action logbook.Action) (count int) {
	for i := range atom.Attempts {
		attempt := &atom.Attempts[i]
		switch {
		case attempt.Action != action:
			count = 0
		case attempt.Ended() && attempt.Failure != nil && attempt.Failure.Kind != logbook.FailureInterrupted:
			count++
		}
	}
	return count
}

// rounds are the numbers of the rounds of the retries around the step.
func (a *actor) rounds(call *flow.Call) []int {
	rounds := make([]int, len(a.values))
	for i, symbol := range a.values {
		var value int
		if err := json.Unmarshal(call.Arguments[symbol], &value); err != nil {
			value = 1
		}
		rounds[i] = max(1, value%100) // the value of a retry that never repeats is null
	}
	return rounds
}

func (a *actor) Execute(ctx context.Context, call *flow.Call) (any, error) {
	atom := a.begin(call, logbook.AtomRunning)
	defer a.over()
	a.world.event()
	a.tell(call)
	for _, symbol := range a.given {
		value, ok := call.Arguments[symbol]
		if symbol[0] == 'j' {
			if ok != (a.from != "") && (ok || !a.world.lacks(a.from)) || ok && !isOf(value, "r"+a.from) {
				a.world.fault("step %s was given %s as %s, and should that of %q", a.name, value, symbol, a.from)
			}
		} else if ok && !isOf(value, symbol) {
			a.world.fault("step %s was given %s as %s", a.name, value, symbol)
		}
	}
	if inner, ok := call.Arguments["inner"]; ok && string(inner) != "102" {
		a.world.fault("step %s was given %s as an inner value", a.name, inner)
	}
	if call.Asked < a.asks {
		return nil, flow.NotYet(flow.MinAsk)
	}
	rounds := a.rounds(call)
	good := map[string]any{"r" + a.name: fmt.Sprintf("%s@%v", a.name, strings.Trim(fmt.Sprint(rounds), "[]"))}
	if a.also != "" {
		good[a.also] = good["r"+a.name]
	}
	if a.flaw == "" || a.bad > 0 && rounds[a.level] > a.bad || failuresIn(atom, logbook.ActionExecute) >= a.fails {
		return good, nil
	}
	return fail(ctx, a.flaw)
}

// fail ends in one of the ways in which a step can fail.
func fail(ctx context.Context, flaw string) (any, error) {
	switch flaw {
	case "permanent":
		return nil, flow.Permanent(errors.New("woot"))
	case "panic":
		panic("aargh")
	case "goexit":
		runtime.Goexit()
	case "timeout":
		<-ctx.Done()
		return nil, ctx.Err()
	case "not JSON":
		return func() {}, nil
	case "too large":
		return strings.Repeat("x", drawnLimits.Value), nil
	case "no object":
		return json.RawMessage("{"), nil
	}
	return nil, errors.New("woot")
}

// undoingActor is an actor whose work can be undone.
type undoingActor struct{ *actor }

func (a *undoingActor) Revert(ctx context.Context, call *flow.Call) error {
	atom := a.begin(call, logbook.AtomReverting)
	defer a.over()
	a.world.event()
	if last, ok := atom.Last(logbook.ActionExecute); ok && (last.Failure == nil && string(last.Result) != string(call.Result) || last.Failure != nil && call.Result != nil) {
		a.world.fault("the revert of step %s was given %s, and %s is recorded", call.Step, call.Result, last.Result)
	}
	if call.Asked < a.asks {
		return flow.NotYet(flow.MinAsk)
	}
	if failuresIn(atom, logbook.ActionRevert) < a.undoFails {
		_, err := fail(ctx, a.undoFlaw)
		return err
	}
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	a.world.effects[call.Step] = false
	return nil
}
