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
	clustercmd "github.com/conductord/conductord/cmd/conductord/cli/cluster"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/backup"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

func backupCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("backup", "Create, check and restore backups",
		clustercmd.BackupCreateCommand(p), clustercmd.BackupListCommand(p), clustercmd.BackupInspectCommand(p), checkBackupCommand(p), restoreBackupCommand(p), extractBackupCommand(p))
}

func extractBackupCommand(p *cli.Program) *cobra.Command {
	var dataDir, scratch string
	var force bool
	cmd := &cobra.Command{
		Use:   "extract FILE --data-dir DIR",
		Short: "Create a backup from the data directory of a stopped node",
		Long: "Create a backup from the data directory of a stopped node, to start a new cluster after the permanent loss of a\n" +
			"majority. The backup includes log entries that the cluster might not have acknowledged. Use the surviving node\n" +
			"with the highest term and index; see conductord node check. The data directory does not change.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if dataDir == "" {
				return cli.UsageError(errors.New("the node's data directory is required: --data-dir"))
			}
			tightenUmask()
			if _, err := os.Lstat(args[0]); err == nil {
				return cli.UsageError(fmt.Errorf("cannot create the backup: %s exists: choose another name", args[0]))
			}
			err := backup.WriteFile(args[0], func(to io.Writer) error {
				return membership.ExtractBackup(dataDir, scratch, cli.ProgramVersion().Version, force, to)
			})
			if err != nil {
				return err
			}
			return clustercmd.InspectBackup(p, args[0])
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the node")
	cmd.Flags().StringVar(&scratch, "scratch", "", "parent of the scratch directory (default the system's temporary directory)")
	cmd.Flags().BoolVar(&force, "force", false, "create the backup even if a majority of the cluster answers")
	return cmd
}

// VerifiedBackup is the result of backup check.
type VerifiedBackup struct {
	File     string          `json:"file"`
	Manifest backup.Manifest `json:"manifest"`
}

func checkBackupCommand(p *cli.Program) *cobra.Command {
	var scratch string
	cmd := &cobra.Command{
		Use:   "check FILE|-",
		Short: "Restore a backup into a scratch directory and compare its digest",
		Long: "Restore a backup into a scratch directory, read every row, and compare its digest with the cluster's digest at\n" +
			"that index. The scratch directory needs as much space as the backup; the command removes it at the end.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			tightenUmask()
			source, err := clustercmd.OpenBackup(p, args[0])
			if err != nil {
				return err
			}
			defer source.Close()
			manifest, err := membership.VerifyBackup(source, scratch)
			if err != nil {
				return fmt.Errorf("cannot use the backup %s: %w", args[0], err)
			}
			return p.Show(VerifiedBackup{File: args[0], Manifest: manifest}, "%s is good: cluster %s at index %d, digest %s", args[0], manifest.Cluster, manifest.Index, manifest.Digest)
		},
	}
	cmd.Flags().StringVar(&scratch, "scratch", "", "parent of the scratch directory (default the system's temporary directory)")
	return cmd
}

// RestoredBackup is the output of backup restore.
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
	var how membership.Restore
	cmd := configured(p, &cobra.Command{
		Use:   "restore FILE|- --config FILE [--into DIR]",
		Short: "Create the data directory of a new cluster's node from a backup",
		Long: "Create a node's data directory from a backup, for a new cluster with the members in the configuration. Run this\n" +
			"on each member, with the same file and the same flags. Then start the nodes, without --init.\n\n" +
			"The new cluster has a higher generation: it refuses nodes, sessions and claim tokens of the old cluster. Claimed\n" +
			"jobs become claimable. If any part of the backup is damaged, nothing changes.",
		Args: cobra.ExactArgs(1),
	}, func(_ context.Context, loaded config.Config, args []string) error {
		if how.PauseSchedules = policy == "pause"; !how.PauseSchedules && policy != "resume" {
			return cli.UsageError(fmt.Errorf("--schedules must be pause or resume, not %.64q", policy))
		}
		if into != "" {
			loaded.DataDir = into
		}
		source, err := clustercmd.OpenBackup(p, args[0])
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
	cmd.Flags().StringVar(&into, "into", "", "empty directory to restore into (default data_dir of the configuration)")
	cmd.Flags().StringVar(&policy, "schedules", "pause", "pause: pause all schedules; resume: keep their states")
	cmd.Flags().StringVar(&how.FromCluster, "from-cluster", "", "id of the cluster in the backup, if the new cluster has a different id")
	cmd.Flags().Uint64Var(&how.Generation, "generation", 0, "generation of the new cluster; use a higher one for each restore of the same backup (default the backup's plus one)")
	return cmd
}

func writeRestored(p *cli.Program, options node.Options, done membership.Restored) error {
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
