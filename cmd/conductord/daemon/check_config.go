package daemon

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
)

// CheckedConfig is what check-config says of a good configuration.
type CheckedConfig struct {
	File    string   `json:"file,omitempty"`
	Node    string   `json:"node"`
	Cluster string   `json:"cluster"`
	Members []string `json:"members"`
}

func checkConfigCommand(p *cli.Program) *cobra.Command {
	var flags *configFlags
	var example bool
	cmd := &cobra.Command{
		Use:   "check-config [FILE…]",
		Short: "Check configurations without starting anything",
		Long: "Check configurations: each FILE, or the one that --config, flags and the environment make together.\n" +
			"All faults are reported at once, with file, line and key; then the exit code is 2.",
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case example:
				return p.WriteLines(strings.Split(strings.TrimSuffix(exampleConfig(), "\n"), "\n"))
			case len(args) == 0:
				return checkConfigs(p, flags, flags.path)
			}
			return checkConfigs(p, flags, args...)
		},
	}
	flags = addConfigFlags(cmd)
	cmd.Flags().BoolVar(&example, "example", false, "print an example file with every key and its default, and check nothing")
	return cmd
}

// exampleConfig is the file of the first of three nodes on one machine.
func exampleConfig() string {
	return config.Example("n1", "example",
		config.Member{Name: "n1", Raft: "127.0.0.1:7081", API: "127.0.0.1:7071"},
		config.Member{Name: "n2", Raft: "127.0.0.1:7082", API: "127.0.0.1:7072"},
		config.Member{Name: "n3", Raft: "127.0.0.1:7083", API: "127.0.0.1:7073"},
	)
}

// checkConfigs checks all of the files before it gives its verdict.
func checkConfigs(p *cli.Program, flags *configFlags, paths ...string) error {
	var faults config.Faults
	checked := []CheckedConfig{}
	for _, path := range paths {
		flags.path = path
		loaded, err := flags.load(p.Env)
		var found config.Faults
		if errors.As(err, &found) {
			faults = append(faults, found...)
			continue
		}
		if err != nil {
			return cli.UsageError(err)
		}
		good := CheckedConfig{File: path, Node: loaded.Node, Cluster: loaded.Cluster.ID}
		for _, member := range loaded.Cluster.Members {
			good.Members = append(good.Members, member.Name)
		}
		checked = append(checked, good)
	}
	if err := writeCheckedConfigs(p, checked); err != nil {
		return err
	}
	if len(faults) > 0 {
		return fmt.Errorf("cannot use the configuration:\n%w", faults)
	}
	return nil
}

func writeCheckedConfigs(p *cli.Program, checked []CheckedConfig) error {
	if p.JSON() {
		return p.WriteJSON(map[string][]CheckedConfig{"configs": checked})
	}
	lines := make([]string, 0, len(checked))
	for _, c := range checked {
		lines = append(lines, fmt.Sprintf("%s: node %s of cluster %s (%s): good",
			cli.OrDash(cli.Clean(c.File)), c.Node, c.Cluster, strings.Join(c.Members, ", ")))
	}
	return p.WriteLines(lines)
}
