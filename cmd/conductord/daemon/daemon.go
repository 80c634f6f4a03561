// Package daemon runs a node with its conductor, and has the commands that run nodes, conductors or
// workers, or work on the data of stopped nodes.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	conductorcmd "github.com/conductord/conductord/cmd/conductord/cli/conductor"
	"github.com/conductord/conductord/cmd/conductord/dashboard"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/topology"
	"github.com/conductord/conductord/valuekeys"
)

const (
	// stopMargin is the extra time of a stopping daemon after its drain timeout, for the
	// writes that hand over its jobs.
	stopMargin = 2 * time.Second
	// handlerGrace is a handler's time between SIGTERM and SIGKILL. Together with the drain
	// timeout it fits into the second in which a stopping node hands over.
	handlerGrace = 300 * time.Millisecond
	// dialPatience bounds the conductor's wait for the HTTP port of its own node. The port is
	// already open when the conductor dials.
	dialPatience = 10 * time.Second
	// leadPatience limits the wait for the only node of a cluster to become leader.
	leadPatience = 5 * time.Second
	// stepsDir is the directory of the steps' working directories, in the data directory.
	stepsDir = "steps"
)

// Commands are the nouns and commands of this package.
func Commands(p *cli.Program) []*cobra.Command {
	return []*cobra.Command{serverCommand(p), workerCommand(p), devCommand(p), logStoreCommand(p), configCommand(p), backupCommand(p), nodeCommand(p), clusterCommand(p), conductorcmd.Command(p, runConductorCommand(p)), doctorCommand(p)}
}

// daemon is a node and its conductor.
type daemon struct {
	config    config.Config
	logger    hclog.Logger
	node      *node.Node
	metrics   *prometheus.Registry
	secure    *credentials.Store // nil: none
	client    *raftboard.Client  // of the conductor; nil if there is none
	conductor *flowRunner        // nil if there is none
	traces    *traces
	working   sync.WaitGroup // the conductor's Run
	spent     chan struct{}  // closed when the conductor has reached a limit and ended
}

// startDaemon opens the node and starts its conductor. first: an empty data directory is
// expected.
func startDaemon(ctx context.Context, c config.Config, first bool, logger hclog.Logger) (*daemon, error) {
	tightenUmask() // other users must not read the daemon's files
	dataDir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil, fmt.Errorf("cannot use the data directory %q: %w", c.DataDir, err)
	}
	c.DataDir = dataDir
	if c.Backup.Directory != "" {
		if c.Backup.Directory, err = filepath.Abs(c.Backup.Directory); err != nil {
			return nil, fmt.Errorf("cannot use the backup directory %q: %w", c.Backup.Directory, err)
		}
	}
	registry := newRegistry()
	options, err := nodeOptions(c, first, logger, registry)
	if err != nil {
		return nil, err
	}
	if options.CheckFlow, err = documentCheck(limitsOf(c)); err != nil {
		return nil, err
	}
	opened, err := node.Open(options)
	if err != nil {
		return nil, err
	}
	d := &daemon{
		config: c, logger: logger, node: opened, metrics: registry, secure: options.Credentials, traces: newTraces(registry, logger), spent: make(chan struct{}),
	}
	if c.Conductor.Enabled {
		if err := d.startConductor(ctx); err != nil {
			return nil, errors.Join(err, d.stop())
		}
	}
	return d, nil
}

// newRegistry makes the registry for metrics of the node, the conductor, the Go runtime and
// the process. It excludes raft's own metrics: their names and units do not follow Prometheus,
// and the node measures the useful ones itself.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

