package listen

import (
	"slices"

	"github.com/conductord/conductord/flow/engine"
)

// Filter says whether an event is told.
type Filter func(event engine.Event) bool

// Where tells a listener only the events that all filters let through. It is
// told of every event that was dropped, because nobody knows what that was.
// One listener may stand behind several filters, and is told an event once for
// each that lets it through. A filter that panics counts as its listener.
func Where(listener Listener, filters ...Filter) Listener {
	return &filtered{listener: listener, filters: slices.Clone(filters)}
}

type filtered struct {
	listener Listener
	filters  []Filter
}

// Miss passes on how many events are missing.
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

// OfFlow lets through what is told of the flow as a whole.
func OfFlow(event engine.Event) bool { return event.Step == "" }

// OfSteps lets through what is told of these steps, or of all without any.
func OfSteps(names ...string) Filter {
	names = slices.Clone(names)
	return func(event engine.Event) bool {
		return event.Step != "" && (len(names) == 0 || slices.Contains(names, event.Step))
	}
}

// Failures lets through the attempts that have failed.
func Failures(event engine.Event) bool { return event.Attempt != nil && event.Attempt.Failure != nil }
