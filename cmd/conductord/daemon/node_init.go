package daemon

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard/node"
)

// MadeNode is the output of node init.
type MadeNode struct {
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	DataDir string `json:"data_dir"`
}

func initNodeCommand(p *cli.Program) *cobra.Command {
	return configured(p, &cobra.Command{
		Use:   "init --config FILE",
		Short: "Create the data directory of a new node",
		Long: "Create the data directory of a new node in a new cluster. Run it once, as the node's user. The service then\n" +
			"starts the node without --init, so that a missing disk is an error. To join an existing cluster, use `cluster\n" +
			"join`.",
		Args: cobra.NoArgs,
	}, func(_ context.Context, loaded config.Config, _ []string) error {
		return initNode(p, loaded)
	})
}

func initNode(p *cli.Program, c config.Config) error {
	options, err := stoppedOptions(p, c, true)
	if err != nil {
		return err
	}
	if err := node.MakeDataDir(options); err != nil {
		return fmt.Errorf("cannot initialize node %q: %w", c.Node, err)
	}
	made := MadeNode{Node: c.Node, Cluster: c.Cluster.ID, DataDir: options.DataDir}
	return p.Show(made, "initialized node %s of cluster %s in %s: start the node, without --init", made.Node, made.Cluster, made.DataDir)
}
