package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// staleCommands are the commands that only read what every node knows.
var staleCommands = []string{
	"job get", "job list", "job explain", "job errors", "trash list", "trash show", "flow show", "book get", "book list",
	"board list", "board show", "board count", "schedule list", "schedule show", "session list", "conductor list", "quota list",
	"access list", "audit search",
}

// addStale gives the commands that can read stale answers the flag for it.
func (p *Program) addStale(root *cobra.Command) {
	for _, path := range staleCommands {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil || cmd.CommandPath() != root.Name()+" "+path {
			panic("internal error: there is no command " + path)
		}
		cmd.Flags().BoolVar(&p.stale, "stale", false, "read what one node knows, however old, also without a leader")
	}
}

// noteAge says how old a stale answer may be. Any node that answers may have given it.
func (p *Program) noteAge(ctx context.Context, cluster Cluster) error {
	nodes, err := cluster.Nodes(ctx)
	if err != nil {
		return because(err, "ask the nodes how old the answer may be")
	}
	var oldest time.Duration
	for _, node := range nodes {
		status := &node.Status
		switch {
		case node.Err != nil:
		case status.LastContact == 0 && status.State != "leader":
			p.Note("a stale answer: nobody knows how old it is: node %s has heard no leader since it started", status.Node)
			return nil
		default:
			oldest = max(oldest, status.LastContact)
		}
	}
	p.Note("a stale answer: the node that gave it has heard the leader within the last %s", durationText(oldest+time.Second))
	return nil
}
