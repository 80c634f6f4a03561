package access

import (
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/valuekeys"
)

// valueKeyList is the document of the commands for value keys. It never holds a key.
type valueKeyList struct {
	Keys []listedValueKey `json:"keys"`
}

type listedValueKey struct {
	ID      string `json:"id"`
	Current bool   `json:"current"` // it encrypts
}

func ValueKeyCommand(p *cli.Program) *cobra.Command {
	verb := func(open func(args []string) (*valuekeys.Keys, error), cmd *cobra.Command) *cobra.Command {
		cmd.RunE = func(_ *cobra.Command, args []string) error {
			keys, err := open(args)
			if err != nil {
				return err
			}
			return writeValueKeys(p, keys)
		}
		return cmd
	}
	return cli.Noun("value-key", "Manage the keys that encrypt values of jobs and flows",
		verb(func(args []string) (*valuekeys.Keys, error) {
			keys, err := valuekeys.Add(args[0], args[1])
			return keys, cli.Because(err, "add a value key")
		}, &cobra.Command{
			Use:   "add FILE ID",
			Short: "Make a key and add it to a file, which is made if it does not exist",
			Long: "Create a key and add it to a file. The first key of a new file is the current key, which encrypts. Additional\n" +
				"keys only decrypt. Copy the file to every conductor and reader before you make a key current with value-key use.",
			Args: cobra.ExactArgs(2),
		}),
		verb(func(args []string) (*valuekeys.Keys, error) {
			keys, err := valuekeys.Use(args[0], args[1])
			return keys, cli.Because(err, "use value key %s", args[1])
		}, &cobra.Command{Use: "use FILE ID", Short: "Make a key of a file the current key, which encrypts", Args: cobra.ExactArgs(2)}),
		verb(func(args []string) (*valuekeys.Keys, error) { return valuekeys.Open(args[0]) },
			&cobra.Command{Use: "list FILE", Short: "List the ids of the keys in a file, and mark the current key", Args: cobra.ExactArgs(1)}))
}

func writeValueKeys(p *cli.Program, keys *valuekeys.Keys) error {
	list := valueKeyList{}
	rows := make([][]string, 0, len(keys.IDs()))
	for _, id := range keys.IDs() {
		key, use := listedValueKey{ID: id, Current: id == keys.Current()}, "decrypts"
		if key.Current {
			use = "encrypts and decrypts"
		}
		list.Keys, rows = append(list.Keys, key), append(rows, []string{id, use})
	}
	if p.JSON() {
		return p.WriteJSON(list)
	}
	return p.WriteTable([]string{"key", "use"}, rows)
}
