package flow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Argument is a value that a step takes.
type Argument struct {
	// Name is the argument's name inside the step.
	Name string
	// Symbol is the name of the value that fills the argument: Name, unless Rebind changes it. It
	// can lead to a value inside another one: see Rebind.
	Symbol string
	// Path is set in the arguments of a Plan, for a value inside the value of the Symbol.
	Path string
	// Optional arguments are absent if nothing provides them.
	Optional bool
}

// Provision is a value that a step provides to later steps.
type Provision struct {
	Symbol string
	// Field is the provided field of the result, a JSON object; empty: the whole result.
	Field string
}

// Step is a named task in a flow. Make one with NewStep, Func or FuncRevert.
type Step struct {
	name            string
	version         string
	task            Task
	requires        []Argument
	revertRequires  []Argument // nil: the same as requires
	provides        []Provision
	timeout         time.Duration
	deadline        time.Duration
	deadlineAt      *timeOfDay // see DeadlineAt
	retry           Backoff
	filter          logbook.RetryFilter
	atMostOnce      bool
	uninterruptible bool
	repeatable      bool
	noReturn        bool
	final           bool
	onError         bool // see OnError
	ignoresFailure  bool
	defaultResult   json.RawMessage // if its failure is ignored; nil: none
	waitAtMost      time.Duration
	wait            *Wait  // nil: the step does not wait
	again           *again // nil: the step does not continue the job
	sends           []Send
	concurrency     concurrency
	priority        int
	remark          string
	sameWorkerAs    string

	// Of the atom of a Retrier, which has no task.
	retrier      bool
	opens        *each  // of the atom of an Each, which has no task either
	at           string // the indexes of its instance, at the end of its name
	controller   Controller
	pause        *Backoff
	revertingAll bool

	retryPermanent bool
	ownController  bool // of the program

	rebind   map[string]string
	injected logbook.Values // by argument
	derived  derivation
	faults   []error // found while building; Compile reports them
}

// derivation is what Func derives from its types; options override it.
type derivation struct {
	requires []Argument
	provides []Provision
}

// StepOption configures a step.
type StepOption interface{ ofStep(*Step) }

// RetryOption configures a Retrier.
type RetryOption interface{ ofRetry(*Step) }

// Option configures steps and Retriers.
type Option interface {
	StepOption
	RetryOption
}

type (
	option      func(*Step)
	stepOption  func(*Step)
	retryOption func(*Step)
)

func (o option) ofStep(s *Step)       { o(s) }
func (o option) ofRetry(s *Step)      { o(s) }
func (o stepOption) ofStep(s *Step)   { o(s) }
func (o retryOption) ofRetry(s *Step) { o(s) }

// NewStep makes a step from a task. Compile reports contradictions between the options.
func NewStep(name string, task Task, options ...StepOption) *Step {
	return newStep(name, task, derivation{}, nil, options)
}

func newStep(name string, task Task, derived derivation, faults []error, options []StepOption) *Step {
	return finished(&Step{name: name, task: task, derived: derived, faults: faults}, options)
}

// finished applies the options to the step's own properties, and checks the step.
func finished(s *Step, options []StepOption) *Step {
	s.requires = slices.Clone(s.derived.requires)
	for i, option := range options {
		if option == nil {
			s.fault("its option %d is nil", i+1)
			continue
		}
		option.ofStep(s)
	}
	if s.provides == nil {
		s.provides = s.derived.provides
	}
	s.applyRebind()
	s.check()
	return s
}

// Requires adds required arguments. If the type of the step's function marks an argument as
// optional, Requires makes it required.
func Requires(names ...string) Option {
	return option(func(s *Step) {
		for _, name := range names {
			at := slices.IndexFunc(s.requires[:len(s.derived.requires)], func(a Argument) bool { return a.Name == name && a.Optional })
			if at >= 0 {
				s.requires[at].Optional = false
			} else {
				s.requires = addArguments(s.requires, false, []string{name})
			}
		}
	})
}

// Optional adds arguments that the step gets only if something provides them.
func Optional(names ...string) Option {
	return option(func(s *Step) { s.requires = addArguments(s.requires, true, names) })
}

