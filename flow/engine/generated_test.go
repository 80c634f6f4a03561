package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/logbook"
)

const (
	// generatedParts is how often rapid's number of flows is drawn when all tests run: 500 in
	// all, with its default. -rapid.checks=10000 looks longer.
	generatedParts = 5
	// maxReleases is more often than any drawn flow has to wait.
	maxReleases = 500
	// countedFlows is the least number of flows for which the census is
	// checked.
	countedFlows = 500
)

// TestGeneratedFlows draws flows from all parts that a flow can have. The conductor of each
// flow dies before every update in turn, and so does the next conductor. The flows are also
// suspended and cancelled. In all cases,
//
//   - the flow comes to the end that it has undisturbed: its state, that of
//     each step, and the results. Where steps run beside each other, what
//     comes first may decide what a failure leads to: such flows come to an end;
//   - no step whose result was recorded is executed again in its round, none
//     that is at most once a second time;
//   - steps begin behind those that they wait for, and are undone in front of
//     them, each once;
//   - every change of state is one that there is, and nothing is left running.
//
// A census counts the cases that occurred; too few of one kind are a fault.
func TestGeneratedFlows(t *testing.T) {
	longtest.Checks(t, 40)
	seen := &census{counts: make(map[string]int)}
	for part := range longtest.Rounds(1, generatedParts) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				drawn := drawCase(rt)
				inFakeTime(t, func() { seen.add(drawn.explore(rt)) })
			})
		})
	}
	if !t.Failed() {
		seen.check(t)
	}
}

// inFakeTime makes the waiting hours of flows pass at once. A panic with which rapid ends a
// flow must be raised again outside.
func inFakeTime(t *testing.T, f func()) {
	var thrown any
	synctest.Test(t, func(*testing.T) {
		defer func() { thrown = recover() }()
		f()
	})
	if thrown != nil {
		panic(thrown)
	}
}

// least is the number of countedFlows in which a case must occur: a third of its average, or a
// tenth if the average is below 65. With a third of so few, chance alone would fail one case
// in a hundred runs.
var least = map[string]int{
	"linear": 100, "unordered": 100, "graph": 100, "nested": 100, "empty flow": 50, "link": 60, "strict": 80,
	"each": 80, "each in an each": 2, "each under a retry": 40, "turns": 20, "each begins again after its undo": 2,
	"join": 30, "otherwise": 10, "no way is taken": 5, "gathers": 33, "concurrency key": 90, "progress": 80, "given back while it waits": 20,
	"requires another's result": 70, "optional": 100, "inner value": 90, "revert arguments": 90, "no revert": 90,
	"decider says yes": 3, "decider says no": 6, "decider says later": 2, "decider says error": 2, "decider says panic": 2,
	"depth all": 1, "depth flow": 1, "depth neighbors": 1, "depth atom": 1, "leaves task ignore": 1,
	"retry: times": 50, "retry: for each": 45, "retry: parameterized": 20, "retry: own": 45, "retry: revert": 25, "retry: revert all": 25,
	"retry: no values": 25, "nested retry: times": 25, "nested retry: for each": 6, "nested retry: own": 5, "nested retry: parameterized": 3,
	"pause": 60, "reverting all": 60, "retry never": 20, "retry only": 20, "step never": 20, "several rounds": 30, "task begins again after its undo": 30, "retry begins again after its undo": 4,
	"task execute fails: error": 40, "task execute fails: panic": 30, "task execute fails: result": 30, "task execute fails: timeout": 4,
	"task execute fails for good": 10, "task revert fails: error": 3, "task revert fails: panic": 1, "task revert fails: timeout": 1,
	"tried again": 6, "at most once": 5, "at most once, and cut off": 3,
	"deadline": 85, "deadline passes": 6, "execute says not yet": 40, "revert says not yet": 20,
	"ends success": 45, "ends reverted": 90, "ends failure": 5, "ends held": 30, "point of no return": 60, "crashed": 160, "crashed twice": 160, "suspended": 150, "cancelled": 100,
	"failure is ignored": 100, "ends with an ignored failure": 10, "elements may fail": 30,
	"on_error": 100, "on_error step runs": 20, "on_error step runs before a hold": 5,
	"finally": 100, "finally takes a result": 20, "finally step runs forwards": 20, "finally step runs in an undo": 20,
	"signal": 30, "approval": 4, "sleep": 20, "wait ends at its limit": 3, "wait ends with a signal": 1,
	"wait fails: signal.rejected": 1, "wait fails: timeout": 1,
	"timeout of the flow": 40, "the time of the flow is over": 5, "enough": 20, "enough elements": 3, "enough under a retry": 3, "leaves task dropped": 2,
	"repeatable": 35, "runs ahead": 10, "succeeds in one update": 15,
	"undone at a takeover": 15, "taken up without a record": 80, "begun without a record, and crashed": 16,
}

