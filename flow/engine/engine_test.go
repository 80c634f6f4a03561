package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

type none = struct{}

// act is a step from a function without arguments and results.
func act(name string, execute func(ctx context.Context) error, options ...flow.StepOption) *flow.Step {
	return flow.Func(name, func(ctx context.Context, _ none) (none, error) { return none{}, execute(ctx) }, options...)
}

func fine(context.Context) error { return nil }

func compile(t *testing.T, root flow.Node, inputs ...string) *flow.Plan {
	t.Helper()
	plan, err := flow.Compile(root, inputs...)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// runAll runs a plan from the start and applies its last update too.
func runAll(t *testing.T, ctx context.Context, o engine.Options) (engine.End, logbook.FlowDetail, error) {
	t.Helper()
	j := newJournal(newDetail())
	o.Detail = j.snapshot()
	if o.Journal == nil {
		o.Journal = j
	}
	end, err := engine.Run(ctx, o)
	if err == nil && end.Update != nil {
		if err := j.apply(*end.Update); err != nil {
			t.Fatal(err)
		}
	}
	return end, j.snapshot(), err
}

func TestValuesReachTheirSteps(t *testing.T) {
	type made struct {
		X int  `json:"x"`
		Y *int `json:"y,omitempty"`
	}
	type wanted struct {
		X     int    `json:"x"`
		Y     *int   `json:"y"`
		Whole string `json:"whole"`
		Input int    `json:"input"`
		Extra *int   `json:"extra"`
		Other int    `json:"other"`
	}
	var got wanted
	var undone *made
	var failures map[string]*logbook.Failure
	root := flow.Linear("f",
		flow.FuncRevert("make", func(context.Context, none) (made, error) { return made{X: 5}, nil },
			func(ctx context.Context, _ none, out *made) error {
				undone, failures = out, flow.CallFrom(ctx).FlowFailures
				return nil
			}),
		flow.NewStep("raw", rawTask(`"all"`), flow.Provides("whole")),
		flow.Func("use", func(_ context.Context, in wanted) (none, error) { got = in; return none{}, errors.New("woot") },
			flow.Rebind(map[string]string{"other": "input"})))
	end, _, err := runAll(t, context.Background(), engine.Options{Plan: compile(t, root, "input", "extra", "x"),
		Store: logbook.Values{"input": json.RawMessage("3"), "x": json.RawMessage("99")}})
	if err != nil || end.State != logbook.FlowReverted {
		t.Fatalf("%v, %v", end, err)
	}
	if got.X != 5 || got.Y != nil || got.Whole != "all" || got.Input != 3 || got.Extra != nil || got.Other != 3 {
		t.Errorf("the step was given %+v", got)
	}
	if undone == nil || undone.X != 5 {
		t.Errorf("the revert was given %+v", undone)
	}
	if len(failures) != 1 || failures["use"] == nil || failures["use"].Message != "woot" {
		t.Errorf("the revert was told of the failures %v", failures)
	}
}

// A failure that was followed by another attempt does not cause a revert, even while that
// attempt still runs.
func TestFailuresThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told map[string]*logbook.Failure
		twice := flow.Retry(flow.Backoff{Attempts: 2})
		flaky := func(ctx context.Context, _ none) (none, error) {
			if flow.CallFrom(ctx).Attempt == 1 {
				return none{}, errors.New("over")
			}
			<-time.After(2 * time.Second)
			return none{}, nil
		}
		root := flow.Linear("f", flow.Func("past", flaky, twice), flow.Unordered("u",
			flow.FuncRevert("present", flaky, func(ctx context.Context, _ none, _ *none) error {
				told = flow.CallFrom(ctx).FlowFailures
				return nil
			}, twice),
			act("bad", func(context.Context) error { <-time.After(time.Second); return errors.New("woot") })))
		if _, _, err := runAll(t, t.Context(), engine.Options{Plan: compile(t, root)}); err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || told["bad"] == nil {
			t.Errorf("the revert was told of the failures %v", told)
		}
	})
}

