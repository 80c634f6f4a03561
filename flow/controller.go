package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/conductord/conductord/logbook"
)

// MaxRounds limits how often one retry starts its part of the flow, including starts that an
// outer retry causes, so that nested retries end. A retry fails if its next round would exceed
// the limit for itself or for a retry inside it. The retry around it then decides. The count
// restarts when the whole flow is run again.
const MaxRounds = 100

// RetrySuffix follows the flow's name in the default name of a retry.
const RetrySuffix = "-retry"

// MaxPause limits the delay of a Decision.
const MaxPause = 30 * 24 * time.Hour

// Controller decides what happens to a flow after one of its steps has failed permanently. Give a
// controller to a flow with NewRetrier and (*Flow).WithRetry.
//
// The loop that drives the flow calls both methods, one failure at a time. Both must decide from
// their arguments, and must not block. They can be called for several flows at once. A decision
// is recorded with the failure and never repeated, unless a crash came before the record: both
// methods can therefore see the same history twice. A panic in either method is a failure, as in
// a step.
type Controller interface {
	// Next returns the value of the next round, which the retry provides to the steps of its
	// flow: a JSON value of at most 8 KiB, or a value that marshals to one. An error is a failure
	// of the retry itself. The retry around it then decides.
	Next(history *History) (value any, err error)
	// OnFailure is called once for each step that fails. The last round of the history holds all
	// failures of that round so far.
	OnFailure(history *History) Decision
}

// History is the input of a Controller.
type History struct {
	// Retry is the name of the retry.
	Retry string
	// Arguments are the values that the retry requires, by argument name.
	Arguments logbook.Values
	// Rounds are the rounds so far, oldest first; none before the first Next. When an outer retry
	// starts this retry again, Rounds is empty again.
	Rounds []Round
	// Failure is the failure to decide about, for OnFailure. It is the failure of a step, or of a
	// retry inside this one.
	Failure *logbook.Failure
}

// Round is one run of a retry's flow.
type Round struct {
	// Value is the result of Next.
	Value json.RawMessage
	// Failures are the failures of the round's steps. The field Step of each names the step.
	Failures []logbook.Failure
}

// Decision is the result of OnFailure.
type Decision struct {
	Verdict Verdict
	// Delay is the pause before the next round, for VerdictRetry. It counts from the failure. It
	// is recorded as a time, so it survives a crash.
	Delay time.Duration
}

// Verdict is a controller's decision about a failed flow.
type Verdict int

// The zero Verdict is invalid and counts as a failure of the controller: a controller that
// forgets to decide must not revert the flow by accident.
const (
	// VerdictRetry reverts the flow of this retry and starts it again. Flows and steps before it
	// keep their state.
	VerdictRetry Verdict = iota + 1
	// VerdictRevert leaves the decision to the retry around this one, as if this retry itself had
	// failed. If there is none, everything is reverted.
	VerdictRevert
	// VerdictRevertAll reverts the whole flow; outer retries do not run.
	VerdictRevertAll
)

// Retrier is a retry: the atom at the start of a flow that gives its steps a value and decides
// what happens when one of them fails. Make one with Times, ForEach, ParameterizedForEach,
// AlwaysRevert, AlwaysRevertAll or NewRetrier, and give it to one flow with (*Flow).WithRetry.
type Retrier struct{ step *Step }

// NewRetrier makes a retry with a controller. The option Provides names the value of each round.
// The controller decides about permanent failures too: see History.Failure.
func NewRetrier(name string, controller Controller, options ...RetryOption) *Retrier {
	retrier := newRetrier(name, controller, derivation{}, nil, options)
	retrier.step.ownController = true
	return retrier
}

func newRetrier(name string, controller Controller, derived derivation, faults []error, options []RetryOption) *Retrier {
	s := &Step{name: name, derived: derived, faults: faults, controller: controller, retrier: true}
	given := make([]StepOption, len(options))
	for i, o := range options {
		if o != nil { // else finished reports it
			given[i] = stepOption(o.ofRetry)
		}
	}
	return &Retrier{step: finished(s, given)}
}

// Name is the name of the retry and of its atom.
func (r *Retrier) Name() string { return r.step.name }

// Pause puts a delay before each further round. Leave Attempts unset, because the retry limits
// its rounds.
func Pause(backoff Backoff) RetryOption { return retryOption(func(s *Step) { s.pause = &backoff }) }

// RevertingAll makes a retry without further rounds revert the whole flow, instead of leaving the
// decision to the retry around it.
func RevertingAll() RetryOption { return retryOption(func(s *Step) { s.revertingAll = true }) }

