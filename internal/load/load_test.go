package load_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/conductord/conductord/internal/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHistogramIsExactEnough compares quantiles with the quantiles of the sorted values.
func TestHistogramIsExactEnough(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var whole, half load.Histogram
	var values []time.Duration
	for i := range 10_000 {
		value := time.Duration(random.Uint64() >> (1 + random.IntN(63)))
		values = append(values, value)
		if i%2 == 0 {
			whole.Record(value)
		} else {
			half.Record(value)
		}
	}
	whole.Add(&half)
	slices.Sort(values)
	for _, q := range []float64{0, 0.001, 0.5, 0.95, 0.99, 0.999, 1} {
		exact := values[max(0, int(q*float64(len(values)))-1)]
		if got := whole.Quantile(q); got < exact || float64(got) > float64(exact)*1.016+1 {
			t.Errorf("quantile %v is %d, and exactly %d", q, got, exact)
		}
	}
	if whole.Total() != 10_000 || whole.Max() != values[len(values)-1] {
		t.Errorf("%d values up to %d", whole.Total(), whole.Max())
	}
}

func TestHistogramAtItsEnds(t *testing.T) {
	var h load.Histogram
	if h.Quantile(0.5) != 0 || h.Max() != 0 {
		t.Error("an empty one has values")
	}
	h.Record(-time.Second)
	if h.Quantile(1) != 0 {
		t.Error("a negative duration is more than none")
	}
	h.Record(1<<63 - 1)
	if h.Quantile(1) != 1<<63-1 {
		t.Errorf("the longest duration is %d", h.Quantile(1))
	}
}

func TestDrive(t *testing.T) {
	bad := errors.New("bad")
	for _, row := range []struct {
		what       string
		call       func(n int32) (int, error) // call number n, which takes 10 ms
		operations uint64
		errors     uint64
		calls      uint64
	}{
		// Two callers for a second. Calls that the end of the second interrupts do not count.
		{"calls", func(int32) (int, error) { return 1, nil }, 198, 0, 198},
		{"calls of many", func(int32) (int, error) { return 7, nil }, 198 * 7, 0, 198},
		{"calls that find nothing", func(int32) (int, error) { return 0, nil }, 0, 0, 0},
		{"calls that fail, after each of which a caller rests", func(int32) (int, error) { return 1, bad }, 0, 18, 0},
		{"one that fails", func(n int32) (int, error) {
			if n == 1 {
				return 0, bad
			}
			return 1, nil
		}, 187, 1, 187},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int32
				told := 0
				r := load.Drive(t.Context(), load.Load{Callers: 2, Duration: time.Second}, func(context.Context) (int, error) {
					number := n.Add(1)
					time.Sleep(10 * time.Millisecond) // virtual time
					return row.call(number)
				}, func(load.Progress) { told++ })
				if r.Operations != row.operations || r.Errors != row.errors || r.Calls.Total() != row.calls {
					t.Errorf("%d operations in %d calls, %d errors", r.Operations, r.Calls.Total(), r.Errors)
				}
				if (r.Errors > 0) != errors.Is(r.First, bad) || r.PerSecond != float64(r.Operations) || told > 1 {
					t.Errorf("first error %v, %f a second, progress told %d times", r.First, r.PerSecond, told)
				}
				if r.Calls.Total() > 0 && r.Calls.Quantile(0.5) != 10*time.Millisecond {
					t.Errorf("p50 is %v", r.Calls.Quantile(0.5))
				}
			})
		})
	}
}

// TestDriveIsInterrupted: the end of the context ends a run, and does not count as an error of
// the interrupted calls.
func TestDriveIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		var told []load.Progress
		r := load.Drive(ctx, load.Load{Callers: 1, Duration: time.Hour}, func(ctx context.Context) (int, error) {
			select {
			case <-time.After(100 * time.Millisecond):
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}, func(p load.Progress) { told = append(told, p) })
		if r.Elapsed != 2500*time.Millisecond || r.Errors != 0 || r.Operations < 24 || len(told) != 2 || told[1].Elapsed != 2*time.Second {
			t.Errorf("%v, %d operations, %d errors, told %v", r.Elapsed, r.Operations, r.Errors, told)
		}
	})
}

// TestDriveMakesSoManyCalls: the callers share the number of calls, regardless of their results.
// The time that a call reports is counted.
func TestDriveMakesSoManyCalls(t *testing.T) {
	for _, row := range []struct {
		what    string
		load    load.Load
		fails   int32 // the first calls fail
		calls   uint64
		elapsed time.Duration
	}{
		{"all succeed", load.Load{Callers: 4, Calls: 10}, 0, 10, 3 * time.Second},
		{"one fails, after which its caller rests", load.Load{Callers: 1, Calls: 10}, 1, 9, 10*time.Second + 100*time.Millisecond},
		{"more callers than calls", load.Load{Callers: 4, Calls: 2}, 0, 2, time.Second},
		{"the time is over first", load.Load{Callers: 1, Calls: 10, Duration: 2500 * time.Millisecond}, 0, 2, 2500 * time.Millisecond},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int32
				r := load.DriveTimed(t.Context(), row.load, func(context.Context) (int, time.Duration, error) {
					number := n.Add(1)
					time.Sleep(time.Second) // virtual time
					if number <= row.fails {
						return 0, 0, errors.New("bad")
					}
					return 1, time.Millisecond, nil
				}, nil)
				if r.Operations != row.calls || r.Errors != uint64(row.fails) || r.Elapsed != row.elapsed || r.Calls.Quantile(1) != time.Millisecond {
					t.Errorf("%d operations, %d errors in %v; the longest %v", r.Operations, r.Errors, r.Elapsed, r.Calls.Quantile(1))
				}
			})
		})
	}
}