// Rebind fills arguments from values with other names: keys are arguments, values are symbols. It
// applies to execute and revert.
//
// A symbol can lead to a value inside another one, by the fields of objects and the indexes of lists:
// order.items.0.price. If the flow or its store has a value with exactly this name, that value wins; else the value
// with the longest name at the start of the symbol. A step fails with the kind logbook.FailureArgument if a required
// argument has no such inner value; an optional argument is then absent.
func Rebind(symbols map[string]string) Option {
	return option(func(s *Step) {
		if s.rebind == nil {
			s.rebind = make(map[string]string, len(symbols))
		}
		maps.Copy(s.rebind, symbols)
	})
}

// Provides names the whole result of the step.
func Provides(symbol string) Option {
	return option(func(s *Step) { s.provides = append(s.provides, Provision{Symbol: symbol}) })
}

// ProvidesFields provides fields of the step's result, a JSON object, under their own names. With
// Func, it replaces the fields that the result's type provides.
func ProvidesFields(names ...string) Option {
	return option(func(s *Step) {
		for _, name := range names {
			s.provides = append(s.provides, Provision{Symbol: name, Field: name})
		}
	})
}

// ProvidesAs provides fields of the step's result under other names: keys are fields, values are
// symbols.
func ProvidesAs(symbols map[string]string) Option {
	return option(func(s *Step) {
		for _, field := range slices.Sorted(maps.Keys(symbols)) {
			s.provides = append(s.provides, Provision{Symbol: symbols[field], Field: field})
		}
	})
}

// RevertRequires sets the arguments of the revert. Default: the arguments of the execution.
func RevertRequires(names ...string) StepOption {
	return stepOption(func(s *Step) {
		if s.revertRequires == nil {
			s.revertRequires = []Argument{}
		}
		s.revertRequires = addArguments(s.revertRequires, false, names)
	})
}

// Timeout limits each execution and each revert. When the time is over, the context ends; an
// error that the step then returns is a failure of kind "timeout". If a step returns NotYet, the
// limit applies to each call: see WaitAtMost. 0: no limit.
func Timeout(d time.Duration) StepOption { return stepOption(func(s *Step) { s.timeout = d }) }

// Deadline limits all executions of the step together, from the start of the first. The limit includes
// retries, the pauses between them, and waits after NotYet. At the deadline the context ends as with Timeout,
// and the step is not tried again.
//
// The time continues while the flow is suspended or has no conductor. It starts anew when a retry
// of the flow, or an operator, runs the step again. Reverts have no deadline. 0: none.
func Deadline(d time.Duration) StepOption { return stepOption(func(s *Step) { s.deadline = d }) }

// Retry tries the step again after a failure that is not permanent. It applies to execute and
// revert, each counted separately. RetryOnly and RetryNever select failures.
func Retry(policy Backoff) StepOption { return stepOption(func(s *Step) { s.retry = policy }) }

// AtMostOnce prevents a second start of the step. If the conductor dies while the step runs, the
// step counts as failed, whatever it did, and is reverted.
func AtMostOnce() StepOption { return stepOption(func(s *Step) { s.atMostOnce = true }) }

// Uninterruptible lets an execution finish when its flow is reverted or suspended meanwhile.
// Without it, the context of the execution ends: see Interruption. Reverts are never interrupted.
func Uninterruptible() StepOption { return stepOption(func(s *Step) { s.uninterruptible = true }) }

// PointOfNoReturn declares that a flow cannot revert past the step. After the step has succeeded, a failure or a
// cancellation holds the flow, as with HoldOnFailure. No retry around the step starts its flow again, and operators can
// only continue the flow forwards.
//
// The same applies while the step runs, and when it has failed with an unknown outcome: after a timeout, a
// panic, a result that cannot be recorded, or a lost process. If the step reports a failure, the flow
// reverts. The step is never interrupted, and a takeover (UndoLast) does not undo it. A point of no return
// cannot have IgnoreFailure, and cannot be in an Each with MaxFailures.
func PointOfNoReturn() StepOption { return stepOption(func(s *Step) { s.noReturn = true }) }

// Repeatable declares that a second execution after a crash, with other inputs, does no harm. The first attempt then
// starts before its mark and earlier results are durable: a flow of quick steps waits for fewer commits.
//
// After a crash, the record may not show that the step ran. Earlier steps then run again: they can give the step other
// values under the same Call.Key, or a decider can exclude the step.
//
// A step cannot be repeatable if it has a revert, runs at most once, has several attempts, or is
// under a retry. A step with a version, or on a worker, waits for the record anyway.
func Repeatable() StepOption { return stepOption(func(s *Step) { s.repeatable = true }) }

