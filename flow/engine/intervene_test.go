package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/logbook"
)

// ward is a flow that fails, with the interventions of its operators. In each phase
// but the last, one step fails, and the undo of one step fails.
type ward struct {
	plan   *flow.Plan
	phases []phase
	limits logbook.Limits
	// parallel: some steps have no order. A crash may give them another one, so
	// that another of them is undone when an undo fails, and runs again.
	parallel bool
	depth    int // in how many each the node is that is drawn
	root     func() flow.Node
	renames

	present phase
	journal *journal
	wrong   error          // the first round that is not the recorded one
	runs    map[string]int // in the present phase
	undoes  map[string]int
}

// phase is one fault, and the operator's intervention.
type phase struct {
	fails, undoFails string
	forward          bool
	complete, rerun  string // going forwards
	skip, revert     bool   // going backwards
	elements         int    // of the lists that are made meanwhile
	renames          string // the steps to rename before the intervention, by first names
}

type wardTask struct {
	ward *ward
	name string
}

func (w *wardTask) Execute(_ context.Context, call *flow.Call) (any, error) {
	first := w.ward.first(call.Step)
	w.ward.runs[first]++
	w.ward.counted(call)
	if w.ward.present.fails == first {
		return nil, errors.New("woot")
	}
	if strings.HasPrefix(w.name, "list") {
		return make([]int, w.ward.present.elements), nil
	}
	return w.name, nil
}

func (w *wardTask) Revert(_ context.Context, call *flow.Call) error {
	first := w.ward.first(call.Step)
	w.ward.undoes[first]++
	w.ward.counted(call)
	if w.ward.present.undoFails == first {
		return errors.New("nasty")
	}
	return nil
}

// counted checks the round of a call, by which its key is made, against what is
// recorded: the next owner after a crash knows nothing else.
func (w *ward) counted(call *flow.Call) {
	detail := w.journal.snapshot()
	if atom, ok := detail.Atom(call.Step); w.wrong == nil && (!ok || roundOf(atom) != call.Round) {
		w.wrong = fmt.Errorf("%s %s is called in round %d after %+v", call.Action, call.Step, call.Round, atom)
	}
}

// draw makes a flow, whose steps have their current names at each call of the result. It adds the first names of the
// steps.
func (w *ward) draw(rt *rapid.T, names *[]string, depth int) func() flow.Node {
	if depth == 0 || len(*names) > 8 || len(*names) > 0 && rapid.Bool().Draw(rt, "leaf") {
		name := fmt.Sprintf("s%d", len(*names))
		*names = append(*names, w.instances(name)...)
		w.steps = append(w.steps, name)
		return func() flow.Node { return flow.NewStep(w.current(name), &wardTask{w, name}) }
	}
	name := fmt.Sprintf("f%d-%d", depth, len(*names))
	pattern := rapid.SampledFrom([]string{"linear", "unordered", "retry", "decided", "each", "each of a store's"}).Draw(rt, "pattern")
	if strings.HasPrefix(pattern, "each") {
		return w.drawEach(rt, names, name, depth, pattern == "each")
	}
	var children []func() flow.Node
	for range rapid.IntRange(1, 3).Draw(rt, "children") {
		children = append(children, w.draw(rt, names, depth-1))
	}
	build := func(f *flow.Flow) *flow.Flow {
		for _, child := range children {
			f.Add(child())
		}
		return f
	}
	switch pattern {
	case "linear":
		return func() flow.Node { return build(flow.Linear(name)) }
	case "retry":
		return func() flow.Node { return build(flow.Linear(name)).WithRetry(flow.Times("r-"+name, 2)) }
	case "decided":
		w.parallel = w.parallel || len(children) > 1
		no := flow.Decide("no", func(logbook.Values) (bool, error) { return false, nil })
		decided := make([]int, len(children))
		for i := 1; i < len(children); i++ {
			decided[i] = rapid.IntRange(0, 1).Draw(rt, "no")
		}
		return func() flow.Node {
			graph := build(flow.Graph(name))
			parts := graph.Children()
			for i := 1; i < len(parts); i++ {
				graph.Link(parts[0].Name(), parts[i].Name(), []flow.LinkOption{no}[:decided[i]]...)
			}
			return graph
		}
	}
	w.parallel = w.parallel || len(children) > 1
	return func() flow.Node { return build(flow.Unordered(name)) }
}

