package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/logbook"
)

// TestCrashAtEveryWrite runs generated flows, lets the conductor die before each update in
// turn, and resumes from the record. After every crash, the flow ends as it does without a
// crash, and no step is called against its record.
func TestCrashAtEveryWrite(t *testing.T) {
	longtest.Checks(t, 30)
	synctest.Test(t, func(t *testing.T) { crashAtEveryWrite(timeless{t}) }) // steps wait to be asked again
}

// timeless is a test without a deadline, because deadlines are meaningless in fake time.
type timeless struct{ testing.TB }

func crashAtEveryWrite(t timeless) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{workers: rapid.SampledFrom([]int{1, 3}).Draw(rt, "workers"), begins: rapid.Bool().Draw(rt, "begins")}
		w.pool = rapid.SampledFrom([]*engine.Pool{nil, engine.NewPool(1), engine.NewPool(2)}).Draw(rt, "pool")
		root := w.draw(rt, "root", 3).(*flow.Flow)
		if w.holds = rapid.IntRange(0, 3).Draw(rt, "hold") == 3; w.holds {
			root.OnFailure(flow.HoldOnFailure)
		}
		if w.undoLast = rapid.Bool().Draw(rt, "undo last"); w.undoLast {
			root.OnTakeover(flow.UndoLast)
		}
		plan, err := flow.Compile(root, "input", "none", "two")
		if errors.Is(err, flow.ErrMissing) && strings.Contains(err.Error(), "conditions can leave without a provider") {
			rt.Skip(err)
		}
		if err != nil {
			rt.Fatalf("cannot compile: %v", err)
		}
		if w.plan = w.drawTargets(rt, plan); w.begins {
			w.early = firstSteps(w.plan)
		}
		writes := w.through(rt, -1)
		for _, n := range crashPoints(writes) {
			w.through(rt, n)
			w.undone(rt, n)
		}
		w.stumble(rt)
		w.storm(rt)
	})
}

// crashPoints are the updates at which a flow crashes: each with the long tests, otherwise at most 50, at even distances.
// The time of a flow grows with the square of its updates, and few flows have so many.
func crashPoints(writes int) []int {
	const few = 50
	count := min(writes, longtest.Rounds(few, writes))
	points := make([]int, count)
	for i := range points {
		points[i] = i * writes / count
	}
	return points
}

// world is one generated flow and what its steps find out about each other.
type world struct {
	plan      *flow.Plan
	workers   int
	begins    bool         // the claims stand for the first marks
	pool      *engine.Pool // shared by all runs of the flow, as in a daemon
	count     int
	fails     bool   // some step fails for good, so the flow cannot succeed
	broken    bool   // some revert fails for good, so the flow may end in failure
	once      bool   // some step is at most once: an interruption may make it fail
	decides   bool   // some decider says no: steps that fail may never run
	walled    bool   // some retry undoes the whole flow, so the end may depend on which of two steps fails first
	retried   bool   // some step fails for good in a round that is not the last
	holds     bool   // a failure holds the flow
	points    bool   // some step is a point of no return: a failure may hold the flow
	tolerates bool   // some elements may fail
	selects   bool   // some flow has enough members, so that some failures have no effect
	member    bool   // the drawn step is in a member of such a flow
	undoLast  bool   // a takeover undoes the last finished steps
	values    []int  // of the retries around the node that is drawn: their rounds
	ends      []bool // of these retries: a failure for good ends their rounds

	interrupted bool        // the present series of runs has been, so far
	cancelled   atomic.Bool // and was told to revert
	event       func()

	mu      sync.Mutex
	journal *journal // of the run
	faults  []error
	begun   map[string]int             // by step: its executions, in all runs of the series
	seen    map[string]bool            // executions that have begun: see executionOf
	effects map[string]bool            // by step: it has done something that is not undone
	saved   map[string]map[string]bool // checkpoints by the key of their call: recorded for certain, or perhaps
	early   map[string]bool            // steps that may begin before their mark
}

// fresh begins a series of runs of one flow.
func (w *world) fresh() {
	w.journal, w.interrupted, w.event = newJournal(newDetail()), false, func() {}
	w.cancelled.Store(false)
	w.begun, w.effects, w.seen = make(map[string]int), make(map[string]bool), make(map[string]bool)
	w.saved = make(map[string]map[string]bool)
}

