package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// listener is a controller that tries twice and records its inputs.
type listener struct {
	rounds int
	heard  []string
}

func (l *listener) Next(h *flow.History) (any, error) { return len(h.Rounds), nil }

func (l *listener) OnFailure(h *flow.History) flow.Decision {
	var rounds []string
	for _, round := range h.Rounds {
		text := string(round.Value) + ":"
		for i := range round.Failures {
			text += " " + round.Failures[i].Error()
		}
		rounds = append(rounds, text)
	}
	l.heard = append(l.heard, strings.Join(rounds, ", "))
	if len(h.Rounds) < l.rounds {
		return flow.Decision{Verdict: flow.VerdictRetry}
	}
	return flow.Decision{Verdict: flow.VerdictRevert}
}

// stubborn is a controller that always tries again.
type stubborn struct{}

func (stubborn) Next(*flow.History) (any, error) { return nil, nil }

func (stubborn) OnFailure(*flow.History) flow.Decision {
	return flow.Decision{Verdict: flow.VerdictRetry}
}

// complaining is a step that fails with its attempt in the text.
func complaining(name string) *flow.Step {
	return flow.Func(name, func(ctx context.Context, _ struct{}) (struct{}, error) {
		return struct{}{}, fmt.Errorf("%s %d", name, flow.CallFrom(ctx).Attempt)
	})
}

func compiled(t *testing.T, root flow.Node) *flow.Plan {
	t.Helper()
	plan, err := flow.Compile(root)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// runOn runs a plan on a journal's flow to its end, under its own claim.
func runOn(j *journal, plan *flow.Plan, workers int) (engine.End, error) {
	token := logbook.Token{Index: j.snapshot().Fence.Index + 1}
	end, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Token: token, Workers: workers})
	if err == nil && end.Update != nil {
		err = j.apply(*end.Update)
	}
	return end, err
}

// TestHistoryIsTheSameAfterAReload: after a crash before any update, the next
// owner shows the controller the same history as without a crash.
func TestHistoryIsTheSameAfterAReload(t *testing.T) {
	want := "0: step s: s 1|0: step s: s 1, 1: step s: s 2|0: step s: s 1, 1: step s: s 2, 2: step s: s 3"
	run := func(crash int) (heard []string, updates int) {
		j := newJournal(newDetail())
		for j.left = crash; ; {
			l := &listener{rounds: 3}
			_, err := runOn(j, compiled(t, flow.Linear("f", complaining("s")).WithRetry(flow.NewRetrier("r", l))), 1)
			heard = append(heard, l.heard...)
			if err == nil {
				return slices.Compact(heard), len(j.trace())
			}
			if !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			j = newJournal(j.snapshot())
		}
	}
	heard, updates := run(-1)
	if got := strings.Join(heard, "|"); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	for crash := range updates {
		// A crash in the middle of a step costs an attempt, which is in its
		// text: only the shape counts.
		heard, _ := run(crash)
		if got := len(heard); got < 3 || strings.Count(heard[got-1], "step s") != 3 {
			t.Errorf("after a crash before update %d: %q", crash, heard)
		}
	}
}

// TestMaxRounds: a controller that never gives up is stopped.
func TestMaxRounds(t *testing.T) {
	j := newJournal(newDetail())
	end, err := runOn(j, compiled(t, flow.Linear("f", complaining("s")).WithRetry(flow.NewRetrier("r", stubborn{}))), 1)
	detail := j.snapshot()
	retry, _ := detail.Atom("r")
	if err != nil || end.State != logbook.FlowReverted || len(retry.Attempts) != flow.MaxRounds+1 {
		t.Errorf("%s, %v, after %d attempts", end.State, err, len(retry.Attempts))
	}
}

// TestRoundsStaySmall: however many steps fail and however they complain, a
// retry with all of its rounds can be read in one message.
func TestRoundsStaySmall(t *testing.T) {
	const steps, message = 50, 3 << 20
	unordered := flow.Unordered("u")
	for i := range steps {
		unordered.Add(flow.Func(fmt.Sprint("s", i), func(context.Context, struct{}) (struct{}, error) {
			return struct{}{}, errors.New(strings.Repeat("x", 10_000))
		}, flow.Uninterruptible()))
	}
	j := newJournal(newDetail())
	plan := compiled(t, flow.Linear("f", unordered).WithRetry(flow.NewRetrier("r", stubborn{})))
	if _, err := runOn(j, plan, steps); err != nil {
		t.Fatal(err)
	}
	detail := j.snapshot()
	retry, _ := detail.Atom("r")
	if text, err := json.Marshal(retry); err != nil || len(text) > message || len(retry.Attempts[1].Failures) != 16 {
		t.Errorf("%d bytes, %d failures, %v", len(text), len(retry.Attempts[1].Failures), err)
	}
}

