package node

import (
	"sync"
	"time"
)

// clock stamps entries. It shows the wall's time, but never less than the time
// that the state machine had when this node began to lead, plus what has
// passed since: after a leader whose clock was ahead, time would stand still
// in the state machine until this one has caught up, and nothing would fall due.
type clock struct {
	mu    sync.Mutex
	floor time.Time
	since time.Time // when floor was set; its monotonic part counts
}

// raise says what time the state machine has.
func (c *clock) raise(floor time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor, c.since = floor, time.Now()
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if least := c.floor.Add(now.Sub(c.since)); now.Before(least) {
		return least
	}
	return now
}