// draw makes a flow of up to three levels.
func (w *world) draw(rt *rapid.T, name string, depth int) flow.Node {
	if depth == 0 || w.count > 14 || rapid.IntRange(0, 2).Draw(rt, "leaf") == 0 && name != "root" {
		return w.drawStep(rt)
	}
	under, leave := w.drawRetry(rt, name)
	defer leave()
	if rapid.IntRange(0, 5).Draw(rt, "enough") == 5 {
		return under(w.drawEnough(rt, name))
	}
	children := make([]flow.Node, rapid.IntRange(0, 4).Draw(rt, "children"))
	for i := range children {
		children[i] = w.draw(rt, fmt.Sprintf("%s.%d", name, i), depth-1)
	}
	switch rapid.SampledFrom([]string{"linear", "unordered", "graph", "each"}).Draw(rt, "pattern") {
	case "each":
		return under(w.drawEach(rt, name, children))
	case "linear":
		return under(flow.Linear(name, children...))
	case "unordered":
		return under(flow.Unordered(name, children...))
	}
	graph := under(flow.Graph(name, children...))
	if rapid.IntRange(0, 3).Draw(rt, "join") == 0 {
		w.drawJoin(rt, name, graph)
	}
	for i := range children {
		for j := range i {
			if rapid.Bool().Draw(rt, "link") {
				graph.Link(children[j].Name(), children[i].Name(), w.drawDecider(rt, children[i])...)
			}
		}
		w.drawQuestion(rt, graph, children[:i], children[i])
	}
	return graph
}

// drawEnough makes a flow with Enough: some of its members must succeed.
func (w *world) drawEnough(rt *rapid.T, name string) *flow.Flow {
	w.selects, w.member, w.tolerates, w.decides = true, true, true, true
	defer func() { w.member = false }()
	if rapid.IntRange(0, 2).Draw(rt, "first elements") == 2 {
		body := flow.Linear(name+".body", w.drawStep(rt), w.drawStep(rt))
		f := flow.Each("each-"+name, "two", "x", body, flow.AtOnce(rapid.IntRange(1, 2).Draw(rt, "at once"))).Enough(rapid.IntRange(1, 2).Draw(rt, "of elements"))
		return f
	}
	f := flow.Unordered(name)
	for i := range rapid.IntRange(2, 3).Draw(rt, "members") {
		member := fmt.Sprintf("%s.%d", name, i)
		switch rapid.SampledFrom([]string{"step", "linear", "unordered", "each"}).Draw(rt, "member") {
		case "step":
			f.Add(w.drawStep(rt))
		case "linear":
			f.Add(flow.Linear(member, w.drawStep(rt), w.drawStep(rt)))
		case "unordered":
			f.Add(flow.Unordered(member, w.drawStep(rt), w.drawStep(rt)))
		default:
			f.Add(w.drawEach(rt, member, []flow.Node{w.drawStep(rt)}))
		}
	}
	return f.Enough(rapid.IntRange(1, len(f.Children())).Draw(rt, "needed"))
}

// drawJoin adds two alternative providers of a value, and a step that requires the value.
func (w *world) drawJoin(rt *rapid.T, name string, graph *flow.Flow) {
	w.decides = true
	way, first := w.drawStep(rt), rapid.Bool().Draw(rt, "first way")
	graph.Add(way)
	for i := range 2 {
		to := w.drawStep(rt, flow.Provides("j"+name))
		graph.Add(to).Link(way.Name(), to.Name(), flow.Reaching(flow.Depth(rapid.IntRange(0, 3).Draw(rt, "depth"))),
			flow.Decide("taken", func(logbook.Values) (bool, error) { return first == (i == 0), nil }))
	}
	graph.Add(w.drawStep(rt, flow.Requires("j"+name)))
}

// drawEach runs its children for a list of the store, or for a list of a step. The step's list
// has another length in another round of the outer retry.
func (w *world) drawEach(rt *rapid.T, name string, children []flow.Node) *flow.Flow {
	w.decides = true // a list may have no elements, so that steps which fail never run
	var options []flow.EachOption
	if n := rapid.IntRange(0, 2).Draw(rt, "at once"); n > 0 {
		options = append(options, flow.AtOnce(n))
	}
	if !w.tolerates && !w.points && rapid.Bool().Draw(rt, "elements may fail") {
		w.tolerates = true
		options = append(options, flow.MaxFailures(rapid.IntRange(0, 2).Draw(rt, "most failures")))
	}
	over := rapid.SampledFrom([]string{"none", "two", "given", "given"}).Draw(rt, "over")
	var before []flow.Node
	if over == "given" {
		lister := w.drawStep(rt)
		before, over = append(before, lister), "r"+lister.Name()
	}
	each := flow.Each("each-"+name, over, "x", flow.Linear(name+".body", children...), options...)
	return flow.Linear(name, append(before, each)...)
}

// grown is the plan according to the record of a flow.
func grown(plan *flow.Plan, detail *logbook.FlowDetail) *flow.Plan {
	elements := make(map[string]int)
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		last, ok := atom.Last(logbook.ActionExecute)
		if atom.Kind != logbook.KindEach || !ok || last.Result == nil || atom.State == logbook.AtomPending {
			continue
		}
		var list []json.RawMessage
		if err := json.Unmarshal(last.Result, &list); err != nil {
			panic(err)
		}
		elements[atom.Name] = len(list)
	}
	plan, err := plan.Grown(elements)
	if err != nil {
		panic(err)
	}
	return plan
}