func nodeOptions(c config.Config, first bool, logger hclog.Logger, registry *prometheus.Registry) (node.Options, error) {
	secure, err := openCredentials(c, logger)
	if err != nil {
		return node.Options{}, err
	}
	var routes *topology.Source
	if c.Topology.File != "" {
		failed := func(err error) { logger.Error("cannot use the changed topology", "error", err) }
		if routes, err = topology.Open(topology.Options{File: c.Topology.File, Cluster: c.Cluster.ID, Failed: failed}); err != nil {
			return node.Options{}, err
		}
	}
	var members []node.Member
	for _, member := range c.Cluster.Members {
		members = append(members, node.Member{Name: member.Name, Raft: member.Raft, API: member.API})
	}
	return node.Options{
		Issuer: issuerOf(c), Credentials: secure, ClientCertificates: c.TLS.ClientCerts, AccessControl: c.AccessControl && secure != nil, Socket: socketPath(c, logger),
		Name: c.Node, Cluster: c.Cluster.ID, Members: members, DataDir: c.DataDir, Init: first,
		Version: cli.ProgramVersion().Version, LogStore: logstore.Kind(c.LogStore), RaftListen: c.RaftAddress(), APIListen: c.APIAddress(),
		Raft: node.RaftTimings{
			Heartbeat: c.Raft.Heartbeat, Election: c.Raft.Election, LeaderLease: c.Raft.LeaderLease,
			MaxAppendEntries: c.Raft.MaxAppendEntries, SnapshotInterval: c.Raft.SnapshotInterval,
			SnapshotThreshold: uint64(c.Raft.SnapshotThreshold), TrailingLogs: uint64(c.Raft.TrailingLogs),
		},
		Sessions:  node.SessionTimings{Grace: c.Sessions.Grace, CoolDown: c.Sessions.CoolDown, MaxCrashes: c.Sessions.MaxCrashes},
		Retention: node.Retention{MaxAge: c.Retention.MaxAge, Keep: uint64(c.Retention.Keep)},
		Limits:    limitsOf(c), DiskReserve: int64(c.DiskReserve), Memory: int64(c.Memory), VerifyInterval: c.Cluster.VerifyInterval, RemoveDeadAfter: c.Cluster.RemoveDeadAfter,
		Backups: node.Backups{Directory: c.Backup.Directory, Interval: c.Backup.Interval, Keep: c.Backup.Keep},
		Pages:   pagesOf(c, secure != nil, logger), PagesPath: c.Dashboard.Path, PageToken: (&dashboard.Options{Path: c.Dashboard.Path, Origin: c.Dashboard.Origin}).TokenOf,
		Topology: routes, Logger: logger, Metrics: registry,
	}, nil
}

// pagesOf makes the dashboard of the configuration; nil: none.
func pagesOf(c config.Config, secure bool, logger hclog.Logger) func(api http.Handler) http.Handler {
	if !c.Dashboard.Enabled {
		return nil
	}
	var hosts []string
	for _, member := range c.Cluster.Members {
		if host, _, err := net.SplitHostPort(member.API); err == nil {
			hosts = append(hosts, host)
		}
	}
	return func(api http.Handler) http.Handler {
		return dashboard.New(dashboard.Options{
			API: api, Path: c.Dashboard.Path, ReadOnly: c.Dashboard.ReadOnly, AccessControl: c.AccessControl && secure,
			Hosts: hosts, Origin: c.Dashboard.Origin, Node: c.Node, Logger: logger.Named("dashboard"),
		})
	}
}

// socketName is the socket of a data directory, for the operators of this machine.
const socketName = "api.sock"

// socketPath is the node's socket for operators of this machine. Empty: no socket, because without
// access control all callers have all permissions anyway.
func socketPath(c config.Config, logger hclog.Logger) string {
	if err := checkSocket(c); err != nil {
		logger.Warn("cannot open the socket for local operators", "error", err)
		return ""
	}
	if filesOf(c).Empty() || !c.AccessControl {
		return ""
	}
	return filepath.Join(c.DataDir, socketName)
}

// checkSocket refuses a data directory whose path is too long for the socket, if the node needs one.
func checkSocket(c config.Config) error {
	const most = node.MaxSocketPath - len("/"+socketName)
	dir, err := filepath.Abs(c.DataDir)
	if err != nil || filesOf(c).Empty() || !c.AccessControl || len(dir) <= most {
		return nil
	}
	return fmt.Errorf("data_dir has %d bytes; the limit is %d with %s, the socket for local operators: choose a shorter path, such as a link", len(dir), most, socketName)
}

// issuerOf is the issuer of the configuration; zero: none.
func issuerOf(c config.Config) node.Issuer {
	if c.JWT.Issuer == "" && c.JWT.Audience == "" && c.JWT.Keys == "" {
		return node.Issuer{}
	}
	return node.Issuer{Name: c.JWT.Issuer, Audience: c.JWT.Audience, Keys: c.JWT.Keys, Claim: c.JWT.Claim}
}

// filesOf are the files of the configuration's TLS.
func filesOf(c config.Config) credentials.Files {
	return credentials.Files{CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key}
}

// openCredentials opens the files of the configuration; nil: none.
func openCredentials(c config.Config, logger hclog.Logger) (*credentials.Store, error) {
	files := filesOf(c)
	if files.Empty() {
		return nil, nil
	}
	return credentials.Open(files, func(err error) { logger.Error("cannot use changed certificates", "error", err) })
}

// documentCheck finds the faults of documents when they are posted. It does not check
// handlers: another node may have the handlers that this node lacks.
func documentCheck(limits logbook.Limits) (func(*logbook.FlowDetail, logbook.Values) error, error) {
	registry := flow.NewRegistry()
	err := registry.Register(spec.Kind, func(args json.RawMessage) (*flow.Flow, error) {
		document, err := spec.Parse(args, "flow document.json")
		if err != nil {
			return nil, err
		}
		return document.Build(nil)
	})
	return flow.NewChecker(registry, limits).Check, err
}

