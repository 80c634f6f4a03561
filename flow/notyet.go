package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/conductord/conductord/logbook"
)

const (
	// MinAsk is the shortest wait after NotYet. Each call of the step costs two writes, so a
	// shorter wait would be polling.
	MinAsk = 100 * time.Millisecond
	// MaxAsk is the longest wait after NotYet. Then the step is called again in any case.
	MaxAsk = MaxPause
	// MaxDetails limits the details of NotYet and of progress, in bytes of JSON. They are for
	// display, and are written again and again.
	MaxDetails = 16 << 10
)

// NotYet is the error of a Task whose Execute or Revert has started something that is not done
// yet. It is neither a result nor a failure. After the wait, the step is called again, with the
// same attempt number and a Call.Asked one higher.
//
// Meanwhile the step does not run, the limits of running steps do not count it, and the conductor
// may release the job. A crash does not change the time of the next call, but can add one extra
// call, which must be harmless. WaitAtMost limits the whole wait.
//
// The wait is kept between MinAsk and MaxAsk. The details are recorded like those of the step's
// progress: a JSON value or a value that marshals to one, or a list of them if there are several.
// Details that cannot be encoded, or are longer than MaxDetails, are a failure of kind "result".
//
// You may wrap the error, but not with Permanent, Fail or errors.Join: these make it a failure.
// An at-most-once step cannot be called again, so it fails.
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
		return Fail(logbook.FailureResult, fmt.Errorf("cannot answer \"not yet\": %w", err))
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

func (e *NotYetError) Error() string { return fmt.Sprintf("not yet: run again in %s", e.After) }

// AsNotYet finds a NotYetError in an error, unless a wrapper makes the error a failure.
func AsNotYet(err error) (said *NotYetError, ok bool) {
	// It calls methods of a program's own errors. A panic in one of them is a failure.
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

// WaitAtMost limits how long each attempt at the step may return NotYet, from its start. Then the
// step is called for the last time; if it is not done, it fails with the kind "timeout". 0: no
// limit.
func WaitAtMost(d time.Duration) StepOption { return stepOption(func(s *Step) { s.waitAtMost = d }) }

// WaitAtMost is the limit of the time in which an attempt may return NotYet; 0: no limit.
func (s *Step) WaitAtMost() time.Duration { return s.waitAtMost }
