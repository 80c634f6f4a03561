package engine

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

const (
	// headroomShare of the largest command is kept free for the envelope around an update, and
	// for the job's ending that goes with the last one. That ending repeats the cause (see
	// flow.FitFailure).
	headroomShare = 8
	// resultShare and stderrShare of a command bound what is kept of one
	// attempt, so that both, with a failure, always fit into one update.
	resultShare = 2
	stderrShare = 8
	// detailsShare is the share of the details of one attempt's progress.
	detailsShare = 16
	// stderrOfStep and failuresOfStep limit what is kept of all attempts that a step's policy
	// allows, for execute and revert each. An atom is read in one message and may take 3 MiB of
	// it. Without these limits, the output of many attempts could make the flow unreadable, and
	// no conductor could resume it.
	stderrOfStep   = 768 << 10
	failuresOfStep = 512 << 10
	// Estimates of the bytes of an encoded update and its parts, without their texts. The
	// estimates are generous: a split too early costs one more update, a split too late loses
	// the flow.
	updateOverhead     = 128
	changeOverhead     = 64
	attemptOverhead    = 160
	failureOverhead    = 48
	progressOverhead   = 48
	sendingOverhead    = 48
	checkpointOverhead = 64
	detailOverhead     = 16
	definitionOverhead = 16
	// usualChanges is the capacity of a new update: the end of one step and the mark of
	// the next.
	usualChanges = 2
)

// builder turns changes into updates: as few as possible, each within the limits, in the order of
// the changes. An update changes the flow's state at most once. A run can resume after any prefix
// of the updates, because changes are in the order of their causes.
type builder struct {
	id       logbook.FlowID
	token    logbook.Token
	sequence uint64 // of the last update
	state    logbook.FlowState
	cause    *logbook.Failure // the last written update
	observe  func(Event)

	maxBytes   int
	maxChanges int

	changes chunks[logbook.AtomChange]
	full    []logbook.Update // closed, in order
	current logbook.Update
	before  logbook.FlowState // the flow's before current, if that changes it
	dirty   bool
	bytes   int
	last    []changeIndex // by step: the position of its latest change
}

// changeIndex is an index into the changes of the update with this sequence number.
type changeIndex struct {
	sequence uint64
	index    int
}

