package measure_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/internal/measure"
)

func TestDrive(t *testing.T) {
	for _, row := range []struct {
		name       string
		load       measure.Load
		takes      time.Duration // a call
		operations int
		perSecond  float64
		p50        time.Duration
	}{
		{"one caller, whole calls", measure.Load{Callers: 1, PerCall: 1, Warm: time.Second, Window: 2 * time.Second}, 300 * time.Millisecond, 6, 3, 300 * time.Millisecond},
		{"many callers", measure.Load{Callers: 8, PerCall: 1, Warm: time.Second, Window: 2 * time.Second}, 300 * time.Millisecond, 48, 24, 300 * time.Millisecond},
		{"many operations a call", measure.Load{Callers: 2, PerCall: 100, Warm: time.Second, Window: 2 * time.Second}, 300 * time.Millisecond, 1200, 600, 300 * time.Millisecond},
		{"calls longer than the window", measure.Load{Callers: 3, PerCall: 1, Window: time.Second}, 3 * time.Second, 0, 0, 0},
		{"a call from before the window counts where it ends", measure.Load{Callers: 1, PerCall: 1, Warm: time.Second, Window: time.Second}, 1500 * time.Millisecond, 1, 1, 1500 * time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var marks []time.Duration
				run, err := measure.Drive(t.Context(), row.load, taking(row.takes, nil), func(context.Context) error {
					marks = append(marks, time.Since(began))
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if run.Operations != row.operations || run.PerSecond != row.perSecond || run.P50 != row.p50 {
					t.Errorf("%d operations, %v a second, p50 %v; want %d, %v and %v", run.Operations, run.PerSecond, run.P50, row.operations, row.perSecond, row.p50)
				}
				if len(marks) != 2 || marks[0] != row.load.Warm || marks[1] != row.load.Warm+row.load.Window {
					t.Errorf("marked at %v", marks)
				}
			})
		})
	}
}

// TestDriveTimed checks that the time that a call reports counts, and that no call starts
// after the window.
func TestDriveTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := measure.Load{Callers: 2, PerCall: 1, Warm: time.Second, Window: 2 * time.Second}
		whole := taking(300*time.Millisecond, nil)
		run, err := measure.DriveTimed(t.Context(), load, func(ctx context.Context) (time.Duration, error) {
			return 40 * time.Millisecond, whole(ctx)
		}, nil)
		if err != nil || run.Operations != 12 || run.P50 != 40*time.Millisecond || run.P999 != 40*time.Millisecond {
			t.Errorf("%+v, %v", run, err)
		}
	})
}

func taking(d time.Duration, end error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return end
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestDriveEndsWithTheFirstError checks that a failure is reported at once and never becomes a
// figure.
func TestDriveEndsWithTheFirstError(t *testing.T) {
	fault := errors.New("the disk is full")
	load := measure.Load{Callers: 4, PerCall: 1, Warm: time.Second, Window: time.Hour}
	for _, row := range []struct {
		name string
		call func(context.Context) error
		mark func(context.Context) error
	}{
		{"of a call", taking(2*time.Second, fault), nil},
		{"of a mark", taking(100*time.Millisecond, nil), func(context.Context) error { return fault }},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := measure.Drive(t.Context(), load, row.call, row.mark)
				if !errors.Is(err, fault) {
					t.Errorf("the error is %v", err)
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("it took %v to say so", took)
				}
			})
		})
	}
}

func TestDriveRefusesLoadsOfNothing(t *testing.T) {
	for _, load := range []measure.Load{
		{PerCall: 1, Window: time.Second},
		{Callers: 1, Window: time.Second},
		{Callers: 1, PerCall: 1},
	} {
		if _, err := measure.Drive(t.Context(), load, taking(0, nil), nil); err == nil {
			t.Errorf("%+v was driven", load)
		}
	}
}
