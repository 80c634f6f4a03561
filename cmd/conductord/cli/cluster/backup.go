package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node/backup"
)

// BackupDocument is the output of the backup commands.
type BackupDocument struct {
	File     string          `json:"file"`
	Bytes    int64           `json:"bytes"`
	SHA256   string          `json:"sha256"` // of the whole file
	Manifest backup.Manifest `json:"manifest"`
}

// BackupCreateCommand makes the command that reads a backup from a cluster.
func BackupCreateCommand(p *cli.Program) *cobra.Command {
	var stale, overwrite bool
	cmd := &cobra.Command{
		Use:   "create FILE|-",
		Short: "Create a backup of a running cluster",
		Long: "Create a backup: the state of the cluster at one log index, with all writes that were acknowledged before. The cluster\n" +
			"stays available. FILE appears when it is complete and on disk; - is stdout. Any node can make the backup.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.Waiting(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				return createBackup(ctx, p, cluster, args[0], stale, overwrite)
			})
		},
	}
	cmd.Flags().BoolVar(&stale, "stale", false, "use the state of one node, even without a leader; it can be outdated")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "overwrite FILE if it exists")
	return cmd
}

// BackupInspectCommand makes the command that reads a backup file.
func BackupInspectCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect FILE|-",
		Short: "Show the cluster, index and time of a backup, and check its checksums",
		Args:  cobra.ExactArgs(1),
		RunE:  func(_ *cobra.Command, args []string) error { return InspectBackup(p, args[0]) },
	}
}

// BackupListCommand makes the command that lists the backups that the nodes have made.
func BackupListCommand(p *cli.Program) *cobra.Command {
	cmd := nodesCommand(p, "list", "List the scheduled backups of all nodes: time, index, size, verified", writeBackups)
	cmd.Long = "List the backups in each node's backup.directory, newest first. VERIFIED is yes if the checksums match. A node\n" +
		"checks a file when it is written and when the node starts. `conductord cluster check` reports an overdue\n" +
		"backup."
	return cmd
}

// nodeBackup is a row of backup list.
type nodeBackup struct {
	Node   string   `json:"node"`
	Backup cli.Part `json:"backup"`
}

func backupMessage(b raftboard.ScheduledBackup) *v1.ScheduledBackup {
	return &v1.ScheduledBackup{File: b.File, MadeAt: command.TimeToProto(b.MadeAt), Bytes: b.Bytes, Index: b.Index, Verified: b.Verified, Fault: b.Fault}
}

func writeBackups(p *cli.Program, nodes []raftboard.NodeStatus) error {
	rows, shown, scheduled := [][]string(nil), []nodeBackup{}, false
	for i := range nodes {
		s := &nodes[i].Status
		scheduled = scheduled || s.BackupInterval > 0
		for _, b := range s.Backups {
			verified := "not yet"
			switch {
			case b.Fault != "":
				verified = "no: " + b.Fault
			case b.Verified:
				verified = "yes"
			}
			rows = append(rows, []string{s.Node, p.TimeText(b.MadeAt), cli.NumberText(b.Index), cli.NumberText(b.Bytes), verified, b.File})
			shown = append(shown, nodeBackup{s.Node, cli.Part{Message: backupMessage(b)}})
		}
	}
	for _, line := range silent(nodes) {
		p.Note("%s", line)
	}
	if !scheduled {
		p.Note("no node that answers has scheduled backups: set backup.directory on one node")
	}
	if p.JSON() {
		return p.WriteJSON(map[string][]nodeBackup{"backups": shown})
	}
	return p.WriteTable([]string{"node", "time", "index", "bytes", "verified", "file"}, rows)
}

// InspectBackup reads a backup and shows it.
func InspectBackup(p *cli.Program, path string) error {
	source, err := OpenBackup(p, path)
	if err != nil {
		return err
	}
	defer source.Close()
	document := BackupDocument{File: path}
	if err := document.read(source); err != nil {
		return fmt.Errorf("cannot use the backup %s: %w", path, err)
	}
	return writeBackup(p, document)
}

// OpenBackup opens a backup file, or stdin for "-".
func OpenBackup(p *cli.Program, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(p.In), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, cli.UsageError(err)
	}
	return file, nil
}

// writeBackup shows a complete backup.
func writeBackup(p *cli.Program, d BackupDocument) error {
	if p.JSON() {
		return p.WriteJSON(d)
	}
	m := &d.Manifest
	return p.WriteFields([]cli.Field{
		{"file", d.File}, {"bytes", fmt.Sprint(d.Bytes)}, {"sha256", d.SHA256}, {"cluster", m.Cluster}, {"generation", cli.NumberText(m.Generation)},
		{"index", cli.NumberText(m.Index)}, {"time", p.TimeText(m.Time)}, {"node", m.Node}, {"version", m.Version}, {"digest", m.Digest},
	})
}

// read reads a backup to its end, and records its content.
func (d *BackupDocument) read(from io.Reader) (err error) {
	counted := &countedReader{from: from, sum: sha256.New()}
	d.Manifest, err = backup.Read(counted, func(backup.Manifest, io.Reader) error { return nil })
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, counted); err != nil { // the zeros after an archive
		return err
	}
	d.Bytes, d.SHA256 = counted.bytes, hex.EncodeToString(counted.sum.Sum(nil))
	return nil
}

type countedReader struct {
	from  io.Reader
	sum   hash.Hash
	bytes int64
}

func (c *countedReader) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	c.sum.Write(into[:n])
	c.bytes += int64(n)
	return n, err
}

// backups reads a backup; a stale one contains the state of one node. The caller closes the backup.
type backups interface {
	Backup(ctx context.Context, stale bool) (io.ReadCloser, error)
}

func createBackup(ctx context.Context, p *cli.Program, cluster backups, path string, stale, overwrite bool) error {
	if _, err := os.Lstat(path); err == nil && path != "-" && !overwrite {
		return cli.UsageError(fmt.Errorf("cannot create the backup: %s exists: choose another name, or add --overwrite", path))
	}
	source, err := cluster.Backup(ctx, stale)
	if err != nil {
		return cli.Because(err, "make a backup")
	}
	defer source.Close()
	document := BackupDocument{File: path}
	if path == "-" {
		if err := document.read(io.TeeReader(watched(p, source), p.Out)); err != nil {
			return cli.Because(err, "make a backup")
		}
		p.Note("backup of cluster %s at index %d, %d bytes, sha256 %s", document.Manifest.Cluster, document.Manifest.Index, document.Bytes, document.SHA256)
		return nil
	}
	err = backup.WriteFile(path, func(to io.Writer) error { return document.read(io.TeeReader(watched(p, source), to)) })
	if err != nil {
		return cli.Because(err, "make a backup")
	}
	return writeBackup(p, document)
}

// watched shows the number of read bytes at a terminal.
func watched(p *cli.Program, from io.Reader) io.Reader {
	if !p.Terminal {
		return from
	}
	return &watchedReader{from: from, program: p, told: time.Now()}
}

type watchedReader struct {
	from    io.Reader
	program *cli.Program
	bytes   int64
	told    time.Time
}

func (w *watchedReader) Read(into []byte) (int, error) {
	n, err := w.from.Read(into)
	w.bytes += int64(n)
	if time.Since(w.told) > cli.ProgressPause {
		w.told = time.Now()
		w.program.Note("%d MiB", w.bytes>>20)
	}
	return n, err
}
