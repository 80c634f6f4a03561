package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
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
	devHeartbeat = 50 * time.Millisecond // a single node waits for no other
	devReady     = 30 * time.Second
	devNode      = "dev"
	devPrefix    = "conductord-dev-" // of temporary directories
	// devRaft is the raft address in raft's configuration, the same at each start. The node listens
	// on another address, because no other member dials a cluster of one.
	devRaft = "localhost:7101"
	// examplesDir is the directory of the examples in dev's data directory.
	examplesDir = "examples"
)

// devOptions are the flags of dev.
type devOptions struct {
	dataDir, api, level string
	handlers            []string
	nodes               int
	insecure            bool
}

func devCommand(p *cli.Program) *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster on this machine to try things out",
		Long: "Run a one-node cluster on this machine, with its data in a temporary directory or in --data-dir. A temporary\n" +
			"directory is removed at the end, or by the next run of dev. The directory includes example flows and handlers. To run\n" +
			"an example, use the command that dev prints. With --value-keys, the conductor encrypts values.\n\n" +
			"With --nodes 3, each node is a separate process. Kill a node with the command that dev prints: its jobs continue\n" +
			"on other nodes, and dev restarts the node after " + devRest.String() + ". The nodes listen for clients on the port of\n" +
			"--api-listen and the next ports, and for other nodes " + strconv.Itoa(devRaftOffset) + " ports higher. Their logs are in the data directory. All nodes stop with dev.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return cli.UsageError(err)
			}
			return dev(cmd.Context(), p, o)
		},
	}
	cmd.Flags().StringVar(&o.dataDir, "data-dir", "", "data directory (default a temporary directory)")
	cmd.Flags().StringVar(&o.api, "api-listen", cli.DefaultServer, "address to listen on for clients")
	cmd.Flags().BoolVar(&o.insecure, "insecure", false, "allow plain text on addresses other than loopback")
	cmd.Flags().StringSliceVar(&o.handlers, "handlers", nil, "additional directories with handlers")
	cmd.Flags().StringVar(&o.level, "log-level", "warn", "log level: trace, debug, info, warn or error")
	cmd.Flags().IntVar(&o.nodes, "nodes", 1, "number of nodes: 1, 3, 5 or 7")
	cmd.MarkFlagsMutuallyExclusive("nodes", "insecure")
	return cmd
}

// check refuses mistakes that would otherwise show late, or never.
func (o devOptions) check() error {
	host, _, err := net.SplitHostPort(o.api)
	if err != nil {
		return fmt.Errorf("--api-listen must be HOST:PORT, not %.64q", o.api)
	}
	if !config.Loopback(host) && !o.insecure {
		return fmt.Errorf("cannot listen on %.64q: other machines can connect, and dev uses plain text: add --insecure to let every caller do everything", o.api)
	}
	if hclog.LevelFromString(o.level) == hclog.NoLevel {
		return fmt.Errorf("--log-level must be trace, debug, info, warn or error, not %.64q", o.level)
	}
	if !oddMembers(o.nodes) {
		return fmt.Errorf("--nodes must be 1, 3, 5 or 7, not %d", o.nodes)
	}
	if o.nodes > 1 {
		_, err = o.addresses(o.nodes)
	}
	return err
}

func dev(ctx context.Context, p *cli.Program, o devOptions) (err error) {
	g := greeting{Version: cli.ProgramVersion().Version, began: time.Now()}
	if o.dataDir == "" {
		_ = scratch.Sweep("", devPrefix) // a remaining file is harmless
		temporary, fault := scratch.Make("", devPrefix)
		if fault != nil {
			return fmt.Errorf("cannot make a temporary directory: %w", fault)
		}
		defer func() { err = errors.Join(err, temporary.Remove()) }()
		o.dataDir, g.note = temporary.Path, " (removed at the end)"
	} else {
		_ = os.MkdirAll(o.dataDir, 0o755) // InstallExamples would report the error
		if given, err := scratch.Hold(o.dataDir); err == nil {
			defer given.Release() // its name can look like a temporary directory's
		}
	}
	g.DataDir = o.dataDir
	if err := o.checkData(); err != nil {
		return err
	}
	installed, err := InstallExamples(o.dataDir)
	if err != nil {
		return err
	}
	o.handlers = append(o.handlers, installed)
	if o.nodes > 1 {
		return devCluster(ctx, p, o, g)
	}
	free, err := local.FreeAddresses(1)
	if err != nil {
		return err
	}
	c := devConfig(filepath.Join(o.dataDir, devNode), free[0], o.api, o.handlers)
	c.Log.Level, c.Conductor.ValueKeys = o.level, p.ValueKeys()
	// Every start may be the first start: a missing directory cannot split a cluster of one,
	// and an earlier first start may have been cut off.
	return serve(ctx, p, c, true, func(d *daemon) error {
		waiting, cancel := context.WithTimeout(ctx, devReady)
		defer cancel()
		if err := d.node.WaitReady(waiting); err != nil {
			return err
		}
		g.Nodes = []devInfo{{devNode, os.Getpid(), localAddress(d.node.APIAddress().String())}}
		return g.show(p)
	})
}

// serverFlag is the flag with which commands find the server; empty for the default address, unless
// a profile is in use.
func serverFlag(p *cli.Program, address string) string {
	if profile, err := p.UseProfile(); profile == "" && err == nil && address == cli.DefaultServer {
		return ""
	}
	return " --server " + address
}

// devConfig is the configuration of a cluster of one.
func devConfig(dataDir, raftListen, api string, handlers []string) config.Config {
	c := config.Default()
	c.Node, c.DataDir, c.RaftListen = devNode, dataDir, raftListen
	c.Cluster.ID, c.Cluster.Members = "dev", []config.Member{{Name: devNode, Raft: devRaft, API: api}}
	c.Raft.Heartbeat, c.Raft.Election, c.Raft.LeaderLease = devHeartbeat, devHeartbeat, devHeartbeat
	c.Conductor.Handlers = handlers
	return c
}

// InstallExamples writes missing examples below a directory, and returns the directory of
// their handlers. It sets the file modes, because embedded files have none.
func InstallExamples(below string) (handlers string, err error) {
	below = filepath.Join(below, examplesDir)
	handlers = filepath.Join(below, "handlers")
	if err := os.MkdirAll(handlers, 0o755); err != nil {
		return "", fmt.Errorf("cannot make the directory for handlers: %w", err)
	}
	err = fs.WalkDir(examples.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(examples.Files, name)
		if err != nil {
			return err
		}
		path := filepath.Join(below, name)
		if _, err := os.Lstat(path); err == nil {
			return nil // the user may have changed it
		}
		if err := os.WriteFile(path, data, 0o755); err != nil || filepath.Ext(name) != "" {
			return err
		}
		return os.Chmod(path, 0o755) // even with a strict umask
	})
	if err != nil {
		return "", fmt.Errorf("cannot install the examples: %w", err)
	}
	return handlers, nil
}
