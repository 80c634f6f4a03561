package listen

import (
	"slices"

	"github.com/conductord/conductord/flow/engine"
)

// Filter reports whether to pass on an event.
type Filter func(event engine.Event) bool

// Where passes a listener only the events that all filters accept. The listener gets every count
// of dropped events, because their content is unknown. A listener of several Where
// filters gets an event once for each filter that accepts the event. A panic of a filter
// counts as a panic of its listener.
func Where(listener Listener, filters ...Filter) Listener {
	return &filtered{listener: listener, filters: slices.Clone(filters)}
}

type filtered struct {
	listener Listener
	filters  []Filter
}

// Miss passes on the number of missing events.
func (f *filtered) Miss(count int) { f.listener.Miss(count) }

// Hear passes on an event that is wanted.
func (f *filtered) Hear(event engine.Event) {
	for _, wanted := range f.filters {
		if !wanted(event) {
			return
		}
	}
	f.listener.Hear(event)
}

// OfFlow accepts events of the flow as a whole.
func OfFlow(event engine.Event) bool { return event.Step == "" }

// OfSteps accepts events of these steps; without names, of all steps.
func OfSteps(names ...string) Filter {
	names = slices.Clone(names)
	return func(event engine.Event) bool {
		return event.Step != "" && (len(names) == 0 || slices.Contains(names, event.Step))
	}
}

// Failures accepts failed attempts.
func Failures(event engine.Event) bool { return event.Attempt != nil && event.Attempt.Failure != nil }
