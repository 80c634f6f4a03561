package node

import (
	"sync"
	"time"

	"github.com/conductord/conductord/boottime"
)

// slewShare bounds the correction of the cluster's time: to one part in slewShare
// of the time that passes. Pauses that are stored as cluster times are off by no
// more than that.
const slewShare = 20

// clock is the cluster's time on this node. Every stamp in the log, and every
// decision whether something is due, uses it.
//
// A new leader sets it once, to the time that the wall clocks of a majority
// support, and never back (see clockRounds). After that it advances by this
// machine's elapsed time, including suspensions. It is corrected towards the
// majority by slewing, so it never jumps and never goes back. A follower advances
// from the time that the leader sent last; people see it, and a new leader starts
// from it.
type clock struct {
	passed func() time.Duration // never falls

	mu    sync.Mutex
	shown time.Time     // the time at since; zero: no leader was heard
	since time.Duration // a reading of passed
	off   time.Duration // the correction still to be slewed at since
	leads bool
}

func newClock() *clock {
	began := boottime.Now()
	return &clock{passed: func() time.Duration { return boottime.Since(began) }}
}

// now is the cluster's time; near 1970 before a leader was heard.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *clock) nowLocked() time.Time {
	shown, passed := c.shown, c.passed()-c.since
	if shown.IsZero() {
		shown = time.Unix(0, 0).UTC()
	}
	most := passed / slewShare
	return shown.Add(passed + min(max(c.off, -most), most))
}

// known reports whether the clock shows the time of a leader.
func (c *clock) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.shown.IsZero()
}

// hear sets a follower's clock to the time that the leader has sent.
func (c *clock) hear(told time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leads {
		c.shown, c.since, c.off = told, c.passed(), 0
	}
}

// lead makes this a leader's clock, which shows at least the given time.
func (c *clock) lead(least time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.nowLocked(); now.After(least) {
		least = now
	}
	c.shown, c.since, c.off, c.leads = least, c.passed(), 0, true
}

// correct slews a leader's clock by off.
func (c *clock) correct(off time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.since, c.off = c.nowLocked(), c.passed(), off
}

// follow makes this a follower's clock again.
func (c *clock) follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leads = false
}

// wallTime reads the wall clock of this machine. Nothing else in a node reads it:
// it is only this node's vote about the cluster's time.
// Elsewhere time.Now measures only how long something takes.
func wallTime() time.Time { return time.Now() }
