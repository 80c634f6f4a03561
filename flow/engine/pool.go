package engine

import (
	"sync"
	"sync/atomic"
)

// Pool limits the parallel steps of all runs that share it, and the steps under each concurrency
// key (flow.Concurrency). A step needs a free worker and, if it has a key, one of the key's
// permits. A step that is offered to step workers releases its pool worker when it starts, and keeps
// the permit of its key.
//
// Runs queue for workers and for each key, and are served in turn: a flow of a thousand steps
// does not delay a later flow of one step until all of them have run. A step that waits for its
// key takes no worker meanwhile.
//
// No goroutine waits in a pool. The pool reserves a worker or a key permit for a queued run, and
// wakes the run.
type Pool struct {
	mu          sync.Mutex
	size        int // constant
	freeWorkers int
	queue       queue[*poolRun]    // runs that wait for a worker, each once; empty while one is free
	keys        map[string]*keyUse // keys with permits in use, or with runs that wait
}

// keyUse is the state of one concurrency key.
type keyUse struct {
	inUse   int // permits of running steps, and reserved ones
	waiting queue[keyWaiter]
}

// keyWaiter is a run in the queue of a key: each once.
type keyWaiter struct {
	run   *poolRun
	limit int
}

// NewPool makes a pool with a number of workers; a size below 1 counts as 1.
func NewPool(size int) *Pool {
	size = max(1, size)
	return &Pool{size: size, freeWorkers: size, keys: make(map[string]*keyUse)}
}

// InUse is the number of workers that run a step or are reserved for a run.
func (p *Pool) InUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size - p.freeWorkers
}

// poolRun is one run in a pool. The next time that the run starts steps, it uses or
// returns what the pool has reserved for it.
type poolRun struct {
	pool   *Pool
	wakeup chan struct{} // holds one: something was reserved

	// Guarded by pool.mu.
	queuedForWorker bool
	reservedWorkers int
	reservedKeys    map[string]int  // key permits, by key
	newlyReserved   []string        // keys of permits that the run does not know yet
	queuedFor       map[string]bool // keys in whose queues the run is
}

func (p *Pool) join() *poolRun {
	return &poolRun{pool: p, wakeup: make(chan struct{}, 1), reservedKeys: make(map[string]int), queuedFor: make(map[string]bool)}
}

// permission is the answer to whether a step may start.
type permission int

const (
	permitted permission = iota
	noWorker             // no step can start now; the run is queued for a worker
	noKey                // no step with this key can start; the run is queued for it
)

// obtain takes a worker for a step, and a permit of its key if it has one.
func (s *poolRun) obtain(key string, limit int) permission {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if key != "" && !s.takeKeyLocked(key, limit) {
		return noKey
	}
	if s.takeWorkerLocked() {
		return permitted
	}
	if key != "" {
		s.reservedKeys[key]++ // keep the permit until there is a worker
	}
	return noWorker
}

// hold takes a permit of a key without a worker, even over the limit: the step has already started.
func (s *poolRun) hold(key string) *permit {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys[key] == nil {
		p.keys[key] = &keyUse{}
	}
	p.keys[key].inUse++
	return &permit{pool: p, key: key, idle: true}
}

func (s *poolRun) takeWorkerLocked() bool {
	p := s.pool
	switch {
	case s.reservedWorkers > 0:
		s.reservedWorkers--
		return true
	case p.freeWorkers > 0:
		p.freeWorkers--
		return true
	}
	if !s.queuedForWorker {
		s.queuedForWorker = true
		p.queue.push(s)
	}
	return false
}

func (s *poolRun) takeKeyLocked(key string, limit int) bool {
	p := s.pool
	if s.reservedKeys[key] > 0 {
		s.dropReservedKeyLocked(key)
		return true
	}
	if p.keys[key] == nil {
		p.keys[key] = &keyUse{}
	}
	if k := p.keys[key]; k.waiting.len() == 0 && k.inUse < limit {
		k.inUse++
		return true
	}
	s.queueForLocked(key, limit)
	return false
}

func (s *poolRun) dropReservedKeyLocked(key string) {
	if s.reservedKeys[key]--; s.reservedKeys[key] == 0 {
		delete(s.reservedKeys, key)
	}
}

// queueFor queues the run for the next permit of a key.
func (s *poolRun) queueFor(key string, limit int) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.pool.keys[key] == nil {
		s.pool.keys[key] = &keyUse{}
	}
	s.queueForLocked(key, limit)
	s.pool.serveKeyLocked(key)
}