// census counts in how many flows something has occurred.
type census struct {
	mu     sync.Mutex
	flows  int
	counts map[string]int
}

func (c *census) add(features map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flows++
	for feature := range features {
		c.counts[feature]++
	}
}

func (c *census) check(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, feature := range slices.Sorted(maps.Keys(c.counts)) {
		t.Logf("%5d  %s", c.counts[feature], feature)
	}
	if c.flows < countedFlows {
		return // short tests
	}
	for feature, n := range least {
		if c.counts[feature] < n {
			t.Errorf("%q has occurred in %d of %d flows, and should in %d at least", feature, c.counts[feature], c.flows, n)
		}
	}
}

// trial is one generated flow.
type trial struct {
	*drawing
	plan  *flow.Plan
	grown *flow.Plan // with all instances that there can be

	undoLast bool          // a takeover undoes the last finished steps
	limit    time.Duration // timeout of the flow; 0: none
	workers  int
	begins   bool          // the claims stand for the first marks
	maxIdle  time.Duration // 0: a run waits in place
	random   *rand.Rand
	updates  []logbook.Update // of all runs of a series
	runs     []string         // the injected events, for display
}

func drawCase(rt *rapid.T) *trial {
	d := &drawing{rt: rt, world: &actors{waits: make(map[string]*drawnWait)}, features: make(map[string]bool), elements: make(map[string]int), counts: make(map[string]int)}
	root := d.node("f", 3)
	undoLast := rapid.Bool().Draw(rt, "undo last")
	if f, is := root.(*flow.Flow); is && undoLast {
		f.OnTakeover(flow.UndoLast)
	}
	limit := d.drawTimeout(root)
	plan, err := flow.Compile(root, slices.Sorted(maps.Keys(drawnStore))...)
	if errors.Is(err, flow.ErrMissing) && strings.Contains(err.Error(), "conditions can leave without a provider") {
		rt.Skip(err)
	}
	if err != nil {
		rt.Fatalf("cannot compile: %v", err)
	}
	grown, err := plan.Grown(d.elements)
	if err != nil {
		rt.Fatalf("cannot grow: %v", err)
	}
	seed := rapid.Uint64().Draw(rt, "seed")
	return &trial{drawing: d, limit: limit, undoLast: undoLast, plan: plan, grown: grown, begins: rapid.Bool().Draw(rt, "begins"), workers: rapid.SampledFrom([]int{1, 3}).Draw(rt, "workers"),
		maxIdle: rapid.SampledFrom([]time.Duration{0, time.Nanosecond, 10 * time.Minute}).Draw(rt, "released when it waits for"), random: rand.New(rand.NewPCG(seed, 0))}
}

// String is the flow and the drawn behaviour of its steps.
func (c *trial) String() string {
	var updates strings.Builder
	for i := range c.updates {
		fmt.Fprintf(&updates, "%s %s\n", c.updates[i].Token, formatUpdate(&c.updates[i]))
	}
	return fmt.Sprintf("%s%s\nworkers: %d, begins: %v\n%s\n%s%s", c.plan.Outline(), strings.Join(c.notes, "\n"), c.workers, c.begins,
		strings.Join(c.runs, "\n"), &updates, dump(c.world.journal.snapshot()))
}

