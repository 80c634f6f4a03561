// Package boottime measures how long something takes by a clock that counts
// the time for which the machine was suspended, and that nobody can set: on
// Linux it is CLOCK_BOOTTIME. Go's own monotonic clock stands still while the
// machine sleeps, and the wall clock jumps.
package boottime

import "time"

// Now is a reading for Sub, Before, After and Add among readings of this
// process; it never goes back. Its wall time means nothing: do not show it, and
// do not compare it with times from elsewhere.
func Now() time.Time {
	slept := suspended()
	return time.Now().Add(slept)
}

// Since is how long ago a reading was.
func Since(reading time.Time) time.Duration { return Now().Sub(reading) }

// Until is how long it is until a reading.
func Until(reading time.Time) time.Duration { return reading.Sub(Now()) }