// Version marks the meaning of the step. Code with another version refuses a flow in which the
// step has started.
func Version(version string) Option { return option(func(s *Step) { s.version = version }) }

// Name is the step's name.
func (s *Step) Name() string { return s.name }

// IsRetry reports whether the step is the atom of a Retrier. Such a step has no task: the engine
// calls Next and Decide.
func (s *Step) IsRetry() bool { return s.retrier }

// Kind is the kind of the step's atom.
func (s *Step) Kind() logbook.AtomKind {
	switch {
	case s.retrier:
		return logbook.KindRetry
	case s.opens != nil:
		return logbook.KindEach
	}
	return logbook.KindTask
}

// Next calls the controller of a retry for the value of its next round.
func (s *Step) Next(history *History) (value any, err error) {
	defer CatchPanic(&err)
	return s.controller.Next(history)
}

// Decide calls the controller of a retry about a failure, and applies the retry's options to the
// decision. It returns an error if the controller panics or returns an
// invalid decision.
func (s *Step) Decide(history *History) (decision Decision, err error) {
	defer CatchPanic(&err)
	allowed := s.allowsRound(history.Failure) // before the controller can change the history
	decision = s.controller.OnFailure(history)
	if decision.Verdict == VerdictRetry && !allowed {
		decision = Decision{Verdict: VerdictRevert}
	}
	switch {
	case decision.Verdict < VerdictRetry || decision.Verdict > VerdictRevertAll:
		return Decision{}, fmt.Errorf("its controller returned an unknown verdict: %d", decision.Verdict)
	case decision.Delay < 0:
		return Decision{}, fmt.Errorf("its controller returned a negative delay: %s", decision.Delay)
	case decision.Verdict == VerdictRevert && s.revertingAll:
		decision.Verdict = VerdictRevertAll
	case decision.Verdict == VerdictRetry && s.pause != nil:
		decision.Delay = s.pause.Wait(max(1, len(history.Rounds)), rand.Uint64())
	}
	decision.Delay = min(decision.Delay, MaxPause)
	return decision, nil
}

// LongestDelay is the longest delay that Decide can return after a number of rounds.
func (s *Step) LongestDelay(rounds int) time.Duration {
	if s.pause == nil {
		return MaxPause
	}
	return min(s.pause.Longest(max(1, rounds)), MaxPause)
}

// Task is the work of the step.
func (s *Step) Task() Task { return s.task }

// Reverter returns the step's task if the task can be reverted.
func (s *Step) Reverter() (Reverter, bool) {
	r, ok := s.task.(Reverter)
	return r, ok
}

// Requires are the arguments of the execution.
func (s *Step) Requires() []Argument { return slices.Clone(s.requires) }

// RevertRequires are the arguments of the revert; none if there is no revert.
func (s *Step) RevertRequires() []Argument { return slices.Clone(s.revertArguments()) }

// Provides are the values that the step provides.
func (s *Step) Provides() []Provision { return slices.Clone(s.provides) }

// Timeout is the limit of one execution or revert; 0: none.
func (s *Step) Timeout() time.Duration { return s.timeout }

// Retry is the step's retry policy.
func (s *Step) Retry() Backoff { return s.retry }

// Again reports whether the step is tried again after a number of failures, of which the given one
// is the last, and after which delay. Attempts that a crash cut off do not count as failures.
func (s *Step) Again(failures int, last *logbook.Failure) (time.Duration, bool) {
	again := failures < s.retry.Tries() && !last.Permanent && s.filter.Allows(last)
	return s.retry.Wait(failures, rand.Uint64()), again
}

// AtMostOnce reports whether the step must never be started twice.
func (s *Step) AtMostOnce() bool { return s.atMostOnce }

// Uninterruptible reports whether an execution is never interrupted.
func (s *Step) Uninterruptible() bool { return s.uninterruptible || s.noReturn }

// PointOfNoReturn reports whether the step has the option PointOfNoReturn.
func (s *Step) PointOfNoReturn() bool { return s.noReturn }

// Repeatable reports whether the step has the option Repeatable.
func (s *Step) Repeatable() bool { return s.repeatable }

// Version is the value of the option Version.
func (s *Step) Version() string { return s.version }

func (*Step) node() {}

