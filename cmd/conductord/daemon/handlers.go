package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// maxHandlersBytes bounds the list of handlers, so that it fits into an entity. A daemon with
// a longer list announces no handlers, so other daemons hand it no jobs because of its
// handlers.
const maxHandlersBytes = jobs.MaxMetadata / 2

// confinement is the configured restriction of handlers.
func confinement(c config.Handlers) handler.Confinement {
	var users map[string]string
	for boards, names := range c.Users {
		if users == nil {
			users = make(map[string]string)
		}
		users[boards] = names[0]
	}
	return handler.Confinement{
		User: c.User, Users: users, NoNewPrivileges: c.NoNewPrivs, OpenFiles: int64(c.OpenFiles), FileSize: int64(c.FileSize),
		Cgroups: c.Cgroups, Memory: int64(c.Memory), Processes: int64(c.Processes),
	}
}

// othersRun reports whether other users than the node's run handlers.
func othersRun(c config.Handlers) bool { return c.User != "" || len(c.Users) > 0 }

// confine ends processes that remain of a killed program's handlers, and empties the directory of
// working directories, which this process has locked.
func confine(handlers *handler.Set, c config.Handlers, steps string, logger hclog.Logger) (handler.Option, error) {
	confined, err := handler.Confine(confinement(c), steps)
	if err != nil {
		return nil, err
	}
	if err := handlers.Sweep(steps, ""); err != nil {
		logger.Warn("cannot empty the steps' working directories", "directory", steps, "error", err)
	}
	return confined, nil
}

// passable lets the handlers' user reach its working directories. Other files in the data directory
// have their own modes.
const passable = 0o711

// stepsPrefix is the prefix of temporary directories for working directories.
const stepsPrefix = "conductord-steps-"

// holdSteps makes and locks the directory for the steps' working directories, in a program without
// a node. release unlocks it. An empty path means a temporary directory.
func holdSteps(path string) (held string, release func(), err error) {
	if path == "" {
		_ = scratch.Sweep("", stepsPrefix) // a remaining file is harmless
		temporary, err := scratch.Make("", stepsPrefix)
		if err != nil {
			return "", nil, err
		}
		return temporary.Path, func() { _ = temporary.Remove() }, nil
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", nil, err
	}
	kept, err := scratch.Hold(path)
	if err != nil {
		return "", nil, fmt.Errorf("cannot use the directory for working directories: %w", err)
	}
	return path, kept.Release, nil
}

// relist is the maximum age of the list of handlers: a change of a file's mode does not change
// the modification time of its directory.
const relist = 10 * time.Second

// offer holds the metadata of a conductor's entity: its node, if any, and its handlers. One
// goroutine at a time uses it.
type offer struct {
	node     string
	handlers *handler.Set
	logger   hclog.Logger

	stamps          []time.Time // the modification times of the directories
	changed, listed time.Time   // times of the last seen change, and of the last listing
	names           []string
}

// metadata lists the handlers anew each time if a directory has changed within relist, because
// files are often copied first and made executable later. Otherwise it lists them once per
// relist.
func (o *offer) metadata() logbook.Values {
	var stamps []time.Time
	for _, directory := range o.handlers.Directories() {
		var stamp time.Time // the directory is missing
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
	offered := logbook.Values{}
	if o.node != "" {
		offered[node.NodeKey], _ = json.Marshal(o.node) // a string can always be encoded
	}
	if named, _ := json.Marshal(o.names); len(named) <= maxHandlersBytes {
		offered[cli.HandlersKey] = named
	}
	return offered
}

func (o *offer) list(now time.Time) {
	names := append([]string{}, o.handlers.Names()...) // an empty list in JSON, not null
	if o.listed.IsZero() || !slices.Equal(names, o.names) {
		o.logger.Info("handlers listed", "directories", o.handlers.Directories(), "names", names)
	}
	o.names, o.listed = names, now
}

// hasHandlers reports whether another conductor announces all handlers of a flow document. For an
// invalid document, the answer is false.
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