// explore runs the flow undisturbed, and then with everything that can befall it.
func (c *trial) explore(rt *rapid.T) map[string]bool {
	defer func() {
		if thrown := recover(); thrown != nil {
			if _, text := thrown.(string); text { // not by rapid
				c.updates = append(c.updates, c.world.journal.trace()...)
				rt.Logf("%s\n%s", debug.Stack(), c)
			}
			panic(thrown)
		}
	}()
	whole := c.series(rt, nil)
	c.occurred(whole)
	writes := len(c.updates)
	for _, n := range crashPoints(writes) {
		c.like(rt, whole, c.series(rt, []mishap{{crash: n}}))
		c.like(rt, whole, c.series(rt, []mishap{{crash: n}, {crash: c.random.IntN(writes + 1)}}))
	}
	for range 4 {
		c.like(rt, whole, c.series(rt, []mishap{c.strike("suspend"), c.strike("crash"), c.strike("suspend")}))
		c.series(rt, []mishap{c.strike("cancel"), c.strike("crash"), c.strike("suspend")})
	}
	if c.world.ranAhead.Load() {
		c.has("runs ahead")
	}
	return c.features
}

// mishap befalls one run: negative numbers mean never.
type mishap struct {
	crash   int // before the update of that number
	suspend int // after this number of begun steps and recorded updates
	cancel  int
}

func (c *trial) strike(what string) mishap {
	m := mishap{crash: -1, suspend: -1, cancel: -1}
	switch at := c.random.IntN(12); what {
	case "crash":
		m.crash = at
	case "suspend":
		m.suspend = at
	case "cancel":
		m.cancel = at
	}
	return m
}

// finish is the end of a flow.
type finish struct {
	end       engine.End
	claim     uint64 // the last one
	detail    logbook.FlowDetail
	cut       bool // some run was interrupted
	cancelled bool
	timeUp    time.Time // zero: never
	suspends  bool      // some run was told to suspend the flow
	releases  int       // how often a run was released because it only waited
	holes     bool      // an each was ignored, so that its instances are not recorded
	crashes   int
	cutOff    bool            // the last run was
	lost      map[string]bool // executions that were running when a run was cut off
}

// renew gives the world an empty journal and no calls.
func (c *trial) renew() {
	w := c.world
	w.mu.Lock()
	w.series, w.signals, w.hurry = w.series+1, nil, make(chan struct{}, 1)
	w.journal, w.begun, w.effects, w.running = newJournal(newDetail()), make(map[string]int), make(map[string]bool), make(map[string]int)
	w.journal.opens, w.plan = w.opens, c.plan
	w.early, w.seen = nil, make(map[string]bool)
	w.mu.Unlock()
	if c.begins {
		w.early = firstSteps(c.plan)
	}
}

// series runs a flow until it ends, with a mishap in each of the first runs.
func (c *trial) series(rt *rapid.T, mishaps []mishap) finish {
	w := c.world
	c.renew()
	c.updates, c.runs = nil, nil
	f := finish{lost: make(map[string]bool)}
	if c.limit > 0 {
		f.timeUp = time.Now().Add(c.limit)
	}
	for claim := 0; claim < len(mishaps)+1+f.releases; claim++ {
		m := mishap{crash: -1, suspend: -1, cancel: -1}
		if claim < len(mishaps) {
			if m = mishaps[claim]; m.crash >= 0 && m.suspend == 0 && m.cancel == 0 {
				m.suspend, m.cancel = -1, -1
			}
			f.cut, f.suspends = f.cut || m.crash >= 0, f.suspends || m.suspend >= 0
		}
		c.runs = append(c.runs, fmt.Sprintf("run %d: crash at %d, suspended at %d, cancelled at %d", claim+1, m.crash, m.suspend, m.cancel))
		end, err := c.run(uint64(claim+1), m, &f)
		c.tookOver(rt, &f)
		c.updates = append(c.updates, w.journal.trace()...)
		c.befell(end, err, &f)
		if err != nil && (m.crash < 0 || !errors.Is(err, errCrash)) && !isSignalled(err) {
			rt.Fatalf("%s ended in %v\n%s", c.runs[claim], err, c)
		}
		f.cutOff = err != nil
		f.end, f.detail, f.claim = end, w.journal.snapshot(), uint64(claim+1)
		if err != nil {
			if f.detail = w.journal.lost(logbook.Token{Index: f.claim}, c.begins); !f.detail.Begun.IsZero() {
				c.has("taken up without a record")
			}
			f.noteLost()
		}
		if isSignalled(err) {
			c.has("did not know a signal")
			f.cut = true
			f.releases++
		}
		if err == nil {
			c.settled(rt, f)
			if end.State.Finished() {
				break
			}
			if !end.WaitUntil.IsZero() {
				if f.releases++; f.releases > maxReleases {
					rt.Fatalf("no end after %d waits\n%s", f.releases, c)
				}
				w.untilDue(&end)
			}
		}
		f.detail = w.next(logbook.Token{Index: f.claim}, c.begins && err != nil)
	}
	if !f.end.State.Finished() {
		rt.Fatalf("no end\n%s", c)
	}
	for _, fault := range append(w.faults, audit(c.grown, c.updates)...) {
		rt.Errorf("%v", fault)
	}
	c.ended(rt, f)
	c.inTime(rt, f)
	c.inLimit(rt, f)
	if rt.Failed() {
		rt.Fatalf("%s", c)
	}
	return f
}

