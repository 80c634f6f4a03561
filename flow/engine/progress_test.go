package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// telling is a step that says how far it is, and waits after each word.
func telling(name string, say func(call *flow.Call) error, options ...flow.StepOption) *flow.Step {
	return act(name, func(ctx context.Context) error { return say(flow.CallFrom(ctx)) }, options...)
}

// TestProgressIsKept: omitted details keep their last value within the call, and the last
// report counts.
func TestProgressIsKept(t *testing.T) {
	for _, row := range []struct {
		name string
		say  func(call *flow.Call) error
		want string
	}{
		{"nothing is said", func(*flow.Call) error { return nil }, "nothing"},
		{"the last word", func(c *flow.Call) error { return errors.Join(c.Progress(1, 4, nil), c.Progress(3, 4, nil)) }, "3/4"},
		{"details", func(c *flow.Call) error { return c.Progress(1, 0, map[string]int{"a": 1}) }, `1/0{"a":1}`},
		{"details that are left out", func(c *flow.Call) error {
			return errors.Join(c.Progress(1, 2, "half"), c.Progress(2, 2, nil))
		}, `2/2"half"`},
		{"details that are emptied", func(c *flow.Call) error {
			return errors.Join(c.Progress(1, 2, "half"), c.Progress(2, 2, map[string]int{}))
		}, `2/2{}`},
		{"what was recorded on the way stays", func(c *flow.Call) error {
			err := c.Progress(1, 2, "half")
			<-time.After(5 * time.Second)
			return err
		}, `1/2"half"`},
		{"with not yet", func(c *flow.Call) error {
			if c.Asked > 0 {
				return nil
			}
			if err := c.Progress(1, 2, "half"); err != nil {
				return err
			}
			return flow.NotYet(time.Second)
		}, `1/2"half"`},
		{"with not yet and its details", func(c *flow.Call) error {
			if c.Asked > 0 {
				return nil
			}
			if err := c.Progress(1, 2, "half"); err != nil {
				return err
			}
			return flow.NotYet(time.Second, "waiting")
		}, `1/2"waiting"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, detail, err := runAll(t, t.Context(), engine.Options{Plan: compile(t, telling("a", row.say))})
				if err != nil {
					t.Fatal(err)
				}
				got := "nothing"
				if p := detail.Atoms[0].Progress; p != nil {
					got = fmt.Sprintf("%d/%d%s", p.Done, p.Total, p.Details)
				}
				if got != row.want {
					t.Errorf("got %s, wanted %s", got, row.want)
				}
			})
		})
	}
}

func TestRefusedProgressChangesNothing(t *testing.T) {
	say := func(c *flow.Call) error {
		if err := c.Progress(1, 2, "half"); err != nil {
			return err
		}
		for want, err := range map[error]error{
			logbook.ErrInvalid: errors.Join(c.Progress(-1, 2, nil), c.Progress(1, -2, nil), c.Progress(3, 2, nil)),
			logbook.ErrLimit:   c.Progress(2, 2, strings.Repeat("x", 100)),
		} {
			if !errors.Is(err, want) {
				return fmt.Errorf("%w is no %w", err, want)
			}
		}
		if err := c.Progress(2, 2, func() {}); err == nil {
			return errors.New("what is no JSON was taken")
		}
		return nil
	}
	end, detail, err := runAll(t, t.Context(), engine.Options{Plan: compile(t, telling("a", say)), Limits: logbook.Limits{Value: 100}})
	if err != nil || end.State != logbook.FlowSuccess {
		t.Fatal(end.Cause, err)
	}
	if p := detail.Atoms[0].Progress; p == nil || p.Done != 1 || string(p.Details) != `"half"` {
		t.Errorf("got %+v", p)
	}
	if err := (&flow.Call{}).Progress(1, 2, nil); err != nil {
		t.Errorf("without anybody who hears it: %v", err)
	}
}

// TestProgressIsObserved: the observer gets each recorded progress. Reports after the end of a
// call are ignored.
func TestProgressIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		observe := func(e engine.Event) {
			if e.Progress != nil {
				seen = append(seen, fmt.Sprintf("%s %s%d", e.Step, e.State, e.Progress.Done))
			}
		}
		var stale *flow.Call
		root := flow.Linear("f",
			telling("a", func(c *flow.Call) error {
				stale = c
				for i := range int64(5) {
					_ = c.Progress(i, 5, nil)
					<-time.After(550 * time.Millisecond)
				}
				return nil
			}),
			act("b", func(context.Context) error {
				_ = stale.Progress(5, 5, nil)
				<-time.After(3 * time.Second)
				return nil
			}))
		if _, _, err := runAll(t, t.Context(), engine.Options{Plan: compile(t, root), Observe: observe}); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(seen), "[a 1 a 3 a success4]"; got != want {
			t.Errorf("seen %s, wanted %s", got, want)
		}
	})
}

// TestProgressOfManyGoroutines: several goroutines of a step may report concurrently, even
// while the logbook accepts nothing.
func TestProgressOfManyGoroutines(t *testing.T) {
	const speakers, words = 8, 200
	say := func(c *flow.Call) error {
		var all sync.WaitGroup
		for range speakers {
			all.Go(func() {
				for i := range int64(words) {
					_ = c.Progress(i, words, i)
				}
			})
		}
		all.Wait()
		return c.Progress(words, words, "done")
	}
	steps := make([]flow.Node, speakers)
	for i := range steps {
		steps[i] = telling(fmt.Sprint("s", i), say)
	}
	_, detail, err := runAll(t, t.Context(), engine.Options{Plan: compile(t, flow.Unordered("f", steps...))})
	if err != nil {
		t.Fatal(err)
	}
	for _, atom := range detail.Atoms {
		if p := atom.Progress; p == nil || p.Done != words || string(p.Details) != `"done"` {
			t.Errorf("%s: %+v", atom.Name, p)
		}
	}
}
