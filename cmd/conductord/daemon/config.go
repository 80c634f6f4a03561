package daemon

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
)

func configCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("config", "Manage node configurations and cluster profiles",
		initConfigCommand(p), showConfigCommand(p), checkConfigCommand(p), p.ProfileCommand())
}

func showConfigCommand(p *cli.Program) *cobra.Command {
	var flags *configFlags
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every setting: value, and origin of the value",
		Long: "Show the effective settings of `conductord server` with the same flags and environment. The origin is FILE:LINE,\n" +
			"the variable, the flag, or \"default\". Passwords in URLs are hidden; other secrets are in files.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			values, err := config.Effective(flags.path, p.Env, flags.given())
			if err != nil {
				return cli.UsageError(err)
			}
			if p.JSON() {
				return p.WriteJSON(map[string][]config.Value{"settings": values})
			}
			var rows [][]string
			for _, v := range values {
				rows = append(rows, []string{v.Key, cli.OrDash(v.Value), v.Origin})
			}
			return p.WriteTable([]string{"key", "value", "origin"}, rows)
		},
	}
	flags = addHiddenConfigFlags(cmd)
	return cmd
}

// CheckedConfig is the output of config check for a valid configuration.
type CheckedConfig struct {
	File    string   `json:"file,omitempty"`
	Node    string   `json:"node"`
	Cluster string   `json:"cluster"`
	Members []string `json:"members"`
}

func checkConfigCommand(p *cli.Program) *cobra.Command {
	var flags *configFlags
	cmd := &cobra.Command{
		Use:   "check [FILE…]",
		Short: "Check configurations without starting a node",
		Long: "Check configurations: each FILE, or the combination of --config, flags and environment. The checks include\n" +
			"everything that prevents a start on this machine, such as another node's certificate or handlers that other\n" +
			"users can change. The command reports all errors at once, with file, line and key, and exits with 2.",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{flags.path}
			}
			return checkConfigs(p, flags, args...)
		},
	}
	flags = addHiddenConfigFlags(cmd)
	return cmd
}

// checkConfigs checks all files before it reports the result.
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
		if found := unusable(path, loaded); len(found) > 0 {
			faults = append(faults, found...)
			continue
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

// unusable finds faults that a valid configuration can still have: files that a node would refuse at
// its start, and a data directory whose path is too long for the socket.
func unusable(path string, c config.Config) (faults config.Faults) {
	e := examination{config: c}
	e.certificates()
	e.handlers()
	e.valueKeys()
	e.socket()
	for _, f := range e.findings {
		if f.State == "bad" {
			faults = append(faults, config.Fault{Place: path, Message: f.Check + ": " + f.Text + ": " + f.Do})
		}
	}
	return faults
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
