package handler

import (
	"errors"
	"time"

	"github.com/conductord/conductord/flow/handler/scratch"
)

const (
	// Each sweep takes up to a second. The pause between two sweeps grows, so processes that
	// continuously create files cost at most a third of a processor.
	sweepPause    = 100 * time.Millisecond
	maxSweepPause = 2 * time.Second
	// sweepTime limits the sweeping of a directory. The next run that leaves remains, and the next
	// start, sweep again.
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

// sweepLater sweeps a directory in a goroutine. The goroutine ends when the directory is empty,
// when sweepTime is over, or when another goroutine has started. The directory is not marked during
// a sweep, because the sweep may miss new remains.
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
