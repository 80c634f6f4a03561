package daemon

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
)

// configFlags are the flags of a command with a configuration: --config, and one for every key.
type configFlags struct {
	path     string
	flags    *pflag.FlagSet
	settings []config.Setting
}

// settingFlag is the flag of a key; package config reads its text.
type settingFlag struct{ text, kind string }

func (f *settingFlag) String() string { return f.text }

func (f *settingFlag) Type() string { return f.kind }

func (f *settingFlag) Set(text string) error {
	f.text = text
	return nil
}

// addConfigFlags adds the flags of a configuration to a command. Only server and config init list
// them all in their help.
func addConfigFlags(cmd *cobra.Command) *configFlags { return addSettingFlags(cmd, config.Settings()) }

// addHiddenConfigFlags is addConfigFlags for the other commands: their help refers to the list.
func addHiddenConfigFlags(cmd *cobra.Command) *configFlags {
	c := addConfigFlags(cmd)
	for _, setting := range c.settings {
		c.flags.Lookup(setting.Flag).Hidden = true
	}
	c.flags.Lookup("config").Usage += "; this command also accepts the setting flags of conductord server"
	return c
}

func addSettingFlags(cmd *cobra.Command, settings []config.Setting) *configFlags {
	c := &configFlags{flags: cmd.Flags(), settings: settings}
	c.flags.StringVar(&c.path, "config", "", "the configuration file")
	for _, setting := range settings {
		flag := c.flags.VarPF(&settingFlag{setting.Default, setting.Type}, setting.Flag, "", setting.Doc)
		if setting.Type == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	return c
}

// given are the values of the given flags, by key.
func (c *configFlags) given() map[string]string {
	given := make(map[string]string)
	for _, setting := range c.settings {
		if flag := c.flags.Lookup(setting.Flag); flag.Changed {
			given[setting.Flag] = flag.Value.String()
		}
	}
	return given
}

// load loads the configuration from file, environment and flags.
func (c *configFlags) load(env []string) (config.Config, error) {
	return config.Load(c.path, env, c.given())
}

// configured completes a command whose action needs one configuration.
func configured(p *cli.Program, cmd *cobra.Command, do func(ctx context.Context, loaded config.Config, args []string) error) *cobra.Command {
	add := addHiddenConfigFlags
	if cmd.Name() == "server" {
		add = addConfigFlags
	}
	flags := add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		loaded, err := flags.load(p.Env)
		if err != nil && flags.path == "" {
			err = fmt.Errorf("%q requires the configuration of a node: pass the file with --config FILE; without the file:\n%w", cmd.CommandPath(), err)
		}
		if err != nil {
			return cli.UsageError(err)
		}
		return do(cmd.Context(), loaded, args)
	}
	return cmd
}