// drawEach runs a part for each element of a list that a step makes, which may
// be another one each time, or of one that is always the same.
func (w *ward) drawEach(rt *rapid.T, names *[]string, name string, depth int, made bool) func() flow.Node {
	if w.depth == 2 {
		return w.draw(rt, names, 0)
	}
	*names = append(*names, w.instances(name)...)
	w.steps = append(w.steps, name)
	w.depth++
	body := w.draw(rt, names, depth-1)
	w.depth--
	options := []flow.EachOption{flow.InOrder()}
	if rapid.Bool().Draw(rt, "at once") {
		options, w.parallel = nil, true
	}
	if !made {
		return func() flow.Node { return flow.Each(w.current(name), "list", "x-"+name, body(), options...) }
	}
	w.steps = append(w.steps, "list"+name)
	return func() flow.Node {
		list := flow.NewStep(w.current("list"+name), &wardTask{w, "list" + name}, flow.Provides("l-"+name))
		return flow.Linear("around "+name, list, flow.Each(w.current(name), "l-"+name, "x-"+name, body(), options...))
	}
}

// instances are the possible names of a step at its place in the flow.
func (w *ward) instances(name string) []string {
	names := []string{name}
	for range w.depth {
		var deeper []string
		for _, name := range names {
			deeper = append(deeper, name+"[0]", name+"[1]")
		}
		names = deeper
	}
	return names
}

// TestInterventionsAtEveryWrite intervenes in generated flows that fail, some more than once.
// The conductor dies before every update, and each update holds as little as it can. Each
// intervention is carried out completely and exactly once, whichever update is lost.
func TestInterventionsAtEveryWrite(t *testing.T) {
	longtest.Checks(t, 40)
	rapid.Check(t, func(rt *rapid.T) {
		w := &ward{limits: logbook.Limits{Command: rapid.SampledFrom([]int{64, 640, 1 << 20}).Draw(rt, "bytes in an update")}}
		var names []string
		root := w.draw(rt, &names, 3)
		hold := rapid.Bool().Draw(rt, "hold")
		w.root = func() flow.Node {
			node := root()
			if f, is := node.(*flow.Flow); is && hold {
				f.OnFailure(flow.HoldOnFailure)
			}
			return node
		}
		for range rapid.IntRange(1, 3).Draw(rt, "phases") {
			name := func(label string) string { return rapid.SampledFrom(names).Draw(rt, label) }
			w.phases = append(w.phases, phase{fails: name("fails"), undoFails: name("undo fails"), forward: rapid.Bool().Draw(rt, "forward"),
				complete: rapid.SampledFrom([]string{"", "", name("complete")}).Draw(rt, "completes"),
				rerun:    rapid.SampledFrom([]string{"", "", name("rerun")}).Draw(rt, "reruns"), skip: rapid.Bool().Draw(rt, "skip"), revert: rapid.Bool().Draw(rt, "revert"),
				elements: rapid.IntRange(0, 2).Draw(rt, "elements"), renames: w.drawRenames(rt)})
		}
		whole, writes := w.series(rt, -1)
		for n := range writes {
			if end, _ := w.series(rt, n); end.State != whole.State && !w.parallel {
				rt.Fatalf("after a crash before update %d the flow ends otherwise than without it:\n%s%swithout it:\n%s", n, w.plan.Outline(), dump(end), dump(whole))
			}
		}
	})
}

// series sees the flow through all phases and to its end, with a crash before
// one of the updates, and counts them.
func (w *ward) series(rt *rapid.T, crash int) (logbook.FlowDetail, int) {
	j := newJournal(newDetail())
	j.left = crash
	var updates []logbook.Update
	claims := 0
	w.names, w.firsts = nil, nil
	w.compile(rt)
	run := func(p phase) {
		w.present, w.runs, w.undoes = p, make(map[string]int), make(map[string]int)
		for {
			claims += maxRenames + 2
			if claims > 50*(maxRenames+2) {
				rt.Fatal("no end")
			}
			w.journal = j
			end, err := engine.Run(context.Background(), engine.Options{Plan: w.plan, Detail: j.folded(few), Journal: j, Workers: 1,
				Limits: w.limits, Store: logbook.Values{"list": json.RawMessage("[1, 2]")}, Token: logbook.Token{Index: uint64(claims)}})
			if err == nil && end.Update != nil {
				err = j.apply(*end.Update)
			}
			updates = append(updates, j.trace()...)
			left := j.left
			j = newJournal(j.snapshot())
			if err == nil {
				j.left = left
				return
			}
			if !errors.Is(err, errCrash) {
				rt.Fatalf("after a crash before update %d: %v\n%s%s", crash, err, w.plan.Outline(), dump(j.snapshot()))
			}
		}
	}
	for i, p := range w.phases {
		run(p)
		left := j.left
		w.rename(rt, j, p, uint64(claims)+1)
		j = newJournal(j.snapshot())
		j.left = left
		batch := w.treat(rt, j, p, uint64(claims)+maxRenames+1)
		if len(batch) == 0 {
			break
		}
		before := j.snapshot()
		next := phase{}
		if i+1 < len(w.phases) {
			next = w.phases[i+1]
		}
		if next != (phase{}) {
			continue
		}
		run(next)
		w.healed(rt, before, j.snapshot(), batch)
	}
	w.once(rt, j.snapshot(), updates)
	if w.wrong != nil {
		rt.Error(w.wrong)
	}
	return j.snapshot(), len(updates)
}

