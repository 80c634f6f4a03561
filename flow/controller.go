package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/conductord/conductord/logbook"
)

// MaxRounds bounds how often one retry begins its part of the flow, including the times caused
// by a retry around it, so that nested retries end. A retry that would exceed the bound, or make
// one inside it exceed it, has failed, and the retry around it decides. The count begins again
// when the whole flow is run again.
const MaxRounds = 100

// RetrySuffix makes the name of a retry without one: the flow's name and this.
const RetrySuffix = "-retry"

// MaxPause bounds the delay of a Decision.
const MaxPause = 30 * 24 * time.Hour

// Controller decides what happens to a flow when one of its steps has failed for good. Give
// one to a flow with NewRetrier and (*Flow).WithRetry.
//
// The loop that drives the flow calls both methods, for one failure after the other: they
// decide from their arguments, and must not block. They may be called for several flows at once.
// A decision is recorded with the failure, and not asked for again after a crash unless the crash
// came before the record: so either may see the same history twice. A panic in either is a
// failure, as in a step.
type Controller interface {
	// Next returns the value of the next round, which the retry provides to the steps of its
	// flow: a JSON value of at most 8 KiB, or what marshals to one. An error is a failure of
	// the retry itself, about which the retry around it decides.
	Next(history *History) (value any, err error)
	// OnFailure is asked once for each step that fails. The last round of
	// the history holds all failures in it so far.
	OnFailure(history *History) Decision
}

// History is what a Controller gets.
type History struct {
	// Retry is the name of the retry.
	Retry string
	// Arguments are what the retry requires, by the names it uses itself.
	Arguments logbook.Values
	// Rounds are the rounds so far, oldest first; none before the first Next.
	// A retry that an outer one begins again starts without any.
	Rounds []Round
}

// Round is one run of a retry's flow.
type Round struct {
	// Value is what Next gave.
	Value json.RawMessage
	// Failures are those of the steps; each says its Step.
	Failures []logbook.Failure
}

// Decision is the answer of OnFailure.
type Decision struct {
	Verdict Verdict
	// Delay before the next round, for VerdictRetry. It counts from the failure and is recorded
	// as a time, so that it survives a crash.
	Delay time.Duration
}

// Verdict is what happens to a flow that has failed.
type Verdict int

// The zero Verdict is invalid, and a failure of the controller: forgetting to decide
// must not revert by accident.
const (
	// VerdictRetry undoes the flow of this retry and begins it again. Flows
	// and steps before it stay as they are.
	VerdictRetry Verdict = iota + 1
	// VerdictRevert leaves the decision to the retry around this one, as for a failure
	// of its own step. Without one, everything is reverted.
	VerdictRevert
	// VerdictRevertAll reverts everything, whatever retries are around.
	VerdictRevertAll
)

// Retrier is a retry: the atom at the beginning of a flow that gives its steps a value and
// decides what happens when one of them fails. Make one with Times, ForEach,
// ParameterizedForEach, AlwaysRevert, AlwaysRevertAll or NewRetrier, and give it to one flow with
// (*Flow).WithRetry.
type Retrier struct{ step *Step }

// NewRetrier makes a retry with a controller. Provides names the value of each round.
func NewRetrier(name string, controller Controller, options ...RetryOption) *Retrier {
	return newRetrier(name, controller, derivation{}, nil, options)
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

// Name is the name of the retry, which is also that of its atom.
func (r *Retrier) Name() string { return r.step.name }

// Pause puts a delay before each further round. It has no Attempts: the rounds are the retry's.
func Pause(backoff Backoff) RetryOption { return retryOption(func(s *Step) { s.pause = &backoff }) }

// RevertingAll makes a retry that has used up its rounds revert everything, instead of leaving
// the decision to the retry around it.
func RevertingAll() RetryOption { return retryOption(func(s *Step) { s.revertingAll = true }) }

// Times runs a flow up to n times in all; 0 counts as 1. The value of a round
// is its number, from 1.
func Times(name string, n int, options ...RetryOption) *Retrier {
	var faults []error
	if n < 0 || n > MaxRounds {
		faults = append(faults, fmt.Errorf("%w: retry %q: it must be between 0 and %d times, not %d", ErrInvalid, name, MaxRounds, n))
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

// ForEach runs a flow with each of some values in turn, until one succeeds.
// A value that is given twice is tried twice.
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
		faults = append(faults, fmt.Errorf("%w: retry %q: it has %d values, and at most %d can be tried", ErrInvalid, name, len(values), MaxRounds))
	}
	return newRetrier(name, list, derivation{}, faults, options)
}

type forEach []json.RawMessage

func (f forEach) Next(h *History) (any, error) {
	if left := untried(f, h); len(left) > 0 {
		return left[0], nil
	}
	if len(h.Rounds) == 0 {
		return nil, Permanent(errors.New("there are no values to try"))
	}
	return nil, Permanent(fmt.Errorf("all %d values were tried", len(h.Rounds)))
}

func (f forEach) OnFailure(h *History) Decision {
	if len(untried(f, h)) > 0 {
		return Decision{Verdict: VerdictRetry}
	}
	return Decision{Verdict: VerdictRevert}
}

// untried returns the values without those that were tried, one for one. It compares their
// JSON texts without spaces, not their positions, so a list that has changed since the flow
// began still has its untried values.
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

// ParameterizedForEach is ForEach with the values from an argument: the JSON
// array under a symbol that the store holds or a step before provides.
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
		return nil, fmt.Errorf("the values to try are no JSON array: %w", err)
	}
	return values, nil
}

// AlwaysRevert leaves every failure to the retry around it.
func AlwaysRevert(name string, options ...RetryOption) *Retrier {
	return newRetrier(name, always(VerdictRevert), derivation{}, nil, options)
}

// AlwaysRevertAll reverts everything on any failure, whatever retries are around.
func AlwaysRevertAll(name string, options ...RetryOption) *Retrier {
	return newRetrier(name, always(VerdictRevertAll), derivation{}, nil, options)
}

type always Verdict

func (always) Next(*History) (any, error)    { return nil, nil }
func (a always) OnFailure(*History) Decision { return Decision{Verdict: Verdict(a)} }