// A logbook that copies and checks everything accepts the engine's writes.
func TestRunWithTheMemoryLogbook(t *testing.T) {
	book := logbook.Book{ID: logbook.NewBookID(), Name: "b"}
	detail := logbook.FlowDetail{ID: logbook.NewFlowID(), Book: book.ID, Name: "f", State: logbook.FlowPending, Factory: logbook.Factory{Name: "k"}}
	book.Flows = []logbook.FlowDetail{detail}
	kept := memory.New(logbook.Limits{})
	if err := kept.SaveBook(t.Context(), book); err != nil {
		t.Fatal(err)
	}
	record := func(update logbook.Update) <-chan error {
		done := make(chan error, 1)
		verdicts, err := kept.Update(t.Context(), update)
		done <- errors.Join(append(verdicts, err)...)
		return done
	}
	root := flow.Linear("f", act("a", fine), flow.Unordered("u", row("s", 20)...), act("bad", func(context.Context) error { return errors.New("woot") }))
	end, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, root), Detail: detail, Journal: recorder(record)})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-record(*end.Update); err != nil {
		t.Fatal(err)
	}
	got, err := kept.FlowDetail(t.Context(), detail.ID)
	if err != nil || got.State != logbook.FlowReverted || got.Cause == nil || got.Cause.Step != "bad" || len(got.Atoms) != 22 {
		t.Errorf("the logbook holds %+v, %v", got, err)
	}
}

type recorder func(logbook.Update) <-chan error

func (r recorder) Record(update logbook.Update) <-chan error { return r(update) }

type rawTask string

func (r rawTask) Execute(context.Context, *flow.Call) (any, error) { return json.RawMessage(r), nil }

// slowJournal makes updates durable only on request.
type slowJournal struct {
	*journal
	waiting []chan error
}

func (s *slowJournal) Record(update logbook.Update) <-chan error {
	done := make(chan error, 1)
	s.waiting = append(s.waiting, done)
	if err := s.apply(update); err != nil {
		done <- err
	}
	return done
}

func (s *slowJournal) release(err error) {
	// The engine continues, and records, as soon as it gets the first.
	waiting := s.waiting
	s.waiting = nil
	for _, done := range waiting {
		done <- err
	}
}

// No step starts before its mark and the outcomes that led to it are durable: a record lost in
// a crash has had no effect.
func TestStepsWaitForTheirMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started []string
		ended := make(chan error, 1)
		note := func(name string) func(context.Context) error {
			return func(context.Context) error { started = append(started, name); return nil }
		}
		j := &slowJournal{journal: newJournal(newDetail())}
		plan := compile(t, flow.Linear("f", act("a", note("a")), act("b", note("b"))))
		go func() {
			_, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j})
			ended <- err
		}()
		for _, want := range []string{"[]", "[a]", "[a b]"} {
			synctest.Wait()
			if got := fmt.Sprint(started); got != want {
				t.Errorf("started %s, want %s", got, want)
			}
			j.release(nil)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// An update that is not durable yet keeps the end back.
func TestEndWaitsForEarlierUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &slowJournal{journal: newJournal(newDetail())}
		ended := make(chan error, 1)
		go func() {
			_, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, act("a", fine)), Detail: j.snapshot(), Journal: j})
			ended <- err
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the run ended before its first update was durable")
		default:
		}
		j.release(logbook.ErrFenced)
		if err := <-ended; !errors.Is(err, logbook.ErrFenced) {
			t.Errorf("the refusal of an update came back as %v", err)
		}
	})
}

// meanwhile is a journal that lets everything else happen before it takes an
// update, as a slow one does.
type meanwhile struct {
	*journal
	// second is closed by the second update, if it is not nil.
	second chan struct{}
}

func (m meanwhile) Record(update logbook.Update) <-chan error {
	if update.Sequence == 2 && m.second != nil {
		close(m.second)
	}
	synctest.Wait()
	return m.journal.Record(update)
}

func TestOutcomesThatWaitShareAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := meanwhile{newJournal(newDetail()), make(chan struct{})}
		late := func(context.Context) error { <-j.second; return nil }
		plan := compile(t, flow.Linear("f", flow.Unordered("u", act("a", fine), act("b", late), act("c", late)), act("d", fine)))
		if _, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j}); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, update := range j.trace() {
			lines = append(lines, fmt.Sprint(len(update.Atoms)))
		}
		// Three marks; one outcome; the two others, which waited, with the
		// mark of d. The last update is not recorded.
		if got := strings.Join(lines, " "); got != "3 1 3" {
			t.Errorf("changes in each update: %s", got)
		}
	})
}