// safeObserver recovers a panic of the observer, logs it, and does not call it again.
func safeObserver(observe func(Event), logger hclog.Logger) func(Event) {
	if observe == nil {
		return nil
	}
	broken := false
	return func(event Event) {
		if broken {
			return
		}
		defer func() {
			if value := recover(); value != nil {
				broken = true
				logger.Error("observer panicked; it gets no more updates", "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			}
		}()
		observe(event)
	}
}

func newBuilder(o *Options) *builder {
	b := &builder{id: o.Detail.ID, token: o.Token, state: o.Detail.State, cause: o.Detail.Cause, observe: safeObserver(o.Observe, o.Logger),
		maxBytes: maxBytesOf(&o.Limits), maxChanges: o.Limits.Steps, last: make([]changeIndex, o.Plan.Len()), changes: expecting[logbook.AtomChange](2 * o.Plan.Len())}
	if o.Token == o.Detail.Fence {
		b.sequence = o.Detail.Sequence
	}
	return b
}

// between returns the state that a flow must pass through on its way to another state; see the
// diagram of logbook.FlowState.
func between(from, to logbook.FlowState) (logbook.FlowState, bool) {
	if from.Move(to) == nil {
		return "", false
	}
	switch from {
	case logbook.FlowPending:
		return logbook.FlowRunning, true
	case logbook.FlowRunning:
		return logbook.FlowReverting, true
	case logbook.FlowSuspended:
		if to == logbook.FlowSuccess {
			return logbook.FlowRunning, true
		}
		return logbook.FlowReverting, true
	}
	panic("internal error: flow cannot go from " + string(from) + " to " + string(to))
}

// flow moves the flow to a state through all necessary states in between. A nil cause leaves
// the flow's cause as it is.
func (b *builder) flow(state logbook.FlowState, cause *logbook.Failure, now time.Time) {
	if b.state == state && (cause == nil || cause == b.cause) {
		return
	}
	if cause != nil && cause != b.cause && b.bytes+sizeOfFailure(cause) > b.maxBytes {
		b.close() // before the state: the state and its cause are in one update
	}
	for b.state != state {
		step, ok := between(b.state, state)
		if !ok {
			step = state
		}
		// An update holds one flow state only. If the current update has a state already, it
		// is closed. Only the update of a whole run, from pending to success, replaces its
		// state.
		if b.current.State == "" {
			b.before = b.state
		} else if b.before != logbook.FlowPending || step != logbook.FlowSuccess {
			b.close()
			b.before = b.state
		}
		b.current.State, b.state, b.dirty = step, step, true
		if b.observe != nil {
			b.observe(Event{Time: now, Flow: step})
		}
	}
	if cause != nil && cause != b.cause {
		b.current.Cause, b.cause, b.dirty = cause, cause, true
		b.bytes += sizeOfFailure(cause)
	}
}

// define records how the flow is built.
func (b *builder) define(definition *logbook.Definition) {
	if b.bytes+sizeOfDefinition(definition) > b.maxBytes {
		b.close()
	}
	b.current.Definition, b.dirty = definition, true
	b.bytes += sizeOfDefinition(definition)
}

// add adds a change that is never merged with another.
func (b *builder) add(change logbook.AtomChange, now time.Time) {
	size := sizeOf(&change)
	if b.bytes+size > b.maxBytes || len(b.current.Atoms) >= b.maxChanges {
		b.close()
	}
	b.notify(change, "", now)
	b.dirty = true
	b.bytes += size
	b.current.Atoms = append(b.current.Atoms, change)
}

// change adds a change of a step that was in state was.
func (b *builder) change(step int, change logbook.AtomChange, was logbook.AtomState, now time.Time) {
	size := sizeOf(&change)
	if b.bytes+size > b.maxBytes || len(b.current.Atoms) >= b.maxChanges {
		b.close()
	}
	b.notify(change, was, now)
	b.dirty = true
	b.bytes += size
	number := b.sequence + 1 // of the current update; never 0, which marks no place
	if last := b.last[step]; last.sequence == number {
		earlier := &b.current.Atoms[last.index]
		if earlier.State == "" && len(earlier.Attempts) == 0 && len(earlier.Checkpoints) == 0 || succeeds(earlier, &change) {
			absorb(earlier, change)
			return
		}
	}
	if b.current.Atoms == nil {
		b.current.Atoms = b.changes.buffer(usualChanges)
	}
	b.last[step] = changeIndex{sequence: number, index: len(b.current.Atoms)}
	b.current.Atoms = append(b.current.Atoms, change)
}

// renumber moves the steps to another plan; to maps old step numbers to new ones, -1 for a
// step that the new plan lacks.
func (b *builder) renumber(plan *flow.Plan, to []int) {
	last := make([]changeIndex, plan.Len())
	for step, number := range to {
		if number >= 0 {
			last[number] = b.last[step]
		}
	}
	b.last = last
}

// succeeds reports whether a change is the success of the execution that an earlier change has
// marked. A failure cannot be merged: a step can fail only if the record has it as running.
func succeeds(mark, end *logbook.AtomChange) bool {
	return mark.State == logbook.AtomRunning && end.State == logbook.AtomSuccess && len(mark.Attempts) == 1 && len(end.Attempts) == 1 &&
		mark.Attempts[0].Number == end.Attempts[0].Number
}

// absorb merges a change into an earlier change that it supersedes. The earlier change has
// changed only the intention, or is the mark of an execution that has succeeded since.
func absorb(earlier *logbook.AtomChange, change logbook.AtomChange) {
	change.Kind, change.Version = earlier.Kind, earlier.Version
	if change.Intention == "" {
		change.Intention = earlier.Intention
	}
	if change.Progress == nil {
		change.Progress = earlier.Progress
	}
	*earlier = change
}

// take returns the updates made since the last call. The slice is valid until the
// next change.
func (b *builder) take() []logbook.Update {
	b.close()
	updates := b.full
	b.full = b.full[:0]
	return updates
}

// close ends the current update and numbers it.
func (b *builder) close() {
	if !b.dirty {
		return
	}
	b.sequence++
	b.current.Flow, b.current.Token, b.current.Sequence = b.id, b.token, b.sequence
	b.full = append(b.full, b.current)
	b.current, b.dirty, b.bytes = logbook.Update{}, false, 0
}

// notify reports a change to the observer. If a change repeats the recorded state, to add an
// attempt or progress, the event has no state.
func (b *builder) notify(change logbook.AtomChange, was logbook.AtomState, now time.Time) {
	if b.observe == nil || change.State == "" && change.Progress == nil {
		return
	}
	if change.State == was && (change.Progress != nil || len(change.Attempts) > 0) {
		change.State = ""
	}
	event := Event{Time: now, Step: change.Name, State: change.State, Flow: b.state, RetryAt: change.RetryAt, Progress: change.Progress}
	if len(change.Attempts) > 0 {
		attempt := change.Attempts[0]
		event.Attempt = &attempt
	}
	b.observe(event)
}

// stderrLimit is the number of bytes of stderr that are kept with an attempt.
func stderrLimit(limits logbook.Limits, step *flow.Step) int {
	return min(logbook.MaxStderr, limits.Command/stderrShare, stderrOfStep/max(1, step.Retry().Attempts))
}

// detailsLimit is the number of bytes of details that are kept with an attempt.
func detailsLimit(limits *logbook.Limits) int {
	return min(flow.MaxDetails, limits.Value, limits.Command/detailsShare)
}

// fitFailure cuts the failure of one attempt to the logbook's limits, and to its
// share of what is kept of all attempts.
func fitFailure(limits logbook.Limits, step *flow.Step, failure *logbook.Failure) *logbook.Failure {
	limits.Value = min(limits.Value, failuresOfStep/max(1, step.Retry().Attempts))
	return flow.FitFailure(failure, limits)
}

// UpdateSize is an upper estimate of an encoded update's size in bytes, for packing updates into
// calls.
func UpdateSize(u *logbook.Update) int {
	size := updateOverhead + sizeOfFailure(u.Cause) + sizeOfDefinition(u.Definition)
	for i := range u.Atoms {
		size += sizeOf(&u.Atoms[i])
	}
	return size
}

func sizeOf(change *logbook.AtomChange) int {
	size := changeOverhead + len(change.Name) + len(change.Version)
	if change.Progress != nil {
		size += progressOverhead + len(change.Progress.Details)
	}
	for i := range change.Checkpoints {
		size += checkpointOverhead + change.Checkpoints[i].Size()
	}
	for i := range change.Attempts {
		attempt := &change.Attempts[i]
		size += attemptOverhead + len(attempt.Owner) + len(attempt.Worker) + len(attempt.WorkerName) + len(attempt.Result) + len(attempt.Stderr) + sizeOfFailure(attempt.Failure)
		for j := range attempt.Failures {
			size += sizeOfFailure(&attempt.Failures[j])
		}
		for j := range attempt.Sends {
			size += sendingOverhead + attempt.Sends[j].Size()
		}
	}
	return size
}

func sizeOfFailure(f *logbook.Failure) int {
	if f == nil {
		return 0
	}
	size := failureOverhead + len(f.Kind) + len(f.Message) + len(f.Step) + len(f.Stack) + detailOverhead*len(f.Details) + f.Details.Size()
	for i := range f.Causes {
		size += sizeOfFailure(&f.Causes[i])
	}
	return size
}

func sizeOfDefinition(d *logbook.Definition) int {
	if d == nil {
		return 0
	}
	return definitionOverhead + len(d.Hash) + len(d.Packed)
}
