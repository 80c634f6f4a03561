package daemon

import (
	"fmt"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard/node"
)

// MadeNode is what node init says.
type MadeNode struct {
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	DataDir string `json:"data_dir"`
}

func initNodeCommand(p *cli.Program) *cobra.Command {
	var flags *configFlags
	cmd := &cobra.Command{
		Use:   "init --config FILE",
		Short: "Make the data directory of a new node",
		Long: "Make the data directory of a node that has never run, in a new cluster. Run it once, as the node's user. Services\n" +
			"then start the node without --init, and a lost disk stops them. Nodes that join a cluster use `cluster join` instead.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			loaded, err := flags.load(p.Env)
			if err != nil {
				return cli.UsageError(err)
			}
			return initNode(p, loaded)
		},
	}
	flags = addConfigFlags(cmd)
	return cmd
}

func initNode(p *cli.Program, c config.Config) error {
	tightenUmask()
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return fmt.Errorf("cannot use the data directory %q: %w", c.DataDir, err)
	}
	logger := hclog.New(&hclog.LoggerOptions{Name: "conductord", Level: hclog.Warn, Output: cli.CleanLog(p.Err, false)})
	options, err := nodeOptions(c, true, logger, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	if err := node.MakeDataDir(options); err != nil {
		return fmt.Errorf("cannot make node %q: %w", c.Node, err)
	}
	made := MadeNode{Node: c.Node, Cluster: c.Cluster.ID, DataDir: c.DataDir}
	if p.JSON() {
		return p.WriteJSON(made)
	}
	return p.WriteLines([]string{fmt.Sprintf("made node %s of cluster %s in %s: start it now, without --init", made.Node, made.Cluster, made.DataDir)})
}
