package conductor

import (
	"context"
	"sync"
)

// pauses records whether a program has paused its conductor, across all calls of Run.
type pauses struct {
	mu   sync.Mutex
	over chan struct{} // closed when the pause ends; nil: no pause
}

// begin starts a pause. It returns false if a pause is already in effect.
func (p *pauses) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		return false
	}
	p.over = make(chan struct{})
	return true
}

// end ends the pause; false if there is none.
func (p *pauses) end() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over == nil {
		return false
	}
	close(p.over)
	p.over = nil
	return true
}

// wait returns true when there is no pause, and false when ctx ends.
func (p *pauses) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		p.mu.Lock()
		over := p.over
		p.mu.Unlock()
		if over == nil {
			return true
		}
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	return false
}

func (p *pauses) paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over != nil
}
