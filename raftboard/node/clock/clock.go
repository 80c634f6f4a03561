// Package clock is the time of the cluster.
//
// The nouns: a Clock is that time on one node. A wall clock is a machine's own time: one vote.
// Rounds are a leader's questions for the wall clocks of the voters.
//
// While a node leads, its Clock never goes back, and never jumps. Wrong wall clocks of a minority
// change nothing. The package assumes a counter of elapsed time that includes a machine's
// suspensions: package boottime.
package clock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/internal/boottime"
)

// slewShare limits the correction of the cluster's time to one part in slewShare of the elapsed
// time. Pauses that are stored as cluster times are off by at most that part.
const slewShare = 20

// clockWarning is the largest error of this node's clock without a warning. NTP keeps clocks within
// milliseconds; an error of seconds misleads operators.
const clockWarning = time.Second

// Clock is the cluster's time on this node. It stamps the log entries, and decides what is due.
//
// A new leader sets the clock once, to the time that the wall clocks of a majority support, and
// never backwards (see Rounds). After that, the clock advances by this machine's elapsed time,
// including suspensions. Slewing corrects it towards the majority, so the clock never jumps and
// never goes back. A follower's clock advances from the leader's last time. Answers to clients show
// this time, and a new leader starts from it.
type Clock struct {
	passed  func() time.Duration // never falls
	applied func() time.Time     // the time of the last applied entry
	wall    func() time.Time     // Options.WallClock
	logger  hclog.Logger
	warned  atomic.Int64 // lead of this node's clock at the last warning; 0: in sync

	mu    sync.Mutex
	shown time.Time     // the time at since; zero: no leader was heard
	since time.Duration // a reading of passed
	off   time.Duration // remaining correction at since
	leads bool
}

// New makes a clock that has heard no leader. applied is the time of the last applied entry, and
// wall is this machine's clock.
func New(applied, wall func() time.Time, logger hclog.Logger) *Clock {
	began := boottime.Now()
	return &Clock{passed: func() time.Duration { return boottime.Since(began) }, applied: applied, wall: wall, logger: logger}
}

// Now is the cluster's time. Until a leader was heard, it is near 1970.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *Clock) nowLocked() time.Time {
	shown, passed := c.shown, c.passed()-c.since
	if shown.IsZero() {
		shown = time.Unix(0, 0).UTC()
	}
	most := passed / slewShare
	return shown.Add(passed + min(max(c.off, -most), most))
}

// AnswerTime is the cluster's time for answers. A node that has not heard a leader yet uses the
// time of its last applied entry.
func (c *Clock) AnswerTime() time.Time {
	now, least := c.Now(), c.applied()
	if now.Before(least) {
		return least
	}
	return now
}

// known reports whether the clock shows the time of a leader.
func (c *Clock) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.shown.IsZero()
}

// Heard records the time in another node's question, in Unix nanoseconds; 0: that node does not
// lead.
func (c *Clock) Heard(told int64) {
	if told != 0 {
		c.hear(time.Unix(0, told).UTC())
		c.checkWall()
	}
}

// hear sets a follower's clock to the time that the leader has sent.
func (c *Clock) hear(told time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leads {
		c.shown, c.since, c.off = told, c.passed(), 0
	}
}

// Lead makes this a leader's clock, which shows at least the given time.
func (c *Clock) Lead(least time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.nowLocked(); now.After(least) {
		least = now
	}
	c.shown, c.since, c.off, c.leads = least, c.passed(), 0, true
}

// correct slews a leader's clock by off.
func (c *Clock) correct(off time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.since, c.off = c.nowLocked(), c.passed(), off
}

// Follow makes this a follower's clock again.
func (c *Clock) Follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leads = false
}

// WallOffset returns the lead of this node's wall clock over the cluster's time, and whether that
// time is known.
func (c *Clock) WallOffset() (ahead time.Duration, known bool) {
	return c.wall().Sub(c.Now()), c.known()
}

// checkWall warns once when this node's wall clock is out of sync, and again only when the offset
// has changed by half, because slewing changes it continuously.
func (c *Clock) checkWall() {
	ahead, _ := c.WallOffset()
	before := time.Duration(c.warned.Load())
	switch wrong := ahead.Abs() > clockWarning; {
	case wrong && (ahead-before).Abs() > max(clockWarning, before.Abs()/2):
		c.warned.Store(int64(ahead))
		c.logger.Warn("wall clock out of sync", "ahead", ahead, "advice", "check this machine's time service")
	case !wrong && before != 0:
		c.warned.Store(0)
		c.logger.Info("wall clock in sync again", "ahead", ahead)
	}
}

// Every yields at once, and then after each interval, until ctx ends.
func Every(ctx context.Context, interval time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for ctx.Err() == nil && yield() {
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}
}
