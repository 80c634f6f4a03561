package conductor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var rewrite = flag.Bool("rewrite", false, "write the generated table into the page instead of comparing")

// The table stands between these lines of the page.
const (
	combinationsPage = "../docs/combinations.md"
	combinationsFrom = "<!-- generated from here: go test ./conductor -run TestCombinations -rewrite -->\n"
	combinationsTo   = "<!-- to here -->\n"
)

// dimension is a property of a flow, or of its end, with the values that it can have besides none. To add a
// dimension, add a row to dimensions, and its effect to combination.flow or combination.run.
type dimension []string

const (
	byStop       = "cancel or deadline" // of the job
	withHold     = "hold"
	withPoint    = "point of no return"
	withEach     = "each"
	withMax      = "each with `max_failures`"
	withRetry    = "retry"
	withIgnored  = "ignored failure"
	withBadUndo  = "failing revert"
	noPart       = "only a failed step"
	failingStep  = "ship"
	finishedStep = "reserve"
	errorStep    = "alert"
	finalStep    = "close"
)

// Without a value of the first dimension, the flow ends because a step fails.
var dimensions = []dimension{{byStop}, {withHold}, {withPoint}, {withEach, withMax}, {withRetry}, {withIgnored}, {withBadUndo}}

// combination is a set of values, at most one of each dimension, in the order of dimensions.
type combination []string

