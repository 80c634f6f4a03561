package engine

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// queue is first in, first out, so that a run is the same every time.
// It uses its room again whenever it has run empty.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) push(item T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		// One that never runs empty must not grow for as long as the run.
		kept := copy(q.items, q.items[q.head:])
		clear(q.items[kept:])
		q.items, q.head = q.items[:kept], 0
	}
	q.items = append(q.items, item)
}

func (q *queue[T]) pop() (item T, ok bool) {
	if q.len() == 0 {
		return item, false
	}
	item, q.items[q.head] = q.items[q.head], item // what was taken is not held here
	if q.head++; q.head == len(q.items) {
		q.clear()
	}
	return item, true
}

// pushFirst puts an item before all others.
func (q *queue[T]) pushFirst(item T) {
	if q.head == 0 {
		q.items = slices.Insert(q.items, 0, item)
		return
	}
	q.head--
	q.items[q.head] = item
}

// first is the item that pop would take. There must be one.
func (q *queue[T]) first() T { return q.items[q.head] }

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) remove(unwanted func(item T) bool) {
	q.items = slices.DeleteFunc(q.items[q.head:], unwanted)
	q.head = 0
}

// take removes the items that are wanted, and gives them in their order.
func (q *queue[T]) take(wanted func(item T) bool) (taken []T) {
	q.remove(func(item T) bool {
		want := wanted(item)
		if want {
			taken = append(taken, item)
		}
		return want
	})
	return taken
}

// each lets every item be changed.
func (q *queue[T]) each(change func(item *T)) {
	for i := q.head; i < len(q.items); i++ {
		change(&q.items[i])
	}
}

func (q *queue[T]) clear() { q.items, q.head = q.items[:0], 0 }

// dueStep is a step that waits for a time.
type dueStep struct {
	at   time.Time
	step int
}

// dueHeap holds the steps that wait, the next one first.
type dueHeap []dueStep

func (h *dueHeap) push(d dueStep) { heap.Push((*heapOrder)(h), d) }
func (h *dueHeap) pop() dueStep   { return heap.Pop((*heapOrder)(h)).(dueStep) }

func (h *dueHeap) remove(unwanted func(step int) bool) {
	*h = slices.DeleteFunc(*h, func(d dueStep) bool { return unwanted(d.step) })
	heap.Init((*heapOrder)(h))
}

// heapOrder is a dueHeap as package heap wants to see it.
type heapOrder dueHeap

func (h heapOrder) Len() int      { return len(h) }
func (h heapOrder) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heapOrder) Push(x any)   { *h = append(*h, x.(dueStep)) }

// Less breaks ties by number: equal times must not make runs differ.
func (h heapOrder) Less(i, j int) bool {
	return cmp.Or(h[i].at.Compare(h[j].at), cmp.Compare(h[i].step, h[j].step)) < 0
}

func (h *heapOrder) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// slab makes the room for what a run needs some of for every step, for many at a
// time: each allocation costs more than what is done with it.
type slab[T any] struct{ free []T }

// The first of a flow are few, since most flows are short; later ones are as
// many as are not too much to be held for the sake of a single one.
const (
	smallSlab = 4
	largeSlab = 64
)

// one is a slice of one item.
func (s *slab[T]) one(item T) []T { return append(s.room(1), item) }

// room is an empty slice for so many items, which are smallSlab at most.
func (s *slab[T]) room(items int) []T {
	used := len(s.free)
	if used+items > cap(s.free) {
		s.free, used = make([]T, 0, min(max(smallSlab, 4*cap(s.free)), largeSlab)), 0
	}
	s.free = s.free[:used+items]
	return s.free[used : used : used+items]
}
