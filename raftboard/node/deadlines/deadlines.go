// Package deadlines keeps timers of sessions, and of claims with their own TTL. None of them is
// durable.
package deadlines

import (
	"container/heap"
	"sync"
	"time"
)

// Deadlines are the timers of sessions, or of claims that have their own time, on the leader's
// monotonic clock. They are never stored: a new leader gives each its full time.
//
// A keep-alive only moves the deadline; the heap is corrected when the old key is due. A
// keep-alive therefore costs one map access.
type Deadlines[K comparable] struct {
	grace time.Duration

	mu      sync.Mutex
	timers  map[K]*deadline[K]
	heap    deadlineHeap[K]
	changed chan<- struct{} // holds one signal: the earliest key may have changed
}

type deadline[K comparable] struct {
	id        K
	ttl       time.Duration
	round     int           // number of extensions of a claim
	at        time.Time     // the deadline
	heapKey   time.Time     // never after at
	expiring  chan struct{} // closed when a proposed expiry has been decided; nil: none in progress
	heapIndex int           // away during an expiry
}

// away is the heapIndex of a deadline that is not in the heap.
const away = -1

// New makes timers. Several can share the signal.
func New[K comparable](grace time.Duration, changed chan<- struct{}) *Deadlines[K] {
	return &Deadlines[K]{grace: grace, timers: map[K]*deadline[K]{}, changed: changed}
}

// Grace is the extra time that each timer gets beyond its TTL.
func (d *Deadlines[K]) Grace() time.Duration { return d.grace }

func (d *Deadlines[K]) signal() {
	select {
	case d.changed <- struct{}{}:
	default: // signalled already
	}
}

// Arm sets a deadline at a full TTL plus grace from now. The TTL may differ from the previous
// one.
func (d *Deadlines[K]) Arm(id K, ttl time.Duration, round int, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := now.Add(ttl + d.grace)
	entry, ok := d.timers[id]
	if !ok {
		entry = &deadline[K]{id: id, heapKey: at}
		d.timers[id] = entry
		heap.Push(&d.heap, entry)
		d.signal()
	}
	entry.ttl, entry.round, entry.at = ttl, round, at
	if at.Before(entry.heapKey) {
		entry.heapKey = at
		if entry.heapIndex != away {
			heap.Fix(&d.heap, entry.heapIndex)
			d.signal()
		}
	}
}

// Disarm removes the timer of a session or claim that has ended.
func (d *Deadlines[K]) Disarm(id K) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.timers[id]
	if !ok {
		return
	}
	delete(d.timers, id)
	if entry.heapIndex != away {
		heap.Remove(&d.heap, entry.heapIndex)
	}
	if entry.expiring != nil {
		close(entry.expiring)
		entry.expiring = nil
	}
}

// Count returns the number of timers.
func (d *Deadlines[K]) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.timers)
}

// RearmAll gives each timer its full TTL plus grace. After a pause of the leader's own process, the
// leader cannot know which clients were silent.
func (d *Deadlines[K]) RearmAll(now time.Time) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, entry := range d.timers {
		entry.at = now.Add(entry.ttl + d.grace)
	}
	return len(d.timers)
}

// Renew moves a deadline. During an expiry it returns a channel that is closed when the expiry has
// been decided: the caller then calls Renew again.
func (d *Deadlines[K]) Renew(id K, now time.Time) (wait <-chan struct{}, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.timers[id]
	if !ok {
		return nil, false
	}
	if entry.expiring != nil {
		return entry.expiring, true
	}
	entry.at = now.Add(entry.ttl + d.grace)
	return nil, true
}

// Due is a session or claim whose time has passed.
type Due[K comparable] struct {
	ID    K
	Round int
}

// TakeDue returns up to most timers whose time has passed, and marks them as expiring.
func (d *Deadlines[K]) TakeDue(now time.Time, most int) []Due[K] {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []Due[K]
	for len(d.heap) > 0 && len(ids) < most && !d.heap[0].heapKey.After(now) {
		entry := d.heap[0]
		if entry.at.After(now) { // kept alive meanwhile
			entry.heapKey = entry.at
			heap.Fix(&d.heap, 0)
			continue
		}
		heap.Pop(&d.heap)
		entry.expiring = make(chan struct{})
		ids = append(ids, Due[K]{entry.id, entry.round})
	}
	return ids
}

// Spare ends an expiry that was refused or not proposed: the deadline is due again
// after a pause.
func (d *Deadlines[K]) Spare(id K, again time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.timers[id]
	if !ok || entry.expiring == nil {
		return
	}
	close(entry.expiring)
	entry.expiring = nil
	if entry.at.Before(again) { // otherwise its deadline was moved meanwhile
		entry.at = again
	}
	entry.heapKey = entry.at
	heap.Push(&d.heap, entry)
	d.signal()
}

// Look returns the time left until the deadline, grace included, and the time since it
// was last moved.
func (d *Deadlines[K]) Look(id K, now time.Time) (left, silent time.Duration, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.timers[id]
	if !ok {
		return 0, 0, false
	}
	return max(entry.at.Sub(now), 0), max(now.Sub(entry.at.Add(-entry.ttl-d.grace)), 0), true
}

// Next is the earliest key; zero if there is none.
func (d *Deadlines[K]) Next() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.heap) == 0 {
		return time.Time{}
	}
	return d.heap[0].heapKey
}

// deadlineHeap orders by heapKey. It implements heap.Interface.
type deadlineHeap[K comparable] []*deadline[K]

func (h deadlineHeap[K]) Len() int           { return len(h) }
func (h deadlineHeap[K]) Less(i, j int) bool { return h[i].heapKey.Before(h[j].heapKey) }
func (h deadlineHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

// Push adds an entry at the end.
func (h *deadlineHeap[K]) Push(x any) {
	entry := x.(*deadline[K])
	entry.heapIndex = len(*h)
	*h = append(*h, entry)
}

// Pop removes the entry at the end.
func (h *deadlineHeap[K]) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	last.heapIndex = away
	return last
}
