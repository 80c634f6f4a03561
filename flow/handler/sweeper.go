package handler

import (
	"errors"
	"time"

	"github.com/conductord/conductord/flow/handler/scratch"
)

const (
	// Each sweep takes up to a second. The pause between two sweeps grows: processes that keep making files
	// then cost at most a third of a processor.
	sweepPause    = 100 * time.Millisecond
	maxSweepPause = 2 * time.Second
	// sweepTime bounds the sweeping of a directory. The next run that leaves something, and the next start, begin anew.
	sweepTime = time.Hour
)

// Sweep removes the directories in a directory (os.TempDir if empty) that have the prefix and that no process holds.
// It takes a second at most; the rest is removed in the background.
func (s *Set) Sweep(directory, prefix string) error {
	err := scratch.Sweep(directory, prefix)
	if errors.Is(err, scratch.ErrUnfinished) {
		s.sweepLater(directory, prefix)
		return nil
	}
	return err
}

// sweepLater sweeps a directory in a goroutine. The goroutine ends when nothing is left, when sweepTime is
// over, or when another goroutine has begun. The directory is not marked during a sweep, because the sweep
// may miss new leftovers.
func (s *Set) sweepLater(directory, prefix string) {
	if _, marked := s.swept.LoadOrStore(directory, nil); marked {
		return
	}
	go func() {
		for pause, until := sweepPause, time.Now().Add(sweepTime); time.Now().Before(until); pause = min(2*pause, maxSweepPause) {
			time.Sleep(pause)
			s.swept.Delete(directory)
			if !errors.Is(scratch.Sweep(directory, prefix), scratch.ErrUnfinished) {
				return
			}
			if _, marked := s.swept.LoadOrStore(directory, nil); marked {
				return
			}
		}
		s.swept.Delete(directory)
	}()
}
