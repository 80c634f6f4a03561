package engine

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// queue is first in, first out, so that a run is the same every time.
type queue struct {
	steps []int
	head  int
}

func (q *queue) push(step int) { q.steps = append(q.steps, step) }

func (q *queue) pop() (int, bool) {
	if q.len() == 0 {
		return 0, false
	}
	step := q.steps[q.head]
	if q.head++; q.head == len(q.steps) {
		q.clear()
	}
	return step, true
}

func (q *queue) len() int { return len(q.steps) - q.head }

func (q *queue) remove(unwanted func(step int) bool) {
	q.steps = slices.DeleteFunc(q.steps[q.head:], unwanted)
	q.head = 0
}

func (q *queue) clear() { q.steps, q.head = q.steps[:0], 0 }

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
