package engine_test

import (
	"context"
	"encoding/json"
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

// floor is where steps of several flows run at the same time, each for a
// second of fake time.
type floor struct {
	mu      sync.Mutex
	order   []string
	running map[string]int // by key; "" all
	most    map[string]int
}

func newFloor() *floor { return &floor{running: make(map[string]int), most: make(map[string]int)} }

func (f *floor) step(name, key string, limit int, options ...flow.StepOption) flow.Node {
	if key != "" {
		options = append(options, flow.Concurrency(key, limit))
	}
	return act(name, func(ctx context.Context) error {
		f.enter(name, key, 1)
		defer f.enter("", key, -1)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return nil
	}, options...)
}

func (f *floor) enter(name, key string, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "" {
		f.order = append(f.order, name)
	}
	for _, counted := range []string{"", "key " + key} {
		f.running[counted] += by
		f.most[counted] = max(f.most[counted], f.running[counted])
	}
}

// steps makes a number of steps, named by a letter and their number.
func (f *floor) steps(letter string, n int, key string, limit int) flow.Node {
	root := flow.Unordered("flow-" + letter)
	for i := range n {
		root.Add(f.step(fmt.Sprintf("%s%d", letter, i), key, limit))
	}
	return root
}

// runTogether runs flows in one pool, each begun a moment after the one before.
func runTogether(t *testing.T, pool *engine.Pool, roots ...flow.Node) {
	t.Helper()
	var all sync.WaitGroup
	for _, root := range roots {
		plan := compile(t, root)
		all.Go(func() {
			if end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: newDetail(), Journal: newJournal(newDetail()), Pool: pool, Workers: 100}); err != nil || end.State != logbook.FlowSuccess {
				t.Error(end, err)
			}
		})
		<-time.After(10 * time.Millisecond)
	}
	all.Wait()
}

// TestPoolIsFair: a flow that comes later, with one step, does not wait for the
// fifty that one has before it. First come first served, it would run last.
func TestPoolIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor()
		runTogether(t, engine.NewPool(2), f.steps("a", 50, "", 0), f.steps("b", 3, "", 0), f.steps("c", 1, "", 0))
		if at := slices.Index(f.order, "c0"); at > 5 {
			t.Errorf("c0 was number %d: %v", at, f.order)
		}
		if at := slices.Index(f.order, "b2"); at > 12 {
			t.Errorf("b2 was number %d: %v", at, f.order)
		}
		if f.most[""] != 2 || len(f.order) != 54 {
			t.Errorf("%d steps, and up to %d at once", len(f.order), f.most[""])
		}
	})
}

// TestKeysAreFair: the same for steps that wait for one key; a step without the key does not
// wait.
func TestKeysAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor()
		began := time.Now()
		runTogether(t, engine.NewPool(10), f.steps("a", 20, "disk", 2), f.steps("b", 1, "disk", 2), f.steps("c", 3, "", 0))
		if at := slices.Index(f.order, "b0"); at > 7 {
			t.Errorf("b0 was number %d: %v", at, f.order)
		}
		if at := slices.Index(f.order, "c2"); at > 5 {
			t.Errorf("c2 was number %d: %v", at, f.order)
		}
		if f.most["key disk"] != 2 {
			t.Errorf("up to %d with the key at once", f.most["key disk"])
		}
		if took := time.Since(began).Round(time.Second); took != 11*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// A run without a free worker does not repeatedly take the permit of its key: it would spin until a
// step ended, and in virtual time without end.
func TestPermitForARunWithoutWorker(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			f := newFloor()
			pool := engine.NewPool(10)
			run := func(workers int, root flow.Node) {
				options := engine.Options{Plan: compile(t, root), Detail: newDetail(), Journal: newJournal(newDetail()), Pool: pool, Workers: workers}
				if end, err := engine.Run(t.Context(), options); err != nil || end.State != logbook.FlowSuccess {
					t.Error(end, err)
				}
			}
			busy := flow.Unordered("busy", f.step("a0", "disk", 1), f.step("a1", "disk", 1), f.step("a2", "disk", 1), f.step("b0", "", 0), f.step("b1", "", 0))
			var all sync.WaitGroup
			all.Go(func() { run(10, f.steps("first", 2, "disk", 1)) })
			<-time.After(500 * time.Millisecond)
			all.Go(func() { run(1, busy) })
			all.Wait()
			if len(f.order) != 7 || f.most["key disk"] != 1 {
				t.Errorf("%d steps ran, up to %d at once with the key", len(f.order), f.most["key disk"])
			}
		})
	}
}

// TestPoolIsGivenBack, whatever becomes of those who share it: suspended, lost,
// failed and left behind. Afterwards all of it can be had again.
func TestPoolIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 3
		pool, f := engine.NewPool(size), newFloor()
		stuck := make(chan none)
		hangs := flow.Unordered("hangs", act("h", func(context.Context) error { <-stuck; return nil }, flow.Concurrency("disk", 2)), f.steps("h", 5, "disk", 2))
		fails := flow.Unordered("fails", act("x", func(context.Context) error { return errors.New("woot") }), f.steps("f", 5, "disk", 2))
		var all sync.WaitGroup
		for _, root := range []flow.Node{hangs, fails, f.steps("s", 5, "disk", 2), f.steps("g", 5, "", 0)} {
			plan := compile(t, root)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			suspend := make(chan struct{})
			o := engine.Options{Plan: plan, Detail: newDetail(), Journal: newJournal(newDetail()), Pool: pool, Suspend: suspend, Grace: time.Second}
			all.Go(func() { _, _ = engine.Run(ctx, o) })
			time.AfterFunc(1500*time.Millisecond, func() {
				if strings.HasPrefix(plan.Name(), "flow-") {
					close(suspend)
				} else {
					cancel()
				}
			})
		}
		all.Wait()
		close(stuck) // the step that was left behind ends only now
		synctest.Wait()
		last := newFloor()
		began := time.Now()
		runTogether(t, pool, last.steps("a", size, "", 0), last.steps("b", 2, "disk", 2))
		if took := time.Since(began).Round(time.Second); last.most[""] != size || took != 2*time.Second {
			t.Errorf("up to %d at once, in %s", last.most[""], took)
		}
	})
}

