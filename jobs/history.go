package jobs

import "context"

// Historian looks back at what has become of jobs, and puts right what has
// gone wrong with them.
//
//	the job    restore                               purge
//	─────────  ────────────────────────────────────  ───────────
//	TRASHED    back on its board, as if just posted  removed
//	COMPLETED  the same, if it has no flow and was   removed
//	           reverted or failed; or ErrConflict
//	any other  nothing to do                         ErrConflict
type Historian interface {
	// Restore puts a finished job back on its board. Crashes and failures are
	// counted from zero, outcome, reason and evidence are gone, and a suspension
	// is lifted; its time and whether it is held count as they did. Its flow goes
	// on where it stands: what was recorded as done is not done again. One that
	// was to be cancelled and undone is undone further. A deadline that has
	// passed is no longer kept. A key that another job has by now is lost.
	// ErrNotFound; ErrConflict if its flow is gone, or is that of another
	// unfinished job. A job with a flow that has failed or was undone goes on
	// by Controller.Intervene.
	Restore(ctx context.Context, order Order) error

	// Purge removes a finished job at once, as its retention would later: its
	// book goes with the last job that refers to it. ErrNotFound, also to a
	// repeat.
	Purge(ctx context.Context, order Order) error
}
