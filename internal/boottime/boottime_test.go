package boottime_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/internal/boottime"
)

// TestNowNeverGoesBack: also across goroutines that read it in parallel.
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

// TestFakeTime: with a fake clock, Now returns the fake time.
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