// drawTargets runs some flows for a few target steps only. Failing steps may be among the
// excluded ones.
func (w *world) drawTargets(rt *rapid.T, plan *flow.Plan) *flow.Plan {
	if plan.Len() == 0 || rapid.IntRange(0, 4).Draw(rt, "targeted") > 0 {
		return plan
	}
	var targets []string
	for range rapid.IntRange(1, 3).Draw(rt, "targets") {
		targets = append(targets, plan.Step(rapid.IntRange(0, plan.Len()-1).Draw(rt, "target")).Name())
	}
	targeted, err := plan.Targeted(targets...)
	if err != nil {
		rt.Fatalf("cannot compile for %v: %v", targets, err)
	}
	w.decides = true
	return targeted
}

// drawDecider puts deciders on some links to nodes that hold steps.
func (w *world) drawDecider(rt *rapid.T, to flow.Node) []flow.LinkOption {
	if !holdsSteps(to) || rapid.IntRange(0, 3).Draw(rt, "decider") > 0 {
		return nil
	}
	answer := rapid.Bool().Draw(rt, "answer")
	w.decides = w.decides || !answer
	depth := flow.Depth(rapid.IntRange(0, 3).Draw(rt, "depth"))
	return []flow.LinkOption{flow.Reaching(depth), flow.Decide("d", func(logbook.Values) (bool, error) { return answer, nil })}
}

// drawQuestion puts a question about values, and perhaps about an earlier child, before some nodes.
func (w *world) drawQuestion(rt *rapid.T, graph *flow.Flow, earlier []flow.Node, to flow.Node) {
	if !holdsSteps(to) || rapid.IntRange(0, 5).Draw(rt, "question") > 0 {
		return
	}
	answer := rapid.Bool().Draw(rt, "answer")
	w.decides = w.decides || !answer
	question := flow.Question{Name: "q", Depth: flow.Depth(rapid.IntRange(0, 3).Draw(rt, "depth")), Values: []string{"input"}, Optional: []string{"nowhere"},
		Decide: func(found flow.Found) (bool, error) {
			if len(found.Values["input"]) == 0 {
				return false, errors.New("the question was asked without its value")
			}
			return answer, nil
		}}
	if slices.ContainsFunc(earlier, func(node flow.Node) bool { return node.Name() == "s1" }) {
		question.Optional = append(question.Optional, "rs1.1")
	}
	if len(earlier) > 0 && rapid.Bool().Draw(rt, "of a child") {
		question.Steps = []string{earlier[0].Name()}
	}
	graph.Ask(to.Name(), question)
}

func holdsSteps(node flow.Node) bool {
	f, ok := node.(*flow.Flow)
	return !ok || f.Retrier() != nil || slices.ContainsFunc(f.Children(), holdsSteps)
}

// drawRetry puts some flows under a retry, and passes the name of its value to the steps: the
// number of the round, or that number plus 100.
func (w *world) drawRetry(rt *rapid.T, name string) (under func(*flow.Flow) *flow.Flow, leave func()) {
	kind := rapid.SampledFrom([]string{"none", "none", "none", "times", "each", "revert", "wall"}).Draw(rt, "retry")
	if kind == "none" {
		return func(f *flow.Flow) *flow.Flow { return f }, func() {}
	}
	rounds := rapid.IntRange(1, 3).Draw(rt, "rounds")
	options := []flow.RetryOption{flow.Provides(fmt.Sprintf("v%d", len(w.values)))}
	if rapid.Bool().Draw(rt, "pause") {
		options = append(options, flow.Pause(flow.Backoff{Delay: time.Microsecond, JitterPercent: 50}))
	}
	ends := rapid.Bool().Draw(rt, "ends at a failure for good")
	if options = append(options, flow.RetryPermanent()); ends {
		w.walled = true
		selects := rapid.SampledFrom([]flow.RetryOption{flow.RetryNever("spoilt"), flow.RetryOnly("error")}).Draw(rt, "selects")
		options[len(options)-1] = selects
	}
	retry := "retry-" + name
	var r *flow.Retrier
	switch kind {
	case "times":
		r = flow.Times(retry, rounds, options...)
	case "each":
		r = flow.ForEach(retry, []int{101, 102, 103}[:rounds], options...)
	case "revert":
		rounds, r = 1, flow.AlwaysRevert(retry, options[0])
	default:
		w.walled = true
		rounds, r = 1, flow.AlwaysRevertAll(retry, options[0])
	}
	w.values, w.ends = append(w.values, rounds), append(w.ends, ends)
	return func(f *flow.Flow) *flow.Flow { return f.WithRetry(r) }, func() {
		w.values, w.ends = w.values[:len(w.values)-1], w.ends[:len(w.ends)-1]
	}
}

