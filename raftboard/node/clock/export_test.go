package clock

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Internals that the tests of this package use.

// SlewShare limits the speed of corrections of the cluster's time.
const SlewShare = slewShare

// WithPassed makes the clock of a node on a machine with a given elapsed time.
func WithPassed(passed func() time.Duration) *Clock { return &Clock{passed: passed} }

func (c *Clock) Hear(told time.Time)       { c.hear(told) }
func (c *Clock) Correct(off time.Duration) { c.correct(off) }

// NewListener makes a follower that only receives the time.
func NewListener(log io.Writer, wall func() time.Time) (hear func(time.Time)) {
	c := New(nil, wall, hclog.New(&hclog.LoggerOptions{Output: log}))
	return func(told time.Time) { c.Heard(told.UnixNano()) }
}

// Supported is the correction of the cluster's time.
func Supported(offsets []time.Duration, majority int, fault error) (time.Duration, error) {
	return supported(offsets, majority, []error{fault})
}