type loud struct{ value any }

func (l loud) Next(*flow.History) (any, error) { return l.value, nil }

func (loud) OnFailure(*flow.History) flow.Decision { return flow.Decision{Verdict: flow.VerdictRevert} }

// TestValuesOfRounds: a value that cannot be stored is a failure of the retry.
func TestValuesOfRounds(t *testing.T) {
	for _, row := range []struct {
		name  string
		value any
		want  logbook.FlowState
	}{
		{"small enough", strings.Repeat("x", 8<<10-2), logbook.FlowSuccess},
		{"too large", strings.Repeat("x", 8<<10-1), logbook.FlowReverted},
		{"no JSON", make(chan int), logbook.FlowReverted},
		{"nothing", nil, logbook.FlowSuccess},
	} {
		end, err := runOn(newJournal(newDetail()), compiled(t, flow.Linear("f").WithRetry(flow.NewRetrier("r", loud{row.value}))), 1)
		if err != nil || end.State != row.want {
			t.Errorf("%s: %s, %v", row.name, end.State, err)
		}
		if row.want == logbook.FlowReverted && (end.Cause.Kind != logbook.FailureResult || end.Cause.Step != "r") {
			t.Errorf("%s: %+v", row.name, end.Cause)
		}
	}
}

// TestRevertsHearWhy: reverts before another round get only the failures of their own round.
func TestRevertsHearWhy(t *testing.T) {
	var told []string
	first := flow.FuncRevert("a", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil },
		func(ctx context.Context, _ struct{}, _ *struct{}) error {
			for name, failure := range flow.CallFrom(ctx).FlowFailures {
				told = append(told, name+": "+failure.Message)
			}
			return nil
		})
	end, err := runOn(newJournal(newDetail()), compiled(t, flow.Linear("f", first, complaining("s")).WithRetry(flow.Times("r", 2))), 1)
	if got := strings.Join(told, ", "); err != nil || end.State != logbook.FlowReverted || got != "s: s 1, s: s 2" {
		t.Errorf("%s, %v: told %s", end.State, err, got)
	}
}

// TestRevertCause: the given cause is recorded, cut to the limits.
func TestRevertCause(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for _, row := range []struct {
		name  string
		cause func() *logbook.Failure
		kind  string
		text  string
	}{
		{"none", nil, logbook.FailureOperator, "the flow was cancelled"},
		{"nil", func() *logbook.Failure { return nil }, logbook.FailureOperator, "the flow was cancelled"},
		{"given", func() *logbook.Failure { return &logbook.Failure{Kind: "budget", Message: "spent"} }, "budget", "spent"},
		{"long", func() *logbook.Failure { return &logbook.Failure{Message: strings.Repeat("long ", 1<<18)} }, logbook.FailureError, "long long"},
	} {
		j := newJournal(newDetail())
		end, err := engine.Run(context.Background(), engine.Options{Plan: compiled(t, flow.Linear("f", complaining("s"))),
			Detail: j.snapshot(), Journal: j, Revert: closed, RevertCause: row.cause})
		if err != nil || j.apply(*end.Update) != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		cause := j.snapshot().Cause
		if end.State != logbook.FlowReverted || cause.Kind != row.kind || !strings.HasPrefix(cause.Message, row.text) {
			t.Errorf("%s: %s, %.200v", row.name, end.State, cause)
		}
	}
}

// TestRevertCauseThatPanics: it ends the run, and not the process.
func TestRevertCauseThatPanics(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	j := newJournal(newDetail())
	_, err := engine.Run(context.Background(), engine.Options{Plan: compiled(t, flow.Linear("f", complaining("s"))),
		Detail: j.snapshot(), Journal: j, Revert: closed, RevertCause: func() *logbook.Failure { panic("aargh") }})
	if panicked := (&flow.PanicError{}); !errors.As(err, &panicked) || !strings.Contains(err.Error(), "cannot get the cause of the revert") {
		t.Errorf("the run ended with: %v", err)
	}
}