// allCombinations are sorted by size, so a combination comes after all its subsets.
func allCombinations() []combination {
	all := []combination{nil}
	for _, values := range dimensions {
		for _, before := range slices.Clone(all) {
			for _, value := range values {
				all = append(all, append(slices.Clone(before), value))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b combination) int { return len(a) - len(b) })
	return all
}

func (c combination) has(value string) bool { return slices.Contains(c, value) }

// within reports whether another combination has all values of this one.
func (c combination) within(other combination) bool {
	return !slices.ContainsFunc(c, func(value string) bool { return !other.has(value) })
}

func (c combination) String() string {
	if len(c) == 0 {
		return noPart
	}
	return strings.Join(c, " + ")
}

// parcel is the work of a step that can be undone.
type parcel struct {
	execute func(ctx context.Context, step string) error
	stuck   bool // its revert fails
}

func (p parcel) Execute(ctx context.Context, call *flow.Call) (any, error) {
	if p.execute == nil {
		return nil, nil
	}
	return nil, p.execute(ctx, call.Step)
}

func (p parcel) Revert(context.Context, *flow.Call) error {
	if p.stuck {
		return errors.New("the shelf is locked")
	}
	return nil
}

// closing is the work of the on_error step and the finally step.
type closing struct{}

func (closing) Execute(context.Context, *flow.Call) (any, error) { return nil, nil }

// flow is: reserve; then part with pack and ship, and perhaps a retry; then bill; on_error alert; finally close. In an each, ship runs for two
// elements, and the second one fails. ship fails, or waits for the end of the flow.
func (c combination) flow(began chan<- struct{}) *flow.Flow {
	fails := func(ctx context.Context, step string) error {
		if strings.HasSuffix(step, "[0]") {
			return nil
		}
		if !c.has(byStop) {
			return errors.New("the van is broken")
		}
		began <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	var packs, ships []flow.StepOption
	if c.has(withPoint) {
		packs = append(packs, flow.PointOfNoReturn())
	}
	if c.has(withIgnored) {
		ships = append(ships, flow.IgnoreFailure())
	}
	var ship flow.Node = flow.NewStep(failingStep, parcel{execute: fails}, ships...)
	switch {
	case c.has(withEach):
		ship = flow.Each("ships", "list", "x", flow.Linear("one", ship), flow.InOrder())
	case c.has(withMax):
		ship = flow.Each("ships", "list", "x", flow.Linear("one", ship), flow.InOrder(), flow.MaxFailures(1))
	}
	part := flow.Linear("part", flow.NewStep("pack", parcel{}, packs...), ship)
	if c.has(withRetry) {
		part.WithRetry(flow.Times("again", 2))
	}
	root := flow.Linear("order", flow.NewStep(finishedStep, parcel{stuck: c.has(withBadUndo)}), part, flow.NewStep("bill", parcel{})).
		OnError(flow.NewStep(errorStep, closing{})).Finally(flow.NewStep(finalStep, closing{}))
	if c.has(withHold) {
		root.OnFailure(flow.HoldOnFailure)
	}
	return root
}

// consequence is the end of a combination: cells of the table.
type consequence struct{ finished, onError, finally, state, outcome, repairs string }

// run runs the flow of a combination to its end. A deadline must have the consequence of a cancel, except that the
// on_error step runs.
func (c combination) run(t *testing.T, board cluster, number int, began <-chan struct{}) consequence {
	t.Helper()
	end := c.runOnce(t, board, number, began, false)
	if c.has(byStop) {
		other := c.runOnce(t, board, number, began, true)
		if end.onError != "does not run" || other.onError != "has run" {
			t.Errorf("%s: the on_error step %s after a deadline, and %s after a cancel", c, other.onError, end.onError)
		}
		end.onError = "after a deadline: has run; after a cancel: does not run"
		if other.onError = end.onError; other != end {
			t.Errorf("%s: a deadline has the consequence %q, and a cancel has %q", c, other, end)
		}
	}
	return end
}

func (c combination) runOnce(t *testing.T, board cluster, number int, began <-chan struct{}, deadline bool) consequence {
	t.Helper()
	book := logbook.Book{ID: logbook.NewBookID(), Name: "order"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "order",
		Factory: logbook.Factory{Name: "order", Args: json.RawMessage(strconv.Itoa(number))}}}
	store := logbook.Values{"list": json.RawMessage("[1, 2]")}
	posting := jobs.Posting{Name: "order", Book: &book, Store: store}
	if deadline {
		posting.Deadline = time.Now().Add(time.Second)
	}
	job := postOne(t, board, posting)
	if c.has(byStop) {
		<-began
	}
	if c.has(byStop) && !deadline {
		if err := board.Cancel(t.Context(), jobs.JobCommand{Job: job.ID, Revert: true, By: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	job = finished(t, board, job.ID)
	detail := detailOf(t, board, job)
	plan, err := flow.Compile(c.flow(nil), "list")
	if err != nil {
		t.Fatal(err)
	}
	options := engine.Options{Plan: plan, Detail: detail, Store: store}
	return consequence{finishedText(&detail), onErrorText(&detail), finallyText(&detail), stateText(&detail), string(job.Outcome), repairsText(options)}
}

// finishedText says what became of the steps that had succeeded when the flow failed.
func finishedText(detail *logbook.FlowDetail) string {
	states := map[string][]string{}
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		switch {
		case atom.Kind != logbook.KindTask || atom.Name == errorStep || atom.Name == finalStep || atom.Name == failingStep || atom.Name == failingStep+"[1]":
		case atom.State == logbook.AtomSuccess:
			states["keep their results"] = append(states["keep their results"], atom.Name)
		case atom.State == logbook.AtomReverted:
			states["are reverted"] = append(states["are reverted"], atom.Name)
		case atom.State == logbook.AtomRevertFailure:
			states["revert fails"] = append(states["revert fails"], atom.Name)
		}
	}
	text, round := "", ""
	if again, ok := detail.Atom("again"); ok && again.Number(logbook.ActionExecute) > 1 {
		round = " after the second round"
	}
	switch kept, back, stuck := states["keep their results"], states["are reverted"], states["revert fails"]; {
	case len(stuck) > 0 && len(kept) == 0:
		text, round = "are reverted"+round+", until a revert fails", ""
	case len(stuck) == 0 && len(back) == 0:
		text = "keep their results"
	case len(stuck) == 0 && len(kept) == 0:
		text = "are reverted"
	default:
		text = fmt.Sprintf("%q keep their results, %q are reverted, the reverts of %q fail", kept, back, stuck)
	}
	return text + round
}

// onErrorText says whether the on_error step has run.
func onErrorText(detail *logbook.FlowDetail) string {
	if atom, ok := detail.Atom(errorStep); ok && atom.State == logbook.AtomSuccess && atom.Number(logbook.ActionExecute) == 1 {
		return "has run"
	}
	return "does not run"
}

// finallyText says whether the finally step has run.
func finallyText(detail *logbook.FlowDetail) string {
	if atom, ok := detail.Atom(finalStep); ok && atom.State == logbook.AtomSuccess && atom.Number(logbook.ActionExecute) == 1 {
		return "has run"
	}
	return "runs when the flow ends"
}

func stateText(detail *logbook.FlowDetail) string {
	stuck := slices.ContainsFunc(detail.Atoms, func(a logbook.AtomDetail) bool { return a.State == logbook.AtomRevertFailure })
	switch ignored := len(detail.IgnoredFailures()) > 0; {
	case detail.State == logbook.FlowFailure && !stuck:
		return "`failure`, held"
	case detail.State == logbook.FlowSuccess && ignored:
		return "`success`, 1 failure ignored"
	}
	return "`" + string(detail.State) + "`"
}

// repairsText lists the interventions that the cluster and the conductor accept.
func repairsText(o engine.Options) string {
	step := failingStep
	if _, inEach := o.Detail.Atom(step + "[1]"); inEach {
		step += "[1]"
	}
	var accepted []string
	for _, repair := range []struct {
		text string
		logbook.Intervention
	}{
		{"rerun --from", logbook.Intervention{Kind: logbook.InterveneRerun, Step: step}},
		{"complete", logbook.Intervention{Kind: logbook.InterveneComplete, Step: step}},
		{"rerun", logbook.Intervention{Kind: logbook.InterveneRerun}},
		{"revert", logbook.Intervention{Kind: logbook.InterveneRevert}},
		{"retry-revert", logbook.Intervention{Kind: logbook.InterveneRetryRevert}},
		{"skip", logbook.Intervention{Kind: logbook.InterveneSkip, Step: finishedStep}},
	} {
		repair.ID, repair.Flow, repair.By = uuid.New(), o.Detail.ID, "ann"
		if _, err := engine.PlanIntervention(o, repair.Intervention); err == nil {
			accepted = append(accepted, "`"+repair.text+"`")
		}
	}
	if len(accepted) == 0 {
		return "nothing"
	}
	return strings.Join(accepted, ", ")
}

// row is a row of the table: the first row whose parts a combination has is its row.
type row struct {
	parts combination
	end   consequence
}

// TestCombinations: the page has the consequence of each combination of parts.
func TestCombinations(t *testing.T) {
	all := allCombinations()
	found := consequences(t, all)
	rows := rowsOf(all, found)
	if !decide(rows, all, found) {
		t.Fatal("the rows do not give the consequence of every combination")
	}
	var table strings.Builder
	table.WriteString("| Parts | Finished steps | On_error step | Finally step | State of the flow | Outcome of the job | Accepted repairs |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | `%s` | %s |\n", r.parts, r.end.finished, r.end.onError, r.end.finally, r.end.state, r.end.outcome, r.end.repairs)
	}
	fmt.Fprintf(&table, "\nThe table has %d rows for %d combinations.\n", len(rows), len(all))
	compareCombinations(t, table.String())
}

// rowsOf makes a short table. Each row is the set of parts that decides the most of the remaining
// combinations: all of them that have these parts have the same consequence.
func rowsOf(all []combination, found []consequence) (rows []row) {
	left := make([]int, len(all))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		best, most := -1, 0
		for candidate, parts := range all {
			decided, end, same := 0, consequence{}, true
			for _, i := range left {
				if !parts.within(all[i]) {
					continue
				}
				if decided++; decided == 1 {
					end = found[i]
				}
				same = same && found[i] == end
			}
			if same && decided > most {
				best, most = candidate, decided
			}
		}
		end := slices.IndexFunc(left, func(i int) bool { return all[best].within(all[i]) })
		rows = append(rows, row{all[best], found[left[end]]})
		left = slices.DeleteFunc(left, func(i int) bool { return all[best].within(all[i]) })
	}
	for i := 0; i < len(rows); {
		if fewer := slices.Delete(slices.Clone(rows), i, i+1); decide(fewer, all, found) {
			rows = fewer // a later row has the same consequence
		} else {
			i++
		}
	}
	return rows
}

// decide reports whether rows give the consequence of every combination.
func decide(rows []row, all []combination, found []consequence) bool {
	for i, parts := range all {
		at := slices.IndexFunc(rows, func(r row) bool { return r.parts.within(parts) })
		if at < 0 || rows[at].end != found[i] {
			return false
		}
	}
	return true
}

// consequences runs all combinations on one board.
func consequences(t *testing.T, all []combination) []consequence {
	t.Helper()
	found := make([]consequence, len(all))
	synctest.Test(t, func(t *testing.T) {
		registry, began := flow.NewRegistry(), make(chan struct{}, 10)
		err := registry.Register("order", func(number json.RawMessage) (*flow.Flow, error) {
			i, err := strconv.Atoi(string(number))
			if err != nil {
				return nil, err
			}
			return all[i].flow(began), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		board := openCluster(t)
		running(t, options(board, registry))
		for i, parts := range all {
			found[i] = parts.run(t, board, i, began)
		}
	})
	return found
}

func compareCombinations(t *testing.T, table string) {
	t.Helper()
	page, err := os.ReadFile(combinationsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := bytes.Cut(page, []byte(combinationsFrom))
	old, after, ends := bytes.Cut(rest, []byte(combinationsTo))
	if !begins || !ends {
		t.Fatalf("%s lacks the lines around the table:\n%s%s", combinationsPage, combinationsFrom, combinationsTo)
	}
	if string(old) == table {
		return
	}
	if !*rewrite {
		t.Fatalf("%s differs from the engine; run with -rewrite and read the difference; got:\n%s", combinationsPage, table)
	}
	made := slices.Concat(before, []byte(combinationsFrom+table+combinationsTo), after)
	if err := os.WriteFile(combinationsPage, made, 0o644); err != nil {
		t.Fatal(err)
	}
}
