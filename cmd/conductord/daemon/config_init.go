package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	accesscmd "github.com/conductord/conductord/cmd/conductord/cli/access"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard/credentials"
)

// Ports of new nodes. Nodes that share a machine leave the ports of `conductord dev` free.
const (
	alonePort  = 7070 // API port of the only node on a machine, where clients look by default
	sharedPort = 7270 // API port of the first of several nodes on a machine
	raftBeyond = 10   // distance of the raft port from the API port
)

// Files in the directory of a node with its own machine.
const (
	nodeConfig, nodeHandlers = "conductord.toml", "handlers"
	nodeCert, nodeKey        = "node.pem", "node.key"
	installedIn, dataBelow   = "/etc/conductord", "/var/lib/conductord"
)

// newNodes is the output of config init.
type newNodes struct {
	dir      string   // of the files
	hosts    []string // of the nodes
	port     int      // API port of the first node
	apart    bool     // each node has its own machine
	configs  []config.Config
	files    []newFile
	handlers []string // directories
}

// newFile is a file that config init writes.
type newFile struct {
	path string
	data []byte
	mode fs.FileMode
}

func initConfigCommand(p *cli.Program) *cobra.Command {
	var flags *configFlags
	var n newNodes
	var nodes int
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write configuration files for the nodes of a new cluster",
		Long: "Write configurations with every key for the nodes of a new cluster into DIR (default this directory), and show\n" +
			"how to start the nodes. With --nodes, all nodes run on this machine: DIR/node1.toml and so on. With --host, each\n" +
			"node has its own machine. Copy DIR/node1 to the first machine, and so on. Each directory contains the node's\n" +
			"configuration, handlers and certificates. DIR also contains the authority: keep DIR/ca.key away from the nodes.\n\n" +
			"Flags for settings apply to all files. --data-dir is the parent of the nodes' data directories (default DIR/data,\n" +
			"or " + dataBelow + " with --host). Existing files are never overwritten.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			if n.apart = len(n.hosts) > 0; !n.apart {
				if !oddMembers(nodes) {
					return cli.UsageError(fmt.Errorf("--nodes must be 1, 3, 5 or 7, not %d; use --host for other sizes up to %d", nodes, config.MaxMembers))
				}
				n.hosts = slices.Repeat([]string{"127.0.0.1"}, nodes)
			}
			if n.dir = filepath.Join(args...); !n.apart {
				if n.dir, err = filepath.Abs(n.dir); err != nil {
					return cli.UsageError(err)
				}
			}
			if err := n.configure(flags); err != nil {
				return cli.UsageError(err)
			}
			if err := n.write(); err != nil {
				return cli.UsageError(err)
			}
			return n.show(p)
		},
	}
	flags = addConfigFlags(cmd)
	cmd.Flags().IntVar(&nodes, "nodes", 1, "number of nodes on this machine: 1, 3, 5 or 7")
	cmd.Flags().StringSliceVar(&n.hosts, "host", nil, "machine of a node, by name or IPv4 address; repeatable or comma-separated")
	cmd.Flags().IntVar(&n.port, "port", 0, fmt.Sprintf("API port of the first node on a machine; the raft port is %d higher (default %d, or %d with several --nodes)", raftBeyond, alonePort, sharedPort))
	cmd.MarkFlagsMutuallyExclusive("nodes", "host")
	return cmd
}

// oddMembers reports whether the size of a new cluster is useful. A cluster with an even number of
// members tolerates no more losses than one with one member less.
func oddMembers(nodes int) bool { return nodes > 0 && nodes <= config.MaxMembers && nodes%2 == 1 }

// configure makes the configurations.
func (n *newNodes) configure(flags *configFlags) error {
	given := flags.given()
	if given["node"]+given["cluster-members"] != "" {
		return errors.New("--node and --cluster-members are not allowed: init names the nodes; edit the files afterwards")
	}
	if n.apart && given["tls-ca"]+given["tls-cert"]+given["tls-key"] != "" {
		return errors.New("--tls-ca, --tls-cert and --tls-key are not allowed with --host: each node has its own certificate; replace the files afterwards")
	}
	given["cluster-id"] = cmp.Or(given["cluster-id"], "main")
	shared := !n.apart && len(n.hosts) > 1
	if n.port == 0 {
		if n.port = alonePort; shared {
			n.port = sharedPort
		}
	}
	for i, host := range n.hosts {
		port := n.port
		if shared {
			port += i
		}
		given["cluster-members"] += fmt.Sprintf("node%d=%s:%d,%s:%d;", i+1, host, port+raftBeyond, host, port)
	}
	data := cmp.Or(given["data-dir"], filepath.Join(n.dir, "data"))
	if n.apart {
		data = cmp.Or(given["data-dir"], dataBelow)
		if given["conductor-handlers"] == "" {
			given["conductor-handlers"] = nodeHandlers
		}
		if given["insecure"] != "true" {
			given["tls-ca"], given["tls-cert"], given["tls-key"] = accesscmd.AuthorityCert, nodeCert, nodeKey
		}
	}
	for i := range n.hosts {
		given["node"] = fmt.Sprintf("node%d", i+1)
		given["data-dir"] = filepath.Join(data, given["node"])
		c, err := config.Load(flags.path, nil, given)
		if err == nil && !n.apart {
			err = makeAbsolute(&c)
		}
		if err != nil {
			return err
		}
		n.configs = append(n.configs, c)
	}
	return nil
}

