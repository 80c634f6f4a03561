package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/conductord/conductord/logbook"
)

const (
	// MinAsk is the shortest wait of a step that says "not yet": each time it
	// is asked costs two writes, so that one which asks for less is polling.
	MinAsk = 100 * time.Millisecond
	// MaxAsk is the longest: what takes longer is asked again now and then.
	MaxAsk = MaxPause
	// MaxDetails bounds the details of "not yet" and of progress, in bytes of
	// JSON. They are for people, and written again and again.
	MaxDetails = 16 << 10
)

// NotYet is what a Task returns, from Execute or Revert, that has begun
// something which is not done yet: it is neither a result nor a failure. The
// step is asked again after a while, with the same attempt number and with
// Call.Asked counted up; meanwhile nothing of it runs, it takes no place among
// the steps that run at once, and a conductor may have handed the job over. It
// is due at that time also after a crash, and may be asked once too often
// then, so that asking must be harmless. WaitAtMost says when that is enough.
//
// A wait is held between MinAsk and MaxAsk. The details, for people, are kept
// as those of the step's progress: a JSON value or what marshals to one, or
// the list of them if there are several. What is no JSON, or more than
// MaxDetails, is a failure of kind "result".
//
// It may be wrapped, and then counts as long as no wrapper says something
// else: Permanent and Fail make a failure of it, and so does errors.Join. A
// step that is at most once cannot be asked again, and has failed.
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

// encodeDetails is nil for nil.
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

// NotYetError is what NotYet makes.
type NotYetError struct {
	After   time.Duration
	Details json.RawMessage // nil: none
}

func (e *NotYetError) Error() string { return fmt.Sprintf("not yet: ask again in %s", e.After) }

// AsNotYet finds what NotYet has made, unless a wrapper says something else.
func AsNotYet(err error) (said *NotYetError, ok bool) {
	// It calls methods of a program's own errors: one that panics is a failure.
	defer func() {
		if recover() != nil {
			said, ok = nil, false
		}
	}()
	for err != nil {
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

// WaitAtMost bounds how long each attempt at the step may say "not yet",
// counted from its beginning: it is asked for the last time when that is over,
// and one that is not done then has failed, with the kind "timeout". 0: it may
// for ever.
func WaitAtMost(d time.Duration) Option { return func(s *Step) { s.waitAtMost = d } }

// WaitAtMost is how long an attempt may say "not yet"; 0: for ever.
func (s *Step) WaitAtMost() time.Duration { return s.waitAtMost }
