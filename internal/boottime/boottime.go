// Package boottime measures elapsed time, including the time for which the machine was
// suspended. Its clock cannot be set; on Linux it is CLOCK_BOOTTIME. Go's own monotonic clock
// stops while the machine sleeps, and the wall clock jumps.
package boottime

import "time"

// Now reads the clock, which never goes back. Use Sub, Before, After and Add only between
// readings of this process. The wall time of a reading means nothing: do not show it, and do
// not compare it with other times.
func Now() time.Time {
	slept := suspended()
	return time.Now().Add(slept)
}

// Since is the time since a reading.
func Since(reading time.Time) time.Duration { return Now().Sub(reading) }

// Until is the time until a reading.
func Until(reading time.Time) time.Duration { return reading.Sub(Now()) }
