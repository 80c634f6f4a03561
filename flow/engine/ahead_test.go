package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// repeatable notes its calls, takes a given time, and may run ahead.
func (c *calls) repeatable(name string, takes time.Duration, options ...flow.StepOption) *flow.Step {
	return flow.Func(name, func(ctx context.Context, _ none) (none, error) {
		c.note(ctx, "do")
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
		return none{}, ctx.Err()
	}, append(options, flow.Repeatable())...)
}

// TestAStepWithARevertWaitsForOneUpdate: the steps before it have run ahead, and the update
// that it waits for holds the marks and ends of all, and its own mark.
func TestAStepWithARevertWaitsForOneUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, j := &calls{}, &slowJournal{journal: newJournal(newDetail())}
		ended := make(chan error, 1)
		go func() {
			_, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, flow.Linear("f", c.repeatable("a", 0), c.repeatable("b", 0), c.step("c"))),
				Detail: j.snapshot(), Journal: j, Token: logbook.Token{Index: 7}})
			ended <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		detail := j.snapshot()
		if got, want := dump(detail), "a success e1\nb success e1\nc running e1\n"; c.String() != "do a 1, do b 1" || len(j.trace()) != 1 || got != want {
			t.Errorf("before it is durable, %q have begun, and %d updates say\n%s", c, len(j.trace()), got)
		}
		j.release(nil)
		synctest.Wait()
		if c.String() != "do a 1, do b 1, do c 1" {
			t.Errorf("when it is durable, %q have begun", c)
		}
		j.release(nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWhatRunsAhead: which steps begin although nothing becomes durable in this run.
func TestWhatRunsAhead(t *testing.T) {
	died := logbook.Token{Index: 5}
	line := func(c *calls, takes time.Duration, options ...flow.StepOption) flow.Node {
		return flow.Linear("f", c.repeatable("a", takes), c.repeatable("b", takes, options...), c.repeatable("c", takes))
	}
	mark := logbook.AtomDetail{Name: "a", Kind: logbook.KindTask, State: logbook.AtomRunning, Intention: logbook.IntendExecute,
		Attempts: []logbook.Attempt{{Action: logbook.ActionExecute, Number: 1, Token: died, StartedAt: time.Unix(1, 0)}}}
	for _, row := range []struct {
		name  string
		build func(c *calls) flow.Node
		more  func(o *engine.Options)
		want  string
	}{
		{"a line of them", func(c *calls) flow.Node { return line(c, 0) }, nil, "abc"},
		{"those that take a while", func(c *calls) flow.Node { return line(c, 20*time.Millisecond) }, nil, "abc"},
		{"none behind what is not durable for long", func(c *calls) flow.Node { return line(c, 26*time.Millisecond) }, nil, "ab"},
		{"none behind more than one update holds", func(c *calls) flow.Node {
			much := func(name string) *flow.Step {
				return flow.Func(name, func(ctx context.Context, _ none) (string, error) {
					c.note(ctx, "do")
					return strings.Repeat("x", 1500), nil
				}, flow.Repeatable())
			}
			return flow.Linear("f", much("a"), much("b"), much("c"), much("d"), much("e"))
		}, func(o *engine.Options) { o.Limits.Command = 4096 }, "ab"},
		{"those behind the first of a flow", func(c *calls) flow.Node { return flow.Linear("f", c.step("a"), c.repeatable("b", 0)) },
			func(o *engine.Options) { o.Begins = true }, "ab"},
		{"not one with a version", func(c *calls) flow.Node { return line(c, 0, flow.Version("2")) }, nil, "a"},
		{"not one that stands under a limit that is reached", func(c *calls) flow.Node {
			return flow.Unordered("f", c.repeatable("a", time.Hour, flow.Concurrency("k", 1)), c.repeatable("b", time.Hour, flow.Concurrency("k", 1)))
		}, nil, "a"},
		{"not when nothing of a pinned flow is durable", func(c *calls) flow.Node { return line(c, 0) },
			func(o *engine.Options) { o.Detail.OnChange = logbook.ChangePin }, ""},
		{"not when nothing of one that refuses changes is", func(c *calls) flow.Node { return line(c, 0) },
			func(o *engine.Options) { o.Detail.OnChange = logbook.ChangeRefuse }, ""},
		{"when something of a pinned flow is", func(c *calls) flow.Node { return line(c, 0) },
			func(o *engine.Options) {
				o.Detail.OnChange, o.Detail.Sequence, o.Detail.Fence = logbook.ChangePin, 1, died
			}, "abc"},
		{"not what the record has running", func(c *calls) flow.Node { return line(c, 0) },
			func(o *engine.Options) {
				o.Detail.State, o.Detail.Sequence, o.Detail.Fence, o.Detail.Atoms = logbook.FlowRunning, 1, died, []logbook.AtomDetail{mark}
			}, ""},
		{"not before an intervention", func(c *calls) flow.Node { return flow.Unordered("f", c.step("a"), c.repeatable("b", 0)) },
			func(o *engine.Options) {
				undone := mark
				undone.State, undone.Intention = logbook.AtomReverted, logbook.IntendRevert
				undone.Attempts = append(undone.Attempts, logbook.Attempt{Action: logbook.ActionRevert, Number: 1, Token: died, EndedAt: time.Unix(2, 0)})
				o.Detail.State, o.Detail.Sequence, o.Detail.Fence, o.Detail.Ended, o.Detail.Atoms = logbook.FlowReverted, 1, died, died, []logbook.AtomDetail{undone}
				o.Detail.Cause = &logbook.Failure{Kind: logbook.FailureError}
				o.Detail.Interventions = []logbook.Intervention{{ID: uuid.New(), Flow: o.Detail.ID, Kind: logbook.InterveneRerun, By: "ada", Token: logbook.Token{Index: 6}}}
			}, ""},
		{"not through a closed gate", func(c *calls) flow.Node { return line(c, 0) },
			func(o *engine.Options) { o.Gate = func(context.Context) error { return errLost } }, ""},
		{"not when the claim ends meanwhile", func(c *calls) flow.Node { return line(c, 0) },
			func(o *engine.Options) {
				passed := 0
				o.Gate = func(context.Context) error {
					if passed++; passed > 2 {
						return errLost
					}
					return nil
				}
			}, "ab"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, j := &calls{}, &slowJournal{journal: newJournal(newDetail())}
				o := engine.Options{Plan: compile(t, row.build(c)), Detail: j.snapshot(), Journal: j, Token: logbook.Token{Index: 7}}
				if row.more != nil {
					row.more(&o)
				}
				j.journal = newJournal(o.Detail)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := engine.Run(ctx, o)
					ended <- err
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := strings.NewReplacer("do ", "", " 1", "", ", ", "").Replace(c.String()); got != row.want {
					t.Errorf("%q have begun, want %q; the record:\n%s", got, row.want, dump(j.snapshot()))
				}
				cancel()
				if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, engine.ErrGate) {
					t.Error(err)
				}
			})
		})
	}
}

