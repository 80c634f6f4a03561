package jobs

import "fmt"

// Err returns why a job did not succeed, with the job's Failure or Reason. For a finished job it is
// ErrReverted, ErrFailed, ErrCancelled or ErrTrashed. For a held or suspended job it is
// ErrNeedsOperator. It is nil for a success, and for other unfinished jobs.
func (j *Job) Err() error {
	kind := map[Outcome]error{OutcomeReverted: ErrReverted, OutcomeFailed: ErrFailed, OutcomeCancelled: ErrCancelled}[j.Outcome]
	if j.Flow.IsZero() && j.Outcome == OutcomeFailed {
		kind = &subkind{"failed", ErrFailed} // the text of ErrFailed names steps
	}
	switch {
	case j.State == StateTrashed:
		kind = ErrTrashed
	case j.State.NeedsOperator():
		kind = ErrNeedsOperator
	case j.State != StateCompleted:
		return nil
	}
	switch {
	case kind != nil && j.Failure != nil:
		return fmt.Errorf("job %s: %w: %w", j.ID, kind, j.Failure)
	case kind != nil && j.Reason != "":
		return fmt.Errorf("job %s: %w: %s", j.ID, kind, j.Reason)
	case kind != nil:
		return fmt.Errorf("job %s: %w", j.ID, kind)
	}
	return nil
}

// String returns a line for display with the job's id, board, name, state and outcome.
func (j Job) String() string {
	line := fmt.Sprintf("job %s on board %s, %s: %s", j.ID, j.Board, j.Name, j.State)
	if j.Outcome != "" {
		line += " " + string(j.Outcome)
	}
	return line
}
