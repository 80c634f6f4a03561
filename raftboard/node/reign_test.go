package node_test

import (
	"testing"
	"time"

	"github.com/conductord/conductord/raftboard/node"
)

// TestTimersAreNotPutOff: signals wake the timers of a leader before their time,
// thousands of times a second where there is much to do, and then it is asked
// again when to wake. That must not put off what is due.
func TestTimersAreNotPutOff(t *testing.T) {
	begin := time.Now()
	after := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	for name, row := range map[string]struct {
		now, rested int
		times       []time.Time
		want        int
	}{
		"nothing is known":          {now: 0, times: []time.Time{{}, {}}, want: 1000},
		"the earliest":              {now: 0, times: []time.Time{after(50), {}, after(20)}, want: 20},
		"asked again":               {now: 19, times: []time.Time{after(20)}, want: 20},
		"due":                       {now: 20, times: []time.Time{after(20)}, want: 20},
		"overdue":                   {now: 30, rested: 10, times: []time.Time{after(20)}, want: 30},
		"overdue, and at rest":      {now: 30, rested: 32, times: []time.Time{after(20)}, want: 32},
		"overdue, and asked again":  {now: 31, rested: 32, times: []time.Time{after(20)}, want: 32},
		"due while at rest":         {now: 30, rested: 32, times: []time.Time{after(31)}, want: 32},
		"rested, and later":         {now: 30, rested: 32, times: []time.Time{after(40)}, want: 40},
		"far, and no longer asleep": {now: 30, times: []time.Time{after(5000)}, want: 1030},
	} {
		t.Run(name, func(t *testing.T) {
			if got := node.WakeAt(after(row.now), after(row.rested), row.times...); !got.Equal(after(row.want)) {
				t.Errorf("at %d it is %s, and %s is right", row.now, got.Sub(begin), after(row.want).Sub(begin))
			}
		})
	}
}
