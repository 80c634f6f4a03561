package node

import (
	"sync"
	"time"

	"github.com/conductord/conductord/boottime"
)

// slewShare bounds how fast the cluster's time is corrected: by one part in so
// many of what passes. Pauses that are kept as times of the cluster last as
// long as they should within that.
const slewShare = 20

// clock is the cluster's time, as this node tells it. Every stamp in the log
// and every question whether something is due goes by it.
//
// A node that leads sets it once, to what the wall clocks of a majority support
// but never back (see clockRounds). From then on it goes on by the time that
// passes on this machine, suspensions included, and is corrected towards the
// majority by slewing: it never jumps and never goes back. A node that follows
// goes on from what the leader told last, for people, and to lead from there.
type clock struct {
	passed func() time.Duration // never falls

	mu    sync.Mutex
	shown time.Time     // at since; zero: no leader was heard
	since time.Duration // a reading of passed
	off   time.Duration // what has to be added from since on, bit by bit
	leads bool
}

func newClock() *clock {
	began := boottime.Now()
	return &clock{passed: func() time.Duration { return boottime.Since(began) }}
}

// now is the cluster's time; long ago, if nothing is known about it.
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

// known tells whether the clock shows the time of a leader.
func (c *clock) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.shown.IsZero()
}

// hear sets the clock of a node that follows to what the leader tells.
func (c *clock) hear(told time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leads {
		c.shown, c.since, c.off = told, c.passed(), 0
	}
}

// lead has the clock of a node that leads show at least a time from now on.
func (c *clock) lead(least time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.nowLocked(); now.After(least) {
		least = now
	}
	c.shown, c.since, c.off, c.leads = least, c.passed(), 0, true
}

// correct slews the clock of a node that leads by so much.
func (c *clock) correct(off time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.since, c.off = c.nowLocked(), c.passed(), off
}

// follow ends the time as leader: the clock listens again.
func (c *clock) follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leads = false
}