func TestLosingTheClaim(t *testing.T) {
	lost := errors.New("the claim is lost")
	t.Run("steps are cancelled and awaited", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			j := newJournal(newDetail())
			var cause error
			plan := compile(t, act("a", func(ctx context.Context) error {
				cancel(lost)
				<-ctx.Done()
				cause = context.Cause(ctx)
				return nil
			}))
			_, err := engine.Run(ctx, engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j})
			if !errors.Is(err, lost) || !errors.Is(cause, lost) {
				t.Errorf("the run ended with %v, the step with %v", err, cause)
			}
			if n := len(j.trace()); n != 1 {
				t.Errorf("%d updates; after the loss nothing may be written", n)
			}
		})
	})
	t.Run("a step that does not listen is left behind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			stubborn := make(chan none)
			j := newJournal(newDetail())
			plan := compile(t, act("a", func(context.Context) error { cancel(lost); <-stubborn; return nil }))
			start := time.Now()
			_, err := engine.Run(ctx, engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j})
			if took := time.Since(start); !errors.Is(err, lost) || took != engine.DefaultGrace {
				t.Errorf("after %s: %v", took, err)
			}
			close(stubborn)
		})
	})
	for name, gate := range map[string]func(context.Context) error{
		"panics":     func(context.Context) error { panic("aargh") },
		"never ends": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run("a gate that "+name+" ends the run", func(t *testing.T) {
			called := false
			plan := compile(t, act("a", func(context.Context) error { called = true; return nil }))
			_, _, err := runAll(t, context.Background(), engine.Options{Plan: plan, Gate: gate})
			if !errors.Is(err, engine.ErrGate) || called {
				t.Errorf("%v; called: %v", err, called)
			}
		})
	}
	t.Run("a closed gate ends the run", func(t *testing.T) {
		called := false
		plan := compile(t, act("a", func(context.Context) error { called = true; return nil }))
		_, _, err := runAll(t, context.Background(), engine.Options{Plan: plan, Gate: func(context.Context) error { return lost }})
		if !errors.Is(err, engine.ErrGate) || !errors.Is(err, lost) || called {
			t.Errorf("%v; called: %v", err, called)
		}
	})
}

// However many outcomes arrive together, no update is larger than a command may be.
func TestUpdatesStaySmall(t *testing.T) {
	limits := logbook.MaxLimits
	limits.Command = 64 << 10
	limits.Value = 20 << 10
	large := rawTask(`"` + strings.Repeat("x", 19<<10) + `"`)
	var steps []flow.Node
	for i := range 40 {
		steps = append(steps, flow.NewStep(fmt.Sprintf("s%d", i), large))
	}
	root := flow.Linear("f", flow.Unordered("u", steps...), act("last", func(context.Context) error { return errors.New("woot") }))
	synctest.Test(t, func(t *testing.T) {
		j := meanwhile{newJournal(newDetail()), nil}
		end, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, root), Detail: j.snapshot(), Journal: j, Limits: limits, Workers: 40})
		if err != nil || end.State != logbook.FlowReverted {
			t.Fatalf("%+v, %v", end, err)
		}
		if err := j.apply(*end.Update); err != nil {
			t.Fatal(err)
		}
		for _, update := range j.trace() {
			encoded, err := json.Marshal(update)
			if err != nil || len(encoded) > limits.Command {
				t.Errorf("update %d takes %d bytes: %v", update.Sequence, len(encoded), err)
			}
		}
	})
}

// A long flow without reverts is undone in one go: the changes of 5,000 steps
// follow from one outcome, and must be divided.
func TestLongRevert(t *testing.T) {
	steps := row("s", 5000)
	root := flow.Linear("f", append(steps, act("last", func(context.Context) error { return errors.New("woot") }))...)
	end, detail, err := runAll(t, context.Background(), engine.Options{Plan: compile(t, root)})
	if err != nil || end.State != logbook.FlowReverted || detail.State != logbook.FlowReverted {
		t.Fatalf("%v, %v", end.State, err)
	}
	for _, atom := range detail.Atoms {
		if atom.State != logbook.AtomReverted {
			t.Fatalf("step %s is %s", atom.Name, atom.State)
		}
	}
}

