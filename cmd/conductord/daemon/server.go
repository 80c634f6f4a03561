package daemon

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
)

func serverCommand(p *cli.Program) *cobra.Command {
	var first bool
	cmd := configured(p, &cobra.Command{
		Use:   "server --config FILE",
		Short: "Run one node of a cluster",
		Long: "Run one node of a cluster until SIGTERM, SIGINT or SIGHUP, or a limit of its conductor. Then hand over its jobs\n" +
			"and the leadership, and exit with 0.\n\n" +
			"The configurations of all nodes list the same members. Pass --init at the first start of each node; without it,\n" +
			"an empty data directory is an error, because the disk can be missing. Start the nodes in any order. The first\n" +
			"election waits until all members have answered with the same list.",
		Args: cobra.NoArgs,
	}, func(ctx context.Context, loaded config.Config, _ []string) error {
		return serve(ctx, p, loaded, first, nil)
	})
	cmd.Flags().BoolVar(&first, "init", false, "first start of this node: create its data directory")
	return cmd
}

// serve runs a daemon until ctx ends. It calls started when the daemon serves.
func serve(ctx context.Context, p *cli.Program, c config.Config, first bool, started func(*daemon) error) error {
	outliveReaders()
	logger := daemonLogger(c, p.Err)
	ballast := limitMemory(p, int64(c.Memory))
	defer runtime.KeepAlive(ballast)
	logger.Info("starting", "node", c.Node, "cluster", c.Cluster.ID, "version", cli.ProgramVersion().Version)
	if c.Insecure && c.TLS == (config.TLS{}) {
		logger.Warn("insecure node", "raft", c.RaftAddress(), "api", c.APIAddress(), "risk", "anyone who can connect can read, cancel and run everything")
	}
	running, err := startDaemon(ctx, c, first, logger)
	if err != nil {
		return fmt.Errorf("cannot run node %q: %w", c.Node, err)
	}
	logger.Info("serving", "api", running.node.APIAddress(), "raft", c.RaftAddress())
	if started != nil {
		if err := started(running); err != nil {
			_ = running.stop()
			return err
		}
	}
	stopping := tellSystemd(running.node.Alive, logger)
	select {
	case <-ctx.Done():
	case <-running.spent:
		logger.Info("conductor reached its limit", "max_dispatches", c.Conductor.MaxDispatches, "max_duration", c.Conductor.MaxDuration)
	}
	stopping()
	logger.Info("stopping")
	if err := running.stop(); err != nil {
		logger.Warn("stopped with errors", "error", err)
		return nil // everything durable is stored: a requested stop is not a failure
	}
	logger.Info("stopped")
	return nil
}
