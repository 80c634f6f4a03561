// Package await waits, on the side of the client, until a set of jobs is as a caller
// wants it: until all are finished, say, or until one is claimable. It counts once and
// then follows the events of the board.
package await

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// MaxAwaited bounds the jobs left that one call of Jobs keeps count of, each in
// a few bytes of the waiter's memory.
const MaxAwaited = 1_000_000

// Waiting says for which jobs to wait. Its zero value is all jobs of all boards.
type Waiting struct {
	Board string       // empty: any
	Kind  string       // empty: any
	Key   string       // empty: any
	Tags  []string     // jobs that have all of them
	Jobs  []jobs.JobID // only these; empty: all that the rest selects, those posted meanwhile too

	// States in which no job may be left. Empty: every state that is not final. Final
	// states are refused, because finished jobs are kept.
	States []jobs.State
	// Some waits until there is such a job, instead of none.
	Some bool

	// Progress is told how it stands: at the beginning and after every change.
	// The waiting goes on when it returns.
	Progress func(Status)
	// Parked is told of each job that keeps the waiting from its end and that its
	// retry policy has parked: such a job goes on when a person says so, and not
	// before. It is told once for each time that a job is parked.
	Parked func(jobs.JobID)
}

// Status is how a waiting stands.
type Status struct {
	Left     int                  // jobs in the states that are waited for
	Gone     int                  // that were so when the waiting began, or since, and are not any longer
	Finished int                  // of those that are gone: those that finished
	Outcomes map[jobs.Outcome]int // of those that were completed
	Trashed  int                  // of those that were finished
}

// Jobs waits until no job is in one of the states: of the jobs that are named, or of
// all that are selected. At that moment the board is empty of them. It listens to
// events and does not poll. If the events that it needs are no longer kept, it lists
// the jobs again and goes on. A state within one log entry does not count: a job that
// one entry trashes and restores was never trashed.
//
// ErrNotFound for a named job that does not exist when the call begins; ErrLimit if
// more than MaxAwaited jobs are left; ErrInvalid for a final state.
func Jobs(ctx context.Context, board jobs.Reader, waiting Waiting) (Status, error) {
	w := &waiter{
		Waiting: waiting, board: board, named: make(map[jobs.JobID]bool), states: make(map[jobs.State]bool), left: make(map[jobs.JobID]int64),
		parked: make(map[jobs.JobID]int64),
		status: Status{Outcomes: make(map[jobs.Outcome]int)},
	}
	if err := w.choose(); err != nil {
		return w.status, fmt.Errorf("cannot wait for jobs: %w", err)
	}
	for _, id := range waiting.Jobs {
		w.named[id] = true
	}
	for {
		if err := w.follow(ctx); !errors.Is(err, jobs.ErrCompacted) {
			return w.status, err
		}
	}
}

// waiter is one Await.
type waiter struct {
	Waiting
	board  jobs.Reader
	named  map[jobs.JobID]bool // those of Jobs
	states map[jobs.State]bool // those of States, or of all that are unfinished
	// left are the jobs that are so, each with when it last changed, in
	// nanoseconds: events of before the look at it are of before that.
	left   map[jobs.JobID]int64
	parked map[jobs.JobID]int64 // those that were told as parked, with the time as of left
	status Status
	known  bool // it has looked at the jobs once

	entry uint64       // the log entry of the last event
	moved []jobs.JobID // those that its events have put among those left, or taken from them
	// doubt: the waiting is over by the events so far, and one of the jobs moved
	// is back where it was: in this very entry, perhaps.
	doubt bool
}

// choose settles which states are meant.
func (w *waiter) choose() error {
	for _, state := range w.States {
		if state.Finished() {
			return &logbook.InvalidError{Field: "waiting states", Reason: fmt.Sprintf("%s jobs stay so until they are removed", state)}
		}
		w.states[state] = true
	}
	for _, state := range jobs.States {
		if len(w.States) == 0 && !state.Finished() {
			w.states[state] = true
		}
	}
	return nil
}

// over reports whether the waiting is.
func (w *waiter) over() bool { return (len(w.left) > 0) == w.Some }

// changing are the kinds of event by which a job can become unfinished, or
// finished. Where other states are asked about, any kind tells of them.
func (w *waiter) changing() []jobs.EventKind {
	if len(w.States) > 0 {
		return nil
	}
	kinds := []jobs.EventKind{jobs.EventPosted, jobs.EventCompleted, jobs.EventTrashed, jobs.EventReopened, jobs.EventRestored, jobs.EventPurged, jobs.EventMovedAway, jobs.EventMoved}
	if w.Parked != nil {
		kinds = append(kinds, jobs.EventParked)
	}
	return kinds
}

// follow looks at the jobs once events are told, so that nothing comes between,
// and then keeps count by the events. Those of before the look change nothing
// about what it has seen: of the jobs that it has found, it knows since when
// they are so, and others are there for a moment at most.
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

// heed keeps count, and reports whether the waiting is over: at the end of a log
// entry, since those who ask never see the middle of one. Nothing says which
// event of an entry is the last, so the jobs are asked: if they are where the
// events have put them, nothing follows in this entry that matters.
func (w *waiter) heed(ctx context.Context, event *jobs.Event) (over bool, err error) {
	if event.Position.Index != w.entry {
		if w.doubt {
			return true, nil // it was so at the end of that entry, whatever followed
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

// returned reports whether a job that was moved by an event has moved again
// since. Then another event tells of that, so that the doubt has an end.
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

// look finds the jobs that are left.
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
			w.status.Finished++ // how, nobody has told
		}
	}
	w.report()
	return nil
}

// find counts a job that is left.
func (w *waiter) find(job *jobs.Job) {
	at := job.ModifiedAt.UnixNano()
	w.left[job.ID] = at
	if _, told := w.parked[job.ID]; job.Parked && !told {
		w.tellParked(job.ID, at)
	}
}

func (w *waiter) tellParked(id jobs.JobID, at int64) {
	if w.Parked != nil && !w.Some {
		w.parked[id] = at
		w.Parked(id)
	}
}

func (w *waiter) lookAtAll(ctx context.Context) error {
	query := jobs.Query{Board: w.Board, Kind: w.Kind, Key: w.Key, Tags: w.Tags}
	for _, state := range jobs.States {
		if w.states[state] {
			query.States = append(query.States, state)
		}
	}
	for job, err := range jobs.All(ctx, w.board, query) {
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

// hear keeps count.
func (w *waiter) hear(event *jobs.Event) error {
	if event.Job.IsZero() || len(w.Jobs) > 0 && !w.named[event.Job] {
		return nil
	}
	since, left := w.left[event.Job]
	gone := event.Kind == jobs.EventPurged || event.Kind == jobs.EventMovedAway && w.Board != ""
	stays, at := w.states[event.State] && !gone, event.Time.UnixNano()
	if told, known := w.parked[event.Job]; event.Kind == jobs.EventParked && stays && (!known || at > told) {
		w.tellParked(event.Job, at)
	}
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
