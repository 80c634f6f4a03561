package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

// ConvertedLog is the output of log-store convert.
type ConvertedLog struct {
	From  string `json:"from"`
	To    string `json:"to"`
	First uint64 `json:"first"` // first entry; 0: none
	Last  uint64 `json:"last"`
	Kept  string `json:"kept,omitempty"` // the old store; empty: no conversion was needed
}

func logStoreCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("log-store", "Convert or compact the raft log of a stopped node", convertLogCommand(p), compactLogCommand(p))
}

func convertLogCommand(p *cli.Program) *cobra.Command {
	var to, dataDir string
	cmd := &cobra.Command{
		Use:   "convert --to bolt|wal --data-dir DIR",
		Short: "Copy the raft log of a stopped node into another store",
		Long: "Copy the log entries, term and votes of a stopped node into another store, verify them, and switch to the new\n" +
			"store. The node keeps the old store until it has started successfully. If the command is interrupted, repeat it:\n" +
			"until its last step, the node starts with its old store. Fails for a running node.\n\n" +
			"Afterwards set log_store in the node's configuration, and start it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" || dataDir == "" {
				return cli.UsageError(errors.New("the new store and the node's data directory are required: --to and --data-dir"))
			}
			return convertLog(cmd.Context(), p, dataDir, logstore.Kind(to))
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "new store: bolt or wal")
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the node")
	return cmd
}

// CompactedLog is the output of log-store compact: the sizes of the log's file in bytes.
type CompactedLog struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

func compactLogCommand(p *cli.Program) *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "compact --data-dir DIR",
		Short: "Shrink the file of a stopped node's raft log",
		Long: "Rewrite the raft log file of a stopped node without its free pages, and verify it. Use it when cluster status\n" +
			"recommends it. If the command is interrupted, the node starts as before. Fails for a running node, and for log\n" +
			"store wal, which releases its space automatically.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dataDir == "" {
				return cli.UsageError(errors.New("the node's data directory is required: --data-dir"))
			}
			return compactLog(cmd.Context(), p, dataDir)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the node")
	return cmd
}

func compactLog(ctx context.Context, p *cli.Program, dataDir string) error {
	path, logger, err := stoppedNode(p, dataDir)
	if err != nil {
		return err
	}
	done, err := membership.CompactLog(ctx, path, logger, func(string) {})
	if err != nil {
		return err
	}
	return p.Show(CompactedLog(done), "size of the raft log: %d KiB before, %d KiB now", done.Before>>10, done.After>>10)
}

// stoppedNode prepares work in the data directory of a node that is not running.
func stoppedNode(p *cli.Program, dataDir string) (path string, logger hclog.Logger, err error) {
	tightenUmask() // the copy is as private as its source
	path, err = filepath.Abs(dataDir)
	if err != nil {
		return "", nil, fmt.Errorf("cannot use the data directory %q: %w", dataDir, err)
	}
	return path, hclog.New(&hclog.LoggerOptions{Name: "conductord", Level: hclog.Warn, Output: cli.CleanLog(p.Err, false)}), nil
}

// stoppedOptions are the options for work on the data directory of a stopped node.
func stoppedOptions(p *cli.Program, c config.Config, first bool) (options node.Options, err error) {
	var logger hclog.Logger
	if c.DataDir, logger, err = stoppedNode(p, c.DataDir); err != nil {
		return options, err
	}
	return nodeOptions(c, first, logger, prometheus.NewRegistry())
}

func convertLog(ctx context.Context, p *cli.Program, dataDir string, to logstore.Kind) error {
	path, logger, err := stoppedNode(p, dataDir)
	if err != nil {
		return err
	}
	done, err := membership.ConvertLog(ctx, path, to, logger, func(string) {})
	if err != nil {
		return err
	}
	if p.JSON() {
		return p.WriteJSON(ConvertedLog{From: string(done.From), To: string(done.To), First: done.First, Last: done.Last, Kept: done.Kept})
	}
	if done.Kept == "" {
		return p.WriteLines([]string{fmt.Sprintf("%s already has the log store %s", path, to)})
	}
	return p.WriteLines([]string{
		fmt.Sprintf("entries %d to %d are copied to %s and verified", done.First, done.Last, to),
		fmt.Sprintf("set log_store = %q in the node's configuration, and start it", to),
		fmt.Sprintf("the old store stays in %s until the node has started with the new store", done.Kept),
	})
}
