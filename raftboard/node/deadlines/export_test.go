package deadlines

// InHeap is how many timers are not away.
func (d *Deadlines[K]) InHeap() int { return len(d.heap) }
