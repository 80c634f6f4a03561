package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
)

func initConfigCommand(p *cli.Program) *cobra.Command {
	var flags *configFlags
	var nodes int
	var hosts []string
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write configuration files for the nodes of a new cluster",
		Long: "Write a configuration file into DIR (default this directory) for each node of a new cluster, with every key, and say\n" +
			"how to start them. All nodes are on this machine, or each on a machine of its own: --host. Flags of keys go into all of\n" +
			"the files; --data-dir is the directory above those of the nodes (default DIR/data). No file is overwritten.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(hosts) == 0 {
				if nodes != 1 && nodes != 3 {
					return cli.UsageError(fmt.Errorf("--nodes must be 1 or 3, not %d; --host makes other clusters", nodes))
				}
				hosts = slices.Repeat([]string{"127.0.0.1"}, nodes)
			}
			dir, err := filepath.Abs(strings.Join(args, ""))
			if err != nil {
				return cli.UsageError(err)
			}
			configs, err := newConfigs(flags, dir, hosts, nodes == 3)
			if err != nil {
				return cli.UsageError(err)
			}
			return writeConfigs(p, dir, configs)
		},
	}
	flags = addConfigFlags(cmd)
	cmd.Flags().IntVar(&nodes, "nodes", 1, "how many nodes on this machine: 1 or 3")
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "the machine of a node, by name or IPv4 address; repeat it or separate several by commas")
	cmd.MarkFlagsMutuallyExclusive("nodes", "host")
	return cmd
}

// newConfigs makes the configurations of new nodes, which can be used from any directory. A
// node alone on its machine has the ports 7070 and 7080; nodes that share one count up from there.
func newConfigs(flags *configFlags, dir string, hosts []string, shared bool) (configs []config.Config, err error) {
	given := flags.given()
	if given["node"]+given["cluster-members"] != "" {
		return nil, errors.New("--node and --cluster-members cannot be given: init names the nodes; change the files afterwards")
	}
	given["cluster-id"] = cmp.Or(given["cluster-id"], "main")
	for i, host := range hosts {
		port := 0
		if shared {
			port = i + 1
		}
		given["cluster-members"] += fmt.Sprintf("node%d=%s:%d,%s:%d;", i+1, host, 7080+port, host, 7070+port)
	}
	data := cmp.Or(given["data-dir"], filepath.Join(dir, "data"))
	for i := range hosts {
		given["node"] = fmt.Sprintf("node%d", i+1)
		given["data-dir"] = filepath.Join(data, given["node"])
		c, err := config.Load(flags.path, nil, given)
		if err != nil {
			return nil, err
		}
		paths := []*string{&c.DataDir, &c.TLS.CA, &c.TLS.Cert, &c.TLS.Key, &c.Backup.Directory, &c.Conductor.ValueKeys}
		for i := range c.Conductor.Handlers {
			paths = append(paths, &c.Conductor.Handlers[i])
		}
		for _, path := range paths {
			if *path == "" {
				continue
			}
			if *path, err = filepath.Abs(*path); err != nil {
				return nil, err
			}
		}
		configs = append(configs, c)
	}
	return configs, nil
}

func writeConfigs(p *cli.Program, dir string, configs []config.Config) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the directory: %w", err)
	}
	var paths, servers []string
	for _, c := range configs {
		self, _ := c.Self()
		paths, servers = append(paths, filepath.Join(dir, c.Node+".toml")), append(servers, self.API)
		if err := cli.WriteNew(paths[len(paths)-1], []byte(config.WriteCommented(c)), 0o600); err != nil {
			return cli.UsageError(err)
		}
	}
	if p.JSON() {
		return p.WriteJSON(map[string][]string{"files": paths, "servers": servers})
	}
	p.Note("start each node in a terminal of its own; --init belongs to its first start only:")
	for _, path := range paths {
		p.Note("  conductord server --config %s --init", path)
	}
	p.Note("then: conductord cluster status --server %s", strings.Join(servers, ","))
	return p.WriteLines(paths)
}
