package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/backup"
)

func backupCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("backup", "Make backups, check them, and begin a new cluster with one",
		p.BackupCreateCommand(), p.BackupListCommand(), p.BackupInspectCommand(), verifyBackupCommand(p), restoreBackupCommand(p), extractBackupCommand(p))
}

func extractBackupCommand(p *cli.Program) *cobra.Command {
	var dataDir, scratch string
	var force bool
	cmd := &cobra.Command{
		Use:   "extract FILE --data-dir DIR",
		Short: "Make a backup from the data directory of a stopped node",
		Long: "Make a backup from what a stopped node has on disk, to begin a new cluster after a majority was lost for good. It\n" +
			"has all entries of the node's log, also those that the cluster may not have acknowledged. Of several survivors take\n" +
			"the one with the highest term and index: see conductord node check. The data directory is only read.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if dataDir == "" {
				return cli.UsageError(errors.New("name the node's data directory: --data-dir"))
			}
			tightenUmask()
			if _, err := os.Lstat(args[0]); err == nil {
				return cli.UsageError(fmt.Errorf("cannot make a backup: %s exists: choose another name", args[0]))
			}
			err := backup.WriteFile(args[0], func(to io.Writer) error {
				return node.ExtractBackup(dataDir, scratch, cli.ProgramVersion().Version, force, to)
			})
			if err != nil {
				return err
			}
			return p.InspectBackup(args[0])
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "the node's data directory")
	cmd.Flags().StringVar(&scratch, "scratch", "", "where to make the scratch directory (default the system's directory for temporary files)")
	cmd.Flags().BoolVar(&force, "force", false, "make it even if a majority of the cluster answers")
	return cmd
}

// VerifiedBackup is what backup verify says.
type VerifiedBackup struct {
	File     string          `json:"file"`
	Manifest backup.Manifest `json:"manifest"`
}

func verifyBackupCommand(p *cli.Program) *cobra.Command {
	var scratch string
	cmd := &cobra.Command{
		Use:   "verify FILE|-",
		Short: "Restore a backup into a scratch directory and compare its digest",
		Long: "Restore the state of a backup into a scratch directory, read every row, and compare the digest with that of the\n" +
			"cluster when the backup was made. The scratch directory needs as much space as the backup; nothing stays there.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			tightenUmask()
			source, err := p.OpenBackup(args[0])
			if err != nil {
				return err
			}
			defer source.Close()
			manifest, err := node.VerifyBackup(source, scratch)
			if err != nil {
				return fmt.Errorf("cannot use the backup %s: %w", args[0], err)
			}
			return p.Show(VerifiedBackup{File: args[0], Manifest: manifest}, "%s is good: cluster %s at index %d, digest %s", args[0], manifest.Cluster, manifest.Index, manifest.Digest)
		},
	}
	cmd.Flags().StringVar(&scratch, "scratch", "", "where to make the scratch directory (default the system's directory for temporary files)")
	return cmd
}

// RestoredBackup is what backup restore says.
type RestoredBackup struct {
	Node       string          `json:"node"`
	DataDir    string          `json:"data_dir"`
	Cluster    string          `json:"cluster"`
	Generation uint64          `json:"generation"`
	Index      uint64          `json:"index"`
	Sessions   int             `json:"sessions_closed"`
	Paused     int             `json:"schedules_paused"`
	Manifest   backup.Manifest `json:"manifest"`
}

func restoreBackupCommand(p *cli.Program) *cobra.Command {
	var into, policy string
	var how node.Restore
	cmd := configured(p, &cobra.Command{
		Use:   "restore FILE|- --config FILE [--into DIR]",
		Short: "Make the data directory of a new cluster's node from a backup",
		Long: "Make a node's data directory from a backup, for a new cluster of the members that the configuration lists. Do this\n" +
			"on each of them, with the same file and the same flags, then start them (without --init).\n\n" +
			"The new cluster has a higher generation: nodes, sessions and tokens of the cluster that was backed up are refused.\n" +
			"Jobs that were claimed are claimable again. Nothing is changed unless the whole backup is good.",
		Args: cobra.ExactArgs(1),
	}, func(_ context.Context, loaded config.Config, args []string) error {
		if how.PauseSchedules = policy == "pause"; !how.PauseSchedules && policy != "resume" {
			return cli.UsageError(fmt.Errorf("--schedules must be pause or resume, not %.64q", policy))
		}
		if into != "" {
			loaded.DataDir = into
		}
		source, err := p.OpenBackup(args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		options, err := stoppedOptions(p, loaded, false)
		if err != nil {
			return err
		}
		done, err := node.RestoreBackup(options, source, how)
		if err != nil {
			return err
		}
		return writeRestored(p, options, done)
	})
	cmd.Flags().StringVar(&into, "into", "", "the empty directory to restore into (default the data directory of the configuration)")
	cmd.Flags().StringVar(&policy, "schedules", "pause", "pause: all schedules are paused; resume: they go on as they were")
	cmd.Flags().StringVar(&how.FromCluster, "from-cluster", "", "the id of the cluster that was backed up, if the new one has another")
	cmd.Flags().Uint64Var(&how.Generation, "generation", 0, "the generation of the new cluster (one more than the backup's); higher at each restore of one backup")
	return cmd
}

func writeRestored(p *cli.Program, options node.Options, done node.Restored) error {
	if p.JSON() {
		return p.WriteJSON(RestoredBackup{
			Node: options.Name, DataDir: options.DataDir, Cluster: options.Cluster, Generation: done.Generation, Index: done.Index,
			Sessions: done.Sessions, Paused: done.Paused, Manifest: done.Manifest,
		})
	}
	lines := []string{
		fmt.Sprintf("restored node %s of cluster %s into %s: index %d, generation %d", options.Name, options.Cluster, options.DataDir, done.Index, done.Generation),
		fmt.Sprintf("sessions closed: %d; schedules paused: %d", done.Sessions, done.Paused),
	}
	var others []string
	for _, member := range options.Members {
		if member.Name != options.Name {
			others = append(others, member.Name)
		}
	}
	if len(others) > 0 {
		lines = append(lines, fmt.Sprintf("restore the same file with the same flags on %s as well, then start all", strings.Join(others, ", ")))
	}
	return p.WriteLines(lines)
}
