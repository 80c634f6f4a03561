package logbook

import (
	"fmt"

	"github.com/google/uuid"
)

const (
	// MaxSends limits the signals that one execution of a step sends.
	MaxSends = 16
	// MaxSendsBytes limits their size together. They are in the update with the step's result.
	MaxSendsBytes = 64 << 10
	// SendRefused marks, in an update, a signal that the sender of the update may not send. The leader sets it.
	SendRefused = "refused"
)

// Sending is a signal that a step sends to a job with its success. The cluster sends the signal in the log entry that
// records the success, so each signal is sent once. A signal that reaches no job does not fail the step.
type Sending struct {
	Job   string `json:"job,omitempty"`   // id of the job
	Board string `json:"board,omitempty"` // only with Key; empty: the board of the sender
	Key   string `json:"key,omitempty"`   // instead of Job: the key of an unfinished job
	// Signal is without data in a recorded attempt.
	Signal *Signal `json:"signal,omitempty"`
	// Answer is the cluster's answer to the signal, or the code of the error.
	Answer string `json:"answer,omitempty"`
}

// NameSends sets the missing ids of the signals that one place of a flow sends, such as an attempt of a step. The same
// place always gets the same ids.
func NameSends(flow FlowID, place string, sends []Sending) {
	for i := range sends {
		if s := sends[i].Signal; s != nil && s.ID == "" {
			s.ID = uuid.NewSHA1(flow.UUID, fmt.Appendf(nil, "%s/%d", place, i)).String()
		}
	}
}

// CheckSends checks the signals of one execution.
func (l Limits) CheckSends(sends []Sending) error {
	if n := len(sends); n > MaxSends {
		return &LimitError{Field: "sends", Limit: MaxSends, Size: int64(n), Unit: "signals"}
	}
	size := 0
	for i := range sends {
		s := &sends[i]
		if err := l.checkSending(s); err != nil {
			return fmt.Errorf("sends %d: %w", i+1, err)
		}
		size += s.Size()
	}
	if size > MaxSendsBytes {
		return &LimitError{Field: "sends", Limit: MaxSendsBytes, Size: int64(size), Unit: "bytes"}
	}
	return nil
}

func (l Limits) checkSending(s *Sending) error {
	switch {
	case s.Signal == nil:
		return &InvalidError{Field: "signal", Reason: "unset"}
	case s.Answer != "" && s.Answer != SendRefused:
		return &InvalidError{Field: "answer", Reason: "set; the cluster sets it"}
	case (s.Job == "") == (s.Key == ""):
		return &InvalidError{Field: "job", Reason: "name the job by its id, or by its key"}
	case s.Job != "" && s.Board != "":
		return &InvalidError{Field: "board", Reason: "set together with a job; only a key needs a board"}
	case s.Job != "":
		if _, err := ParseID("job", s.Job); err != nil {
			return err
		}
	}
	if err := l.checkOptionalName("board", s.Board); err != nil {
		return err
	}
	if err := l.checkOptionalName("key", s.Key); err != nil {
		return err
	}
	return l.CheckSignal(s.Signal)
}

// Size returns the bytes of the texts and data of a sending.
func (s *Sending) Size() int {
	size := len(s.Job) + len(s.Board) + len(s.Key) + len(s.Answer)
	if s.Signal != nil {
		size += s.Signal.Size()
	}
	return size
}

// checkSendsOf checks the signals of an attempt.
func (l Limits) checkSendsOf(a *Attempt) error {
	if len(a.Sends) > 0 && (a.Action != ActionExecute || !a.Ended() || a.Failure != nil) {
		return &InvalidError{Field: "sends", Reason: "set in an attempt that is not the end of a successful execution"}
	}
	return l.CheckSends(a.Sends)
}
