// Package load puts a load on a system and counts the results: callers that call
// repeatedly, for a time or a number of times, each with one call in flight.
//
// Calls count when they end within the time. Errors are counted and the load continues, to
// show the duration of a change of leader. Memory does not grow with the length of a run.
package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// errorPause is the pause of a caller after an error. It prevents a busy loop of calls that
	// fail at once.
	errorPause = 100 * time.Millisecond
	// progressEvery is the interval of progress reports.
	progressEvery = time.Second
)

// Load sets the number of callers, and their time or number of calls. Without a time or number, it
// continues until its context ends.
type Load struct {
	Callers  int           // parallel callers; at least 1
	Duration time.Duration // 0: no limit
	Calls    int           // by all callers together, including failed calls; 0: no limit
}

// Call makes one call, and returns its number of operations. A call without operations, which
// found nothing to do, is not counted.
type Call func(ctx context.Context) (operations int, err error)

// TimedCall is a Call that also returns its measured time. This is less than the whole call if
// each call needs preparation.
type TimedCall func(ctx context.Context) (operations int, took time.Duration, err error)

// Progress is the progress of a run.
type Progress struct {
	Elapsed            time.Duration
	Operations, Errors uint64 // since the start
	PerSecond          float64
}

// Result is the result of a load.
type Result struct {
	Elapsed    time.Duration
	Operations uint64
	PerSecond  float64   // operations
	Errors     uint64    // calls that failed
	First      error     // the first error; nil: none
	Calls      Histogram // latencies of the successful calls
}

// Drive puts a load on a call until the time is over, the calls are made or ctx ends. It
// returns when every caller has returned. It waits for calls in flight at the end, but does
// not count them. progress is called every second, from one goroutine, and may be nil.
func Drive(ctx context.Context, load Load, call Call, progress func(Progress)) *Result {
	return DriveTimed(ctx, load, func(ctx context.Context) (int, time.Duration, error) {
		began := time.Now()
		operations, err := call(ctx)
		return operations, time.Since(began), err
	}, progress)
}

// DriveTimed is Drive for calls that measure themselves.
func DriveTimed(ctx context.Context, load Load, call TimedCall, progress func(Progress)) *Result {
	d := &drive{call: call, began: time.Now(), latencies: make([]Histogram, load.Callers)}
	if load.Duration > 0 {
		d.ends = d.began.Add(load.Duration)
	}
	if load.Calls > 0 {
		d.bounded = true
		d.left.Store(int64(load.Calls))
	}
	over := make(chan struct{})
	var telling sync.WaitGroup
	if progress != nil {
		telling.Go(func() { d.tell(over, progress) }) // ends when all callers have ended
	}
	var callers sync.WaitGroup
	for i := range load.Callers {
		callers.Go(func() { d.callAgain(ctx, &d.latencies[i]) }) // ends with the time, the calls, or ctx
	}
	callers.Wait()
	close(over)
	telling.Wait()
	return d.result(load.Duration)
}

// drive is a run.
type drive struct {
	call       TimedCall
	began      time.Time
	ends       time.Time // zero: no limit
	bounded    bool      // limited by the number of calls
	left       atomic.Int64
	operations atomic.Uint64
	errors     atomic.Uint64
	first      atomic.Pointer[error]
	latencies  []Histogram // of each caller
}

func (d *drive) callAgain(ctx context.Context, latencies *Histogram) {
	for {
		if d.over(ctx) || d.bounded && d.left.Add(-1) < 0 {
			return
		}
		operations, took, err := d.call(ctx)
		if d.over(ctx) {
			return
		}
		if err != nil {
			d.errors.Add(1)
			d.first.CompareAndSwap(nil, &err)
			rest(ctx)
			continue
		}
		if operations > 0 {
			d.operations.Add(uint64(operations))
			latencies.Record(took)
		}
	}
}

// over reports whether the time for counted calls has ended.
func (d *drive) over(ctx context.Context) bool {
	return ctx.Err() != nil || !d.ends.IsZero() && !time.Now().Before(d.ends)
}

func rest(ctx context.Context) {
	pause := time.NewTimer(errorPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// tell reports progress, with the rate since the previous report.
func (d *drive) tell(over <-chan struct{}, progress func(Progress)) {
	ticks := time.NewTicker(progressEvery)
	defer ticks.Stop()
	last, lastAt := uint64(0), d.began
	for {
		select {
		case <-over:
			return
		case <-ticks.C:
		}
		now, operations := time.Now(), d.operations.Load()
		progress(Progress{
			Elapsed: now.Sub(d.began), Operations: operations, Errors: d.errors.Load(),
			PerSecond: float64(operations-last) / now.Sub(lastAt).Seconds(),
		})
		last, lastAt = operations, now
	}
}

func (d *drive) result(planned time.Duration) *Result {
	r := &Result{Elapsed: time.Since(d.began), Operations: d.operations.Load(), Errors: d.errors.Load()}
	if planned > 0 {
		r.Elapsed = min(r.Elapsed, planned)
	}
	if first := d.first.Load(); first != nil {
		r.First = *first
	}
	if r.Elapsed > 0 {
		r.PerSecond = float64(r.Operations) / r.Elapsed.Seconds()
	}
	for i := range d.latencies {
		r.Calls.Add(&d.latencies[i])
	}
	return r
}
