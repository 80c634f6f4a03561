package engine

import (
	"fmt"
	"time"

	"github.com/conductord/conductord/logbook"
)

// isTimeUp reports whether a flow must revert because the time of its run is over. A flow whose steps have all
// finished before this conductor looked at the clock has ended in time.
func (c *core) isTimeUp(timeUp, now time.Time) bool {
	if timeUp.IsZero() || now.Before(timeUp) || c.ignoresTimeUp() {
		return false
	}
	return c.running > 0 || c.done < c.plan.Len()
}

// ignoresTimeUp reports whether the end of its time does not change the flow. A suspended flow looks at its time
// in the next run.
func (c *core) ignoresTimeUp() bool { return c.reverting || c.broken || c.held || c.suspended }

// overtime is the cause of a flow that reverts because its time is over. A retry policy of the job can run the
// flow again, so the failure is not permanent.
func overtime(timeout time.Duration) *logbook.Failure {
	return &logbook.Failure{Kind: logbook.FailureTimeout, Message: fmt.Sprintf("the run has not finished within the flow's timeout, %s", timeout)}
}