// noteLost notes the executions that were running when the run was cut off.
func (f *finish) noteLost() {
	for i := range f.detail.Atoms {
		atom := &f.detail.Atoms[i]
		if n := len(atom.Attempts); n > 0 && !atom.Attempts[n-1].Ended() && atom.Attempts[n-1].Action == logbook.ActionExecute {
			f.lost[executionOf(atom.Name, atom.Attempts[n-1].Number)] = true
		}
	}
}

// tookOver holds of the last run: it chooses steps to undo only where the one before was cut off.
func (c *trial) tookOver(rt *rapid.T, f *finish) {
	for _, update := range c.world.journal.trace() {
		for _, change := range update.Atoms {
			if step, _ := c.grown.Find(change.Name); change.Intention != logbook.IntendRetry || c.grown.Step(step).IsRetry() {
				continue
			}
			if c.has("undone at a takeover"); !f.cutOff || !c.undoLast {
				rt.Errorf("%s is undone, and nobody was cut off\n%s", change.Name, c)
			}
		}
	}
}

func (c *trial) run(claim uint64, m mishap, f *finish) (engine.End, error) {
	w := c.world
	w.journal.left = m.crash
	suspend, cancel, interrupt := make(chan struct{}), make(chan struct{}), make(chan time.Duration, 2)
	moments := 0
	w.event = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if moments == m.suspend {
			close(suspend)
			interrupt <- 0
		}
		if moments == m.cancel {
			f.cancelled = true
			close(cancel)
			interrupt <- 0
		}
		moments++
	}
	w.event()
	signals := make(chan engine.TakenSignal, 2*maxDrawnSteps)
	w.mu.Lock()
	w.signals = signals
	w.mu.Unlock()
	end, err := engine.Run(context.Background(), engine.Options{Signals: signals, TimeUp: f.timeUp, Plan: c.plan, Detail: w.journal.folded(few), Journal: w.journal, Store: drawnStore,
		Token: logbook.Token{Index: claim}, Owner: "o", Begins: c.begins, Workers: c.workers, Suspend: suspend, Revert: cancel, Interrupt: interrupt, Limits: drawnLimits, MaxIdle: c.maxIdle})
	if err == nil && end.Update != nil {
		err = w.journal.apply(*end.Update)
	}
	return end, err
}

// befell notes how one run has ended before its time.
func (c *trial) befell(end engine.End, err error, f *finish) {
	switch {
	case !end.WaitUntil.IsZero():
		c.has("given back while it waits")
	case errors.Is(err, errCrash):
		if end.Unrecorded {
			c.has("begun without a record, and crashed")
			if c.world.journal.snapshot().Sequence > 0 {
				c.has("begun without a record after a wait, and crashed")
			}
		}
		if c.has("crashed"); f.crashes > 0 {
			c.has("crashed twice")
		}
		f.crashes++
	case end.State == logbook.FlowSuspended:
		c.has("suspended")
	case end.Cause.Matches(logbook.FailureOperator):
		c.has("cancelled")
	case end.Cause.Matches(logbook.FailureAtMostOnce):
		c.has("at most once, and cut off")
	}
}

