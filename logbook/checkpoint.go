package logbook

import (
	"encoding/json"
	"fmt"
	"time"
)

// The limits of the checkpoints of one step.
const (
	// MaxCheckpoint limits the value of a checkpoint, in bytes of JSON. Larger data belongs in a store, and its
	// key in the checkpoint.
	MaxCheckpoint = 64 << 10
	// MaxCheckpoints limits the checkpoints of a step: the next attempt gets all of them.
	MaxCheckpoints = 1_000
	// MaxCheckpointBytes limits the names and values of all checkpoints of a step, in bytes.
	MaxCheckpointBytes = 1 << 20

	// A store accepts longer values, because encrypted values are longer. The limits of plain values are checked
	// before the encryption.
	maxStoredCheckpoint = MaxCheckpoint + MaxCheckpoint/2
	maxStoredBytes      = 2 * MaxCheckpointBytes
)

// Checkpoint is a value that a step has recorded for its next attempt. A later checkpoint of the same name
// replaces it.
type Checkpoint struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
	At    time.Time       `json:"at"`
	// Number counts the checkpoints that a worker records in an attempt, from 1. A late repeat of a report is
	// recognised by its number. 0: the conductor has recorded the checkpoint itself.
	Number int `json:"number,omitempty"`
}

// Size returns the bytes of name and value.
func (c *Checkpoint) Size() int { return len(c.Name) + len(c.Value) }

// Checkpoints count the checkpoints of a step. Connection.Checkpoints reads the values.
type Checkpoints struct {
	Count int       `json:"count"`
	Bytes int       `json:"bytes"` // of names and stored values
	Last  string    `json:"last"`  // name of the latest checkpoint
	At    time.Time `json:"at"`    // of the latest checkpoint
	// Number is the Number of the latest checkpoint of the open attempt; 0: its worker has recorded none.
	Number int `json:"number,omitempty"`
}

// CountCheckpoint counts a checkpoint of a change in the atom, after Advance. replaced is the size of the
// checkpoint that it replaces; negative: it is new. ErrLimit.
func (a *AtomDetail) CountCheckpoint(c *Checkpoint, replaced int) error {
	counted := Checkpoints{Last: c.Name, At: c.At, Number: c.Number}
	if a.Checkpoints != nil {
		counted.Count, counted.Bytes = a.Checkpoints.Count, a.Checkpoints.Bytes
	}
	if replaced < 0 {
		counted.Count++
		replaced = 0
	}
	counted.Bytes += c.Size() - replaced
	switch {
	case counted.Count > MaxCheckpoints:
		return &LimitError{Field: "checkpoints of " + a.Name, Limit: MaxCheckpoints, Size: int64(counted.Count), Unit: "checkpoints"}
	case counted.Bytes > maxStoredBytes:
		return &LimitError{Field: "checkpoints of " + a.Name, Limit: maxStoredBytes, Size: int64(counted.Bytes), Unit: "bytes"}
	}
	a.Checkpoints = &counted
	return nil
}

// DropsCheckpoints reports whether a change of state removes the checkpoints of a step. They stay from the first
// attempt of a round until the step succeeds, is undone or skipped, or starts a new round.
func DropsCheckpoints(from, to AtomState) bool {
	switch to {
	case AtomSuccess, AtomReverted, AtomIgnored:
		return true
	case AtomPending:
		return from != AtomPending && from != AtomRunning
	}
	return false
}

// admitsCheckpoints checks that the checkpoints of a change belong to an attempt that runs.
func (a *AtomDetail) admitsCheckpoints(c *AtomChange) error {
	if len(c.Checkpoints) == 0 {
		return nil
	}
	if c.State != "" || len(c.Attempts) > 0 {
		return &InvalidError{Field: "checkpoints of " + c.Name, Reason: "in a change of its state or attempts; record them in their own change"}
	}
	n := len(a.Attempts)
	if n == 0 || a.Attempts[n-1].Ended() || a.State != AtomRunning && a.State != AtomReverting {
		return fmt.Errorf("%w: step %q is %s and has no running attempt, so it cannot record a checkpoint", ErrConflict, a.Name, a.State)
	}
	return nil
}

// CheckCheckpoint checks the size of a checkpoint as a store accepts it, which may be encrypted.
func (l Limits) CheckCheckpoint(c *Checkpoint) error {
	if err := l.CheckName("checkpoint name", c.Name); err != nil {
		return err
	}
	if len(c.Value) == 0 {
		return &InvalidError{Field: "checkpoint " + c.Name, Reason: "empty; write null for no value"}
	}
	l.Value = min(l.Value, maxStoredCheckpoint)
	return l.CheckValue("checkpoint "+c.Name, c.Value)
}