// treat makes the interventions of a phase that are admitted.
func (w *ward) treat(rt *rapid.T, j *journal, p phase, token uint64) []logbook.Intervention {
	detail := j.snapshot()
	var batch []logbook.Intervention
	do := func(kind logbook.InterventionKind, step string, hold bool) {
		i := logbook.Intervention{ID: uuid.New(), Flow: detail.ID, Kind: kind, Step: w.current(step), By: "ada", Hold: hold, At: time.Unix(1, 0), Token: logbook.Token{Index: token}}
		if kind == logbook.InterveneComplete {
			i.Result = json.RawMessage(`"by hand"`)
		}
		if _, err := detail.Admit(&i); err == nil {
			batch = append(batch, i)
			token++ // which is that of the next claim, so that there is room for one alone
		}
	}
	switch {
	case detail.State != logbook.FlowFailure && detail.State != logbook.FlowReverted || detail.State == logbook.FlowReverted && !p.forward:
		return nil
	case p.forward && p.complete != "" && detail.State == logbook.FlowFailure:
		do(logbook.InterveneComplete, p.complete, false)
	case p.forward:
		do(logbook.InterveneRerun, p.rerun, false)
	case p.revert || detail.Held():
		do(logbook.InterveneRevert, "", false)
	case p.skip:
		do(logbook.InterveneSkip, p.undoFails, false)
	default:
		do(logbook.InterveneRetryRevert, "", false)
	}
	j.detail.Interventions = slices.Concat(j.detail.Interventions, batch)
	return batch
}

// healed checks the end of a flow in which nothing goes wrong any more against
// what a person wanted.
func (w *ward) healed(rt *rapid.T, before, after logbook.FlowDetail, batch []logbook.Intervention) {
	i := batch[0]
	if after.Cause.Matches(logbook.FailureIntervention) && strings.Contains(i.Step, "[") {
		// Of an instance that there may not be any more: refused as a whole.
		if after.State != before.State || len(w.runs)+len(w.undoes) > 0 {
			rt.Errorf("%s %s was refused, and the flow is %s after %v and %v", i.Kind, i.Step, after.State, w.runs, w.undoes)
		}
		return
	}
	want := map[bool]logbook.FlowState{true: logbook.FlowSuccess, false: logbook.FlowReverted}[i.Kind == logbook.InterveneRerun || i.Kind == logbook.InterveneComplete]
	if after.State != want {
		rt.Fatalf("after %s %s the flow is %s\n%s%s", i.Kind, i.Step, after.State, w.plan.Outline(), dump(after))
	}
	if want == logbook.FlowSuccess && after.Cause != nil {
		rt.Errorf("a flow that has succeeded has the cause %v", after.Cause)
	}
	for n := range after.Atoms {
		atom := &after.Atoms[n]
		was, _ := before.Atom(atom.Name)
		first := w.first(atom.Name)
		switch {
		case i.Kind == logbook.InterveneSkip && atom.Name == i.Step && w.undoes[first] > 0:
			rt.Errorf("the undo of %s was to be skipped, and was called", atom.Name)
		case i.Kind == logbook.InterveneComplete && atom.Name == i.Step:
			if result, _ := atom.Result(); w.runs[first] > 0 || string(result) != `"by hand"` {
				rt.Errorf("step %s was completed by hand, has run %d times and has the result %s", atom.Name, w.runs[first], result)
			}
		case i.Kind == logbook.InterveneComplete && was != nil && was.State == logbook.AtomSuccess && w.runs[first] > 0:
			rt.Errorf("step %s had succeeded, and has run again", atom.Name)
		case i.Kind == logbook.InterveneRerun && i.Step == "" && atom.Kind == logbook.KindTask && atom.State == logbook.AtomSuccess && w.runs[first] == 0:
			rt.Errorf("step %s is to run again, and has not", atom.Name)
		}
	}
}

