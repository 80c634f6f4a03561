package engine

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// queue is first in, first out, so every run has the same order. It reuses its buffer when it
// is empty.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) push(item T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
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
	item, q.items[q.head] = q.items[q.head], item // so that the buffer does not keep it alive
	if q.head++; q.head == len(q.items) {
		q.clear()
	}
	return item, true
}

// pushFirst adds an item at the head.
func (q *queue[T]) pushFirst(item T) {
	if q.head == 0 {
		q.items = slices.Insert(q.items, 0, item)
		return
	}
	q.head--
	q.items[q.head] = item
}

// first returns the item at the head. The queue must not be empty.
func (q *queue[T]) first() T { return q.items[q.head] }

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) remove(unwanted func(item T) bool) {
	q.items = slices.DeleteFunc(q.items[q.head:], unwanted)
	q.head = 0
}

// take removes the wanted items and returns them in order.
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

// dueHeap is a heap of the steps that wait, the earliest first.
type dueHeap []dueStep

func (h *dueHeap) push(d dueStep) { heap.Push((*heapOrder)(h), d) }
func (h *dueHeap) pop() dueStep   { return heap.Pop((*heapOrder)(h)).(dueStep) }

func (h *dueHeap) remove(unwanted func(step int) bool) {
	*h = slices.DeleteFunc(*h, func(d dueStep) bool { return unwanted(d.step) })
	heap.Init((*heapOrder)(h))
}

// heapOrder implements heap.Interface for dueHeap.
type heapOrder dueHeap

func (h heapOrder) Len() int      { return len(h) }
func (h heapOrder) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heapOrder) Push(x any)   { *h = append(*h, x.(dueStep)) }

// Less breaks ties by step number, so that equal times do not make runs differ.
func (h heapOrder) Less(i, j int) bool {
	return cmp.Or(h[i].at.Compare(h[j].at), cmp.Compare(h[i].step, h[j].step)) < 0
}

func (h *heapOrder) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// chunks allocates per-step values in batches, because one allocation costs more than the use
// of the value.
type chunks[T any] struct {
	free []T
	next int // values of the next chunk
}

// maxChunk is bounded, because one value in use keeps its whole chunk in memory.
const maxChunk = 64

// expecting makes a first chunk with a number of values.
func expecting[T any](values int) chunks[T] { return chunks[T]{next: values} }

// one returns a slice of one item.
func (s *chunks[T]) one(item T) []T { return append(s.buffer(1), item) }

// buffer returns an empty slice with the given capacity.
func (s *chunks[T]) buffer(items int) []T {
	used := len(s.free)
	if used+items > cap(s.free) {
		s.free, used = make([]T, 0, min(max(items, s.next), maxChunk)), 0
		s.next = 2 * cap(s.free)
	}
	s.free = s.free[:used+items]
	return s.free[used : used : used+items]
}