// valueKeysOf opens the keys of the configuration; nil: none.
func valueKeysOf(c config.Config) (*valuekeys.Keys, error) {
	if c.Conductor.ValueKeys == "" {
		return nil, nil
	}
	return valuekeys.Open(c.Conductor.ValueKeys)
}

func limitsOf(c config.Config) logbook.Limits {
	return logbook.Limits{Name: c.Limits.Name, Value: c.Limits.Value, Command: c.Limits.Command, Steps: c.Limits.Steps}
}

// startConductor runs a conductor against the daemon's own node. The client learns of the
// other nodes from that node.
func (d *daemon) startConductor(ctx context.Context) error {
	steps, err := filepath.Abs(filepath.Join(d.config.DataDir, stepsDir))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(steps, 0o700); err != nil { // the node holds the data directory
		return err
	}
	if othersRun(d.config.Handlers) {
		if err := os.Chmod(d.config.DataDir, passable); err != nil {
			return err
		}
	}
	keys, err := valueKeysOf(d.config)
	if err != nil {
		return err
	}
	dialing, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	own := raftboard.Options{
		Endpoints: []string{localAddress(d.node.APIAddress().String())}, Logger: d.logger.Named("client"), ValueKeys: keys,
	}
	if d.secure != nil {
		own.TLS = d.secure.Members(d.config.Cluster.ID)
	}
	d.client, err = raftboard.Open(dialing, own)
	if err != nil {
		return fmt.Errorf("cannot start the conductor: %w", err)
	}
	tracer, err := d.traces.start(d.config)
	if err != nil {
		return err
	}
	d.conductor, err = newFlowRunner(d.config, steps, d.config.AccessControl && d.secure != nil, conductor.Options{
		Client: ownClient{d.client, d.node}, Logs: d.node.Logs(), Notify: countClaims(d.metrics), Tracer: tracer,
	}, d.logger)
	if err != nil {
		return err
	}
	registerSteps(d.metrics, d.conductor.Conductor, d.config.Conductor)
	d.working.Go(func() { // ends with stop
		if alone(d.config) { // it becomes leader soon: until then its conductor would warn without need
			waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), leadPatience)
			_ = d.node.WaitReady(waiting) // the conductor retries anyway
			cancel()
		}
		if err := d.conductor.Run(context.WithoutCancel(ctx)); err != nil {
			d.logger.Warn("conductor stopped with errors", "error", err)
		}
		if limits := d.config.Conductor; limits.MaxDispatches > 0 || limits.MaxDuration > 0 {
			close(d.spent)
		}
	})
	return nil
}

// ownClient is the client of the daemon's own conductor. The node opens its sessions, and
// never refuses one because of the sessions of other clients.
type ownClient struct {
	*raftboard.Client
	node *node.Node
}

// OpenSession implements jobs.Attendant.
func (c ownClient) OpenSession(ctx context.Context, opening jobs.Opening) (jobs.Session, error) {
	return c.node.OpenSession(ctx, opening)
}

// localAddress is the address at which programs of this machine reach a port of the daemon,
// even if the daemon listens on all addresses.
func localAddress(listening string) string {
	host, port, err := net.SplitHostPort(listening)
	if err != nil {
		return listening
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// stop hands over first the jobs, while the node still serves, and then the leadership.
func (d *daemon) stop() error {
	var errs []error
	if d.conductor != nil {
		ctx, cancel := context.WithTimeout(context.Background(), d.config.DrainTimeout+stopMargin)
		defer cancel()
		errs = append(errs, d.conductor.Drain(ctx))
		d.working.Wait()
		errs = append(errs, d.conductor.close())
	}
	if d.client != nil {
		d.client.Close()
	}
	errs = append(errs, d.node.Close())
	d.traces.stop()
	return errors.Join(errs...)
}

// alone reports whether the configuration starts a cluster of one.
func alone(c config.Config) bool { return len(c.Cluster.Members) == 1 }

// outliveReaders keeps this process alive when the reader of its output exits; further output is lost.
// SIGPIPE is caught and not ignored, because handlers would inherit an ignored signal.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// daemonLogger makes the logger of the daemon.
func daemonLogger(c config.Config, to io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "conductord", Level: hclog.LevelFromString(c.Log.Level), Output: cli.CleanLog(to, c.Log.JSON), JSONFormat: c.Log.JSON,
		// These raft messages are no warnings for a cluster of one: it starts without a leader
		// and without a configuration, and on a slow disk it repeats its own election.
		Exclude: func(_ hclog.Level, message string, _ ...any) bool {
			return alone(c) && (message == "heartbeat timeout reached, starting election" ||
				message == "Election timeout reached, restarting election" || message == "no known peers, aborting election")
		},
	})
}