func TestBadResults(t *testing.T) {
	for _, row := range []struct {
		name string
		task flow.Task
		kind string
	}{
		{"not JSON", rawTask("{"), logbook.FailureResult},
		{"too large", rawTask(`"` + strings.Repeat("x", logbook.MaxLimits.Value) + `"`), logbook.FailureResult},
		{"too deep", rawTask(strings.Repeat("[", 100) + strings.Repeat("]", 100)), logbook.FailureResult},
		{"cannot be encoded", anyTask(func() (any, error) { return make(chan int), nil }), logbook.FailureResult},
		{"encoding panics", anyTask(func() (any, error) { return panicking{}, nil }), logbook.FailurePanic},
		{"the error panics", anyTask(func() (any, error) { return nil, panicking{} }), logbook.FailurePanic},
		{"the goroutine ends", anyTask(func() (any, error) { runtime.Goexit(); return nil, nil }), logbook.FailurePanic},
		{"the error is a nil failure", anyTask(func() (any, error) { var f *logbook.Failure; return 1, f }), logbook.FailureError},
		{"a kind of its own", anyTask(func() (any, error) { return nil, flow.Fail("own", errors.New("x")) }), "own"},
	} {
		t.Run(row.name, func(t *testing.T) {
			end, detail, err := runAll(t, context.Background(), engine.Options{Plan: compile(t, flow.NewStep("a", row.task))})
			if err != nil || end.State != logbook.FlowReverted || end.Cause.Kind != row.kind || end.Cause.Step != "a" {
				t.Errorf("%s of %+v, %v", end.State, end.Cause, err)
			}
			if f := detail.Atoms[0].Failure(); f == nil || f.Kind != row.kind || f.Message == "" {
				t.Errorf("recorded is %+v", f)
			}
		})
	}
}

// A result may be as large as a value, to the byte.
func TestLargestResult(t *testing.T) {
	largest := rawTask(`"` + strings.Repeat("x", logbook.MaxLimits.Value-2) + `"`)
	for over, want := range []logbook.FlowState{logbook.FlowSuccess, logbook.FlowReverted} {
		task := largest + rawTask(strings.Repeat(" ", over))
		end, _, err := runAll(t, context.Background(), engine.Options{Plan: compile(t, flow.NewStep("a", task))})
		if err != nil || end.State != want {
			t.Errorf("%d bytes over the limit: %s, %v", over, end.State, err)
		}
	}
}

type anyTask func() (any, error)

func (a anyTask) Execute(context.Context, *flow.Call) (any, error) { return a() }

type panicking struct{}

func (panicking) Error() string                { panic("aargh") }
func (panicking) MarshalJSON() ([]byte, error) { panic("aargh") }

// However long the results and failures of a step are, the logbook accepts the updates of its
// flow, and the last update together with the job's ending. An update that the logbook refuses
// once, it would refuse from every conductor that claims the job.
func TestLongEvidence(t *testing.T) {
	lower := logbook.Limits{Name: 64, Value: 1 << 10, Command: 64 << 10, Steps: 100}
	uneven := logbook.MaxLimits
	uneven.Command = 64 << 10
	long := strings.Repeat("x", 1<<20)
	var wide logbook.Failure
	for range 100 {
		wide.Causes = append(wide.Causes, logbook.Failure{Kind: long, Step: long, Message: long, Stack: long})
	}
	for name, task := range map[string]flow.Task{
		"message":           evil{execute: errors.New(long)},
		"kind":              evil{execute: flow.Fail("a\n"+long, errors.New("x"))},
		"causes":            evil{execute: &wide, undo: &wide},
		"panic":             evil{panics: long},
		"stderr and causes": evil{execute: &wide, undo: &wide, stderr: long},
		"result and stderr": evil{result: `"` + strings.Repeat("x", 200<<10) + `"`, stderr: long},
	} {
		for _, limits := range []logbook.Limits{logbook.MaxLimits, lower, uneven} {
			t.Run(fmt.Sprintf("%s/%d", name, limits.Value), func(t *testing.T) {
				j := newJournal(newDetail())
				j.limits = limits
				plan := compile(t, flow.Linear("f", flow.NewStep("a", task), act("bad", func(context.Context) error { return &wide })))
				end, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Limits: limits})
				if err != nil {
					t.Fatal(err)
				}
				if err := j.apply(*end.Update); err != nil {
					t.Fatal(err)
				}
				if err := limits.CheckFailure("cause", end.Cause); err != nil {
					t.Error(err)
				}
				for _, update := range j.trace() {
					if encoded, _ := json.Marshal(update); len(encoded) > limits.Command-limits.Command/8 {
						t.Errorf("update %d takes %d bytes", update.Sequence, len(encoded))
					}
				}
				if ending, _ := json.Marshal([]any{end.Update, end.Cause}); len(ending) > limits.Command {
					t.Errorf("the ending takes %d bytes", len(ending))
				}
			})
		}
	}
}

