package daemon

import (
	"encoding/json"
	"slices"

	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// handlersKey is where the entity of a daemon's conductor names its handlers.
	handlersKey = "handlers"
	// maxHandlersBytes bounds that, so that it fits into an entity. A daemon with
	// more handlers names none, and gets no jobs from others for having them.
	maxHandlersBytes = jobs.MaxMetadata / 2
)

// offering says with a conductor which handlers it has.
func offering(handlers []string) (logbook.Values, error) {
	named, err := json.Marshal(handlers)
	if err != nil || len(handlers) == 0 || len(named) > maxHandlersBytes {
		return nil, err
	}
	return logbook.Values{handlersKey: named}, nil
}

// hasHandlers reports whether another conductor says that it has all handlers of a
// flow document. A document that is wrong in itself is nobody's.
func hasHandlers(detail *logbook.FlowDetail, other jobs.Entity) bool {
	if detail.Factory.Name != spec.Kind {
		return false
	}
	document, err := spec.Parse(detail.Factory.Args, "flow document.json")
	if err != nil {
		return false
	}
	if _, err := document.Build(nil); err != nil {
		return false
	}
	var offered []string
	if json.Unmarshal(other.Metadata[handlersKey], &offered) != nil {
		return false
	}
	return !slices.ContainsFunc(document.Handlers(), func(name string) bool { return !slices.Contains(offered, name) })
}
