package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// progressInterval is the time between two records of a step's progress, and
// between its first word and the first of them: so that a step which is done
// sooner costs no write of its own.
const progressInterval = time.Second

// desk is where steps leave what they say of their progress, and the loop
// fetches it. What was said last counts.
type desk struct {
	now     func() time.Time
	limits  logbook.Limits // of details
	used    atomic.Bool    // somebody has said something: most flows never do
	stirred chan struct{}  // holds one: a step has something new to be recorded

	mu   sync.Mutex
	said map[string]*saying // by step, while its call is made
}

// saying is what one call has said.
type saying struct {
	call     callID
	last     logbook.Progress
	recorded time.Time // or begun, for the first time
	fresh    bool      // since it was recorded
}

// callID tells one call from the others of its step.
type callID struct {
	action         logbook.Action
	attempt, asked int
}

func identify(call *flow.Call) callID { return callID{call.Action, call.Attempt, call.Asked} }

func newDesk(limits *logbook.Limits, now func() time.Time) *desk {
	return &desk{now: now, limits: logbook.Limits{Value: detailsLimit(limits)}, stirred: make(chan struct{}, 1)}
}

// Report takes what a step says.
func (d *desk) Report(call *flow.Call, progress logbook.Progress) error {
	if err := d.limits.CheckValue("details", progress.Details); err != nil {
		return err
	}
	progress.At = d.now()
	d.used.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.said[call.Step]
	if s == nil || s.call != identify(call) {
		if d.said == nil {
			d.said = make(map[string]*saying)
		}
		s = &saying{call: identify(call), recorded: progress.At}
		d.said[call.Step] = s
	}
	if progress.Details == nil {
		progress.Details = s.last.Details
	}
	if !s.fresh {
		select {
		case d.stirred <- struct{}{}:
		default:
		}
	}
	s.last, s.fresh = progress, true
	return nil
}

// conclude gives what a call that has ended has said last, unless that is
// recorded.
func (d *desk) conclude(call *flow.Call) *logbook.Progress {
	if !d.used.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.said[call.Step]
	if s == nil || s.call != identify(call) {
		return nil
	}
	delete(d.said, call.Step)
	if !s.fresh {
		return nil
	}
	last := s.last
	return &last
}

// due gives what is to be recorded now, in the order of the names of steps,
// and when there is more; zero: not before somebody says something.
func (d *desk) due(now time.Time) (record []told, next time.Time) {
	if !d.used.Load() {
		return nil, time.Time{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, step := range slices.Sorted(maps.Keys(d.said)) {
		s := d.said[step]
		at := s.recorded.Add(progressInterval)
		switch {
		case !s.fresh:
		case !at.After(now):
			s.recorded, s.fresh = now, false
			record = append(record, told{step: step, call: s.call, progress: s.last})
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return record, next
}

// told is what a step has said, to be recorded.
type told struct {
	step     string
	call     callID
	progress logbook.Progress
}

// progressed records how far a call has come that is still made.
func (c *core) progressed(t *told, now time.Time) {
	step, ok := c.plan.Find(t.step)
	if !ok || !c.vertices[step].open {
		return
	}
	if attempt := c.vertices[step].attempt; t.call != (callID{attempt.Action, attempt.Number, attempt.Asked}) {
		return // one that was left behind still speaks
	}
	c.change(step, logbook.AtomChange{Progress: &t.progress}, now)
}