// always is how many attempts fail of a step that never succeeds. Where each owner undoes the
// last steps, and dies, the attempts of one step are hundreds.
const always = math.MaxInt

func (w *world) drawStep(rt *rapid.T, options ...flow.StepOption) *flow.Step {
	w.count++
	task := &drawnTask{world: w, name: fmt.Sprintf("s%d", w.count)}
	attempts := 3
	ignored := rapid.IntRange(0, 4).Draw(rt, "ignored") == 0 && !w.member
	if ignored {
		w.decides = true // an each whose list it gives is left out, with steps that fail
		def := rapid.SampledFrom([][]any{nil, {[]int{}}, {[]int{1, 2}}}).Draw(rt, "default")
		options = append(options, flow.IgnoreFailure(def...))
	}
	if n := len(w.values); n > 0 {
		// It fails permanently in a number of rounds of the outer retry.
		task.rounds = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(rt, "rounds that fail")
		task.value = fmt.Sprintf("v%d", n-1)
		task.spoilt = rapid.Bool().Draw(rt, "spoilt")
		options = append(options, flow.RetryNever("spoilt"))
		w.fails = w.fails || !ignored && (task.rounds >= w.values[n-1] || w.ends[n-1] && task.rounds > 0)
		w.retried = w.retried || task.rounds > 0 && !ignored
		options = append(options, flow.Requires(task.value))
	} else if rapid.IntRange(0, 5).Draw(rt, "once") == 0 {
		task.once, w.once, attempts = true, w.once || !ignored, 1
		options = append(options, flow.AtMostOnce())
	} else if rapid.IntRange(0, 2).Draw(rt, "repeatable") == 0 && !w.member {
		task.repeatable, attempts = true, 1
		options = append(options, flow.Repeatable())
	}
	if !task.repeatable && !ignored && !w.member && rapid.IntRange(0, 7).Draw(rt, "point of no return") == 7 {
		w.points = true
		options = append(options, flow.PointOfNoReturn())
	}
	if !task.once {
		task.asks = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(rt, "asks")
	}
	task.saves = rapid.IntRange(0, 2).Draw(rt, "saves") == 0
	task.says = rapid.IntRange(0, 3).Draw(rt, "says") == 0
	if rapid.IntRange(0, 2).Draw(rt, "key") == 0 {
		options = append(options, flow.Concurrency("k-{input}", rapid.IntRange(1, 2).Draw(rt, "at once")))
	}
	task.undoAsks = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(rt, "undo asks")
	task.length = rapid.IntRange(0, 3).Draw(rt, "length")
	task.fail = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2, always}).Draw(rt, "fail")
	if task.repeatable && task.fail > 0 {
		task.fail = always // or an execution after a crash would succeed
	}
	task.undoFail = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2, always}).Draw(rt, "undo fail")
	w.fails = w.fails || task.fail >= attempts && !ignored
	if w.count > 1 && rapid.IntRange(0, 3).Draw(rt, "inner value") == 0 { // the list is shorter in another round
		options = append(options, flow.Optional("inner"), flow.Rebind(map[string]string{"inner": "rs1.1"}))
	}
	options = append(options, flow.Provides("r"+task.name), flow.Requires("input"),
		flow.Retry(flow.Backoff{Attempts: attempts, Delay: time.Duration(rapid.IntRange(0, 1).Draw(rt, "delay")) * time.Microsecond}))
	if task.repeatable || rapid.IntRange(0, 3).Draw(rt, "no undo") == 0 {
		return flow.NewStep(task.name, task, options...)
	}
	w.broken = w.broken || task.undoFail >= attempts
	task.undo = true
	return flow.NewStep(task.name, &drawnUndoable{task}, options...)
}

// through runs the flow to its end, with a crash before update n (negative:
// none), checks that end, and counts the updates.
func (w *world) through(rt *rapid.T, n int) int {
	w.fresh()
	w.journal.left = n
	if n >= 0 {
		w.interrupted = true
		// Outcomes share updates by chance: a run may need fewer updates than the counted run,
		// and end before the crash.
		if end, err := w.run(1); err == nil {
			w.check(rt, end)
			return len(w.journal.trace())
		} else if !errors.Is(err, errCrash) {
			rt.Fatalf("the crash before update %d ended in %v", n, err)
		}
		w.vanished(1)
	}
	end, err := w.run(2)
	if err != nil {
		rt.Fatalf("after a crash before update %d: %v\n%s%s", n, err, w.plan.Outline(), dump(w.journal.snapshot()))
	}
	if n < 0 && w.decides {
		w.fails = end.State != logbook.FlowSuccess // which the run without a crash is to tell
	}
	w.check(rt, end)
	return len(w.journal.trace())
}

