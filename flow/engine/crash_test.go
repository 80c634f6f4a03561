package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// TestCrashAtEveryWrite runs generated flows, lets the conductor die before
// each update in turn, and resumes from what was recorded. However it was
// interrupted, the flow comes to the end that it has without a crash, and no
// step is called that its record does not allow.
func TestCrashAtEveryWrite(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{workers: rapid.SampledFrom([]int{1, 3}).Draw(rt, "workers")}
		plan, err := flow.Compile(w.draw(rt, "root", 3), "input")
		if err != nil {
			rt.Fatalf("cannot compile: %v", err)
		}
		w.plan = plan
		writes := w.through(rt, -1)
		for n := range writes {
			w.through(rt, n)
		}
		w.stumble(rt)
	})
}

// world is one generated flow and what its steps find out about each other.
type world struct {
	plan    *flow.Plan
	workers int
	count   int
	fails   bool // some step fails for good, so the flow cannot succeed
	broken  bool // some revert fails for good, so the flow may end in FAILURE

	mu      sync.Mutex
	journal *journal // of the run
	faults  []error
}

// draw makes a flow of up to three levels.
func (w *world) draw(rt *rapid.T, name string, depth int) flow.Node {
	if depth == 0 || w.count > 14 || rapid.IntRange(0, 2).Draw(rt, "leaf") == 0 && name != "root" {
		return w.drawStep(rt)
	}
	children := make([]flow.Node, rapid.IntRange(0, 4).Draw(rt, "children"))
	for i := range children {
		children[i] = w.draw(rt, fmt.Sprintf("%s.%d", name, i), depth-1)
	}
	switch rapid.SampledFrom([]string{"linear", "unordered", "graph"}).Draw(rt, "pattern") {
	case "linear":
		return flow.Linear(name, children...)
	case "unordered":
		return flow.Unordered(name, children...)
	}
	graph := flow.Graph(name, children...)
	for i := range children {
		for j := range i {
			if rapid.Bool().Draw(rt, "link") {
				graph.Link(children[j].Name(), children[i].Name())
			}
		}
	}
	return graph
}

func (w *world) drawStep(rt *rapid.T) *flow.Step {
	w.count++
	task := &drawnTask{world: w, name: fmt.Sprintf("s%d", w.count)}
	const attempts = 3
	task.fail = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2, 99}).Draw(rt, "fail")
	task.undoFail = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 2, 99}).Draw(rt, "undo fail")
	w.fails = w.fails || task.fail > attempts
	options := []flow.Option{flow.Provides("r" + task.name), flow.Requires("input"),
		flow.Retry(flow.RetryPolicy{Attempts: attempts, Delay: time.Duration(rapid.IntRange(0, 1).Draw(rt, "delay")) * time.Microsecond})}
	if rapid.IntRange(0, 3).Draw(rt, "no undo") == 0 {
		return flow.NewStep(task.name, task, options...)
	}
	w.broken = w.broken || task.undoFail > attempts
	return flow.NewStep(task.name, &drawnUndoable{task}, options...)
}

// through runs the flow to its end, with a crash before update n (negative:
// none), checks that end, and counts the updates.
func (w *world) through(rt *rapid.T, n int) int {
	w.journal = newJournal(newDetail())
	w.journal.left = n
	if n >= 0 {
		// Outcomes share updates as it happens: a run may need fewer than the
		// one that was counted, and end before the crash.
		if end, err := w.run(1); err == nil {
			w.check(rt, end)
			return len(w.journal.trace())
		} else if !errors.Is(err, errCrash) {
			rt.Fatalf("the crash before update %d ended in %v", n, err)
		}
		w.journal = newJournal(w.journal.snapshot())
	}
	end, err := w.run(2)
	if err != nil {
		rt.Fatalf("after a crash before update %d: %v", n, err)
	}
	w.check(rt, end)
	return len(w.journal.trace())
}

