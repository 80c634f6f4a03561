package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/valuekeys"
)

// Default validity of certificates, in days.
const (
	AuthorityDays = 3650
	IssuedDays    = 365
)

// Names of the authority's files.
const (
	AuthorityCert = "ca.pem"
	AuthorityKey  = "ca.key"
)

// MadeFiles is the output of cert init and cert issue.
type MadeFiles struct {
	Cert    string    `json:"cert"`
	Key     string    `json:"key"`
	Expires time.Time `json:"expires"`
}

// CertCommand makes the noun of certificates.
func CertCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("cert", "Create a private authority and its certificates", certInitCommand(p),
		cli.Noun("issue", "Issue a certificate from the private authority", certNodeCommand(p), certClientCommand(p)))
}

func certInitCommand(p *cli.Program) *cobra.Command {
	var dir string
	var days int
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a private authority: " + AuthorityCert + " for every machine, " + AuthorityKey + " for a safe place",
		Long: "Create a private authority. Give every node and client " + AuthorityCert + ". The key " + AuthorityKey + " signs certificates:\n" +
			"keep it away from the nodes. Existing files are never overwritten.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			made, err := credentials.NewAuthority("conductord authority", validity(days))
			if err != nil {
				return cli.Because(err, "make an authority")
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("cannot make the directory of the authority: %w", err)
			}
			return writeCredentials(p, made, filepath.Join(dir, AuthorityCert), filepath.Join(dir, AuthorityKey), days)
		},
	}
	certFlags(cmd, &dir, &days, AuthorityDays)
	return cmd
}

func certNodeCommand(p *cli.Program) *cobra.Command {
	var dir, cluster string
	var hosts []string
	var days int
	cmd := &cobra.Command{
		Use:   "node NAME --cluster ID --host HOST",
		Short: "Issue a node's certificate: NAME.pem and NAME.key",
		Long: "Issue the certificate of a node. It contains the cluster and node names, which other nodes check, and the node's\n" +
			"hosts: the names and IP addresses in cluster.members.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if cluster == "" || len(hosts) == 0 {
				return cli.UsageError(errors.New("cannot issue a certificate: the cluster's id and the node's hosts are required: --cluster and --host"))
			}
			return issue(p, dir, credentials.Subject{Name: args[0], Cluster: cluster, Hosts: hosts}, days)
		},
	}
	certFlags(cmd, &dir, &days, IssuedDays)
	cmd.Flags().StringVar(&cluster, "cluster", "", "id of the cluster")
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "host name or IP address of the node; repeatable or comma-separated")
	return cmd
}

func certClientCommand(p *cli.Program) *cobra.Command {
	var dir string
	var days int
	cmd := &cobra.Command{
		Use:   "client NAME",
		Short: "Issue a client's certificate: NAME.pem and NAME.key",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return issue(p, dir, credentials.Subject{Name: args[0]}, days)
		},
	}
	certFlags(cmd, &dir, &days, IssuedDays)
	return cmd
}

func certFlags(cmd *cobra.Command, dir *string, days *int, usual int) {
	cmd.Flags().StringVar(dir, "dir", ".", "directory of the files")
	cmd.Flags().IntVar(days, "days", usual, "validity in days")
}

func validity(days int) time.Duration { return time.Duration(days) * 24 * time.Hour }

// issue makes a certificate of the authority in a directory.
func issue(p *cli.Program, dir string, subject credentials.Subject, days int) error {
	if name := filepath.Base(subject.Name); name != subject.Name || name == "." || name == ".." {
		return cli.UsageError(fmt.Errorf("%.64q cannot be the name of a file: choose a name without slashes", subject.Name))
	}
	cert, err := os.ReadFile(filepath.Join(dir, AuthorityCert))
	if err != nil {
		return fmt.Errorf("cannot read the authority: %w; create one with \"conductord cert init --dir %s\"", err, dir)
	}
	key, err := os.ReadFile(filepath.Join(dir, AuthorityKey))
	if err != nil {
		return fmt.Errorf("cannot read the authority's key: %w", err)
	}
	subject.Valid = validity(days)
	made, err := credentials.Issue(credentials.Issued{Cert: cert, Key: key}, subject)
	if err != nil {
		return cli.Because(err, "make a certificate for %s", subject.Name)
	}
	return writeCredentials(p, made, filepath.Join(dir, subject.Name+".pem"), filepath.Join(dir, subject.Name+".key"), days)
}

// WriteNew writes a file that does not exist yet.
func WriteNew(path string, data []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		_, err = file.Write(data)
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// writeCredentials writes new files, and refuses to replace existing ones.
func writeCredentials(p *cli.Program, made credentials.Issued, certPath, keyPath string, days int) error {
	for _, file := range []struct {
		path string
		data []byte
		mode fs.FileMode
	}{{keyPath, made.Key, 0o600}, {certPath, made.Cert, 0o644}} {
		if err := WriteNew(file.path, file.data, file.mode); err != nil {
			return err
		}
	}
	said := MadeFiles{Cert: certPath, Key: keyPath, Expires: time.Now().Add(validity(days)).UTC().Truncate(time.Second)}
	return p.Show(said, "made %s and %s, valid until %s", said.Cert, said.Key, said.Expires.Format(time.DateOnly))
}

// valueKeyList is the document of the commands for value keys. It never contains a key.
type valueKeyList struct {
	Keys []listedValueKey `json:"keys"`
}

type listedValueKey struct {
	ID      string `json:"id"`
	Current bool   `json:"current"` // the key that encrypts
}

// ValueKeyCommand makes the noun of the keys that encrypt values.
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
			Short: "Create a key and add it to a file; create the file if necessary",
			Long: "Create a key and add it to a file. The first key of a new file is the current key, which encrypts. Additional\n" +
				"keys only decrypt. Copy the file to every conductor and reader before you make a key current with value-key use.",
			Args: cobra.ExactArgs(2),
		}),
		verb(func(args []string) (*valuekeys.Keys, error) {
			keys, err := valuekeys.Use(args[0], args[1])
			return keys, cli.Because(err, "use value key %s", args[1])
		}, &cobra.Command{Use: "use FILE ID", Short: "Select the current key of a file, which encrypts values", Args: cobra.ExactArgs(2)}),
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