// occurred counts the cases in the undisturbed run.
func (c *trial) occurred(f finish) {
	c.has("ends " + string(f.end.State))
	if c.strict() {
		c.has("strict")
	}
	if f.end.State == logbook.FlowSuccess && f.detail.Sequence == 1 && len(f.detail.Atoms) > 0 {
		c.has("succeeds in one update")
	}
	for i := range f.detail.Atoms {
		atom := &f.detail.Atoms[i]
		c.has("leaves " + string(atom.Kind) + " " + string(atom.State))
		c.dropped(atom)
		rounds := 0
		for j := range atom.Attempts {
			attempt := &atom.Attempts[j]
			c.waited(attempt)
			if attempt.Failure != nil {
				c.has(fmt.Sprintf("%s %s fails: %s", atom.Kind, attempt.Action, attempt.Failure.Kind))
				if attempt.Failure.Permanent {
					c.has(fmt.Sprintf("%s %s fails for good", atom.Kind, attempt.Action))
				}
			}
			if j > 0 && attempt.Action == atom.Attempts[j-1].Action && atom.Attempts[j-1].Failure != nil {
				c.has(map[logbook.Action]string{logbook.ActionExecute: "tried again", logbook.ActionRevert: "undone at the second try"}[attempt.Action])
			}
			if j > 0 && attempt.Action == logbook.ActionExecute && atom.Attempts[j-1].Action == logbook.ActionRevert {
				c.has(string(atom.Kind) + " begins again after its undo")
			}
			if attempt.Action == logbook.ActionExecute {
				rounds++
			}
			if attempt.Asked > 0 {
				c.has(string(attempt.Action) + " says not yet")
			}
		}
		if atom.Kind == logbook.KindRetry && rounds > 1 {
			c.has("several rounds")
		}
	}
}

// strict: the flow has one end, whichever of its steps comes first. It has not
// if one failure can keep another step from beginning whose failure, or whose
// undo, would have meant something else, or if its time can be over.
func (c *trial) strict() bool {
	return !c.timed && (!c.parallel || !c.breaks && !c.walls && !c.holds && !c.uneven)
}

// like compares an end with the end of the undisturbed run.
func (c *trial) like(rt *rapid.T, whole, f finish) {
	if !c.strict() || (c.once || c.undoLast && c.breaks) && (f.cut || whole.cut) {
		return
	}
	if f.end.State != whole.end.State {
		rt.Fatalf("the flow is %s, and undisturbed %s\n%s", f.end.State, whole.end.State, c)
	}
	if c.parallel && f.end.State != logbook.FlowSuccess {
		return // which steps had begun when one failed is chance
	}
	for _, want := range whole.detail.Atoms {
		got, ok := f.detail.Atom(want.Name)
		if !ok || got.State != want.State {
			rt.Fatalf("%s is not %s, as it is undisturbed\n%s", want.Name, want.State, c)
		}
		a, _ := want.Result()
		b, _ := got.Result()
		if string(a) != string(b) {
			rt.Fatalf("the result of %s is %s, and undisturbed %s\n%s", want.Name, b, a, c)
		}
	}
}

// settled holds whenever a run has ended as it wanted to: nothing runs.
func (c *trial) settled(rt *rapid.T, f finish) {
	for i := range f.detail.Atoms {
		atom := &f.detail.Atoms[i]
		if atom.State != logbook.AtomRunning && atom.State != logbook.AtomReverting && atom.State != logbook.AtomRetrying {
			continue
		}
		// A step that a crash left in a state stays in it if the next run ends before it gets
		// there, and a step may still wait for its next attempt.
		n := len(atom.Attempts)
		open := n > 0 && !atom.Attempts[n-1].Ended()
		waits := !f.end.WaitUntil.IsZero() || f.end.State == logbook.FlowSuspended || f.end.State == logbook.FlowFailure && atom.State != logbook.AtomRunning
		if !waits || open && atom.Attempts[n-1].Token.Index == f.claim && atom.Attempts[n-1].Asked == 0 || atom.State == logbook.AtomRunning && !open {
			rt.Errorf("%s is left %s in a flow that is %s", atom.Name, atom.State, f.end.State)
		}
	}
	if f.detail.State != f.end.State {
		rt.Errorf("the run ended as %s, and the record says %s", f.end.State, f.detail.State)
	}
}

