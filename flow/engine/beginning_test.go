package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// calls are what steps were called for, in order.
type calls struct {
	mu    sync.Mutex
	lines []string
}

func (c *calls) note(ctx context.Context, action string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := flow.CallFrom(ctx)
	c.lines = append(c.lines, fmt.Sprintf("%s %s %d", action, call.Step, call.Attempt))
}

func (c *calls) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(c.lines)), ", ")
}

// step notes its calls; it can be undone.
func (c *calls) step(name string, options ...flow.StepOption) *flow.Step {
	return flow.FuncRevert(name, func(ctx context.Context, _ none) (none, error) { c.note(ctx, "do"); return none{}, nil },
		func(ctx context.Context, _ none, _ *none) error { c.note(ctx, "undo"); return nil }, options...)
}

// steps returns a number of steps without predecessors.
func (c *calls) steps(n int) flow.Node {
	nodes := make([]flow.Node, n)
	for i := range nodes {
		nodes[i] = c.step(fmt.Sprintf("s%02d", i))
	}
	return flow.Unordered("many", nodes...)
}

// beginUnrecorded runs a flow in a bubble of fake time, with a journal that makes nothing durable, and checks how many
// steps begin.
func (c *calls) beginUnrecorded(t *testing.T, o engine.Options, want int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan none)
	go func() { // ends with ctx
		defer close(ended)
		_, _ = engine.Run(ctx, o)
	}()
	synctest.Wait()
	if got := len(c.lines); got != want {
		t.Errorf("%d steps have begun, want %d: %s", got, want, c)
	}
	cancel()
	<-ended
}

// TestStepsThatBeginWithTheClaim: the steps that begin before anything is durable, if the
// claim replaces their marks.
func TestStepsThatBeginWithTheClaim(t *testing.T) {
	token := logbook.Token{Index: 5}
	for _, row := range []struct {
		name  string
		build func(c *calls) flow.Node
		more  func(o *engine.Options)
		want  int
	}{
		{"the first of a line", func(c *calls) flow.Node { return flow.Linear("f", c.step("a"), c.step("b")) }, nil, 1},
		{"all that wait for nothing", func(c *calls) flow.Node { return flow.Unordered("f", c.step("a"), c.step("b")) }, nil, 2},
		{"as many as may run", func(c *calls) flow.Node { return flow.Unordered("f", c.step("a"), c.step("b")) },
			func(o *engine.Options) { o.Workers = 1 }, 1},
		{"not without the claim", func(c *calls) flow.Node { return c.step("a") }, func(o *engine.Options) { o.Begins = false }, 0},
		{"not what is at most once", func(c *calls) flow.Node { return flow.Unordered("f", c.step("a", flow.AtMostOnce()), c.step("b")) }, nil, 1},
		{"not what has a version", func(c *calls) flow.Node { return c.step("a", flow.Version("2")) }, nil, 0},
		{"not what a retry begins", func(c *calls) flow.Node { return flow.Linear("f", c.step("a")).WithRetry(flow.Times("r", 2)) }, nil, 0},
		{"not what is run for each", func(c *calls) flow.Node { return flow.Each("f", "list", "x", c.step("a")) }, nil, 0},
		{"not behind a decider", func(c *calls) flow.Node {
			yes := flow.Decide("yes", func(logbook.Values) (bool, error) { return true, nil })
			return flow.Graph("f", flow.Linear("empty"), c.step("a")).Link("empty", "a", yes)
		}, nil, 0},
		{"not a flow that is pinned", func(c *calls) flow.Node { return c.step("a") },
			func(o *engine.Options) { o.Detail.OnChange = logbook.ChangePin }, 0},
		{"not a flow that refuses changes", func(c *calls) flow.Node { return c.step("a") },
			func(o *engine.Options) { o.Detail.OnChange = logbook.ChangeRefuse }, 0},
		{"a flow that adopts them", func(c *calls) flow.Node { return c.step("a") },
			func(o *engine.Options) { o.Detail.OnChange = logbook.ChangeAdopt }, 1},
		{"not one that may have begun", func(c *calls) flow.Node { return c.step("a") }, func(o *engine.Options) { o.Detail.Begun = token }, 0},
		{"not one of which something is recorded", func(c *calls) flow.Node { return c.step("a") },
			func(o *engine.Options) { o.Detail.Fence, o.Detail.Sequence = token, 1 }, 0},
		{"as many as are marked for one that died", func(c *calls) flow.Node { return c.steps(engine.DefaultWorkers) }, nil, engine.DefaultWorkers},
		{"not more", func(c *calls) flow.Node { return c.steps(engine.DefaultWorkers + 1) }, nil, 0},
		{"not more than one update holds", func(c *calls) flow.Node { return c.steps(3) },
			func(o *engine.Options) { o.Limits.Steps = 2 }, 0},
		{"not when how it is built fills the first update", func(c *calls) flow.Node { return c.step("a") },
			func(o *engine.Options) { o.Limits.Name, o.Limits.Command = 1, 343 }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, j := &calls{}, &slowJournal{journal: newJournal(newDetail())}
				o := engine.Options{Plan: compile(t, row.build(c), "list"), Detail: j.snapshot(), Journal: j, Begins: true, Token: logbook.Token{Index: 7},
					Store: logbook.Values{"list": []byte("[1]")}}
				if row.more != nil {
					row.more(&o)
				}
				j.detail = o.Detail
				c.beginUnrecorded(t, o, row.want)
			})
		})
	}
}