// vanished has the board end a claim whose owner has said nothing of it.
func (w *world) vanished(claim uint64) {
	w.journal = w.journal.next(w.journal.lost(logbook.Token{Index: claim}, w.begins))
}

// undone crashes before update n, and then cancels the flow: whatever had been
// done by then, recorded or not, is undone.
func (w *world) undone(rt *rapid.T, n int) {
	w.fresh()
	w.journal.left, w.interrupted = n, true
	if end, err := w.run(1); err == nil {
		w.check(rt, end)
		return
	}
	w.vanished(1)
	w.cancelled.Store(true)
	o, cancel := w.options(2), make(chan struct{})
	close(cancel)
	o.Revert = cancel
	end, err := w.runWith(o)
	if err != nil {
		rt.Fatalf("cancelled after a crash before update %d: %v\n%s%s", n, err, w.plan.Outline(), dump(w.journal.snapshot()))
	}
	w.check(rt, end)
}

// stumble crashes after each 4 to 6 updates, and later after more. Steps in parallel, with checkpoints and progress, need
// more updates than one step before the first of them ends.
func (w *world) stumble(rt *rapid.T) {
	const rounds = 300
	every := rapid.IntRange(4, 6).Draw(rt, "updates before each crash")
	w.fresh()
	w.interrupted = true
	for claim := range uint64(rounds) {
		w.journal.left = every + int(claim)/8
		end, err := w.run(claim + 1)
		if err == nil {
			w.check(rt, end)
			return
		}
		if !errors.Is(err, errCrash) {
			rt.Fatalf("in claim %d: %v", claim, err)
		}
		w.vanished(claim + 1)
	}
	rt.Fatalf("no end after %d crashes\n%s%s", rounds, w.plan.Outline(), dump(w.journal.snapshot()))
}

func (w *world) run(claim uint64) (engine.End, error) { return w.runWith(w.options(claim)) }

func (w *world) runWith(o engine.Options) (engine.End, error) {
	end, err := engine.Run(context.Background(), o)
	if err == nil && end.Update != nil {
		err = w.journal.apply(*end.Update)
	}
	return end, err
}

func (w *world) options(claim uint64) engine.Options {
	return engine.Options{Plan: w.plan, Detail: w.journal.folded(few), Journal: w.journal, Checkpoints: w.journal.checkpoints,
		Store: logbook.Values{"input": json.RawMessage("1"), "none": json.RawMessage("[]"), "two": json.RawMessage("[7, 8]")}, Token: logbook.Token{Index: claim}, Begins: w.begins, Workers: w.workers, Pool: w.pool}
}

// storm injects every fault that a run can meet. The journal acknowledges late, with several
// updates in flight, and refuses updates from some point on. The claim is lost, the flow is
// suspended, and the gate closes, each at any moment.
func (w *world) storm(rt *rapid.T) {
	const (
		rounds = 40 // with trouble; then one without
		most   = 12 // moments until it strikes
	)
	w.fresh()
	w.interrupted = true
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "storm"), 0))
	for round := range uint64(rounds + 1) {
		strike := func() int64 {
			if round < rounds && random.IntN(2) == 0 {
				return 1 + random.Int64N(most)
			}
			return -1
		}
		cancel := int64(-1)
		if random.IntN(8) == 0 {
			cancel = strike()
		}
		end, err := w.weather(round+1, int(strike()), strike(), strike(), strike(), cancel, random.IntN(4))
		unrecorded := errors.Is(err, errCrash) || end.Unrecorded // who lives says so
		for _, expected := range []error{errCrash, errLost, engine.ErrGate} {
			if errors.Is(err, expected) {
				err, end.State = nil, logbook.FlowSuspended
			}
		}
		if err != nil {
			rt.Fatalf("in round %d: %v", round, err)
		}
		if end.State != logbook.FlowSuspended {
			w.check(rt, end)
			return
		}
		w.journal = w.journal.next(w.journal.lost(logbook.Token{Index: round + 1}, w.begins && unrecorded))
	}
	rt.Fatalf("no end after %d rounds", rounds)
}

var errLost = errors.New("the claim is lost")