// Times runs a flow at most n times; 0 counts as 1. The value of a round is its number, from 1.
func Times(name string, n int, options ...RetryOption) *Retrier {
	var faults []error
	if n < 0 || n > MaxRounds {
		faults = append(faults, fmt.Errorf("%w: retry %q: the number of rounds must be 0 to %d, not %d", ErrInvalid, name, MaxRounds, n))
	}
	return newRetrier(name, times(n), derivation{}, faults, options)
}

type times int

func (t times) Next(h *History) (any, error) { return len(h.Rounds) + 1, nil }

func (t times) OnFailure(h *History) Decision {
	if len(h.Rounds) < int(t) {
		return Decision{Verdict: VerdictRetry}
	}
	return Decision{Verdict: VerdictRevert}
}

// ForEach runs a flow with each of the values in turn, until one succeeds. A value that is given
// twice is tried twice.
func ForEach[T any](name string, values []T, options ...RetryOption) *Retrier {
	var faults []error
	list := make(forEach, 0, len(values))
	for i, value := range values {
		encoded, err := json.Marshal(value)
		if err != nil {
			faults = append(faults, fmt.Errorf("%w: retry %q: value %d: %w", ErrInvalid, name, i+1, err))
		}
		list = append(list, encoded)
	}
	if len(values) > MaxRounds {
		faults = append(faults, fmt.Errorf("%w: retry %q: it has %d values; the limit is %d", ErrInvalid, name, len(values), MaxRounds))
	}
	return newRetrier(name, list, derivation{}, faults, options)
}

type forEach []json.RawMessage

func (f forEach) Next(h *History) (any, error) {
	if left := untried(f, h); len(left) > 0 {
		return left[0], nil
	}
	if len(h.Rounds) == 0 {
		return nil, Permanent(errors.New("the list of values is empty"))
	}
	return nil, Permanent(fmt.Errorf("all %d values were tried", len(h.Rounds)))
}

func (f forEach) OnFailure(h *History) Decision {
	if len(untried(f, h)) > 0 {
		return Decision{Verdict: VerdictRetry}
	}
	return Decision{Verdict: VerdictRevert}
}

// untried returns the values without the tried ones; each try removes one equal value. It
// compares JSON texts without spaces, not positions: if the list changed after the flow started,
// its untried values are still found.
func untried(values []json.RawMessage, h *History) []json.RawMessage {
	tried := make(map[string]int, len(h.Rounds))
	for _, round := range h.Rounds {
		tried[compact(round.Value)]++
	}
	var left []json.RawMessage
	for _, value := range values {
		if text := compact(value); tried[text] > 0 {
			tried[text]--
		} else {
			left = append(left, value)
		}
	}
	return left
}

func compact(value json.RawMessage) string {
	// Marshalling a raw message compacts it. A value that is not JSON is never in the logbook, and
	// equals only itself.
	text, err := json.Marshal(value)
	if err != nil {
		return string(value)
	}
	return string(text)
}

// ParameterizedForEach is ForEach with the values of an argument: a JSON array under a symbol
// that the store holds or an earlier step provides.
func ParameterizedForEach(name, symbol string, options ...RetryOption) *Retrier {
	values := Argument{Name: "values", Symbol: symbol}
	return newRetrier(name, parameterized{}, derivation{requires: []Argument{values}}, nil, options)
}

type parameterized struct{}

func (parameterized) Next(h *History) (any, error) {
	values, err := argumentValues(h)
	if err != nil {
		return nil, Permanent(err)
	}
	return values.Next(h)
}

func (parameterized) OnFailure(h *History) Decision {
	values, err := argumentValues(h)
	if err != nil {
		return Decision{Verdict: VerdictRevert}
	}
	return values.OnFailure(h)
}

func argumentValues(h *History) (forEach, error) {
	var values forEach
	if err := json.Unmarshal(h.Arguments["values"], &values); err != nil {
		return nil, fmt.Errorf("the values of the rounds are not a JSON array: %w", err)
	}
	return values, nil
}

// AlwaysRevert leaves every failure to the retry around it.
func AlwaysRevert(name string, options ...RetryOption) *Retrier {
	return newRetrier(name, always(VerdictRevert), derivation{}, nil, options)
}

// AlwaysRevertAll reverts the whole flow after any failure; outer retries do not run.
func AlwaysRevertAll(name string, options ...RetryOption) *Retrier {
	return newRetrier(name, always(VerdictRevertAll), derivation{}, nil, options)
}

type always Verdict

func (always) Next(*History) (any, error)    { return nil, nil }
func (a always) OnFailure(*History) Decision { return Decision{Verdict: Verdict(a)} }
