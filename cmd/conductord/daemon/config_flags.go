package daemon

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/config"
)

// configFlags are the flags of a command that takes a configuration: --config,
// and one for every key.
type configFlags struct {
	path  string
	flags *pflag.FlagSet
}

// addConfigFlags gives a command the flags of a configuration.
func addConfigFlags(cmd *cobra.Command) *configFlags {
	c := &configFlags{flags: cmd.Flags()}
	c.flags.StringVar(&c.path, "config", "", "the configuration file")
	for _, setting := range config.Settings() {
		c.flags.String(setting.Flag, "", describeSetting(setting))
		if setting.Bool {
			c.flags.Lookup(setting.Flag).NoOptDefVal = "true"
		}
	}
	return c
}

func describeSetting(setting config.Setting) string {
	text := setting.Doc
	if setting.Default != "" {
		text += " (" + setting.Default + ")"
	}
	return text
}

// load brings file, environment and the flags that were given together.
func (c *configFlags) load(env []string) (config.Config, error) {
	given := make(map[string]string)
	for _, setting := range config.Settings() {
		if flag := c.flags.Lookup(setting.Flag); flag.Changed {
			given[setting.Flag] = flag.Value.String()
		}
	}
	return config.Load(c.path, env, given)
}