// A step that is tried a hundred times, and undone as often, and says much
// each time, stays an atom that can be read in one message.
func TestEvidenceOfManyAttempts(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var woot logbook.Failure
	for range 16 {
		woot.Causes = append(woot.Causes, logbook.Failure{Kind: "k", Message: long, Stack: long})
	}
	step := flow.NewStep("a", evil{execute: &woot, undo: &woot, stderr: long}, flow.Retry(flow.Backoff{Attempts: logbook.MaxAttempts}))
	_, detail, err := runAll(t, context.Background(), engine.Options{Plan: compile(t, step)})
	if err != nil || len(detail.Atoms[0].Attempts) != 2*logbook.MaxAttempts {
		t.Fatalf("%d attempts, %v", len(detail.Atoms[0].Attempts), err)
	}
	if encoded, _ := json.Marshal(detail.Atoms[0]); len(encoded) > 3<<20 {
		t.Errorf("the atom takes %d bytes", len(encoded))
	}
}

// evil is a task that leaves much behind.
type evil struct {
	execute, undo          error
	panics, result, stderr string
}

func (e evil) Execute(_ context.Context, call *flow.Call) (any, error) {
	call.KeepStderr(e.stderr, false)
	if e.panics != "" {
		panic(e.panics)
	}
	return json.RawMessage(e.result), e.execute
}

func (e evil) Revert(_ context.Context, call *flow.Call) error {
	call.KeepStderr(e.stderr, false)
	return e.undo
}

// A retry that was recorded by a machine whose clock is a century ahead waits
// no longer than the step's policy says; one that is due soon keeps its time.
func TestRetryTimesAreHeldToThePolicy(t *testing.T) {
	for _, row := range []struct {
		name  string
		state logbook.AtomState
		ahead time.Duration
		want  time.Duration
	}{
		{"execution, by far", logbook.AtomPending, 1 << 62, time.Minute},
		{"execution, soon", logbook.AtomPending, time.Second, time.Second},
		{"execution, over", logbook.AtomPending, -time.Second, 0},
		{"revert, by far", logbook.AtomReverting, 1 << 62, time.Minute},
		{"revert, soon", logbook.AtomReverting, time.Second, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				step := flow.NewStep("a", evil{}, flow.Retry(flow.Backoff{Attempts: 3, Delay: time.Minute}))
				woot := &logbook.Failure{Kind: "error", Message: "woot"}
				atom := logbook.NewAtom("a", logbook.KindTask)
				atom.State, atom.RetryAt = row.state, time.Now().Add(row.ahead)
				atom.Attempts = []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, EndedAt: time.Now(), Failure: woot}}
				detail := newDetail()
				detail.State = logbook.FlowRunning
				if row.state == logbook.AtomReverting {
					detail.State, detail.Cause, atom.Intention = logbook.FlowReverting, woot, logbook.IntendRevert
					atom.Attempts = append(atom.Attempts, logbook.Attempt{Action: logbook.ActionRevert, Number: 1, EndedAt: time.Now(), Failure: woot})
				}
				detail.Atoms = []logbook.AtomDetail{atom}
				began := time.Now()
				_, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, step), Detail: detail, Journal: newJournal(detail)})
				if took := time.Since(began); err != nil || took != row.want {
					t.Errorf("it took %s, not %s: %v", took, row.want, err)
				}
			})
		})
	}
}

