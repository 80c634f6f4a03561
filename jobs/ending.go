package jobs

import "fmt"

// Err says how a finished job ended that is no success: ErrReverted, ErrFailed, ErrCancelled or
// ErrTrashed, with the job's Failure or Reason. It is nil for other jobs.
func (j *Job) Err() error {
	kind := map[Outcome]error{OutcomeReverted: ErrReverted, OutcomeFailed: ErrFailed, OutcomeCancelled: ErrCancelled}[j.Outcome]
	switch {
	case j.State == StateTrashed:
		kind = ErrTrashed
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

// String is a line for people: the id, board, name and state of the job, and its outcome.
func (j Job) String() string {
	line := fmt.Sprintf("job %s on board %s, %s: %s", j.ID, j.Board, j.Name, j.State)
	if j.Outcome != "" {
		line += " " + string(j.Outcome)
	}
	return line
}
