package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/conductor/secrets"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// flowRunner is a conductor, in a node or in its own process, with its handlers and secrets.
type flowRunner struct {
	*conductor.Conductor
	secrets *secrets.Source
	unreap  context.CancelFunc
	reaping sync.WaitGroup
}

// newFlowRunner makes the conductor of a configuration. steps is the directory for working directories, which
// this process holds. guarded: the cluster has access control. own has the options that are not in the
// configuration.
func newFlowRunner(c config.Config, steps string, guarded bool, own conductor.Options, logger hclog.Logger) (*flowRunner, error) {
	handlers, err := handler.Open(c.Conductor.Handlers...)
	if err != nil {
		return nil, err
	}
	confined, err := confine(handlers, c.Handlers, steps, logger)
	if err != nil {
		return nil, err
	}
	own.Registry = flow.NewRegistry()
	factory := spec.Factory(handlers, handler.Limits(logbook.PlainLimits(own.Client, limitsOf(c))), handler.Grace(handlerGrace), confined)
	if err := own.Registry.Register(spec.Kind, factory); err != nil {
		return nil, err
	}
	if guarded && c.Secrets.Boards == nil { // access control means tenants: by default, none may use the secrets of all boards
		c.Secrets.Boards = config.PerBoard{}
	}
	source, err := secrets.Open(secrets.Options{
		Directory: c.Secrets.Directory, Environment: c.Secrets.Environment, Command: c.Secrets.Command, Boards: c.Secrets.Boards, Run: handlers.Run,
	})
	if err != nil {
		return nil, err
	}
	offered := offer{node: c.Node, handlers: handlers, logger: logger}
	own.Name, own.Boards, own.Labels = c.ConductorName(), c.Conductor.Boards, c.Conductor.Labels
	own.MaxJobs, own.Workers, own.Steps = c.Conductor.MaxJobs, c.Conductor.Workers, c.Conductor.Steps
	own.MaxDispatches, own.MaxDuration = c.Conductor.MaxDispatches, c.Conductor.MaxDuration
	own.TTL, own.Grace = c.Sessions.TTL, max(c.DrainTimeout, time.Millisecond)
	own.Metadata, own.Elsewhere, own.Secrets = offered.metadata, hasHandlers, source.Secret
	own.Limits, own.Logger = limitsOf(c), logger.Named("conductor")
	made, err := conductor.New(own)
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	reaping, cancel := context.WithCancel(context.Background())
	r := &flowRunner{Conductor: made, secrets: source, unreap: cancel}
	r.reaping.Go(func() { // ends with close
		if err := handlers.ReapOrphans(reaping); err != nil {
			logger.Warn("cannot wait for orphans of handlers", "error", err)
		}
	})
	return r, nil
}

// close frees the resources of the conductor, which has ended.
func (r *flowRunner) close() error {
	r.unreap()
	r.reaping.Wait()
	return r.secrets.Close()
}

func runConductorCommand(p *cli.Program) *cobra.Command {
	var flags *configFlags
	var steps string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a conductor with this machine's handlers; the machine need not be a node",
		Long: "Run a conductor with the handlers of this machine. The machine does not need to be a node, and needs no open\n" +
			"port. Like a node's conductor, it claims jobs and runs their flows; if it dies, other conductors continue.\n\n" +
			"On SIGTERM, SIGHUP and ctrl-C, it hands its jobs over within a second, or after --drain-timeout. It also stops,\n" +
			"with exit code 0, after --max-dispatches or --max-duration. --config reads the same settings from a file, in the\n" +
			"sections of a node's configuration: [conductor], [handlers], [secrets] and so on.\n\n" +
			"Use job logs to read a step's output after the step has ended.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.ConductorPart.Load(flags.path, p.Env, flags.given())
			if err != nil {
				return cli.UsageError(err)
			}
			return p.Waiting(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				who, err := cluster.WhoAmI(ctx)
				if err == nil {
					err = runConductor(ctx, c, steps, cluster, who.Enforced, daemonLogger(c, p.Err))
				}
				if err != nil {
					return fmt.Errorf("cannot run the conductor: %w", err)
				}
				return nil
			})
		},
	}
	flags = addSettingFlags(cmd, config.ConductorPart.Settings())
	addStepsFlag(cmd, &steps)
	return cmd
}

func addStepsFlag(cmd *cobra.Command, steps *string) {
	cmd.Flags().StringVar(steps, "steps-dir", "", "directory for the working directories of steps, for this process alone; its content is deleted (default a temporary directory)")
}

// runConductor runs a conductor outside a node until ctx ends or the conductor reaches a
// limit.
func runConductor(ctx context.Context, c config.Config, steps string, client conductor.Client, authenticated bool, logger hclog.Logger) error {
	outliveReaders()
	tightenUmask()
	if c.Conductor.Name == "" {
		host, _ := os.Hostname() // the process id is part of the name
		c.Conductor.Name = fmt.Sprintf("%s:%d", cmp.Or(host, "unknown-host"), os.Getpid())
	}
	steps, release, err := holdSteps(steps)
	if err != nil {
		return err
	}
	defer release()
	spans := newTraces(prometheus.NewRegistry(), logger) // its metrics are never read
	tracer, err := spans.start(c)
	if err != nil {
		return err
	}
	defer spans.stop()
	runner, err := newFlowRunner(c, steps, authenticated, conductor.Options{Client: client, Tracer: tracer}, logger)
	if err != nil {
		return err
	}
	logger.Info("starting", "conductor", c.Conductor.Name, "version", cli.ProgramVersion().Version)
	stopping := tellSystemd(func(context.Context) error { return nil }, logger)
	defer stopping()
	if err := errors.Join(runner.Run(ctx), runner.close()); err != nil {
		logger.Warn("stopped with errors", "error", err)
		return nil // a requested stop is not a failure: the jobs are claimable when the session has expired
	}
	logger.Info("stopped")
	return nil
}
