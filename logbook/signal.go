package logbook

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// The limits of one signal.
const (
	// MaxSignalData limits the data of a signal, in bytes of JSON. Larger data belongs in a store, and its
	// key in the signal.
	MaxSignalData = 64 << 10
	// MaxReject limits the reason of a rejection, in bytes.
	MaxReject = 4 << 10
)

// Signal is a message to a job. A wait of the job's flow takes the signal, and the signal's Data is the result
// of the waiting step.
type Signal struct {
	Name string `json:"name"`
	// ID identifies repeats: a job accepts each id once. The sender chooses it, for example the id of the
	// event that it reports.
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data,omitempty"`
	// Reject is the reason of a rejection: the wait fails with the kind FailureRejected. Empty: no rejection.
	Reject string    `json:"reject,omitempty"`
	By     string    `json:"by,omitempty"` // the sender, for display
	At     time.Time `json:"at,omitzero"`  // set by the cluster
}

// Size returns the bytes of the texts and data of a signal.
func (s *Signal) Size() int {
	return len(s.Name) + len(s.ID) + len(s.Data) + len(s.Reject) + len(s.By)
}

// CheckSignal checks a signal before it is written.
func (l Limits) CheckSignal(s *Signal) error {
	if err := l.CheckName("signal name", s.Name); err != nil {
		return err
	}
	if err := l.CheckName("signal id", s.ID); err != nil {
		return err
	}
	if err := l.checkOptionalName("signal by", s.By); err != nil {
		return err
	}
	switch {
	case len(s.Reject) > MaxReject:
		return &LimitError{Field: "signal reject", Limit: MaxReject, Size: int64(len(s.Reject)), Unit: "bytes"}
	case !utf8.ValidString(s.Reject):
		return &InvalidError{Field: "signal reject", Reason: "not UTF-8"}
	case s.Reject != "" && len(s.Data) > 0:
		return &InvalidError{Field: "signal data", Reason: "set together with reject; a rejection has no data"}
	}
	l.Value = min(l.Value, MaxSignalData)
	return l.CheckValue("signal data", s.Data)
}
