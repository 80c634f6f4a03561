package lead

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/deadlines"
)

// WasPaused evaluates the lateness of a leader's timer loop.
func WasPaused(heartbeat, late time.Duration, d *deadlines.Deadlines[jobs.SessionID]) bool {
	tasks := &Tasks{Heartbeat: heartbeat, Logger: hclog.NewNullLogger(), Deferred: func() {}}
	current := newLeadership(1, 0)
	current.deadlines = d
	return tasks.wasPaused(current, late)
}

// WakeAt computes the next time at which the timers of a leader must act.
func WakeAt(now, rested time.Time, times ...time.Time) time.Time {
	return wakeAt(now, rested, times...)
}

// ClaimsAtOnce limits the claims of the sessions that one round expires.
const ClaimsAtOnce = claimsAtOnce

// Within is the number of leading numbers whose sum does not exceed a limit.
func Within(numbers []int, bound int) int { return within(numbers, bound) }
