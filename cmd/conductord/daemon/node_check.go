package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

// CheckedNode is the output of node check DIR for a valid data directory.
type CheckedNode struct {
	Node       string                `json:"node"`
	Cluster    string                `json:"cluster"`
	Generation uint64                `json:"generation"`
	LogStore   string                `json:"log_store"`
	Snapshot   uint64                `json:"snapshot_index"` // 0: none
	First      uint64                `json:"first_index"`    // of the log
	Last       uint64                `json:"last_index"`
	Index      uint64                `json:"index"`
	Term       uint64                `json:"term"`
	Digest     string                `json:"digest"`
	Jobs       map[jobs.State]uint64 `json:"jobs"`
}

func nodeCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("node", "Initialize and check a single node", initNodeCommand(p), checkNodeCommand(p))
}

func checkNodeCommand(p *cli.Program) *cobra.Command {
	var ready bool
	var scratch string
	cmd := configured(p, &cobra.Command{
		Use:   "check [DIR]",
		Short: "Check this machine's node, or with DIR, the data of a stopped node; exit 1 if the check fails",
		Long: "Without DIR, check that the configured node answers at its API address. With --ready, check that it can serve\n" +
			"every call: it knows a leader and has caught up. Use it as a container's health check.\n\n" +
			"With DIR, read the data directory of a stopped node: identity, snapshots and every log entry. Apply the entries\n" +
			"to a state in a scratch directory. Show the content, and report damaged or missing data. DIR does not change.",
		Args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, loaded config.Config, _ []string) error {
		return checkRunning(ctx, p, loaded, ready)
	})
	running := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return running(cmd, args)
		}
		path, _, err := stoppedNode(p, args[0])
		if err != nil {
			return err
		}
		found, err := membership.CheckStopped(path, scratch)
		if err != nil {
			return err
		}
		return writeCheckedNode(p, found)
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "check that the node knows a leader and has caught up")
	cmd.Flags().StringVar(&scratch, "scratch", "", "with DIR, parent of the scratch directory (default the system's temporary directory)")
	return cmd
}

func writeCheckedNode(p *cli.Program, n membership.StoppedNode) error {
	if p.JSON() {
		return p.WriteJSON(CheckedNode{
			Node: n.Node, Cluster: n.Cluster, Generation: n.Generation, LogStore: string(n.LogStore), Snapshot: n.Snapshot, First: n.First, Last: n.Last,
			Index: n.Index, Term: n.Term, Digest: n.Digest, Jobs: n.Jobs,
		})
	}
	var counts []string
	for _, state := range jobs.States {
		if n.Jobs[state] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n.Jobs[state], state))
		}
	}
	return p.WriteLines([]string{
		fmt.Sprintf("node %s of cluster %s, generation %d", n.Node, n.Cluster, n.Generation),
		fmt.Sprintf("snapshot up to entry %d; log store %s with entries %d to %d", n.Snapshot, n.LogStore, n.First, n.Last),
		fmt.Sprintf("good up to term %d, index %d, with digest %s", n.Term, n.Index, n.Digest),
		"jobs: " + cli.OrDash(strings.Join(counts, ", ")),
	})
}