// stumble crashes every time that a few updates are written: as many as it
// takes to start a step and to record its end.
func (w *world) stumble(rt *rapid.T) {
	const rounds = 300
	every := rapid.IntRange(3, 5).Draw(rt, "updates before each crash")
	w.journal = newJournal(newDetail())
	for claim := range uint64(rounds) {
		w.journal.left = every
		end, err := w.run(claim + 1)
		if err == nil {
			w.check(rt, end)
			return
		}
		if !errors.Is(err, errCrash) {
			rt.Fatalf("in claim %d: %v", claim, err)
		}
		w.journal = newJournal(w.journal.snapshot())
	}
	rt.Fatalf("no end after %d crashes", rounds)
}

func (w *world) run(claim uint64) (engine.End, error) {
	end, err := engine.Run(context.Background(), engine.Options{Plan: w.plan, Detail: w.journal.snapshot(), Journal: w.journal,
		Store: logbook.Values{"input": json.RawMessage("1")}, Token: logbook.Token{Index: claim}, Workers: w.workers})
	if err == nil && end.Update != nil {
		err = w.journal.apply(*end.Update)
	}
	return end, err
}

func (w *world) check(rt *rapid.T, end engine.End) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fault := range w.faults {
		rt.Error(fault)
	}
	detail := w.journal.snapshot()
	allowed := map[logbook.FlowState]bool{logbook.FlowSuccess: !w.fails, logbook.FlowReverted: w.fails,
		logbook.FlowFailure: w.fails && w.broken}
	if !allowed[end.State] || detail.State != end.State {
		rt.Fatalf("the flow ended as %s, and its record says %s", end.State, detail.State)
	}
	for _, atom := range detail.Atoms {
		want := map[logbook.FlowState]logbook.AtomState{logbook.FlowSuccess: logbook.AtomSuccess, logbook.FlowReverted: logbook.AtomReverted}
		if state, ok := want[end.State]; ok && atom.State != state {
			rt.Errorf("step %s is %s in a flow that is %s", atom.Name, atom.State, end.State)
		}
	}
	if end.State == logbook.FlowSuccess && len(detail.Atoms) != w.plan.Len() {
		rt.Errorf("%d of %d steps were recorded", len(detail.Atoms), w.plan.Len())
	}
}

// allow holds a call against the record: marks are durable before steps start,
// so the record knows of it, also if the conductor has died since.
func (w *world) allow(call *flow.Call) {
	detail := w.journal.snapshot()
	state := func(step int) logbook.AtomState {
		if atom, ok := detail.Atom(w.plan.Step(step).Name()); ok && len(atom.Attempts) > 0 {
			return atom.State
		}
		return ""
	}
	number, _ := w.plan.Find(call.Step)
	var faults []error
	if call.Action == logbook.ActionExecute {
		if own := state(number); own != logbook.AtomRunning {
			faults = append(faults, fmt.Errorf("step %s is executed while it is %s", call.Step, own))
		}
		for _, step := range w.plan.Predecessors(number) {
			if before := state(step); before != logbook.AtomSuccess && before != logbook.AtomReverting {
				faults = append(faults, fmt.Errorf("step %s is executed while %s is %s", call.Step, w.plan.Step(step).Name(), before))
			}
		}
	} else {
		for _, step := range w.plan.Successors(number) {
			if after := state(step); after != "" && after != logbook.AtomReverted {
				faults = append(faults, fmt.Errorf("step %s is reverted while %s is %s", call.Step, w.plan.Step(step).Name(), after))
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
}

func (d *drawnTask) Execute(_ context.Context, call *flow.Call) (any, error) {
	d.world.allow(call)
	if call.Attempt <= d.fail {
		return nil, errors.New("woot")
	}
	return d.name, nil
}

type drawnUndoable struct{ *drawnTask }

func (d *drawnUndoable) Revert(_ context.Context, call *flow.Call) error {
	d.world.allow(call)
	if call.Attempt <= d.undoFail {
		return errors.New("nasty")
	}
	return nil
}
