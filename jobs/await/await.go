// Package await waits for jobs, in the client: for the result of one job, until a set of jobs is
// finished, or until one of them reaches a state. It lists the jobs once and then follows the
// events of the board, without polling.
package await

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// MaxAwaited bounds the jobs for which one call of Jobs waits. Each takes a few bytes of memory.
const MaxAwaited = 1_000_000

// Waiting selects jobs and the condition to wait for. Its zero value waits until each job of all
// boards is finished or needs an operator.
type Waiting struct {
	Board string       // empty: any
	Kind  string       // empty: any
	Key   string       // empty: any
	Tags  []string     // jobs with all of these tags
	Jobs  []jobs.JobID // only these jobs; empty: all selected jobs, including jobs that are posted later

	// States are the states that all selected jobs must leave. Empty: all states in which a job
	// continues without an operator; with Some, all unfinished states. Final states are refused,
	// because finished jobs are kept.
	States []jobs.State
	// Some inverts the condition: wait until a selected job is in one of the States.
	Some bool

	// Progress is called first, and then after every change. The wait continues when it
	// returns.
	Progress func(Status)
}

// Status is the progress of a wait.
type Status struct {
	Left     int                  // selected jobs that are in one of the States
	Gone     int                  // jobs that left the States since the wait started
	Finished int                  // finished jobs among Gone
	Outcomes map[jobs.Outcome]int // completed jobs among Gone, by outcome
	Trashed  int                  // trashed jobs among Gone
	// Stopped are the selected jobs that need an operator when the wait ends: see
	// jobs.State.NeedsOperator. Empty if Waiting has States or Some.
	Stopped []jobs.JobID
}

// Jobs waits until no selected job is in one of the States, or, with Some, until one is. Without
// States and Some, it waits until each job is finished or needs an operator, and Status.Stopped has
// the jobs that need an operator.
//
// Jobs follows events and does not poll. If events that it needs are no longer kept, it lists the
// jobs again and continues. Jobs ignores a state that a job leaves within the same log entry.
//
// ErrNotFound if a job in Waiting.Jobs does not exist when the call starts; ErrLimit if more
// than MaxAwaited jobs are left; ErrInvalid for a final state.
func Jobs(ctx context.Context, board jobs.Reader, waiting Waiting) (Status, error) {
	w := &waiter{
		Waiting: waiting, board: board, named: make(map[jobs.JobID]bool), states: make(map[jobs.State]bool), left: make(map[jobs.JobID]int64),
		unseen: make(map[jobs.JobID]bool),
		status: Status{Outcomes: make(map[jobs.Outcome]int)},
	}
	if err := w.choose(); err != nil {
		return w.status, fmt.Errorf("cannot wait for jobs: %w", err)
	}
	for _, id := range waiting.Jobs {
		w.named[id] = true
	}
	for {
		err := w.follow(ctx)
		if err == nil && w.untilStopped() {
			err = w.findStopped(ctx)
		}
		if !errors.Is(err, jobs.ErrCompacted) {
			return w.status, err
		}
	}
}

// waiter is one call of Jobs.
type waiter struct {
	Waiting
	board  jobs.Reader
	named  map[jobs.JobID]bool // Waiting.Jobs
	states map[jobs.State]bool // Waiting.States, or all unfinished states
	// left are the jobs in one of the states, with the time of the job's latest change in
	// nanoseconds. Events before that time are older than the read of the job.
	left   map[jobs.JobID]int64
	unseen map[jobs.JobID]bool // jobs that left while events were missed: finished or stopped
	status Status
	known  bool // the jobs were listed once

	entry uint64       // log entry of the latest event
	moved []jobs.JobID // jobs that events of this entry added to left or removed from it
	// doubt: by the events so far the wait is over, but a moved job has changed back, perhaps in
	// the same entry.
	doubt bool
}

