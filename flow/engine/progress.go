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

// progressInterval is the time between two records of a step's progress, and between its first
// report and the first record. The progress of a shorter step therefore needs no additional write.
const progressInterval = time.Second

// progressReports keeps the latest progress report of each running call, until the
// loop records it.
type progressReports struct {
	now    func() time.Time
	limits logbook.Limits // of details
	used   atomic.Bool    // a step has reported: most flows never do
	wakeup chan struct{}  // holds one: there is a new report

	mu      sync.Mutex
	reports map[string]*progressReport // by step
}

// progressReport is the latest report of one call.
type progressReport struct {
	call     callID
	last     logbook.Progress
	recorded time.Time // or the time of the first report, before any is recorded
	fresh    bool      // last is not recorded yet
}

// callID identifies a call among the calls of its step.
type callID struct {
	action         logbook.Action
	attempt, asked int
}

func identify(call *flow.Call) callID { return callID{call.Action, call.Attempt, call.Asked} }

func newProgressReports(limits *logbook.Limits, now func() time.Time) *progressReports {
	return &progressReports{now: now, limits: logbook.Limits{Value: detailsLimit(limits)}, wakeup: make(chan struct{}, 1)}
}

// Report keeps the progress of a call and wakes the loop; see flow.Reporter.
func (d *progressReports) Report(call *flow.Call, progress logbook.Progress) error {
	if err := d.limits.CheckValue("details", progress.Details); err != nil {
		return err
	}
	progress.At = d.now()
	d.used.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.reports[call.Step]
	if s == nil || s.call != identify(call) {
		if d.reports == nil {
			d.reports = make(map[string]*progressReport)
		}
		s = &progressReport{call: identify(call), recorded: progress.At}
		d.reports[call.Step] = s
	}
	if progress.Details == nil {
		progress.Details = s.last.Details
	}
	if !s.fresh {
		select {
		case d.wakeup <- struct{}{}:
		default:
		}
	}
	s.last, s.fresh = progress, true
	return nil
}

// final removes the report of a call that has ended, and returns it unless it is
// recorded already.
func (d *progressReports) final(call *flow.Call) *logbook.Progress {
	if !d.used.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.reports[call.Step]
	if s == nil || s.call != identify(call) {
		return nil
	}
	delete(d.reports, call.Step)
	if !s.fresh {
		return nil
	}
	last := s.last
	return &last
}

// fresh returns the report of a running call, unless it is recorded already. The caller records it.
func (d *progressReports) fresh(call *flow.Call, now time.Time) *logbook.Progress {
	if !d.used.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.reports[call.Step]
	if s == nil || s.call != identify(call) || !s.fresh {
		return nil
	}
	s.recorded, s.fresh = now, false
	last := s.last
	return &last
}

// due returns the reports to record now, in the order of step names, and the time of the next
// record. Zero: no record is due before another report.
func (d *progressReports) due(now time.Time) (record []progressRecord, next time.Time) {
	if !d.used.Load() {
		return nil, time.Time{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, step := range slices.Sorted(maps.Keys(d.reports)) {
		s := d.reports[step]
		at := s.recorded.Add(progressInterval)
		switch {
		case !s.fresh:
		case !at.After(now):
			s.recorded, s.fresh = now, false
			record = append(record, progressRecord{step: step, call: s.call, progress: s.last})
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return record, next
}

// progressRecord is a progress report to record.
type progressRecord struct {
	step     string
	call     callID
	progress logbook.Progress
}

// progressed records the progress of a call, if it is still running.
func (c *core) progressed(r *progressRecord, now time.Time) {
	step, ok := c.plan.Find(r.step)
	if !ok || !c.isCalled(step, r.call) {
		return // a report of an earlier call
	}
	c.change(step, logbook.AtomChange{Progress: &r.progress}, now)
}