// TestTriesAreThoseOfTheRound: a step that a retry starts again has all tries of its policy,
// also in a process that resumed the flow before that. Failures of an earlier round do not
// count.
func TestTriesAreThoseOfTheRound(t *testing.T) {
	woot, moment := &logbook.Failure{Kind: "error", Message: "woot"}, time.Unix(1, 0)
	attempt := func(action logbook.Action, number int, failure *logbook.Failure) logbook.Attempt {
		a := logbook.Attempt{Action: action, Number: number, StartedAt: moment, EndedAt: moment, Failure: failure}
		if failure == nil && action == logbook.ActionExecute {
			a.Result = json.RawMessage("{}")
		}
		return a
	}
	failing := func(at int) func(context.Context) error {
		return func(ctx context.Context) error {
			if flow.CallFrom(ctx).Attempt == at {
				return errors.New("woot")
			}
			return nil
		}
	}
	for _, row := range []struct {
		name  string
		state logbook.AtomState
		done  []logbook.Attempt // by the step, so far
		fails int               // the execution that fails, of the step
		undo  int               // the revert that fails
		ends  bool              // in success; otherwise the step behind it fails
	}{
		{"executions", logbook.AtomPending, []logbook.Attempt{attempt("execute", 1, woot), attempt("execute", 2, nil), attempt("revert", 1, nil)}, 3, 0, true},
		{"reverts", logbook.AtomSuccess, []logbook.Attempt{attempt("execute", 1, nil), attempt("revert", 1, woot), attempt("revert", 2, nil),
			attempt("execute", 2, nil)}, 0, 3, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			step := flow.FuncRevert("a", func(ctx context.Context, _ none) (none, error) { return none{}, failing(row.fails)(ctx) },
				func(ctx context.Context, _ none, _ *none) error { return failing(row.undo)(ctx) }, flow.Retry(flow.Backoff{Attempts: 2}))
			behind := act("b", func(context.Context) error {
				if row.ends {
					return nil
				}
				return errors.New("woot")
			})
			plan := compile(t, flow.Linear("f", step, behind).WithRetry(flow.Times("r", 2)))
			detail := newDetail()
			detail.State = logbook.FlowRunning
			retry, atom := logbook.NewAtom("r", logbook.KindRetry), logbook.NewAtom("a", logbook.KindTask)
			retry.State, retry.Attempts = logbook.AtomSuccess, []logbook.Attempt{attempt("execute", 1, nil), attempt("execute", 2, nil)}
			atom.State, atom.Attempts = row.state, row.done
			detail.Atoms = []logbook.AtomDetail{retry, atom}
			end, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: detail, Journal: newJournal(detail), Token: logbook.Token{Index: 1}})
			want := map[bool]logbook.FlowState{true: logbook.FlowSuccess, false: logbook.FlowReverted}[row.ends]
			if err != nil || end.State != want {
				t.Errorf("the flow is %s, want %s: %v, %v", end.State, want, end.Cause, err)
			}
		})
	}
}

// TestMaxRoundsOfNestedRetries checks that no retry exceeds MaxRounds, however deep
// retries are nested, and that the cause names the retry that has ended.
func TestMaxRoundsOfNestedRetries(t *testing.T) {
	for _, depth := range []int{2, 7, 14, 30} {
		node := flow.Node(complaining("s"))
		for level := depth; level > 0; level-- {
			node = flow.Linear(fmt.Sprint("f", level), node).WithRetry(flow.Times(fmt.Sprint("r", level), 2))
		}
		j := newJournal(newDetail())
		end, err := runOn(j, compiled(t, node), 1)
		if err != nil || end.State != logbook.FlowReverted {
			t.Fatalf("%d deep: %s, %v", depth, end.State, err)
		}
		detail := j.snapshot()
		for level := 1; level <= depth; level++ {
			retry, _ := detail.Atom(fmt.Sprint("r", level))
			if begun := retry.Number(logbook.ActionExecute); begun > flow.MaxRounds || level == depth && begun < min(1<<depth, flow.MaxRounds) {
				t.Errorf("%d deep: retry %d began %d times", depth, level, begun)
			}
		}
		if said := end.Cause.Error(); (depth > 6) != strings.Contains(said, fmt.Sprintf(`retry "r%d" has started its flow 100 times`, depth)) {
			t.Errorf("%d deep: the cause is %s", depth, said)
		}
	}
}

