package admission

import "sync"

// Watchers counts the watches and long polls of each principal at this node. The count is not in
// the state: watches and polls start and end many times a second, and none outlives its node.
type Watchers struct {
	Polls, Watches Budget // of all principals

	mu    sync.Mutex
	count map[string]uint64 // by principal; guarded by mu
}

// NewWatchers makes Watchers with all counts zero.
func NewWatchers() *Watchers {
	return &Watchers{Polls: Budget{total: maxPolls}, Watches: Budget{total: maxWatches}, count: make(map[string]uint64)}
}

// Of is the count of a principal.
func (w *Watchers) Of(principal string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[principal]
}

// Bounds of the long polls and of the watches of all principals at a node. Each costs some tens of
// kilobytes, and each event wakes all watches. No principal may hold more than is left for the
// others.
const (
	maxPolls   = 16_384
	maxWatches = 1_024
)

// Admit counts one more watch or poll until release. If the count would exceed the limit, or the
// principal's share of the total, Admit returns the number instead. Limit 0: no limit.
func (w *Watchers) Admit(principal string, limit uint64, all *Budget) (release func(), over uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.count[principal]; limit > 0 && n >= limit || !all.take(principal, 1, 0) {
		return nil, n + 1
	}
	w.count[principal]++
	return func() { w.release(principal); all.give(principal, 1) }, 0
}

func (w *Watchers) release(principal string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[principal]--; w.count[principal] == 0 {
		delete(w.count, principal)
	}
}
