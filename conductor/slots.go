package conductor

import (
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
)

// untakenTime is the time for which a run waits for step workers before it returns its worker slot.
// It is longer than a live worker needs to take a step, so most runs keep their slot.
const untakenTime = time.Second

// slots are the worker slots of one loop. A run that only waits for step workers returns its
// slot. When the run continues, it takes a slot without waiting, because its worker must not wait
// for the slot. If no slot is free then, the next returned slot compensates.
//
// There are therefore at most MaxJobs runs, plus the runs that wait or have waited; together at
// most jobs.MaxClaims.
type slots struct {
	free chan struct{}

	mu      sync.Mutex
	waiting int // runs that have returned their slot
	owed    int // slots that were taken although none was free
	most    int // maximum of waiting and owed
}

func newSlots(size int) *slots {
	s := &slots{free: make(chan struct{}, size), most: jobs.MaxClaims - size}
	for range size {
		s.free <- struct{}{}
	}
	return s
}

// put returns a slot.
func (s *slots) put() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked()
}

func (s *slots) putLocked() {
	if s.owed > 0 {
		s.owed--
		return
	}
	s.free <- struct{}{}
}

// beyond is the number of runs that are currently allowed in addition to MaxJobs. The board gets
// this number, because it compares a conductor's jobs with its maximum to report that it is full.
func (s *slots) beyond() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting + s.owed
}

// lend returns the slot of a run that waits. It reports false at the limit.
func (s *slots) lend() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed == 0 && s.waiting >= s.most {
		return false
	}
	s.waiting++
	s.putLocked()
	return true
}

// retake takes a slot for a run that continues.
func (s *slots) retake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	select {
	case <-s.free:
	default:
		s.owed++
	}
}

// runSlot is the slot of one run.
type runSlot struct {
	slots *slots

	mu    sync.Mutex
	timer *time.Timer // triggers the check whether to lend the slot; nil: the run does not wait
	lent  bool
}

// untaken records whether the run only waits for step workers.
func (r *runSlot) untaken(only bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if only {
		if r.timer == nil {
			r.timer = time.AfterFunc(untakenTime, r.lend)
		}
		return
	}
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if r.lent {
		r.lent = false
		r.slots.retake()
	}
}

// lend lends the slot. At the limit of waiting runs it tries again later: other runs may have
// continued by then.
func (r *runSlot) lend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer == nil || r.lent {
		return
	}
	if r.lent = r.slots.lend(); !r.lent {
		r.timer.Reset(untakenTime)
	}
}

// end returns the slot when the run is over.
func (r *runSlot) end() {
	r.untaken(false)
	r.slots.put()
}