// TestWorkersDoNotRunAhead: an offer to workers waits for its mark, which records that no worker has
// it.
func TestWorkersDoNotRunAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, j := &calls{}, &slowJournal{journal: newJournal(newDetail())}
		offered := flow.NewStep("b", flow.OnWorker(flow.WorkerStep{Type: "t"}), flow.Repeatable())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan none)
		offers := 0
		go func() {
			defer close(ended)
			_, _ = engine.Run(ctx, engine.Options{Plan: compile(t, flow.Linear("f", c.repeatable("a", 0), offered)), Detail: j.snapshot(), Journal: j,
				Offer: func(context.Context, *flow.Call, flow.WorkerStep) (json.RawMessage, error) { offers++; return nil, nil }})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if c.String() != "do a 1" || offers > 0 {
			t.Errorf("before anything is durable, %q have begun, and %d were offered", c, offers)
		}
		cancel()
		<-ended
	})
}

// TestAFullUpdateIsRecorded: a long flow of quick steps does not stay in memory.
func TestAFullUpdateIsRecorded(t *testing.T) {
	j := newJournal(newDetail())
	c := &calls{}
	steps := make([]flow.Node, 60)
	for i := range steps {
		steps[i] = c.repeatable(string(rune('A'+i)), 0)
	}
	o := engine.Options{Plan: compile(t, flow.Linear("f", steps...)), Detail: j.snapshot(), Journal: j}
	o.Limits.Command = 4096
	end, err := engine.Run(t.Context(), o)
	if err != nil || end.State != logbook.FlowSuccess {
		t.Fatalf("the run ended in %s, %v", end.State, err)
	}
	if n := len(j.trace()); n < 3 || n > 20 {
		t.Errorf("60 steps have made %d updates", n)
	}
}