// TestLaterStepsWaitForTheFirstMarks: a step that begins with the claim is marked
// nevertheless. No other step begins before that mark and all later updates are durable.
func TestLaterStepsWaitForTheFirstMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, let := &calls{}, make(chan none)
		first := act("a", func(ctx context.Context) error { c.note(ctx, "do"); <-let; return nil })
		j := &slowJournal{journal: newJournal(newDetail())}
		ended := make(chan error, 1)
		go func() {
			_, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, flow.Linear("f", first, c.step("b"))), Detail: j.snapshot(),
				Journal: j, Begins: true, Token: logbook.Token{Index: 7}})
			ended <- err
		}()
		for _, moment := range []struct {
			what    string
			do      func()
			started string
			updates int
		}{
			{"it takes a while", func() { time.Sleep(time.Second) }, "do a 1", 1},
			{"the first has ended", func() { close(let) }, "do a 1", 2},
			{"its mark is durable", func() { j.waiting[0] <- nil }, "do a 1", 2},
			{"its end is durable", func() { j.waiting[1] <- nil }, "do a 1, do b 1", 2},
		} {
			moment.do()
			synctest.Wait()
			if got := c.String(); got != moment.started || len(j.trace()) != moment.updates {
				t.Errorf("when %s, %q have begun and %d updates were made; want %q and %d", moment.what, got, len(j.trace()), moment.started, moment.updates)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWholeRunInOneUpdate: a run that fits into one update records nothing before its end.
func TestWholeRunInOneUpdate(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	quick := func(name string, takes time.Duration) *flow.Step {
		return act(name, func(context.Context) error { time.Sleep(takes); return nil })
	}
	for _, row := range []struct {
		name  string
		build func(c *calls) flow.Node
		more  func(o *engine.Options)
		want  string // the states of the flow that are recorded, and at the end
	}{
		{"one step", func(c *calls) flow.Node { return c.step("a") }, nil, "success"},
		{"one that is quick", func(*calls) flow.Node { return quick("a", 900*time.Microsecond) }, nil, "success"},
		{"one that is not", func(*calls) flow.Node { return quick("a", 2*time.Millisecond) }, nil, "running success"},
		{"three side by side", func(*calls) flow.Node {
			return flow.Unordered("f", quick("a", 300*time.Microsecond), quick("b", 0), quick("c", 600*time.Microsecond))
		}, nil, "success"},
		{"three, and one of them is not quick", func(*calls) flow.Node {
			return flow.Unordered("f", quick("a", 2*time.Millisecond), quick("b", 0), quick("c", 0))
		}, nil, "running success"},
		{"three that are repeatable, in a row", func(c *calls) flow.Node {
			return flow.Linear("f", c.repeatable("a", 0), c.repeatable("b", 300*time.Microsecond), c.repeatable("c", 0))
		}, func(o *engine.Options) { o.Begins = false }, "success"},
		{"two in a row", func(c *calls) flow.Node { return flow.Linear("f", c.step("a"), c.step("b")) }, nil, "running success"},
		{"without the claim", func(c *calls) flow.Node { return c.step("a") }, func(o *engine.Options) { o.Begins = false }, "running success"},
		{"at most once", func(c *calls) flow.Node { return c.step("a", flow.AtMostOnce()) }, nil, "running success"},
		{"one that refuses changes", func(c *calls) flow.Node { return c.step("a") },
			func(o *engine.Options) { o.Detail.OnChange = logbook.ChangeRefuse }, "running success"},
		{"one that has begun before", func(c *calls) flow.Node { return c.step("a") },
			func(o *engine.Options) { o.Detail.Begun = logbook.Token{Index: 5} }, "running success"},
		{"one that fails", func(*calls) flow.Node {
			return act("a", func(context.Context) error { return errors.New("no") })
		}, nil, "running reverting reverted"},
		{"one that is suspended at once", func(c *calls) flow.Node { return c.step("a") }, func(o *engine.Options) { o.Suspend = closed }, "suspended"},
		{"more than one update holds", func(c *calls) flow.Node { return c.steps(3) }, func(o *engine.Options) { o.Limits.Steps = 2 }, "running success"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal(newDetail())
				o := engine.Options{Plan: compile(t, row.build(&calls{})), Detail: newDetail(), Journal: j, Begins: true, Token: logbook.Token{Index: 7}}
				if row.more != nil {
					row.more(&o)
				}
				j.detail = o.Detail
				end, err := engine.Run(t.Context(), o)
				if err == nil && end.Update != nil {
					err = j.apply(*end.Update)
				}
				var states []string
				for _, update := range j.trace() {
					if update.State != "" {
						states = append(states, string(update.State))
					}
				}
				if got := strings.Join(states, " "); err != nil || got != row.want || j.snapshot().State != end.State {
					t.Errorf("the record says %q, and the run ended %s, %v; want %q", got, end.State, err, row.want)
				}
			})
		})
	}
}

