package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/examples"
	"github.com/conductord/conductord/flow/handler/scratch"
)

const (
	devHeartbeat = 50 * time.Millisecond // one node has nobody to wait for
	devReady     = 30 * time.Second
	devNode      = "dev"
	devPrefix    = "conductord-dev-" // of temporary directories
	// devRaft stays from one start to the next, as raft's configuration does. The
	// node listens elsewhere, since nobody dials a cluster of one.
	devRaft = "localhost:7101"
)

func devCommand(p *cli.Program) *cobra.Command {
	var dataDir, api, level string
	var handlers []string
	var insecure bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster of one node to try things out",
		Long: "Run a cluster of one node on this machine, with its data in a given directory, or in a temporary one that is\n" +
			"removed at the end, or by the next dev if this one is killed. The handlers of the examples are installed, so that\n" +
			"`conductord flow run examples/travel.toml --wait` works at once. With --value-keys, its conductor encrypts values.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDevFlags(api, level, insecure); err != nil {
				return cli.UsageError(err)
			}
			return dev(cmd.Context(), p, dataDir, api, level, handlers)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "keep the data here (default a temporary directory)")
	cmd.Flags().StringVar(&api, "api-listen", cli.DefaultServer, "where to listen for clients")
	cmd.Flags().BoolVar(&insecure, "insecure", false, "listen where others can reach it, in plain text")
	cmd.Flags().StringSliceVar(&handlers, "handlers", nil, "more directories with handlers")
	cmd.Flags().StringVar(&level, "log-level", "warn", "trace, debug, info, warn or error")
	return cmd
}

// checkDevFlags refuses what would only show later, or not at all.
func checkDevFlags(api, level string, insecure bool) error {
	host, _, err := net.SplitHostPort(api)
	if err != nil {
		return fmt.Errorf("--api-listen must be HOST:PORT, not %.64q", api)
	}
	if !config.Loopback(host) && !insecure {
		return fmt.Errorf("cannot listen on %.64q: others can reach it, and dev speaks plain text: add --insecure if they may do everything", api)
	}
	if hclog.LevelFromString(level) == hclog.NoLevel {
		return fmt.Errorf("--log-level must be trace, debug, info, warn or error, not %.64q", level)
	}
	return nil
}

func dev(ctx context.Context, p *cli.Program, dataDir, api, level string, handlers []string) (err error) {
	if dataDir == "" {
		_ = scratch.Sweep("", devPrefix) // what cannot be removed is in nobody's way
		temporary, err := scratch.Make("", devPrefix)
		if err != nil {
			return fmt.Errorf("cannot make a temporary directory: %w", err)
		}
		defer func() { err = errors.Join(err, temporary.Remove()) }()
		dataDir = temporary.Path
	} else {
		_ = os.MkdirAll(dataDir, 0o755) // InstallExamples would say why not
		if given, err := scratch.Hold(dataDir); err == nil {
			defer given.Release() // it may have the name of a temporary one
		}
	}
	installed := filepath.Join(dataDir, "handlers")
	if err := InstallExamples(installed); err != nil {
		return err
	}
	free, err := local.FreeAddresses(1)
	if err != nil {
		return err
	}
	c := devConfig(filepath.Join(dataDir, devNode), free[0], api, append(handlers, installed))
	c.Log.Level, c.Conductor.ValueKeys = level, p.ValueKeys()
	began := time.Now()
	// Every start may be the first: here no second cluster can come of a
	// directory that is missing, and a first start may have been cut off.
	return serve(ctx, p, c, true, func(d *daemon) error {
		waiting, cancel := context.WithTimeout(ctx, devReady)
		defer cancel()
		if err := d.node.WaitReady(waiting); err != nil {
			return err
		}
		p.Note("ready after %s at %s, data in %s", time.Since(began).Round(time.Millisecond), d.node.APIAddress(), dataDir)
		p.Note("try: conductord flow run examples/travel.toml --wait%s", serverFlag(p, d.node.APIAddress().String()))
		return nil
	})
}

// serverFlag is what a command needs to find a server that is not at the usual place, or not of the profile in force.
func serverFlag(p *cli.Program, address string) string {
	if profile, err := p.UseProfile(); profile == "" && err == nil && address == cli.DefaultServer {
		return ""
	}
	return " --server " + address
}

// devConfig is a cluster of one.
func devConfig(dataDir, raftListen, api string, handlers []string) config.Config {
	c := config.Default()
	c.Node, c.DataDir, c.RaftListen = devNode, dataDir, raftListen
	c.Cluster.ID, c.Cluster.Members = "dev", []config.Member{{Name: devNode, Raft: devRaft, API: api}}
	c.Raft.Heartbeat, c.Raft.Election, c.Raft.LeaderLease = devHeartbeat, devHeartbeat, devHeartbeat
	c.Conductor.Handlers = handlers
	return c
}

// InstallExamples writes the handlers of the examples to a directory. Embedded files
// have no modes, so it sets them.
func InstallExamples(directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("cannot make the directory for handlers: %w", err)
	}
	entries, err := fs.ReadDir(examples.Files, "handlers")
	if err != nil {
		return fmt.Errorf("cannot read the examples: %w", err)
	}
	for _, entry := range entries {
		data, err := fs.ReadFile(examples.Files, "handlers/"+entry.Name())
		if err != nil {
			return fmt.Errorf("cannot read the examples: %w", err)
		}
		path := filepath.Join(directory, entry.Name())
		if err := os.WriteFile(path, data, 0o755); err != nil {
			return fmt.Errorf("cannot install the handler %s: %w", entry.Name(), err)
		}
		if err := os.Chmod(path, 0o755); err != nil { // also over a tight umask
			return fmt.Errorf("cannot install the handler %s: %w", entry.Name(), err)
		}
	}
	return nil
}