// choose sets the states of the wait.
func (w *waiter) choose() error {
	for _, state := range w.States {
		if state.Finished() {
			return &logbook.InvalidError{Field: "waiting states", Reason: fmt.Sprintf("%s is a final state; choose states of unfinished jobs", state)}
		}
		w.states[state] = true
	}
	for _, state := range jobs.States {
		if len(w.States) == 0 && !state.Finished() && !(w.untilStopped() && state.NeedsOperator()) {
			w.states[state] = true
		}
	}
	return nil
}

// over reports whether the condition holds.
func (w *waiter) over() bool { return (len(w.left) > 0) == w.Some }

// untilStopped reports whether the wait ends when every job is finished or needs an operator.
func (w *waiter) untilStopped() bool { return len(w.States) == 0 && !w.Some }

// changing returns the kinds of event by which a job finishes, stops for an operator, or continues.
// With States, it returns nil, which means all kinds.
func (w *waiter) changing() []jobs.EventKind {
	if len(w.States) > 0 {
		return nil
	}
	return []jobs.EventKind{
		jobs.EventPosted, jobs.EventCompleted, jobs.EventTrashed, jobs.EventReopened, jobs.EventRestored, jobs.EventPurged, jobs.EventMovedAway, jobs.EventMoved,
		jobs.EventParked, jobs.EventSuspended, jobs.EventResumed, jobs.EventRetryNow, jobs.EventChanged, jobs.EventIntervened,
		jobs.EventAbandoned, jobs.EventExpired, jobs.EventStopRequested,
	}
}

// follow starts the watch, lists the jobs, and then counts by the events. The watch starts first, so
// no change is lost. Events from before the list do not disturb the count: they are older than the
// change times of the listed jobs, and later events correct the count of other jobs.
func (w *waiter) follow(ctx context.Context) error {
	watch := jobs.Watch{
		Board: w.Board, JobKind: w.Kind, Key: w.Key, Tags: w.Tags, Begin: true,
		Kinds: w.changing(),
	}
	if len(w.Jobs) == 1 {
		watch.Job = w.Jobs[0]
	}
	for event, err := range w.board.Watch(ctx, watch) {
		if err != nil {
			return err
		}
		over := false
		if event.Kind == jobs.EventBegun {
			err = w.look(ctx)
			over = w.over()
		} else {
			over, err = w.heed(ctx, &event)
		}
		if err != nil || over {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cannot wait for jobs: %w", err)
	}
	return fmt.Errorf("cannot wait for jobs: %w: the watch has ended", jobs.ErrUnavailable)
}

// heed counts an event, and reports whether the wait is over. The condition must hold at the end of a
// log entry, because readers never see a state within an entry. No event is marked as the last of its
// entry, so heed reads the moved jobs: if their states agree with the events, no later event of the
// entry matters.
func (w *waiter) heed(ctx context.Context, event *jobs.Event) (over bool, err error) {
	if event.Position.Index != w.entry {
		if w.doubt {
			return true, nil // the condition held at the end of the previous entry
		}
		w.entry, w.moved = event.Position.Index, w.moved[:0]
	}
	if err := w.hear(event); err != nil {
		return false, err
	}
	if !w.over() {
		w.doubt = false
		return false, nil
	}
	if w.doubt {
		return false, nil
	}
	for _, id := range w.moved {
		if w.doubt, err = w.returned(ctx, id, event); err != nil || w.doubt {
			return false, err
		}
	}
	return true, nil
}

// returned reports whether a moved job has changed again since the event. In that case another event
// follows, which ends the doubt.
func (w *waiter) returned(ctx context.Context, id jobs.JobID, event *jobs.Event) (bool, error) {
	_, left := w.left[id]
	job, err := w.board.Job(ctx, id)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return left, nil
	case err != nil:
		return false, err
	}
	again := !left && job.State.Finished() && job.FinishedAt.After(event.Time)
	here := w.Board == "" || job.Board == w.Board
	return (here && w.states[job.State]) != left || again, nil
}

