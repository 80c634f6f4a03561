package jobs

import "fmt"

// Err returns why a finished job did not succeed: ErrReverted, ErrFailed, ErrCancelled or
// ErrTrashed, with the job's Failure or Reason. It returns nil for a success, and for an
// unfinished job.
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

// String returns a line for people with the job's id, board, name, state and outcome.
func (j Job) String() string {
	line := fmt.Sprintf("job %s on board %s, %s: %s", j.ID, j.Board, j.Name, j.State)
	if j.Outcome != "" {
		line += " " + string(j.Outcome)
	}
	return line
}