// TestRoundsAreThoseOfARun: when the flow as a whole is run again, as a job's
// policy has it, its retries have all their rounds again.
func TestRoundsAreThoseOfARun(t *testing.T) {
	plan := compiled(t, flow.Linear("f", complaining("s")).WithRetry(flow.Times("r", 60)))
	j := newJournal(newDetail())
	for run := 1; run <= 3; run++ {
		token := logbook.Token{Index: uint64(2 * run)}
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.folded(logbook.KeptAttempts), Journal: j, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.apply(*end.Update); err != nil {
			t.Fatal(err)
		}
		detail := j.snapshot()
		if retry, _ := detail.Atom("r"); retry.Number(logbook.ActionExecute) != 60*run {
			t.Errorf("run %d: the retry has begun %d times", run, retry.Number(logbook.ActionExecute))
		}
		j.detail.Interventions = append(j.detail.Interventions, logbook.Intervention{
			ID: uuid.New(), Kind: logbook.InterveneRerun, By: "ann", Token: logbook.Token{Index: token.Index + 1},
		})
	}
}

// TestStatesThatStay: an observer gets a state when a step enters it, and not at further
// attempts in that state, in this run or the next.
func TestStatesThatStay(t *testing.T) {
	undo := 0
	step := flow.FuncRevert("t", func(context.Context, none) (none, error) { return none{}, errors.New("woot") },
		func(context.Context, none, *none) error {
			if undo++; undo < 3 {
				return errors.New("not yet")
			}
			return nil
		}, flow.Retry(flow.Backoff{Attempts: 4}))
	plan := compiled(t, flow.Linear("f", step).WithRetry(flow.Times("r", 1)))
	j := newJournal(newDetail())
	var told []string
	for token := uint64(1); ; token++ {
		j.left = 6 // of every run: the first ends while it reverts
		end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Workers: 1, Token: logbook.Token{Index: token},
			Observe: func(e engine.Event) {
				if e.Step == "t" && e.State != "" {
					told = append(told, string(e.State))
				} else if e.Step == "t" && e.Attempt == nil {
					t.Errorf("an event without a change: %+v", e)
				}
			}})
		if err == nil {
			if end.State != logbook.FlowReverted || token < 2 {
				t.Errorf("%s in run %d", end.State, token)
			}
			break
		}
	}
	want := strings.Repeat("running pending ", 3) + "running failure reverting reverted"
	if got := strings.Join(told, " "); got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
}

// TestRevertsHearWhatWasRecorded: a failed step is undone while another step still runs, and
// its revert gets its own failure only. Reverts after the second failure get both.
func TestRevertsHearWhatWasRecorded(t *testing.T) {
	undone, heard := make(chan struct{}), make(map[string]string)
	var mu sync.Mutex
	step := func(name string, execute func() error, options ...flow.StepOption) *flow.Step {
		return flow.FuncRevert(name, func(context.Context, none) (none, error) { return none{}, execute() },
			func(ctx context.Context, _ none, _ *none) error {
				mu.Lock()
				defer mu.Unlock()
				heard[name] = strings.Join(slices.Sorted(maps.Keys(flow.CallFrom(ctx).FlowFailures)), " ")
				if name == "p" {
					close(undone)
				}
				return nil
			}, options...)
	}
	woot := errors.New("woot")
	plan := compiled(t, flow.Linear("f", step("a", func() error { return nil }), flow.Unordered("g",
		step("p", func() error { return woot }), step("q", func() error { <-undone; return woot }, flow.Uninterruptible()))))
	end, err := runOn(newJournal(newDetail()), plan, 2)
	if err != nil || end.State != logbook.FlowReverted || end.Cause.Step != "p" {
		t.Fatalf("%+v, %v", end, err)
	}
	if got := fmt.Sprint(heard); got != "map[a:p q p:p q:p q]" {
		t.Errorf("the reverts have heard of %s", got)
	}
}