// TestUnrecordedBeginning: an owner that releases a flow without a record learns whether
// the flow has begun.
func TestUnrecordedBeginning(t *testing.T) {
	lost := errors.New("the claim is lost")
	for _, row := range []struct {
		name   string
		more   func(o *engine.Options)
		begun  bool
		called string
	}{
		{"the journal fails", func(o *engine.Options) { o.Journal = &journal{detail: newDetail(), limits: logbook.MaxLimits} }, true, "do a 1"},
		{"the gate is closed", func(o *engine.Options) { o.Gate = func(context.Context) error { return lost } }, true, ""},
		{"the claim does not stand for it", func(o *engine.Options) {
			o.Begins, o.Journal = false, &journal{detail: newDetail(), limits: logbook.MaxLimits}
		}, false, ""},
		{"it is pinned to how it began", func(o *engine.Options) {
			o.Detail.OnChange, o.Detail.Definition = logbook.ChangePin, &logbook.Definition{Hash: "other"}
		}, false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := &calls{}
			o := engine.Options{Plan: compile(t, flow.Linear("f", c.step("a"), c.step("b"))), Detail: newDetail(), Journal: newJournal(newDetail()), Begins: true, Token: logbook.Token{Index: 7}}
			row.more(&o)
			end, err := engine.Run(t.Context(), o)
			if err == nil || end.Unrecorded != row.begun || c.String() != row.called {
				t.Errorf("the run ended in %v, unrecorded %v, and has called %q; want %v and %q", err, end.Unrecorded, c, row.begun, row.called)
			}
		})
	}
}

// TestTakingUpWithoutARecord: a flow that may have begun is resumed as if its first steps were
// recorded as running. The run records that first, and nothing begins before the record is
// durable.
func TestTakingUpWithoutARecord(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	died := logbook.Token{Index: 5}
	for _, row := range []struct {
		name  string
		more  func(o *engine.Options)
		state logbook.FlowState
		calls string
		atoms string
	}{
		{"it goes on", func(*engine.Options) {}, logbook.FlowSuccess, "do a 2, do b 1", "a success e1 e2\nb success e1\n"},
		{"it is undone", func(o *engine.Options) { o.Revert = closed }, logbook.FlowReverted, "undo a 1", "a reverted e1 r1\n"},
		{"it is suspended", func(o *engine.Options) { o.Suspend = closed }, logbook.FlowSuspended, "", "a running e1\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, j := &calls{}, newJournal(newDetail())
			j.detail.Begun = died
			o := engine.Options{Plan: compile(t, flow.Linear("f", c.step("a"), c.step("b"))), Detail: j.snapshot(), Journal: j, Begins: true,
				Token: logbook.Token{Index: 7}, Owner: "next"}
			row.more(&o)
			end, err := engine.Run(t.Context(), o)
			if err == nil && end.Update != nil {
				err = j.apply(*end.Update)
			}
			if err != nil || end.State != row.state || c.String() != row.calls {
				t.Errorf("the run ended in %v, %s, and has called %q; want %s and %q", err, end.State, c, row.state, row.calls)
			}
			first := j.trace()[0]
			if mark := first.Atoms[0]; first.State != logbook.FlowRunning || mark.Name != "a" || mark.State != logbook.AtomRunning || mark.Attempts[0].Token != died {
				t.Errorf("the first update begins with %s of %v in a flow that is %s", mark.State, mark.Attempts, first.State)
			}
			detail := j.snapshot()
			if dump(detail) != row.atoms || !detail.Begun.IsZero() {
				t.Errorf("the record says that it may have begun under %s, and\n%swant\n%s", detail.Begun, dump(detail), row.atoms)
			}
		})
	}
}

// TestKeyOfAStepThatMayHaveBegun: the key equals the key of the unrecorded attempt.
func TestKeyOfAStepThatMayHaveBegun(t *testing.T) {
	var keys []string
	step := act("a", func(ctx context.Context) error { keys = append(keys, flow.CallFrom(ctx).Key()); return nil })
	detail := newDetail()
	dead := &journal{detail: detail, limits: logbook.MaxLimits}
	for claim := range uint64(2) {
		o := engine.Options{Plan: compile(t, flow.Linear("f", step, (&calls{}).step("b"))), Detail: detail, Journal: dead, Begins: true, Token: logbook.Token{Index: claim + 1}}
		if claim == 1 {
			o.Detail.Begun = logbook.Token{Index: 1}
			o.Journal = newJournal(o.Detail)
		}
		if _, err := engine.Run(t.Context(), o); claim == 0 && !errors.Is(err, errCrash) || claim == 1 && err != nil {
			t.Fatal(err)
		}
	}
	if len(keys) != 2 || keys[0] != keys[1] || keys[0] == "" {
		t.Errorf("the keys are %q", keys)
	}
}
