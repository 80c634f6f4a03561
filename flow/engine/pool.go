package engine

import (
	"sync"
	"sync/atomic"
)

// Pool bounds the steps that run at once in all runs that share it. A run that
// finds no slot waits for its turn, and each gets one slot in turn: a flow of
// a thousand steps that began first does not keep a flow of one step waiting
// behind all of them. Steps with a concurrency key (flow.Concurrency) wait for
// that besides, also in turn, and take no slot meanwhile.
//
// No goroutine waits in a pool: a run is stirred when there is something for it.
type Pool struct {
	mu      sync.Mutex
	free    int
	waiting []*seat           // for a slot, each once; none while a slot is free
	keys    map[string]*keyed // those with steps, or with runs that wait
}

// keyed is what goes on under one concurrency key.
type keyed struct {
	busy    int // steps that run, and places that are set aside
	waiting []placeWaiter
}

// placeWaiter is a run in line for a key: each once.
type placeWaiter struct {
	seat  *seat
	limit int
}

// NewPool makes a pool that lets so many steps run at once; less than 1 is 1.
// With 1 they run one after the other.
func NewPool(size int) *Pool {
	return &Pool{free: max(1, size), keys: make(map[string]*keyed)}
}

// seat is one run in a pool. What the pool sets aside for it, it uses the next
// time that it starts steps, or gives back then.
type seat struct {
	pool    *Pool
	stirred chan struct{} // holds one: something was set aside for it

	// Guarded by pool.mu.
	queued   bool            // it waits for a slot
	slots    int             // that are set aside for it
	places   map[string]int  // the same, by key
	newPlace []string        // keys of those that the run has not heard of
	inLine   map[string]bool // the keys that it is in line for
}

func (p *Pool) join() *seat {
	return &seat{pool: p, stirred: make(chan struct{}, 1), places: make(map[string]int), inLine: make(map[string]bool)}
}

// permission says whether a step may start.
type permission int

const (
	permitted permission = iota
	noSlot               // nothing can start now; the run is in line
	noPlace              // nothing with this key can; the run is in line for it
)

// obtain takes a slot for a step, and a place under its key if it has one.
func (s *seat) obtain(key string, limit int) permission {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if key != "" && !s.takePlaceLocked(key, limit) {
		return noPlace
	}
	if s.takeSlotLocked() {
		return permitted
	}
	if key != "" {
		s.places[key]++ // it was its turn, and stays so
	}
	return noSlot
}

func (s *seat) takeSlotLocked() bool {
	p := s.pool
	switch {
	case s.slots > 0:
		s.slots--
		return true
	case p.free > 0:
		p.free--
		return true
	}
	if !s.queued {
		s.queued = true
		p.waiting = append(p.waiting, s)
	}
	return false
}

func (s *seat) takePlaceLocked(key string, limit int) bool {
	p := s.pool
	if s.places[key] > 0 {
		s.dropPlaceLocked(key)
		return true
	}
	if p.keys[key] == nil {
		p.keys[key] = &keyed{}
	}
	if k := p.keys[key]; len(k.waiting) == 0 && k.busy < limit {
		k.busy++
		return true
	}
	s.lineUpLocked(key, limit)
	return false
}

func (s *seat) dropPlaceLocked(key string) {
	if s.places[key]--; s.places[key] == 0 {
		delete(s.places, key)
	}
}

// lineUp waits for the next place under a key.
func (s *seat) lineUp(key string, limit int) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.pool.keys[key] == nil {
		s.pool.keys[key] = &keyed{}
	}
	s.lineUpLocked(key, limit)
	s.pool.admitLocked(key)
}

func (s *seat) lineUpLocked(key string, limit int) {
	if !s.inLine[key] {
		s.inLine[key] = true
		k := s.pool.keys[key]
		k.waiting = append(k.waiting, placeWaiter{seat: s, limit: limit})
	}
}

// news are the keys under which places were set aside since the last call.
func (s *seat) news() []string {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	keys := s.newPlace
	s.newPlace = nil
	return keys
}

// grant is what a step has while it runs. The nil grant is of one that needs
// nothing.
type grant struct {
	pool *Pool
	key  string // empty: none
	over atomic.Bool
}

// release gives it back. That may be done more than once: by the loop, which
// takes the outcome first so that it shares an update with what starts next,
// and by the goroutine of a step that the loop has left behind.
func (g *grant) release() {
	if g == nil || g.over.Swap(true) {
		return
	}
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	g.pool.free++
	g.pool.serveLocked()
	if g.key != "" {
		g.pool.vacateLocked(g.key)
	}
}

// decline gives back a place that was set aside.
func (s *seat) decline(key string) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.places[key] > 0 {
		s.dropPlaceLocked(key)
		p.vacateLocked(key)
	}
}

// yield gives back all that is set aside: the run can use none of it now. It
// gives the keys of places that it has not heard of, for which it is in line no
// more.
func (s *seat) yield() []string {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.yieldLocked()
}

func (s *seat) yieldLocked() (keys []string) {
	p := s.pool
	if s.queued {
		s.queued = false
		p.waiting = without(p.waiting, func(other *seat) bool { return other == s })
	}
	p.free += s.slots
	s.slots = 0
	p.serveLocked()
	for key, count := range s.places {
		delete(s.places, key)
		for range count {
			p.vacateLocked(key)
		}
	}
	// Also of places that another of its steps has taken meanwhile: who was to
	// have them is in line no more.
	keys = s.newPlace
	s.newPlace = nil
	return keys
}

// leave ends the run's part in the pool. Steps that it has left behind keep
// their slots until they end.
func (s *seat) leave() {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range s.inLine {
		k := p.keys[key]
		k.waiting = without(k.waiting, func(w placeWaiter) bool { return w.seat == s })
		delete(s.inLine, key)
		p.admitLocked(key) // who stands first may have another limit
	}
	s.yieldLocked()
}

// serveLocked sets free slots aside for the runs that wait, in turn.
func (p *Pool) serveLocked() {
	for p.free > 0 && len(p.waiting) > 0 {
		next := p.waiting[0]
		p.waiting = p.waiting[1:]
		next.queued = false
		p.free--
		next.slots++
		next.stir()
	}
}

// vacateLocked frees a place under a key.
func (p *Pool) vacateLocked(key string) {
	p.keys[key].busy--
	p.admitLocked(key)
}

// admitLocked sets places aside for the runs in line for a key, in turn, and
// forgets a key that nobody uses.
func (p *Pool) admitLocked(key string) {
	k := p.keys[key]
	for len(k.waiting) > 0 && k.busy < k.waiting[0].limit {
		next := k.waiting[0].seat
		k.waiting = k.waiting[1:]
		delete(next.inLine, key)
		k.busy++
		next.places[key]++
		next.newPlace = append(next.newPlace, key)
		next.stir()
	}
	if k.busy == 0 && len(k.waiting) == 0 {
		delete(p.keys, key)
	}
}

func (s *seat) stir() {
	select {
	case s.stirred <- struct{}{}:
	default:
	}
}

// without copies a list that leaves some out, so that those who are taken from
// its front are not held.
func without[T any](list []T, unwanted func(T) bool) []T {
	var kept []T
	for _, item := range list {
		if !unwanted(item) {
			kept = append(kept, item)
		}
	}
	return kept
}