// weather is one claim in a storm. Updates that are on their way when it ends
// badly may still arrive, in their order: some of them do.
func (w *world) weather(claim uint64, crash int, lose, suspend, gate, revert int64, arrive int) (engine.End, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	late := newLateJournal(w.journal, w)
	w.journal.left = crash
	o := w.options(claim)
	o.Journal = late
	suspended, reverted := make(chan struct{}), make(chan struct{})
	interrupt := make(chan time.Duration, 2)
	o.Suspend, o.Revert, o.Interrupt = suspended, reverted, interrupt
	var moments, gates atomic.Int64
	w.event = func() {
		moment := moments.Add(1)
		if moment == revert {
			w.cancelled.Store(true)
			close(reverted)
			interrupt <- 0
		}
		switch moment {
		case lose:
			cancel(errLost)
		case suspend:
			close(suspended)
			interrupt <- 0
		}
	}
	if lose == suspend {
		suspend = -1
	}
	o.Gate = func(ctx context.Context) error {
		if gates.Add(1) == gate {
			return errLost
		}
		return ctx.Err()
	}
	end, err := engine.Run(ctx, o)
	if err != nil {
		w.journal.allow(arrive)
	}
	late.close()
	if err == nil && end.Update != nil {
		err = w.journal.apply(*end.Update)
	}
	return end, err
}

// lateJournal makes updates durable some time after they were recorded.
type lateJournal struct {
	world   *world
	journal *journal
	queue   chan lateUpdate
	done    chan none // closed when all updates are answered
}

type lateUpdate struct {
	update  logbook.Update
	verdict chan error
}

func newLateJournal(j *journal, w *world) *lateJournal {
	const enough = 1_000 // more than any generated flow has outstanding
	l := &lateJournal{world: w, journal: j, queue: make(chan lateUpdate, enough), done: make(chan none)}
	go func() {
		defer close(l.done)
		for u := range l.queue {
			for range u.update.Sequence % 5 {
				runtime.Gosched()
			}
			u.verdict <- j.apply(u.update)
		}
	}()
	return l
}

func (l *lateJournal) Record(update logbook.Update) <-chan error {
	l.world.event()
	u := lateUpdate{update, make(chan error, 1)}
	l.queue <- u
	return u.verdict
}

func (l *lateJournal) close() {
	close(l.queue)
	<-l.done
}

// skipsEach reports whether an each has no list, because the failure of the step before it was ignored.
func skipsEach(detail logbook.FlowDetail) bool {
	return slices.ContainsFunc(detail.Atoms, func(a logbook.AtomDetail) bool { return a.Kind == logbook.KindEach && a.State == logbook.AtomIgnored })
}

func (w *world) check(rt *rapid.T, end engine.End) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fault := range w.faults {
		rt.Error(fault)
	}
	detail := w.journal.snapshot()
	// Without a wall, another failure leads to the same end. With one, it may lead to a round in which
	// the step that fails under the wall does not run. The steps of a skipped each do not fail.
	either := w.walled && w.decides || skipsEach(detail)
	fails := w.fails || w.once && w.interrupted || w.cancelled.Load() || either
	allowed := map[logbook.FlowState]bool{logbook.FlowSuccess: !w.fails || either, logbook.FlowReverted: fails && (!w.holds || w.cancelled.Load()),
		logbook.FlowFailure: (fails || w.retried || w.undoLast && w.interrupted) && w.broken || fails && w.holds || (fails || w.retried) && w.points}
	if w.selects {
		allowed = map[logbook.FlowState]bool{logbook.FlowSuccess: true, logbook.FlowReverted: !w.holds || w.cancelled.Load(), logbook.FlowFailure: w.broken || w.holds || w.points}
	}
	if !allowed[end.State] || detail.State != end.State {
		rt.Fatalf("the flow ended as %s, and its record says %s:\n%s%s", end.State, detail.State, w.plan.Outline(), dump(detail))
	}
	plan, recorded := grown(w.plan, &detail), 0
	for _, atom := range detail.Atoms {
		if _, present := plan.Find(atom.Name); present {
			recorded++
		} else if setBack(&atom) {
			continue // of an earlier round, in which the list was longer
		}
		want := map[logbook.FlowState]logbook.AtomState{logbook.FlowSuccess: logbook.AtomSuccess, logbook.FlowReverted: logbook.AtomReverted}
		if state, ok := want[end.State]; ok && atom.State != state && atom.State != logbook.AtomIgnored && !(end.State == logbook.FlowSuccess && (atom.FailureIgnored() || isDropped(&atom))) &&
			!(end.State == logbook.FlowReverted && setBack(&atom)) {
			rt.Errorf("step %s is %s in a flow that is %s", atom.Name, atom.State, end.State)
		}
	}
	if end.State == logbook.FlowSuccess {
		enoughSucceeded(rt, plan, &detail)
	}
	if end.State == logbook.FlowSuccess && recorded != plan.Len() {
		rt.Errorf("%d of %d steps were recorded", recorded, plan.Len())
	}
	for step, done := range w.effects {
		_, present := plan.Find(step)                                                                                         // or it was undone with an earlier round
		if atom, _ := detail.Atom(step); atom != nil && (isDropped(atom) || w.selects && atom.State == logbook.AtomIgnored) { // ignored: it ran in an earlier round
			present = false
		}
		if end.State == logbook.FlowReverted && done || end.State == logbook.FlowSuccess && done != present {
			rt.Errorf("the effect of step %s stands: %v, in a flow that is %s", step, done, end.State)
		}
	}
}