// once looks for anything that was carried out twice, and for results that
// were forgotten.
func (w *ward) once(rt *rapid.T, detail logbook.FlowDetail, updates []logbook.Update) {
	for _, atom := range detail.Atoms {
		seen := make(map[string]bool)
		for _, attempt := range atom.Attempts {
			if key := fmt.Sprint(attempt.Action, attempt.Token); attempt.Owner == "ada" && seen[key] {
				rt.Errorf("%s was done to %s twice under token %s\n%s", attempt.Action, atom.Name, attempt.Token, dump(detail))
			} else if attempt.Owner == "ada" {
				seen[key] = true
			}
		}
	}
	done := make(map[string]bool)
	for i := range updates {
		for _, change := range updates[i].Atoms {
			first := w.first(change.Name)
			switch change.State {
			case logbook.AtomSuccess:
				done[first] = true
				continue
			case logbook.AtomReverted, logbook.AtomRetrying, logbook.AtomPending:
				done[first] = false
			}
			for _, attempt := range change.Attempts {
				if attempt.Action == logbook.ActionExecute && done[first] {
					rt.Errorf("step %s is executed again, although its result stands", change.Name)
				}
			}
		}
	}
}

// TestLaterWordsAloneAreCarriedOut: a refused intervention stays refused when a second
// operator reruns the flow and the conductor dies between the updates of the rerun. This is
// true even if newer code could carry out the first intervention.
func TestLaterWordsAloneAreCarriedOut(t *testing.T) {
	const steps = 40
	limits := logbook.Limits{Command: 4 << 10}
	j := newJournal(newDetail())
	failing, claims := true, uint64(0)
	plan := func(options ...flow.StepOption) *flow.Plan {
		root := flow.Linear("f", flow.FuncRevert("stuck", func(context.Context, none) (none, error) { return none{}, nil },
			func(context.Context, none, *none) error { return errors.New("nasty") }))
		for i := range steps {
			root.Add(flow.NewStep(fmt.Sprintf("t%d", i), nothing{}))
		}
		root.Add(flow.NewStep("s0", anyTask(func() (any, error) {
			if failing {
				return nil, errors.New("woot")
			}
			return map[string]string{"x": "by the step"}, nil
		}), options...), flow.NewStep("last", nothing{}, flow.Requires("x")))
		return compile(t, root)
	}
	run := func(plan *flow.Plan, crash int) (engine.End, error) {
		claims += 10
		j = newJournal(j.snapshot())
		j.left = crash
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Workers: 1, Limits: limits,
			Token: logbook.Token{Index: claims}})
		if err == nil && end.Update != nil {
			err = j.apply(*end.Update)
		}
		return end, err
	}
	said := func(kind logbook.InterventionKind, step string) {
		claims += 10
		i := logbook.Intervention{ID: uuid.New(), Kind: kind, Step: step, By: "ada", At: time.Unix(1, 0), Token: logbook.Token{Index: claims}}
		if _, err := j.detail.Admit(&i); err != nil {
			t.Fatal(err)
		}
		j.detail.Interventions = append(slices.Clip(j.detail.Interventions), i)
	}
	ends := func(end engine.End, err error, want logbook.FlowState) {
		t.Helper()
		if err != nil || end.State != want {
			t.Fatalf("%s, %v; want %s\n%s", end.State, err, want, dump(j.snapshot()))
		}
	}
	fields := flow.ProvidesFields("x")
	end, err := run(plan(fields), -1)
	ends(end, err, logbook.FlowFailure)
	said(logbook.InterveneComplete, "s0") // null has no field x
	end, err = run(plan(fields), -1)
	if ends(end, err, logbook.FlowFailure); !end.Cause.Matches(logbook.FailureIntervention) {
		t.Fatalf("it was not refused: %v", end.Cause)
	}
	said(logbook.InterveneRerun, "")
	failing = false
	whole := flow.Provides("x")
	if _, err = run(plan(whole), 1); !errors.Is(err, errCrash) || j.snapshot().State != logbook.FlowRunning {
		t.Fatalf("the conductor was to die between two updates: %v, %s", err, j.snapshot().State)
	}
	end, err = run(plan(whole), -1)
	ends(end, err, logbook.FlowSuccess)
	detail := j.snapshot()
	atom, _ := detail.Atom("s0")
	if result, _ := atom.Result(); string(result) != `{"x":"by the step"}` {
		t.Errorf("the step that was to run again has the result %s\n%s", result, dump(detail))
	}
}