// makeAbsolute makes the relative paths of flags absolute, so that they work from any
// directory.
func makeAbsolute(c *config.Config) (err error) {
	paths := []*string{&c.DataDir, &c.TLS.CA, &c.TLS.Cert, &c.TLS.Key, &c.Backup.Directory, &c.Conductor.ValueKeys}
	for i := range c.Conductor.Handlers {
		paths = append(paths, &c.Conductor.Handlers[i])
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// path is the configuration file of a node.
func (n *newNodes) path(c *config.Config) string {
	if n.apart {
		return filepath.Join(n.dir, c.Node, nodeConfig)
	}
	return filepath.Join(n.dir, c.Node+".toml")
}

// write writes all files, or none if one of them exists.
func (n *newNodes) write() error {
	for i := range n.configs {
		c := &n.configs[i]
		n.files = append(n.files, newFile{n.path(c), []byte(config.WriteCommented(*c)), 0o600})
		if n.apart && slices.Equal(c.Conductor.Handlers, []string{nodeHandlers}) {
			n.handlers = append(n.handlers, filepath.Join(n.dir, c.Node, nodeHandlers))
		}
	}
	if n.apart && n.configs[0].TLS.Cert != "" {
		if err := n.certify(); err != nil {
			return fmt.Errorf("cannot issue the nodes' certificates: %w", err)
		}
	}
	for _, file := range n.files {
		if _, err := os.Lstat(file.path); err == nil {
			return fmt.Errorf("%s exists, and nothing was written: remove it, or choose another directory", file.path)
		}
	}
	for _, file := range n.files {
		if err := os.MkdirAll(filepath.Dir(file.path), 0o755); err != nil {
			return fmt.Errorf("cannot make the directory: %w", err)
		}
		if err := accesscmd.WriteNew(file.path, file.data, file.mode); err != nil {
			return err
		}
	}
	for _, dir := range n.handlers {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cannot make the directory of handlers: %w", err)
		}
	}
	return nil
}

// certify adds the certificates of a new authority.
func (n *newNodes) certify() error {
	const day = 24 * time.Hour
	authority, err := credentials.NewAuthority("conductord authority", accesscmd.AuthorityDays*day)
	n.files = append(n.files, newFile{filepath.Join(n.dir, accesscmd.AuthorityCert), authority.Cert, 0o644}, newFile{filepath.Join(n.dir, accesscmd.AuthorityKey), authority.Key, 0o600})
	for i := 0; i < len(n.configs) && err == nil; i++ {
		c := &n.configs[i]
		self, _ := c.Self()
		host, _, _ := net.SplitHostPort(self.API)
		var own credentials.Issued
		own, err = credentials.Issue(authority, credentials.Subject{Name: c.Node, Cluster: c.Cluster.ID, Hosts: []string{host}, Valid: accesscmd.IssuedDays * day})
		dir := filepath.Join(n.dir, c.Node)
		n.files = append(n.files, newFile{filepath.Join(dir, accesscmd.AuthorityCert), authority.Cert, 0o644},
			newFile{filepath.Join(dir, nodeCert), own.Cert, 0o644}, newFile{filepath.Join(dir, nodeKey), own.Key, 0o600})
	}
	return err
}

// show prints the created files and the next steps.
func (n *newNodes) show(p *cli.Program) error {
	var paths, servers []string
	for i := range n.configs {
		self, _ := n.configs[i].Self()
		paths, servers = append(paths, n.path(&n.configs[i])), append(servers, self.API)
	}
	if p.JSON() {
		return p.WriteJSON(map[string][]string{"files": paths, "servers": servers})
	}
	if n.apart {
		p.Note("copy each directory to its machine, and start the node there; use --init only at its first start:")
		for i, host := range n.hosts {
			p.Note("  scp -r %s root@%s:%s", filepath.Join(n.dir, n.configs[i].Node), host, installedIn)
		}
		p.Note("  conductord server --config %s --init", filepath.Join(installedIn, nodeConfig))
		return p.WriteLines(paths)
	}
	p.Note("start each node in its own terminal; use --init only at its first start:")
	for _, path := range paths {
		p.Note("  conductord server --config %s --init", path)
	}
	p.Note("then: conductord cluster status --server %s", strings.Join(servers, ","))
	return p.WriteLines(paths)
}
