package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
)

func (p *Program) clusterCommand() *cobra.Command {
	return Noun("cluster", "Look at the nodes", &cobra.Command{
		Use:   "status",
		Short: "Show every node's own view; exit 6 unless one of them leads",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				nodes, err := cluster.Nodes(ctx)
				if err != nil {
					return because(err, "get the cluster's status")
				}
				if err := p.writeNodes(nodes); err != nil {
					return err
				}
				return checkLed(nodes)
			})
		},
	})
}

// checkLed makes the exit code tell whether the cluster can take a write.
func checkLed(nodes []Node) error {
	if slices.ContainsFunc(nodes, func(n Node) bool { return n.Leader != "" }) {
		return nil
	}
	return fmt.Errorf("no node knows a leader: %w", jobs.ErrUnavailable)
}

func (p *Program) writeNodes(nodes []Node) error {
	if p.JSON() {
		return p.WriteJSON(append([]Node{}, nodes...))
	}
	rows := make([][]string, 0, len(nodes))
	for _, node := range nodes {
		rows = append(rows, []string{
			node.Endpoint, OrDash(node.Name), OrDash(node.Cluster), OrDash(node.State), OrDash(node.Leader),
			strconv.FormatUint(node.Term, 10), strconv.FormatUint(node.AppliedIndex, 10),
			strconv.FormatUint(node.Sessions, 10), OrDash(node.LogStore), offsetText(node.ClockOffset), jobCounts(node.Jobs), readiness(node),
		})
	}
	header := []string{"endpoint", "node", "cluster", "state", "leader", "term", "applied", "sessions", "log", "clock", "jobs", "ready"}
	return p.writeTable(header, rows)
}

// offsetText shows how far a node's clock is off: +1.200s is ahead.
func offsetText(offset *time.Duration) string {
	if offset == nil {
		return "-"
	}
	return fmt.Sprintf("%+.3fs", offset.Seconds())
}

// jobCounts shows how many jobs are in each state, in the order of a job's life.
func jobCounts(counts map[string]uint64) string {
	var parts []string
	for _, state := range jobs.States {
		if count := counts[string(state)]; count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count, state))
		}
	}
	return OrDash(strings.Join(parts, ", "))
}

func readiness(node Node) string {
	switch {
	case node.Error != "":
		return "no answer: " + node.Error
	case node.Ready:
		return "yes"
	}
	return "no: " + node.NotReady
}
