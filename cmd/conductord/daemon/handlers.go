package daemon

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/handler/scratch"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node"
)

// maxHandlersBytes bounds the list of handlers, so that it fits into an entity. A daemon
// with more handlers names none, and gets no jobs from others for having them.
const maxHandlersBytes = jobs.MaxMetadata / 2

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

// relist is how long the list of handlers may be older than the last look at the files
// themselves: a change of their modes leaves the modification times of directories alone.
const relist = 10 * time.Second

// offer is what the conductor's entity says of the daemon: its node, and its handlers. One
// goroutine at a time uses it.
type offer struct {
	node     string
	handlers *handler.Set
	logger   hclog.Logger

	stamps          []time.Time // the modification times of the directories
	changed, listed time.Time   // when these were seen to change, and the handlers were listed
	names           []string
}

// metadata lists the handlers anew when a directory has changed within relist, because
// files are often copied first and made executable then, and once in relist otherwise.
func (o *offer) metadata() logbook.Values {
	var stamps []time.Time
	for _, directory := range o.handlers.Directories() {
		var stamp time.Time // of a directory that is gone
		if info, err := os.Stat(directory); err == nil {
			stamp = info.ModTime()
		}
		stamps = append(stamps, stamp)
	}
	now := time.Now()
	if !slices.EqualFunc(stamps, o.stamps, time.Time.Equal) {
		o.stamps, o.changed = stamps, now
	}
	if now.Sub(o.changed) < relist || now.Sub(o.listed) >= relist {
		o.list(now)
	}
	at, _ := json.Marshal(o.node) // texts have JSON
	offered := logbook.Values{node.NodeKey: at}
	if named, _ := json.Marshal(o.names); len(named) <= maxHandlersBytes {
		offered[cli.HandlersKey] = named
	}
	return offered
}

func (o *offer) list(now time.Time) {
	names := append([]string{}, o.handlers.Names()...) // in JSON, an empty list and not null
	if o.listed.IsZero() || !slices.Equal(names, o.names) {
		o.logger.Info("handlers", "directories", o.handlers.Directories(), "names", names)
	}
	o.names, o.listed = names, now
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
	if json.Unmarshal(other.Metadata[cli.HandlersKey], &offered) != nil {
		return false
	}
	return !slices.ContainsFunc(document.Handlers(), func(name string) bool { return !slices.Contains(offered, name) })
}
