package boottime

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// fresh is the maximum age of a cached reading, measured with Go's monotonic clock: a reading takes
// two system calls. The machine can be suspended right after any reading, so callers must tolerate a
// slightly old reading anyway.
const fresh = time.Millisecond

var (
	origin = time.Now()
	// read is the time since origin at which the clocks were read last. 0: never.
	read atomic.Int64
	// longest is the longest total suspension of this machine that was read so far.
	// A delay between the two clock readings makes the result too small, never too
	// large, so the largest is the most accurate.
	longest atomic.Int64
)

// suspended is the time that CLOCK_MONOTONIC has missed.
func suspended() time.Duration {
	now, last := time.Since(origin), time.Duration(read.Load())
	if last != 0 && now >= last && now-last < fresh {
		return time.Duration(longest.Load())
	}
	var boot, monotonic unix.Timespec
	// Neither call fails on a Linux that Go supports. If one fails, no suspension is detected.
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) == nil && unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) == nil {
		measured := boot.Nano() - monotonic.Nano()
		for before := longest.Load(); measured > before && !longest.CompareAndSwap(before, measured); before = longest.Load() {
		}
		read.Store(int64(now))
	}
	return time.Duration(longest.Load())
}