// inTime holds of the executions of every step: however often it was cut off, none of a round
// goes on behind the deadline of the first. One that begins behind it ends at once.
func (c *trial) inTime(rt *rapid.T, f finish) {
	for _, step := range c.grown.Steps() {
		atom, ok := f.detail.Atom(step.Name())
		if !ok || step.DeadlineText() == "" {
			continue
		}
		var end time.Time
		for i := range atom.Attempts {
			attempt := &atom.Attempts[i]
			switch {
			case attempt.Action == logbook.ActionRevert:
				end = time.Time{}
				continue
			case f.lost[executionOf(atom.Name, attempt.Number)] && (attempt.Failure.Matches(logbook.FailureAtMostOnce) || attempt.Failure.Matches(logbook.FailureCrash)):
				continue // its end is when the next conductor found it, or when the flow failed for good
			case end.IsZero():
				end = step.DeadlineFrom(attempt.StartedAt)
			}
			if attempt.EndedAt.After(end) && attempt.EndedAt.After(attempt.StartedAt) {
				rt.Errorf("execution %d of %s goes on for %s behind the deadline", attempt.Number, atom.Name, attempt.EndedAt.Sub(end))
			}
		}
	}
}

// held holds of a flow that has ended at a failure: what has succeeded is not undone, and nothing is due.
func (c *trial) held(rt *rapid.T, f finish) {
	c.has("ends held")
	for i := range f.detail.Atoms {
		atom := &f.detail.Atoms[i]
		step, _ := c.grown.Find(atom.Name)
		_, undoes := c.grown.Step(step).Reverter()
		if atom.State == logbook.AtomSuccess && undoes && !c.world.effects[atom.Name] {
			rt.Errorf("%s is undone in a flow that is held", atom.Name)
		}
		if atom.State == logbook.AtomRunning || c.grown.Governor(step) < 0 && !c.undoLast && !isDropped(atom) && atom.Number(logbook.ActionRevert) > 0 {
			rt.Errorf("%s is %s after %d reverts in a flow that is held", atom.Name, atom.State, atom.Number(logbook.ActionRevert))
		}
	}
}

// ignored holds of the failures in a flow: no cause is one that must be ignored. A step has run if it has all
// values that it requires, unless a decider has left it out.
func (c *trial) ignored(rt *rapid.T, f finish) {
	if cause := f.detail.Cause.Origin(); cause != nil && f.end.State == logbook.FlowReverted {
		step, found := c.grown.Find(cause.Step)
		if found && c.grown.Step(step).IgnoresFailure() && !strings.Contains(cause.Message, "cannot decide") {
			rt.Errorf("the flow is reverted because of %s, whose failure is ignored", cause.Step)
		}
	}
	if f.end.State != logbook.FlowSuccess {
		return
	}
	for step := range c.grown.Len() {
		atom, ok := f.detail.Atom(c.grown.Step(step).Name())
		if !ok || atom.Kind != logbook.KindTask || isDropped(atom) {
			continue
		}
		if atom.FailureIgnored() {
			c.has("ends with an ignored failure")
		}
		if final, ok := c.grown.FinalOf(step); ok && (c.grown.Step(step).IsOnError() || !c.hasRun(f, c.grown.Finals()[final].Body)) {
			continue // finallyRan and handled check it
		}
		lacking := ""
		for _, wire := range c.grown.Arguments(step) {
			if wire.From < 0 || wire.Optional {
				continue
			}
			from, ok := f.detail.Atom(c.grown.Step(wire.From).Name())
			if ok {
				_, ok = from.Result()
			}
			if !ok {
				lacking = wire.Symbol
			}
		}
		leftOut := len(c.grown.Choices()) > 0 || len(c.grown.TolerantElements()) > 0
		if lacking != "" && !leftOut {
			c.has("left out for lack of a value")
		}
		if ran := atom.State != logbook.AtomIgnored; ran == (lacking != "") && (ran || !leftOut) {
			rt.Errorf("%s is %s, and lacks the value %q", atom.Name, atom.State, lacking)
		}
	}
	c.elementsFailed(rt, f)
	enoughSucceeded(rt, c.grown, &f.detail)
}

