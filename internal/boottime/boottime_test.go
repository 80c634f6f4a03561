package boottime_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/internal/boottime"
)

// TestNowNeverGoesBack: nor between goroutines that read it at the same time.
func TestNowNeverGoesBack(t *testing.T) {
	var mu sync.Mutex
	last := boottime.Now()
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 2_000 {
				mu.Lock()
				now := boottime.Now()
				if now.Before(last) {
					t.Errorf("it went back by %v", last.Sub(now))
				}
				last = now
				mu.Unlock()
				boottime.Now()
			}
		})
	}
	readers.Wait()
}

// TestFakeTime: where time is not the machine's, it is that time.
func TestFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := boottime.Now()
		time.Sleep(time.Hour)
		if passed := boottime.Since(began); passed < time.Hour || passed > time.Hour+time.Minute {
			t.Errorf("after an hour: %v", passed)
		}
		if left := boottime.Until(began.Add(2 * time.Hour)); left > time.Hour || left < time.Hour-time.Minute {
			t.Errorf("an hour before: %v", left)
		}
	})
}
