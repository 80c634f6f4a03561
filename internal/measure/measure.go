// Package measure drives a load and returns its statistics. Callers call repeatedly, and the
// statistics cover a window.
//
// A Load does not depend on the measured system, so a comparison under the same Load compares the
// systems and not two ways of measuring. A call counts if it ends within the window. The time
// before the window, in which connections open and caches fill, is excluded.
package measure

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Load sets the number of callers, the duration, and the value of a call.
type Load struct {
	Callers int           `json:"callers"`  // parallel callers, each with one call in flight
	PerCall int           `json:"per_call"` // operations of one call
	Warm    time.Duration `json:"warm"`     // before the window
	Window  time.Duration `json:"window"`
}

// Run is the result of a load.
type Run struct {
	Operations int           `json:"operations"` // within the window
	PerSecond  float64       `json:"per_second"` // operations
	P50        time.Duration `json:"p50_ns"`     // latencies of a call
	P95        time.Duration `json:"p95_ns"`
	P99        time.Duration `json:"p99_ns"`
	P999       time.Duration `json:"p999_ns"`
}

// Drive puts a load on a call. mark is called when the window opens and when it closes, and
// may be nil. The first error of a call ends the run and is returned: figures of a failing
// system are worthless. Drive returns when every caller has returned.
func Drive(ctx context.Context, load Load, call func(context.Context) error, mark func(context.Context) error) (Run, error) {
	return DriveTimed(ctx, load, func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := call(ctx)
		return time.Since(began), err
	}, mark)
}

// DriveTimed is Drive for calls that return their own measured time.
func DriveTimed(ctx context.Context, load Load, call func(context.Context) (time.Duration, error), mark func(context.Context) error) (Run, error) {
	if load.Callers < 1 || load.PerCall < 1 || load.Window <= 0 {
		return Run{}, fmt.Errorf("cannot drive a load of %d callers with %d operations a call for %v", load.Callers, load.PerCall, load.Window)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opens := time.Now().Add(load.Warm)
	closes := opens.Add(load.Window)
	latencies := make([][]time.Duration, load.Callers)
	var callers sync.WaitGroup
	for i := range load.Callers {
		callers.Go(func() { // ends with the window, or with the first error
			own, err := callAgain(ctx, opens, closes, call)
			if err != nil {
				cancel(err)
			}
			latencies[i] = own
		})
	}
	markAt(ctx, cancel, opens, mark)
	markAt(ctx, cancel, closes, mark)
	callers.Wait()
	if err := context.Cause(ctx); err != nil {
		return Run{}, err
	}
	return summarise(load, slices.Concat(latencies...)), nil
}

// callAgain calls until the window closes, and returns the time of each call that ended within
// the window.
func callAgain(ctx context.Context, opens, closes time.Time, call func(context.Context) (time.Duration, error)) ([]time.Duration, error) {
	var latencies []time.Duration
	for {
		if !time.Now().Before(closes) || ctx.Err() != nil {
			return latencies, nil
		}
		took, err := call(ctx)
		if err != nil {
			return latencies, err
		}
		if ended := time.Now(); !ended.Before(opens) && ended.Before(closes) {
			latencies = append(latencies, took)
		}
	}
}

func markAt(ctx context.Context, cancel context.CancelCauseFunc, moment time.Time, mark func(context.Context) error) {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	if mark == nil {
		return
	}
	if err := mark(ctx); err != nil {
		cancel(err)
	}
}

func summarise(load Load, latencies []time.Duration) Run {
	slices.Sort(latencies)
	operations := len(latencies) * load.PerCall
	return Run{
		Operations: operations,
		PerSecond:  float64(operations) / load.Window.Seconds(),
		P50:        Quantile(latencies, 0.50),
		P95:        Quantile(latencies, 0.95),
		P99:        Quantile(latencies, 0.99),
		P999:       Quantile(latencies, 0.999),
	}
}