// elementsFailed holds of the elements that may fail: no more have failed, and what waits for a failed step in
// an element has not run.
func (c *trial) elementsFailed(rt *rapid.T, f finish) {
	failed := make(map[int]map[int]bool) // by group, the members
	state := func(step int) (*logbook.AtomDetail, bool) {
		atom, ok := f.detail.Atom(c.grown.Step(step).Name())
		return atom, ok && atom.FailureIgnored() && !c.grown.Step(step).IgnoresFailure()
	}
	for step := range c.grown.Len() {
		element, inElement := c.grown.ElementOf(step)
		if _, hasFailed := state(step); !hasFailed {
			continue
		}
		if !inElement {
			rt.Errorf("the failure of %s is ignored", c.grown.Step(step).Name())
			continue
		}
		c.has("ends with a failed element")
		e := &c.grown.TolerantElements()[element]
		group := c.grown.Groups()[e.Group]
		if failed[e.Group] == nil {
			failed[e.Group] = make(map[int]bool)
		}
		if failed[e.Group][element] = true; len(failed[e.Group]) > group.Most {
			rt.Errorf("%d members of %s have failed, and %d may", len(failed[e.Group]), group.Name, group.Most)
		}
		for _, behind := range c.grown.Successors(step) {
			if atom, _ := state(behind); e.Bounds.Holds(behind) && !c.grown.Step(behind).IsLate() && atom != nil && atom.State != logbook.AtomIgnored {
				rt.Errorf("%s is %s behind a failed step", atom.Name, atom.State)
			}
		}
	}
}

// hasRun reports whether a step has run since its round began, and is no finally or on_error step.
func (c *trial) hasRun(f finish, steps flow.Steps) bool {
	for step := steps.First; step < steps.End; step++ {
		s := c.grown.Step(step)
		atom, ok := f.detail.Atom(s.Name())
		if ok && !s.IsLate() && s.Kind() == logbook.KindTask && atom.State != logbook.AtomPending && atom.State != logbook.AtomIgnored {
			return true
		}
	}
	return false
}

// finallyRan holds of the finally steps of a flow that has succeeded or reverted: they have ended if another step of
// their flow has run, and otherwise never began.
func (c *trial) finallyRan(rt *rapid.T, f finish) {
	for _, final := range c.grown.Finals() {
		ran := c.hasRun(f, final.Body)
		for step := final.First; step < final.End; step++ {
			name := c.grown.Step(step).Name()
			atom, ok := f.detail.Atom(name)
			ended := ok && (atom.State == logbook.AtomSuccess || atom.FailureIgnored() || atom.State == logbook.AtomReverted)
			began := ok && atom.State != logbook.AtomPending && atom.State != logbook.AtomIgnored
			if ran && !ended || !ran && began && !c.retried() && !c.undoLast {
				rt.Errorf("finally step %s is %+v, and a step of its flow has run: %v", name, atom, ran)
			}
			if c.has("finally step runs forwards"); f.end.State == logbook.FlowReverted && ended {
				c.has("finally step runs in an undo")
			}
		}
	}
}

