package node_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/raftboard/node"
)

// After a leader whose clock was ahead, the next one's stamps go on from there.
func TestClockGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			name  string
			ahead time.Duration
			want  time.Duration // beyond start, after a minute
		}{
			{"never raised", 0, time.Minute},
			{"behind", -time.Hour, time.Minute},
			{"ahead", time.Hour, time.Hour + time.Minute},
		} {
			began := time.Now()
			now := node.NewClock(began.Add(row.ahead))
			time.Sleep(time.Minute) // of the bubble's time
			if got := now().Sub(began); got != row.want {
				t.Errorf("%s: a minute later it shows %v after the start, want %v", row.name, got, row.want)
			}
		}
	})
}
