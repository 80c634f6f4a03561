package deadlines

// InHeap is the number of timers in the heap.
func (d *Deadlines[K]) InHeap() int { return len(d.heap) }