// handled holds of the on_error steps of a flow that has ended: they have run if a step of their flow has failed, and the
// flow was not cancelled. The audit has checked that nothing was undone before.
func (c *trial) handled(rt *rapid.T, f finish) {
	for _, final := range c.grown.Finals() {
		failed, tolerated := false, false
		for step := final.Body.First; step < final.Body.End; step++ {
			atom, ok := f.detail.Atom(c.grown.Step(step).Name())
			if !ok || c.grown.Step(step).IgnoresFailure() {
				continue
			}
			last, ran := atom.Last(logbook.ActionExecute)
			fails := ran && last.Failure != nil && last.Failure.Kind != logbook.FailureInterrupted && last.Failure.Kind != logbook.FailureCrash
			failed = failed || fails && atom.State == logbook.AtomFailure && !atom.FailureIgnored()
			element, inElement := c.grown.ElementOf(step)
			tolerated = tolerated || atom.FailureIgnored() && inElement && c.grown.TolerantElements()[element].Bounds.Holds(final.Errors.First)
		}
		for step := final.Errors.First; step < final.Errors.End; step++ {
			atom, ok := f.detail.Atom(c.grown.Step(step).Name())
			ended := ok && (atom.State == logbook.AtomSuccess || atom.FailureIgnored())
			ran := ended && atom.State != logbook.AtomIgnored
			switch held := f.detail.Held(); {
			case held && failed && !tolerated && !f.cancelled && !ended:
				rt.Errorf("on_error step %s has not run in a flow that is held", c.grown.Step(step).Name())
			case f.end.State == logbook.FlowSuccess && ran && !tolerated:
				rt.Errorf("on_error step %s has run in a flow that is %s", atom.Name, f.end.State)
			case ran && held:
				c.has("on_error step runs before a hold")
			case ran:
				c.has("on_error step runs")
			}
		}
	}
}

// retried reports whether the flow has a retry: a step that has run in an earlier round may be pending.
func (c *trial) retried() bool { return len(c.grown.Scopes()) > 0 }

// ended holds of every flow that has ended.
func (c *trial) ended(rt *rapid.T, f finish) {
	if bad := f.end.State != logbook.FlowSuccess; bad != (f.detail.Cause != nil) {
		rt.Errorf("a flow that is %s has the cause %v", f.end.State, f.detail.Cause)
	}
	allowed := map[logbook.FlowState][]logbook.AtomState{
		logbook.FlowSuccess:  {logbook.AtomSuccess, logbook.AtomIgnored},
		logbook.FlowReverted: {logbook.AtomReverted, logbook.AtomIgnored, logbook.AtomPending},
	}[f.end.State]
	failed := false
	for i := range f.detail.Atoms {
		atom := &f.detail.Atoms[i]
		failed = failed || atom.State == logbook.AtomRevertFailure
		f.holes = f.holes || atom.Kind == logbook.KindEach && atom.State == logbook.AtomIgnored
		step, _ := c.grown.Find(atom.Name)
		hasEnded := c.grown.Step(step).IsLate() && (atom.State == logbook.AtomSuccess || atom.FailureIgnored())
		if allowed != nil && !slices.Contains(allowed, atom.State) && !hasEnded && !(f.end.State == logbook.FlowSuccess && (atom.FailureIgnored() || isDropped(atom))) || atom.State == logbook.AtomPending && !setBack(atom) && f.end.State != logbook.FlowFailure {
			rt.Errorf("%s is %s in a flow that is %s", atom.Name, atom.State, f.end.State)
		}
		if allowed != nil && atom.State != logbook.AtomPending && !atom.RetryAt.IsZero() {
			rt.Errorf("%s is %s and still due at a time", atom.Name, atom.State)
		}
		if c.world.effects[atom.Name] && f.end.State == logbook.FlowReverted {
			rt.Errorf("what %s has done is not undone", atom.Name)
		}
	}
	c.ignored(rt, f)
	if allowed != nil {
		c.finallyRan(rt, f)
	}
	c.handled(rt, f)
	if held := f.detail.Held(); (failed || held) != (f.end.State == logbook.FlowFailure) || held && !c.holds {
		rt.Errorf("the flow is %s; some undo has failed for good: %v", f.end.State, failed)
	} else if held {
		c.held(rt, f)
	}
	if f.end.State == logbook.FlowSuccess && !f.holes && len(f.detail.Atoms) != c.grown.Len() {
		rt.Errorf("%d of %d steps are recorded", len(f.detail.Atoms), c.grown.Len())
	}
}
