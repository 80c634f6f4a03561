package handler

import (
	"errors"
	"sync"
	"time"

	"github.com/conductord/conductord/flow/handler/scratch"
)

const (
	// The pause between two sweeps of a second begins short, and ends so long that processes that go on making
	// files cost a third of a processor.
	sweepPause    = 100 * time.Millisecond
	maxSweepPause = 2 * time.Second
	// sweepTime bounds the sweeping of a directory. The next run that leaves something, and the next start, begin anew.
	sweepTime = time.Hour
)

// sweeper removes in the background what runs have left in their working directories.
type sweeper struct {
	mu    sync.Mutex
	again map[string]bool // the directories that are swept; true: something was left meanwhile
}

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

// sweepLater sweeps a directory in a goroutine, which ends when nothing is left or sweepTime is over.
func (s *sweeper) sweepLater(directory, prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, sweeping := s.again[directory]; sweeping {
		s.again[directory] = true
		return
	}
	s.again[directory] = false
	go func() {
		for pause, until := sweepPause, time.Now().Add(sweepTime); ; pause = min(2*pause, maxSweepPause) {
			err := scratch.Sweep(directory, prefix)
			if s.swept(directory, !errors.Is(err, scratch.ErrUnfinished) || time.Now().After(until)) {
				return
			}
			time.Sleep(pause)
		}
	}()
}

// swept reports whether the sweeping of a directory ends.
func (s *sweeper) swept(directory string, over bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if over && !s.again[directory] {
		delete(s.again, directory)
		return true
	}
	s.again[directory] = false
	return false
}