// tearing is a journal that panics when the flow turns round.
type tearing struct{ *journal }

func (j tearing) Record(update logbook.Update) <-chan error {
	if update.State == logbook.FlowReverting {
		panic("woot")
	}
	return j.journal.Record(update)
}

// TestPoolAfterAPanic: after a panic of the engine, no step is running and all slots are
// released.
func TestPoolAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, f := engine.NewPool(2), newFloor()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
				if f.running[""] != 0 {
					t.Error("a step still runs")
				}
			}()
			revert := make(chan struct{})
			time.AfterFunc(time.Millisecond, func() { close(revert) })
			_, _ = engine.Run(t.Context(), engine.Options{Plan: compile(t, f.steps("a", 4, "k", 2)), Detail: newDetail(), Journal: tearing{newJournal(newDetail())},
				Pool: pool, Workers: 2, Revert: revert})
		}()
		runTogether(t, pool, f.steps("b", 4, "k", 2))
		if f.most["key k"] != 2 {
			t.Errorf("%d ran at once under the key, of 2", f.most["key k"])
		}
	})
}

// TestSuspendedInAPoolLeavesStepsPending: a step that waits for a slot is not running in
// the record when the flow is suspended.
func TestSuspendedInAPoolLeavesStepsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, f := engine.NewPool(1), newFloor()
		suspend := make(chan struct{})
		time.AfterFunc(time.Minute+time.Second/2, func() { close(suspend) })
		var all sync.WaitGroup
		all.Go(func() {
			runTogether(t, pool, act("long", func(context.Context) error { <-time.After(time.Hour); return nil }))
		})
		<-time.After(time.Minute)
		j := newJournal(newDetail())
		end, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, f.steps("a", 3, "", 0)), Detail: newDetail(), Journal: j, Pool: pool, Suspend: suspend})
		if err != nil || end.State != logbook.FlowSuspended || len(j.snapshot().Atoms) != 0 || end.Update == nil || len(end.Update.Atoms) != 0 {
			t.Errorf("%+v, %v, with %v", end, err, j.snapshot().Atoms)
		}
		all.Wait()
	})
}

// TestKeysWithoutText: steps whose arguments are all empty have the same key too.
func TestKeysWithoutText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor()
		root := flow.Unordered("f")
		for i := range 3 {
			root.Add(act(fmt.Sprint("s", i), func(context.Context) error {
				f.enter("s", "", 1)
				<-time.After(time.Second)
				f.enter("", "", -1)
				return nil
			}, flow.Concurrency("{host}", 1), flow.Requires("host"), flow.Inject(map[string]any{"host": ""})))
		}
		runTogether(t, engine.NewPool(9), root)
		if f.most["key "] != 1 {
			t.Errorf("%d ran at once", f.most["key "])
		}
	})
}

func TestConcurrencyKeys(t *testing.T) {
	values := map[string]string{"host": `"a"`, "n": `7`, "list": `[1, 2]`, "null": `null`}
	value := func(name string) (json.RawMessage, bool) {
		text, ok := values[name]
		return json.RawMessage(text), ok
	}
	names := flow.Optional("host", "n", "list", "null", "none")
	for key, want := range map[string]string{
		"disk": "disk", "disk-{host}": "disk-a", "{host}{n}": "a7", "l{list}": "l[1,2]", "{none}x": "x", "{host}/{host}": "a/a",
	} {
		step := act("a", fine, flow.Concurrency(key, 1))
		if got, _ := step.ConcurrencyKey(value); got != want {
			t.Errorf("%s: got %s, wanted %s", key, got, want)
		}
		if _, err := flow.Compile(flow.NewStep("a", rawTask(`1`), names, flow.Concurrency(key, flow.MaxConcurrency))); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	for key, limit := range map[string]int{"": 1, "a": 0, "b": flow.MaxConcurrency + 1, "c": -1, "{host": 1, "host}": 1, "{}": 1, "{other}": 1,
		"{ho{st}": 1, "a\n": 1, strings.Repeat("k", 256): 1} {
		if _, err := flow.Compile(flow.NewStep("a", rawTask(`1`), names, flow.Concurrency(key, limit))); !errors.Is(err, flow.ErrInvalid) {
			t.Errorf("%.20q, %d: %v", key, limit, err)
		}
	}
}

// TestKeysTooLongToBeKept: long keys are still distinguished.
func TestKeysTooLongToBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 10_000)
		step := func(name, value string) flow.Node {
			return flow.Func(name, func(context.Context, struct {
				Key string `json:"key"`
			}) (none, error) {
				<-time.After(time.Second)
				return none{}, nil
			}, flow.Inject(map[string]any{"key": value}), flow.Concurrency("{key}", 1))
		}
		began := time.Now()
		runTogether(t, engine.NewPool(10), flow.Unordered("f", step("a", long+"1"), step("b", long+"2"), step("c", long+"1")))
		if took := time.Since(began).Round(time.Second); took != 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
