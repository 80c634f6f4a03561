// Package enginetest tests flows. It runs them in memory and in fake time, shows the run as a few
// lines of text, and lets the process "crash" at every possible point.
//
// Run runs a flow once and returns its Trace. CrashEverywhere runs a flow to its end, and then
// again and again. Each time the process dies before another write to the logbook, and a new
// process continues from the record. The flow must end in the same state with the same results,
// and no step whose result was recorded may run again.
//
// This finds steps that do harm when they run twice, and results that differ between executions.
// It also finds a build function that does not build the same flow each time.
//
// engine.Local runs the flows, with one worker by default, so every run is the same. With the
// option Workers, steps that end at the same time are recorded in any order.
//
// # Signals and approvals
//
// Signal, RejectSignal and Decide are options that send signals to the steps of the run that wait,
// and decide their approvals. Each takes effect when a step waits for it, or with After a time
// later. In a crash they are kept, as by a cluster. A message that no step took is a fault of the
// test, and so is a decision that the approval refuses.
//
// A sleep, the limit of a wait and the deadline of an approval take no time, like all delays.
//
// # Time
//
// A run has its own clock (testing/synctest): delays and timeouts take no time, and durations are
// exact. A goroutine that waits for something outside, such as a socket, stops that clock
// permanently. Channels and timers must not be shared with the surrounding test.
//
// The option CallersClock leaves the clock alone. Use it for steps with real input and output,
// and in a test that is inside synctest.Test itself. A testing.TB that is not a *testing.T always
// has the caller's clock.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

// Option changes how flows are run.
type Option func(*settings)

type settings struct {
	flow         logbook.FlowID // of all runs, so that a step has the same keys in each
	workers      int
	targets      []string
	callersClock bool
	before       func()
	checks       []func(*Trace) error
	messages     []message
	began        time.Time // of the first run
}

// Workers sets the number of parallel steps. Default: 1.
func Workers(n int) Option { return func(s *settings) { s.workers = n } }

// Targets limits flows to these steps and what they need: see engine.Local.
func Targets(steps ...string) Option { return func(s *settings) { s.targets = steps } }

// CallersClock runs flows in the time of the caller: see the package's
// documentation.
func CallersClock() Option { return func(s *settings) { s.callersClock = true } }

// Before is called before each start of a flow, to reset the outside world. It is not called when
// a flow continues after a crash. CrashEverywhere needs it if steps change something outside
// that other steps or Check read.
func Before(reset func()) Option { return func(s *settings) { s.before = reset } }

// Check is called for each flow that has ended, with a crash or without. An error is a fault of
// the test. The option can be given several times.
func Check(check func(*Trace) error) Option {
	return func(s *settings) { s.checks = append(s.checks, check) }
}

func newSettings(options []Option) *settings {
	s := &settings{flow: logbook.NewFlowID(), workers: 1, before: func() {}}
	for _, option := range options {
		option(s)
	}
	return s
}

// Run runs a flow to its end. A flow that does not succeed is not a fault of the test by itself:
// Trace.Want and Trace.Err check that. The test fails if the flow cannot be run at all, or if a
// Check returns an error.
func Run(t testing.TB, root flow.Node, store logbook.Values, options ...Option) *Trace {
	t.Helper()
	s := newSettings(options)
	trace := s.series(t, func() flow.Node { return root }, store, noCrash)
	for _, fault := range s.judge(trace) {
		t.Errorf("%v\n%s", fault, trace)
	}
	return trace
}

// inTime calls f with a separate clock, or with the caller's.
func (s *settings) inTime(t testing.TB, f func(ctx context.Context)) {
	t.Helper()
	test, ok := t.(*testing.T)
	if !ok || s.callersClock {
		f(t.Context())
		return
	}
	synctest.Test(test, func(t *testing.T) { f(t.Context()) })
}

// judge finds faults of a single run.
func (s *settings) judge(trace *Trace) []error {
	if !trace.Result.State.Finished() {
		return []error{fmt.Errorf("the flow has not ended: %w", trace.Err)}
	}
	faults := trace.faults
	for _, check := range s.checks {
		if err := check(trace); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// noCrash is the crash point of a run without a crash.
const noCrash = -1

// series starts a flow, crashes before a write, and continues from the record. Each start
// builds the flow anew, as a new process would. Each series has its own clock, unless it uses the caller's: flows
// can name absolute times, such as flow.SleepUntil.
func (s *settings) series(t testing.TB, build func() flow.Node, store logbook.Values, crash int) (trace *Trace) {
	t.Helper()
	s.inTime(t, func(ctx context.Context) { trace = s.run(ctx, build, store, crash) })
	return trace
}

func (s *settings) run(ctx context.Context, build func() flow.Node, store logbook.Values, crash int) *Trace {
	s.before()
	began := time.Now()
	trace := &Trace{crash: noCrash}
	if s.began.IsZero() {
		s.began = began.UTC()
	}
	outside := newOutside(s.flow, memory.New(logbook.MaxLimits), s.messages, s.began)
	defer outside.close()
	book := &book{Connection: outside.record, outside: outside, left: crash}
	local := engine.Local{Logbook: book, Flow: s.flow, Targets: s.targets, Workers: s.workers, Signals: outside.taken}
	trace.Result, trace.Err = local.Run(ctx, build(), store)
	if book.crashed() {
		trace.crash = len(book.updates)
		book.revive()
		trace.Result, trace.Err = local.Run(ctx, build(), nil)
	}
	trace.Updates, trace.Took, trace.faults = book.updates, time.Since(began), outside.faults()
	return trace
}

var errCrash = errors.New("the process has crashed")