func (s *Step) revertArguments() []Argument {
	if _, ok := s.Reverter(); !ok {
		return nil
	}
	if s.revertRequires == nil {
		return s.requires
	}
	return s.revertRequires
}

// Reference is the symbol with the path.
func (a Argument) Reference() string {
	if a.Path == "" {
		return a.Symbol
	}
	return a.Symbol + "." + a.Path
}

func addArguments(list []Argument, optional bool, names []string) []Argument {
	for _, name := range names {
		list = append(list, Argument{Name: name, Symbol: name, Optional: optional})
	}
	return list
}

func (s *Step) applyRebind() {
	for argument, symbol := range s.rebind {
		found := rebindIn(s.requires, argument, symbol)
		if rebindIn(s.revertRequires, argument, symbol) || found {
			continue
		}
		s.fault("it rebinds %q, which it does not require", argument)
	}
}

func rebindIn(list []Argument, argument, symbol string) bool {
	found := false
	for i := range list {
		if list[i].Name == argument {
			list[i].Symbol, found = symbol, true
		}
	}
	return found
}

// check reports the faults of the step itself.
func (s *Step) check() {
	if s.retrier {
		s.checkRetrier()
	} else if s.task == nil {
		s.fault("it has no task")
	}
	if s.timeout < 0 {
		s.fault("its timeout is negative: %s", s.timeout)
	}
	if s.deadline < 0 {
		s.fault("its deadline is negative: %s", s.deadline)
	}
	if s.waitAtMost < 0 {
		s.fault("its longest wait is negative: %s", s.waitAtMost)
	}
	if s.atMostOnce && s.waitAtMost > 0 {
		s.fault("it runs at most once, so it cannot answer \"not yet\", and its longest wait has no effect")
	}
	if s.atMostOnce && s.retry.Attempts > 1 {
		s.fault("it runs at most once, and cannot have %d attempts", s.retry.Attempts)
	}
	s.checkRepeatable()
	s.checkWait()
	s.checkAgain()
	if err := cmp.Or(s.retry.Check("retry"), s.filter.Check(logbook.MaxLimits, "retry")); err != nil {
		s.fault("%w", err)
	}
	s.checkNames("requires", argumentNames(s.requires))
	s.checkNames("requires for its revert", argumentNames(s.revertRequires))
	s.checkNames("provides", provisionNames(s.provides))
	s.checkInjected()
	s.checkConcurrency()
	s.checkSends()
	s.checkLabels()
	s.checkPriority()
}

// checkRepeatable refuses what relies on a record of every execution.
func (s *Step) checkRepeatable() {
	if _, reverts := s.Reverter(); reverts && s.repeatable {
		s.fault("it is repeatable and has a revert; after a crash, no record would show that it must revert")
	}
	if s.repeatable && s.atMostOnce {
		s.fault("it is repeatable, and runs at most once; choose one")
	}
	if s.repeatable && s.noReturn {
		s.fault("it is repeatable, and a point of no return; after a crash, the record may not show that the flow has passed it")
	}
	if s.ignoresFailure && s.noReturn {
		s.fault("its failure is ignored, and it is a point of no return; an unknown outcome could hide that the flow has passed it")
	}
	if s.repeatable && s.retry.Attempts > 1 {
		s.fault("it is repeatable and has %d attempts; after a crash, it could have more attempts", s.retry.Attempts)
	}
}

func (s *Step) checkRetrier() {
	if s.controller == nil {
		s.fault("it is a retry and has no controller")
	}
	if s.pause != nil {
		if err := s.pause.Check("pause"); err != nil {
			s.fault("%w", err)
		}
	}
}

func (s *Step) checkNames(verb string, names []string) {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if seen[name] {
			s.fault("it %s %q twice", verb, name)
		}
		if name == "" {
			s.fault("it %s a value without a name", verb)
		}
		seen[name] = true
	}
}

func argumentNames(arguments []Argument) []string {
	names := make([]string, len(arguments))
	for i, argument := range arguments {
		names[i] = argument.Name
	}
	return names
}

func provisionNames(provisions []Provision) []string {
	names := make([]string, len(provisions))
	for i, provision := range provisions {
		names[i] = provision.Symbol
	}
	return names
}

func (s *Step) fault(format string, arguments ...any) {
	s.faults = append(s.faults, fmt.Errorf("%w: step %q: "+format, append([]any{ErrInvalid, s.name}, arguments...)...))
}