func (s *poolRun) queueForLocked(key string, limit int) {
	if !s.queuedFor[key] {
		s.queuedFor[key] = true
		k := s.pool.keys[key]
		k.waiting.push(keyWaiter{run: s, limit: limit})
	}
}

// newKeys returns the keys whose permits were reserved since the last call.
func (s *poolRun) newKeys() []string {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	keys := s.newlyReserved
	s.newlyReserved = nil
	return keys
}

// permit is what a running step holds of a pool: a worker, and perhaps a permit of
// its key. nil: it holds nothing.
type permit struct {
	pool *Pool
	key  string // empty: none
	over atomic.Bool
	idle bool // it has only the key; guarded by pool.mu
}

// release returns the permit to the pool. It may be called twice: by the loop, and by the
// goroutine of an abandoned step.
func (p *permit) release() {
	if p == nil || p.over.Swap(true) {
		return
	}
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	p.releaseWorkerLocked()
	if p.key != "" {
		p.pool.freeKeyLocked(p.key)
	}
}

// releaseWorker returns the worker and keeps the key, for a step that runs elsewhere.
func (p *permit) releaseWorker() {
	if p == nil {
		return
	}
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if !p.over.Load() {
		p.releaseWorkerLocked()
	}
}

func (p *permit) releaseWorkerLocked() {
	if !p.idle {
		p.idle = true
		p.pool.freeWorkers++
		p.pool.serveWorkersLocked()
	}
}

// returnKey returns one reserved permit of a key.
func (s *poolRun) returnKey(key string) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.reservedKeys[key] > 0 {
		s.dropReservedKeyLocked(key)
		p.freeKeyLocked(key)
	}
}

// returnReserved returns all permits reserved for the run, which cannot use them now. The
// result lists the keys of reserved permits that the run did not know of. The run is no longer
// queued for these keys. The keys include permits that another step of the run has taken since.
func (s *poolRun) returnReserved() []string {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.returnReservedLocked()
}

func (s *poolRun) returnReservedLocked() (keys []string) {
	p := s.pool
	if s.queuedForWorker {
		s.queuedForWorker = false
		p.queue.remove(func(other *poolRun) bool { return other == s })
	}
	p.freeWorkers += s.reservedWorkers
	s.reservedWorkers = 0
	p.serveWorkersLocked()
	// This must precede the release of the keys: the pool may reserve them for this run again,
	// and that reservation is new.
	keys, s.newlyReserved = s.newlyReserved, nil
	if returned := s.reservedKeys; len(returned) > 0 {
		s.reservedKeys = make(map[string]int)
		for key, count := range returned {
			for range count {
				p.freeKeyLocked(key)
			}
		}
	}
	return keys
}

// leave removes the run from the pool. Abandoned steps keep their permits until
// they end.
func (s *poolRun) leave() {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range s.queuedFor {
		k := p.keys[key]
		k.waiting.remove(func(w keyWaiter) bool { return w.run == s })
		delete(s.queuedFor, key)
		p.serveKeyLocked(key) // the next run may have a higher limit
	}
	s.returnReservedLocked()
}

// serveWorkersLocked reserves free workers for the queued runs, in turn.
func (p *Pool) serveWorkersLocked() {
	for p.freeWorkers > 0 && p.queue.len() > 0 {
		next, _ := p.queue.pop()
		next.queuedForWorker = false
		p.freeWorkers--
		next.reservedWorkers++
		next.wake()
	}
}

// freeKeyLocked frees a permit of a key.
func (p *Pool) freeKeyLocked(key string) {
	p.keys[key].inUse--
	p.serveKeyLocked(key)
}

// serveKeyLocked reserves free permits of a key for the queued runs, in turn, and
// deletes a key that is not in use.
func (p *Pool) serveKeyLocked(key string) {
	k := p.keys[key]
	for k.waiting.len() > 0 && k.inUse < k.waiting.first().limit {
		waiter, _ := k.waiting.pop()
		next := waiter.run
		delete(next.queuedFor, key)
		k.inUse++
		next.reservedKeys[key]++
		next.newlyReserved = append(next.newlyReserved, key)
		next.wake()
	}
	if k.inUse == 0 && k.waiting.len() == 0 {
		delete(p.keys, key)
	}
}

func (s *poolRun) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}
