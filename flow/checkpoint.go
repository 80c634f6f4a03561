package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/conductord/conductord/logbook"
)

// Checkpoint records a value for the next attempt at this step, and returns when the record is durable. Every
// later attempt of the round finds it in Checkpoints, in any conductor or worker. A later value of the same name
// replaces it. The value is a JSON value or marshals to one.
//
// A round ends when the step succeeds or is undone: the next round starts without checkpoints. An execution that
// fails leaves its checkpoints to its revert. A secret in the value is recorded as its mark, as in a result.
//
// The errors: logbook.ErrLimit over logbook.MaxCheckpoint, MaxCheckpoints or MaxCheckpointBytes; logbook.ErrInvalid for
// a value that is not JSON; ErrAttemptOver after the end of the attempt. If ctx ends first, the value may have been
// recorded. To save its position while it is being cancelled, a step passes context.WithoutCancel(ctx). In a call that
// a test makes by hand, only the call keeps the value.
//
// Checkpoint may be called concurrently.
func (c *Call) Checkpoint(ctx context.Context, name string, value any) error {
	encoded, err := encodeCheckpoint(value)
	if err == nil {
		err = c.kept().record(ctx, logbook.Checkpoint{Name: name, Value: encoded})
	}
	if err != nil {
		return fmt.Errorf("cannot record the checkpoint %q of step %q: %w", name, c.Step, err)
	}
	return nil
}

// RecordCheckpoint is Checkpoint for a checkpoint that a worker has numbered. It is for code that makes calls.
func (c *Call) RecordCheckpoint(ctx context.Context, checkpoint logbook.Checkpoint) (err error) {
	if checkpoint.Value, err = encodeCheckpoint(checkpoint.Value); err != nil {
		return err
	}
	return c.kept().record(ctx, checkpoint)
}

// Checkpoints returns the checkpoints of this round by name, including those of this call. The map is a copy.
func (c *Call) Checkpoints() logbook.Values {
	kept := c.kept()
	kept.mu.Lock()
	defer kept.mu.Unlock()
	return maps.Clone(kept.values)
}

// ErrAttemptOver: the attempt has ended, so it records nothing more.
var ErrAttemptOver = errors.New("the attempt is over")

// Once runs a function once in a round of the step, and returns the recorded result in every later attempt. It records
// the result as a checkpoint of this name. After a crash between the end of the function and the record, the function
// runs again: give the outside system an id that stays the same, such as Call.Key with the name. Once returns an error
// of the function, and does not record it. ctx is the context of the step.
func Once[T any](ctx context.Context, name string, run func() (T, error)) (result T, err error) {
	call := CallFrom(ctx)
	if call == nil {
		return result, fmt.Errorf("cannot run %q once: the context is not the context of a step", name)
	}
	if recorded, ok := call.Checkpoints()[name]; ok {
		if err := json.Unmarshal(recorded, &result); err != nil {
			return result, fmt.Errorf("cannot read the checkpoint %q of step %q: %w", name, call.Step, err)
		}
		return result, nil
	}
	if result, err = run(); err != nil {
		return result, err
	}
	return result, call.Checkpoint(context.WithoutCancel(ctx), name, result) // the work is done
}

// Keeper records a checkpoint durably.
type Keeper func(ctx context.Context, checkpoint logbook.Checkpoint) error

// KeepCheckpoints sets the checkpoints of earlier attempts, and the functions that hide secrets in a new one and
// record it. Both may be nil. It is for code that makes calls.
func (c *Call) KeepCheckpoints(earlier logbook.Values, hide func(json.RawMessage) (json.RawMessage, error), keep Keeper) {
	c.checkpoints = &checkpoints{values: maps.Clone(earlier), size: earlier.Size(), hide: hide, keep: keep}
}

// kept are the checkpoints of a call.
func (c *Call) kept() *checkpoints {
	if c.checkpoints == nil { // a call made by a test
		c.checkpoints = &checkpoints{}
	}
	return c.checkpoints
}

// checkpoints are the checkpoints of a call. One is recorded at a time, so that the limits hold.
type checkpoints struct {
	hide func(json.RawMessage) (json.RawMessage, error)
	keep Keeper

	recording sync.Mutex // before mu
	mu        sync.Mutex
	values    logbook.Values
	size      int
}

func (k *checkpoints) record(ctx context.Context, c logbook.Checkpoint) (err error) {
	if k.hide != nil {
		if c.Value, err = k.hide(c.Value); err != nil {
			return &logbook.InvalidError{Field: "checkpoint", Reason: err.Error()}
		}
	}
	k.recording.Lock()
	defer k.recording.Unlock()
	size, err := k.admit(c.Name, c.Value)
	if err == nil && k.keep != nil {
		err = k.keep(ctx, c)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values == nil {
		k.values = make(logbook.Values)
	}
	k.values[c.Name], k.size = c.Value, size
	return nil
}

// admit checks the limits, and returns the size of all checkpoints with the new one.
func (k *checkpoints) admit(name string, value json.RawMessage) (size int, err error) {
	limits := logbook.Limits{Name: logbook.MaxLimits.Name, Value: logbook.MaxCheckpoint}
	if err := limits.CheckName("checkpoint name", name); err != nil {
		return 0, err
	}
	if err := limits.CheckValue("checkpoint", value); err != nil {
		return 0, err
	}
	count, size := len(k.values), k.size+len(name)+len(value)
	if earlier, ok := k.values[name]; ok {
		size -= len(name) + len(earlier)
	} else {
		count++
	}
	switch {
	case count > logbook.MaxCheckpoints:
		return 0, &logbook.LimitError{Field: "checkpoints of the step", Limit: logbook.MaxCheckpoints, Size: int64(count), Unit: "checkpoints"}
	case size > logbook.MaxCheckpointBytes:
		return 0, &logbook.LimitError{Field: "checkpoints of the step", Limit: logbook.MaxCheckpointBytes, Size: int64(size), Unit: "bytes"}
	}
	return size, nil
}

func encodeCheckpoint(value any) (json.RawMessage, error) {
	encoded, err := json.Marshal(value) // also checks and compacts a json.RawMessage
	if err != nil {
		return nil, &logbook.InvalidError{Field: "checkpoint", Reason: err.Error()}
	}
	return encoded, nil
}