// look lists the jobs that are left.
func (w *waiter) look(ctx context.Context) error {
	before := w.left
	w.left, w.moved, w.doubt = make(map[jobs.JobID]int64), nil, false
	if len(w.Jobs) > 0 {
		for _, id := range w.Jobs {
			job, err := w.board.Job(ctx, id)
			if errors.Is(err, jobs.ErrNotFound) && w.known {
				continue
			}
			if err != nil {
				return err
			}
			if w.states[job.State] {
				w.find(&job)
			}
		}
	} else if err := w.lookAtAll(ctx); err != nil {
		return err
	}
	w.known = true
	for id := range before {
		if _, stays := w.left[id]; stays {
			continue
		}
		w.status.Gone++
		if len(w.States) == 0 {
			w.status.Finished++ // the outcome is unknown
			w.unseen[id] = true
		}
	}
	w.report()
	return nil
}

// find adds a job to left.
func (w *waiter) find(job *jobs.Job) {
	w.left[job.ID] = job.ModifiedAt.UnixNano()
}

// findStopped lists the jobs that need an operator.
func (w *waiter) findStopped(ctx context.Context) error {
	found := func(job *jobs.Job, err error) error {
		if err != nil || !job.State.NeedsOperator() {
			return err
		}
		if w.status.Stopped = append(w.status.Stopped, job.ID); w.unseen[job.ID] {
			w.status.Finished--
		}
		return nil
	}
	for _, id := range w.Jobs {
		job, err := w.board.Job(ctx, id)
		if err := found(&job, err); err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
	}
	if len(w.Jobs) > 0 {
		return nil
	}
	for job, err := range jobs.All(ctx, w.board, w.query(jobs.State.NeedsOperator)) {
		if err := found(&job, err); err != nil {
			return err
		}
	}
	return nil
}

// query selects the jobs in some states.
func (w *waiter) query(in func(jobs.State) bool) jobs.Query {
	query := jobs.Query{Board: w.Board, Kind: w.Kind, Key: w.Key, Tags: w.Tags}
	for _, state := range jobs.States {
		if in(state) {
			query.States = append(query.States, state)
		}
	}
	return query
}

func (w *waiter) lookAtAll(ctx context.Context) error {
	for job, err := range jobs.All(ctx, w.board, w.query(func(state jobs.State) bool { return w.states[state] })) {
		if err != nil {
			return err
		}
		w.find(&job)
		if err := w.bounded(); err != nil {
			return err
		}
	}
	return nil
}

// hear processes an event.
func (w *waiter) hear(event *jobs.Event) error {
	if event.Job.IsZero() || len(w.Jobs) > 0 && !w.named[event.Job] {
		return nil
	}
	since, left := w.left[event.Job]
	gone := event.Kind == jobs.EventPurged || event.Kind == jobs.EventMovedAway && w.Board != ""
	stays, at := w.states[event.State] && !gone, event.Time.UnixNano()
	if stays == left || left && at < since {
		return nil
	}
	w.moved = append(w.moved, event.Job)
	if stays {
		w.left[event.Job] = at
		w.report()
		return w.bounded()
	}
	delete(w.left, event.Job)
	w.status.Gone++
	if event.State.Finished() {
		w.status.Finished++
	}
	switch event.Kind {
	case jobs.EventCompleted:
		w.status.Outcomes[event.Outcome]++
	case jobs.EventTrashed:
		w.status.Trashed++
	}
	w.report()
	return nil
}

func (w *waiter) bounded() error {
	if len(w.left) > MaxAwaited {
		return &logbook.LimitError{Field: "jobs to wait for", Limit: MaxAwaited, Size: int64(len(w.left)), Unit: "jobs"}
	}
	return nil
}

func (w *waiter) report() {
	w.status.Left = len(w.left)
	if w.Progress != nil {
		status := w.status
		status.Outcomes = maps.Clone(w.status.Outcomes)
		w.Progress(status)
	}
}