// isDropped reports whether a step is undone because enough other members have succeeded.
func isDropped(atom *logbook.AtomDetail) bool {
	return atom.State == logbook.AtomReverted && atom.Intention == logbook.IntendDrop
}

// enoughSucceeded holds of every group in a flow that has succeeded: exactly enough members count, unless a
// condition has left out the whole group.
func enoughSucceeded(rt *rapid.T, plan *flow.Plan, detail *logbook.FlowDetail) {
	for _, group := range plan.Groups() {
		succeeded, runs := 0, false
		for _, member := range plan.TolerantElements()[group.First:group.End] {
			counts, ran := true, false
			for step := member.Bounds.Retry; step < member.Bounds.End; step++ {
				atom, found := detail.Atom(plan.Step(step).Name())
				counts = counts && found && (atom.State == logbook.AtomSuccess || atom.State == logbook.AtomIgnored)
				ran = ran || found && atom.State != logbook.AtomIgnored
			}
			if runs = runs || ran; counts && ran {
				succeeded++
			}
		}
		if group.Enough > 0 && runs && succeeded != group.Enough {
			rt.Errorf("%d members of %s have succeeded, and %d count:\n%s", succeeded, group.Name, group.Enough, dump(*detail))
		}
	}
}

// setBack reports whether a retry has set a step back, and it was not begun again.
func setBack(atom *logbook.AtomDetail) bool {
	n := len(atom.Attempts)
	return atom.State == logbook.AtomPending && (n == 0 || atom.Attempts[n-1].Action == logbook.ActionRevert)
}

// executionOf names an execution that a world has seen.
func executionOf(step string, number int) string { return fmt.Sprintf("%s/%d", step, number) }

// neverBegan reports whether the round that a revert undoes had no execution: the record has an end for
// each execution of earlier rounds, and the world saw none in this round. An execution that a crash cut
// off has no recorded end, or is at most once. If attempts are folded, the conductor does not know.
func neverBegan(atom *logbook.AtomDetail, seen map[string]bool) bool {
	executions := 0
	for i := len(atom.Attempts) - 1; i >= 0; i-- {
		attempt := &atom.Attempts[i]
		if attempt.Action == logbook.ActionReset || attempt.Action == logbook.ActionRevert && executions > 0 {
			break
		}
		if attempt.Action == logbook.ActionRevert {
			continue
		}
		if !attempt.Ended() || seen[executionOf(atom.Name, attempt.Number)] || attempt.Failure != nil && attempt.Failure.Kind == logbook.FailureAtMostOnce {
			return false
		}
		executions++
	}
	return executions > 0 && len(atom.Attempts) <= few
}