func TestStderrIsKept(t *testing.T) {
	task := noisy(strings.Repeat("x", logbook.MaxStderr) + "\xff the reason")
	_, detail, err := runAll(t, context.Background(), engine.Options{Plan: compile(t, flow.NewStep("a", task))})
	if err != nil {
		t.Fatal(err)
	}
	attempt := detail.Atoms[0].Attempts[0]
	if len(attempt.Stderr) > logbook.MaxStderr || !strings.HasSuffix(attempt.Stderr, "\uFFFD the reason") || !attempt.StderrTruncated {
		t.Errorf("%d bytes, truncated: %v", len(attempt.Stderr), attempt.StderrTruncated)
	}
}

type noisy string

func (n noisy) Execute(_ context.Context, call *flow.Call) (any, error) {
	call.KeepStderr(string(n), false)
	return nil, errors.New("woot")
}

func TestCallsSayWhoTheyAre(t *testing.T) {
	var call flow.Call
	step := act("a", func(ctx context.Context) error { call = *flow.CallFrom(ctx); return nil })
	token := logbook.Token{Generation: 1, Index: 7}
	_, detail, err := runAll(t, context.Background(), engine.Options{Plan: compile(t, step), Job: "j", Token: token, Owner: "o"})
	if err != nil {
		t.Fatal(err)
	}
	if call.Job != "j" || call.Token != token || call.Step != "a" || call.Attempt != 1 || call.Flow != detail.ID || call.Action != logbook.ActionExecute {
		t.Errorf("the call was %+v", call)
	}
	if attempt := detail.Atoms[0].Attempts[0]; attempt.Owner != "o" || attempt.Token != token {
		t.Errorf("the attempt was recorded as %+v", attempt)
	}
}

func TestObserverSeesEveryChange(t *testing.T) {
	var seen []string
	root := flow.Linear("f", act("a", fine), act("b", func(context.Context) error { return errors.New("woot") }))
	_, _, err := runAll(t, context.Background(), engine.Options{Plan: compile(t, root), Observe: func(e engine.Event) {
		if e.Step == "" {
			seen = append(seen, "flow "+string(e.Flow))
		} else {
			seen = append(seen, e.Step+" "+string(e.State))
		}
	}})
	want := "flow running, a running, a success, b running, b failure, flow reverting, b reverting, b reverted, a reverting, a reverted, flow reverted"
	if got := strings.Join(seen, ", "); err != nil || got != want {
		t.Errorf("%v; seen:\n%s\nwanted:\n%s", err, got, want)
	}
}

// Under the same token the numbers continue; under a new token they start again.
func TestSequenceNumbers(t *testing.T) {
	for _, row := range []struct {
		token logbook.Token
		first uint64
	}{
		{logbook.Token{Index: 3}, 5},
		{logbook.Token{Index: 4}, 1},
	} {
		detail := newDetail()
		detail.Fence, detail.Sequence = logbook.Token{Index: 3}, 4
		j := newJournal(detail)
		if _, err := engine.Run(context.Background(), engine.Options{Plan: compile(t, act("a", fine)), Detail: detail, Journal: j, Token: row.token}); err != nil {
			t.Fatal(err)
		}
		if got := j.trace()[0].Sequence; got != row.first {
			t.Errorf("under token %s the first number is %d, not %d", row.token, got, row.first)
		}
	}
}

func TestOtherVersionIsRefused(t *testing.T) {
	detail := newDetail()
	detail.State = logbook.FlowRunning
	atom := logbook.NewAtom("a", logbook.KindTask)
	atom.Version, atom.State = "1", logbook.AtomRunning
	atom.Attempts = []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1}}
	detail.Atoms = []logbook.AtomDetail{atom}
	j := newJournal(detail)
	_, err := engine.Run(context.Background(), engine.Options{Plan: compile(t, act("a", fine, flow.Version("2"))), Detail: detail, Journal: j})
	if !errors.Is(err, engine.ErrMismatch) || len(j.trace()) > 0 {
		t.Errorf("%v after %d updates", err, len(j.trace()))
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := engine.Run(context.Background(), engine.Options{Workers: -1, Grace: -1})
	for _, fault := range []string{"plan", "journal", "workers", "grace"} {
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%v says nothing of the %s", err, fault)
		}
	}
}
