package api

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the processor time that this thread has taken.
func threadTime() time.Duration {
	var taken unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &taken)
	return time.Duration(taken.Nano())
}
