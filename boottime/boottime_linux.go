package boottime

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// longest is the longest total suspension of this machine that was read so far.
// A delay between the two clock readings makes the result too small, never too
// large, so the largest is the most accurate.
var longest atomic.Int64

// suspended is the time that CLOCK_MONOTONIC has missed.
func suspended() time.Duration {
	var boot, monotonic unix.Timespec
	// Neither fails on a Linux that Go supports; if one does, no suspension is seen.
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) == nil && unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) == nil {
		measured := boot.Nano() - monotonic.Nano()
		for before := longest.Load(); measured > before && !longest.CompareAndSwap(before, measured); before = longest.Load() {
		}
	}
	return time.Duration(longest.Load())
}
