package listen

import (
	"slices"
	"sync"
	"time"

	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// Stamp is the time at which a step, or the flow, entered a state.
type Stamp struct {
	State string // a logbook.AtomState, or a logbook.FlowState of the flow
	// First and Last are the first and the last of Count times. A step that is tried again, or
	// that a retry starts again, enters a state more than once.
	First, Last time.Time
	Count       int
}

// Timestamps keeps the times at which steps and the flow entered their states, as decided. Its
// zero value is ready; its methods may be called at any time.
type Timestamps struct {
	mu     sync.Mutex
	stamps map[string][]Stamp // by step; the flow's under the empty name
}

// Hear keeps the time of a change of state.
func (t *Timestamps) Hear(event engine.Event) {
	state := string(event.State)
	if event.Step == "" {
		state = string(event.Flow)
	}
	if state == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stamps == nil {
		t.stamps = make(map[string][]Stamp)
	}
	list, known := t.stamps[event.Step]
	if !known && len(t.stamps) > logbook.MaxLimits.Steps {
		return // no flow has as many: several runs share this one
	}
	at := slices.IndexFunc(list, func(s Stamp) bool { return s.State == state })
	if at < 0 {
		t.stamps[event.Step] = append(list, Stamp{State: state, First: event.Time, Last: event.Time, Count: 1})
		return
	}
	list[at].Last = event.Time
	list[at].Count++
}

// Miss does nothing: a missing time stays missing.
func (t *Timestamps) Miss(int) {}

// Step returns the states of a step in the order of their first times; none for an unknown step.
func (t *Timestamps) Step(name string) []Stamp {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.stamps[name])
}

// Flow returns the states of the flow.
func (t *Timestamps) Flow() []Stamp { return t.Step("") }
