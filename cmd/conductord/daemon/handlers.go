package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"slices"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/handler/scratch"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node"
)

const (
	// handlersKey is where the entity of a daemon's conductor names its handlers.
	handlersKey = "handlers"
	// maxHandlersBytes bounds that, so that it fits into an entity. A daemon with
	// more handlers names none, and gets no jobs from others for having them.
	maxHandlersBytes = jobs.MaxMetadata / 2
)

// confinement is what the configuration takes from handlers.
func confinement(c config.Handlers) handler.Confinement {
	return handler.Confinement{
		User: c.User, NoNewPrivileges: c.NoNewPrivs, OpenFiles: int64(c.OpenFiles), FileSize: int64(c.FileSize),
		Cgroups: c.Cgroups, Memory: int64(c.Memory), Processes: int64(c.Processes),
	}
}

// confine ends what handlers of a killed daemon have left, and empties the
// directory for working directories: this process holds the data directory.
func (d *daemon) confine(steps string) (handler.Option, error) {
	if err := os.MkdirAll(steps, 0o700); err != nil {
		return nil, err
	}
	confined, err := handler.Confine(confinement(d.config.Handlers), steps)
	if err != nil {
		return nil, err
	}
	if d.config.Handlers.User != "" {
		if err := os.Chmod(d.config.DataDir, passable); err != nil {
			return nil, err
		}
	}
	if err := scratch.Sweep(steps, ""); err != nil {
		d.logger.Warn("cannot empty the directory for the working directories of steps", "directory", steps, "error", err)
	}
	return confined, nil
}

// passable lets the handlers' user reach its working directories; what else is
// in the data directory has modes of its own.
const passable = 0o711

// offering says with a conductor at which node it is, and which handlers it has.
func offering(name string, handlers []string) (logbook.Values, error) {
	at, err := json.Marshal(name)
	offered := logbook.Values{node.NodeKey: at}
	named, listErr := json.Marshal(handlers)
	if len(handlers) > 0 && len(named) <= maxHandlersBytes {
		offered[handlersKey] = named
	}
	return offered, errors.Join(err, listErr)
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
