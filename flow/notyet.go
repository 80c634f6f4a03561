package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/conductord/conductord/logbook"
)

const (
	// MinAsk is the shortest wait of a step that says "not yet". Each time that it is asked
	// costs two writes, so a shorter wait would be polling.
	MinAsk = 100 * time.Millisecond
	// MaxAsk is the longest wait: after that the step is asked again in any case.
	MaxAsk = MaxPause
	// MaxDetails bounds the details of "not yet" and of progress, in bytes of JSON. They are
	// for people, and are written again and again.
	MaxDetails = 16 << 10
)

// NotYet is returned by a Task, from Execute or Revert, that has begun something which is
// not done yet: it is neither a result nor a failure. The step is asked again after a while,
// with the same attempt number and Call.Asked one higher. Meanwhile nothing of it runs, it
// does not count among the steps that run at once, and the conductor may release the job. It
// is due at that time also after a crash, and may then be asked once too often, so asking
// must be harmless. WaitAtMost bounds how long it may say so.
//
// A wait is kept between MinAsk and MaxAsk. The details, for people, are recorded like those
// of the step's progress: a JSON value or what marshals to one, or the list of them if there
// are several. Details that are no JSON, or longer than MaxDetails, are a failure of kind
// "result".
//
// The error may be wrapped, but not by Permanent, Fail or errors.Join: those make a failure
// of it. An at-most-once step cannot be asked again, so it fails.
func NotYet(after time.Duration, details ...any) error {
	said := &NotYetError{After: min(max(after, MinAsk), MaxAsk)}
	var value any
	switch len(details) {
	case 0:
		return said
	case 1:
		value = details[0]
	default:
		value = details
	}
	encoded, err := encodeDetails(value)
	if err != nil {
		return Fail(logbook.FailureResult, fmt.Errorf("cannot say \"not yet\": %w", err))
	}
	said.Details = encoded
	return said
}

// encodeDetails returns nil for nil.
func encodeDetails(details any) (json.RawMessage, error) {
	if details == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(details)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the details: %w", err)
	}
	return encoded, logbook.Limits{Value: MaxDetails}.CheckValue("details", encoded)
}

// NotYetError is the error that NotYet returns.
type NotYetError struct {
	After   time.Duration
	Details json.RawMessage // nil: none
}

func (e *NotYetError) Error() string { return fmt.Sprintf("not yet: ask again in %s", e.After) }

// AsNotYet finds a NotYetError in an error, unless a wrapper makes a failure of it.
func AsNotYet(err error) (said *NotYetError, ok bool) {
	// It calls methods of a program's own errors: one that panics is a failure.
	defer func() {
		if recover() != nil {
			said, ok = nil, false
		}
	}()
	for range maxWrapped {
		switch e := err.(type) {
		case *NotYetError:
			return e, true
		case *markedError, *PanicError:
			return nil, false
		}
		err = errors.Unwrap(err)
	}
	return nil, false
}

// WaitAtMost bounds how long each attempt at the step may say "not yet", from its
// beginning. Then the step is asked for the last time; if it is not done, it fails with the
// kind "timeout". 0: no bound.
func WaitAtMost(d time.Duration) StepOption { return stepOption(func(s *Step) { s.waitAtMost = d }) }

// WaitAtMost is how long an attempt may say "not yet"; 0: for ever.
func (s *Step) WaitAtMost() time.Duration { return s.waitAtMost }
