package lead_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/deadlines"
	"github.com/conductord/conductord/raftboard/node/lead"
)

// TestTimersAreNotPutOff: under load, signals wake a leader's timers early, thousands of times
// a second, and each wake-up computes the next one anew. This must not delay due work.
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
			if got := lead.WakeAt(after(row.now), after(row.rested), row.times...); !got.Equal(after(row.want)) {
				t.Errorf("at %d it is %s, and %s is right", row.now, got.Sub(begin), after(row.want).Sub(begin))
			}
		})
	}
}

// TestRoundsOfExpiriesAreBounded: sessions that vanish together expire in rounds. Each
// round ends a bounded number of claims.
func TestRoundsOfExpiriesAreBounded(t *testing.T) {
	for name, row := range map[string]struct {
		claims []int
		want   int
	}{
		"none":         {nil, 0},
		"small ones":   {[]int{0, 8, 8, 0}, 4},
		"full ones":    {[]int{256, 256, 256, 256, 256}, 3},
		"to the bound": {[]int{500, 500, 0, 1}, 3},
		"a large one":  {[]int{1_001, 1}, 1},
	} {
		if got := lead.Within(row.claims, lead.ClaimsAtOnce); got != row.want {
			t.Errorf("%s: %d of %v, and %d is right", name, got, row.claims, row.want)
		}
	}
}

// A leader that was paused gives all sessions a full TTL.
func TestPauseRearms(t *testing.T) {
	const heartbeat, grace = 500 * time.Millisecond, time.Second
	for _, row := range []struct {
		late  time.Duration
		spare bool
	}{
		{-time.Second, false}, // woken by a signal, early
		{0, false},
		{heartbeat, false},
		{heartbeat + 1, true},
		{time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, id := deadlines.New[jobs.SessionID](grace, make(chan struct{}, 1)), jobs.NewSessionID()
			d.Arm(id, time.Second, 0, time.Now())
			time.Sleep(10 * time.Second)
			if paused := lead.WasPaused(heartbeat, row.late, d); paused != row.spare {
				t.Errorf("%v late: paused %v", row.late, paused)
			}
			if due := d.TakeDue(time.Now(), 1); (len(due) == 0) != row.spare {
				t.Errorf("%v late: %d due", row.late, len(due))
			}
		})
	}
}
