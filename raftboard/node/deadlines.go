package node

import (
	"container/heap"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
)

// deadlines are the sessions' timers, on the leader's monotonic clock. They
// are never written down: a new leader gives every session a full TTL.
//
// A keep-alive only moves the session's deadline; the heap learns of it when
// the old place comes up. So a keep-alive costs a map access.
type deadlines struct {
	grace time.Duration

	mu       sync.Mutex
	sessions map[jobs.SessionID]*deadline
	heap     deadlineHeap
	changed  chan struct{} // holds one signal: the earliest place may have changed
}

type deadline struct {
	id       jobs.SessionID
	ttl      time.Duration
	at       time.Time     // the deadline
	place    time.Time     // its key in the heap, never after at
	expiring chan struct{} // closed when a proposed expiry has been decided; nil: none under way
	slot     int           // its index in the heap; away while expiring
}

// away is the slot of what is not in the heap.
const away = -1

func newDeadlines(grace time.Duration) *deadlines {
	return &deadlines{grace: grace, sessions: map[jobs.SessionID]*deadline{}, changed: make(chan struct{}, 1)}
}

// arm gives a session a full TTL plus grace from now.
func (d *deadlines) arm(session jobs.Session, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if existing, ok := d.sessions[session.ID]; ok {
		existing.at = now.Add(existing.ttl + d.grace)
		return
	}
	at := now.Add(session.TTL + d.grace)
	entry := &deadline{id: session.ID, ttl: session.TTL, at: at, place: at}
	d.sessions[session.ID] = entry
	heap.Push(&d.heap, entry)
	d.signal()
}

// disarm forgets a session that has ended.
func (d *deadlines) disarm(id jobs.SessionID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.sessions[id]
	if !ok {
		return
	}
	delete(d.sessions, id)
	if entry.slot != away {
		heap.Remove(&d.heap, entry.slot)
	}
	if entry.expiring != nil {
		close(entry.expiring)
		entry.expiring = nil
	}
}

// count is how many sessions have a timer.
func (d *deadlines) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sessions)
}

// rearmAll gives every session a full TTL plus grace: after the leader itself
// was paused it cannot know who has been silent.
func (d *deadlines) rearmAll(now time.Time) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, entry := range d.sessions {
		entry.at = now.Add(entry.ttl + d.grace)
	}
	return len(d.sessions)
}

// renew moves a session's deadline. Where an expiry is under way it returns a
// channel to wait on: its outcome decides, and then renew is asked again.
func (d *deadlines) renew(id jobs.SessionID, now time.Time) (wait <-chan struct{}, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.sessions[id]
	if !ok {
		return nil, false
	}
	if entry.expiring != nil {
		return entry.expiring, true
	}
	entry.at = now.Add(entry.ttl + d.grace)
	return nil, true
}

// due takes the sessions whose time is up, and marks them as expiring.
func (d *deadlines) due(now time.Time, most int) []jobs.SessionID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []jobs.SessionID
	for len(d.heap) > 0 && len(ids) < most && !d.heap[0].place.After(now) {
		entry := d.heap[0]
		if entry.at.After(now) { // kept alive meanwhile
			entry.place = entry.at
			heap.Fix(&d.heap, 0)
			continue
		}
		heap.Pop(&d.heap)
		entry.expiring = make(chan struct{})
		ids = append(ids, entry.id)
	}
	return ids
}

// spare puts back a session whose expiry was refused or did not happen: it is
// due again after a pause.
func (d *deadlines) spare(id jobs.SessionID, again time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.sessions[id]
	if !ok || entry.expiring == nil {
		return
	}
	close(entry.expiring)
	entry.expiring = nil
	entry.at, entry.place = again, again
	heap.Push(&d.heap, entry)
}

// next is when the earliest place comes up; zero if there is none.
func (d *deadlines) next() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.heap) == 0 {
		return time.Time{}
	}
	return d.heap[0].place
}

func (d *deadlines) signal() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// deadlineHeap orders by place. It implements heap.Interface.
type deadlineHeap []*deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].place.Before(h[j].place) }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

// Push adds an entry at the end.
func (h *deadlineHeap) Push(x any) {
	entry := x.(*deadline)
	entry.slot = len(*h)
	*h = append(*h, entry)
}

// Pop removes the entry at the end.
func (h *deadlineHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	last.slot = away
	return last
}