// allow holds a call against the record: marks are durable before steps start,
// so the record knows of it, also if the conductor has died since.
func (w *world) allow(call *flow.Call) {
	detail := w.journal.snapshot()
	plan := grown(w.plan, &detail)
	state := func(step int) logbook.AtomState {
		if atom, ok := detail.Atom(plan.Step(step).Name()); ok && (len(atom.Attempts) > 0 && !setBack(atom) || atom.State == logbook.AtomIgnored) {
			return atom.State
		}
		return ""
	}
	ignores := func(step int) bool {
		atom, ok := detail.Atom(plan.Step(step).Name())
		return ok && (atom.FailureIgnored() || isDropped(atom))
	}
	if call.Action == logbook.ActionRevert {
		w.mu.Lock()
		if atom, ok := detail.Atom(call.Step); ok && neverBegan(atom, w.seen) {
			w.faults = append(w.faults, fmt.Errorf("step %s is reverted, and no execution of it has begun:\n%s", call.Step, dump(detail)))
		}
		w.mu.Unlock()
	}
	number, found := plan.Find(call.Step)
	if step, ok := plan.Instantiated(call.Step); !found && ok && step.Repeatable() && call.Attempt == 1 {
		return // its each runs ahead too
	}
	var faults []error
	if call.Action == logbook.ActionExecute {
		own := state(number)
		if own == "" && call.Attempt == 1 && plan.Step(number).Repeatable() {
			return // it runs ahead of all that led to it
		}
		if own != logbook.AtomRunning && (own != "" || !mayBeUnmarked(plan, &detail, w.early, call)) {
			faults = append(faults, fmt.Errorf("step %s is executed while it is %s", call.Step, own))
		}
		for _, step := range plan.Predecessors(number) {
			if before := state(step); before != logbook.AtomSuccess && before != logbook.AtomReverting && before != logbook.AtomIgnored && !ignores(step) {
				faults = append(faults, fmt.Errorf("step %s is executed while %s is %s", call.Step, plan.Step(step).Name(), before))
			}
		}
	} else {
		behind := plan.Successors(number)
		for len(behind) > 0 {
			step := behind[0]
			behind = behind[1:]
			if after := state(step); after == logbook.AtomIgnored {
				behind = append(behind, plan.Successors(step)...)
			} else if after != "" && after != logbook.AtomReverted {
				faults = append(faults, fmt.Errorf("step %s is reverted while %s is %s", call.Step, plan.Step(step).Name(), after))
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, faults...)
}

type drawnTask struct {
	world          *world
	name           string
	fail, undoFail int
	asks, undoAsks int
	says           bool // progress, for long enough to be recorded on the way
	saves          bool // checkpoints
	once, undo     bool
	repeatable     bool
	rounds         int
	spoilt         bool   // its failures in these rounds have a kind that is not tried again; else they are permanent
	length         int    // of its list, with that of the round
	value          string // the name of the retry's, under which it stands
}

// began notes the effect of an execution in the world before the execution ends.
func (d *drawnTask) began(call *flow.Call) {
	w, step := d.world, call.Step
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[executionOf(step, call.Attempt)] = true
	if w.begun[step]++; d.once && w.begun[step] > 1 {
		w.faults = append(w.faults, fmt.Errorf("step %s has begun %d times", step, w.begun[step]))
	}
	if d.undo {
		w.effects[step] = true
	}
}

func (d *drawnTask) undone(step string) {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	d.world.effects[step] = false
}

// save checks the checkpoints of the round, and records one more.
func (d *drawnTask) save(ctx context.Context, call *flow.Call) {
	w, name := d.world, fmt.Sprintf("%d.%d", call.Attempt, call.Asked)
	found := call.Checkpoints()
	w.mu.Lock()
	saved := w.saved[call.Key()]
	if saved == nil {
		saved = make(map[string]bool)
		w.saved[call.Key()] = saved
	}
	for earlier, certain := range saved {
		if _, ok := found[earlier]; certain && !ok {
			w.faults = append(w.faults, fmt.Errorf("attempt %s of %s has lost the checkpoint %s", name, call.Key(), earlier))
		}
	}
	for earlier := range found {
		if _, known := saved[earlier]; !known {
			w.faults = append(w.faults, fmt.Errorf("attempt %s of %s has the checkpoint %s of another round", name, call.Key(), earlier))
		}
	}
	if _, known := saved[name]; !known {
		saved[name] = false
	}
	w.mu.Unlock()
	if err := call.Checkpoint(ctx, name, call.Attempt); err == nil {
		w.mu.Lock()
		saved[name] = true
		w.mu.Unlock()
	}
}

func (d *drawnTask) Execute(ctx context.Context, call *flow.Call) (any, error) {
	d.world.allow(call)
	d.began(call)
	d.world.event()
	if d.saves {
		d.save(ctx, call)
	}
	if d.says {
		_ = call.Progress(int64(call.Asked), 0, nil)
		<-time.After(1500 * time.Millisecond)
	}
	if call.Asked < d.asks {
		return nil, flow.NotYet(flow.MinAsk, call.Asked)
	}
	if d.rounds > 0 && d.round(call) <= d.rounds {
		if d.spoilt {
			return nil, flow.Fail("spoilt", errors.New("not in this round"))
		}
		return nil, flow.Permanent(errors.New("not in this round"))
	}
	if call.Attempt <= d.fail {
		return nil, errors.New("woot")
	}
	// It is a list besides, for an each: longer or shorter in another round.
	return []int{1, 2, 3}[:(d.round(call)+d.length)%4], nil
}

// round is the number of the round, from the value of the retry. A retry that never repeats
// has the value null.
func (d *drawnTask) round(call *flow.Call) int {
	if d.value == "" {
		return 1
	}
	var value int
	if err := json.Unmarshal(call.Arguments[d.value], &value); err != nil {
		return 1
	}
	return max(1, value%100)
}

type drawnUndoable struct{ *drawnTask }

func (d *drawnUndoable) Revert(_ context.Context, call *flow.Call) error {
	d.world.allow(call)
	d.world.event()
	if call.Asked < d.undoAsks {
		return flow.NotYet(flow.MinAsk)
	}
	if call.Attempt <= d.undoFail {
		return errors.New("nasty")
	}
	d.undone(call.Step)
	return nil
}

// dump is what became of each step, for a person who looks for the reason.
func dump(d logbook.FlowDetail) (text string) {
	for _, a := range d.Atoms {
		text += fmt.Sprintf("%s %s", a.Name, a.State)
		for _, t := range a.Attempts {
			text += fmt.Sprintf(" %s%d", t.Action[:1], t.Number)
			if t.Failure != nil {
				text += "-" + t.Failure.Message
			}
		}
		text += "\n"
	}
	return text
}
