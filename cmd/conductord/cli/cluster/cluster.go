// Package cluster has the commands about a cluster: its nodes, members and leader, its backups and
// tests, and the topology of several clusters.
package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// Command is the command of the cluster, with additional verbs of another package.
func Command(p *cli.Program, more ...*cobra.Command) *cobra.Command {
	return cli.Noun("cluster", "Manage the cluster: status, checks, members, leadership, upgrades", append(more,
		nodesCommand(p, "status", "Show the status of every node; exit 6 if no node knows a leader", showClusterStatus),
		checkCommand(p),
		nodesCommand(p, "members", "List the members of the cluster: role, addresses, id", showMembers),
		removeMemberCommand(p), promoteCommand(p), demoteCommand(p), moveMemberCommand(p), transferLeaderCommand(p),
		nodesCommand(p, "upgrade-status", "Show each node's program version, and whether the cluster can be upgraded", showUpgradeStatus),
		upgradeCommand(p))...)
}

func transferLeaderCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "transfer-leader [NODE]",
		Short: "Transfer the leadership to a given or any other node",
		Long: "Transfer the leadership to the named node, or to any other node that answers. Clients retry calls that are refused\n" +
			"meanwhile, and no claim is lost. A leader that stops transfers its leadership automatically.",
		Args: cobra.MaximumNArgs(1),
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, args []string) error {
			leader, err := cluster.TransferLeader(ctx, strings.Join(args, ""))
			if err != nil {
				return cli.Because(err, "transfer the leadership")
			}
			return p.Show(cli.Part{Message: &v1.TransferLeaderResponse{Leader: leader}}, "%s leads", leader)
		}),
	}
}

// nodesCommand makes a command that shows the statuses of the nodes.
func nodesCommand(p *cli.Program, use, short string, show func(*cli.Program, []raftboard.NodeStatus) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
			nodes, err := cluster.Nodes(ctx)
			if err != nil {
				return cli.Because(err, "get the cluster's status")
			}
			return show(p, nodes)
		}),
	}
}

func showClusterStatus(p *cli.Program, nodes []raftboard.NodeStatus) error {
	if p.Profile != "" && !p.JSON() {
		p.Note("profile %s", p.Profile)
	}
	if err := writeNodes(p, nodes); err != nil {
		return err
	}
	return checkLed(nodes)
}

// checkLed makes the exit code report whether the cluster can accept a write.
func checkLed(nodes []raftboard.NodeStatus) error {
	if slices.ContainsFunc(nodes, func(n raftboard.NodeStatus) bool { return n.Status.Leader != "" }) {
		return nil
	}
	return cli.Advised(fmt.Errorf("no node knows a leader: %w", jobs.ErrUnavailable), "a majority of the nodes must run: start the nodes that do not answer")
}

// shownNode is a node in the document of cluster status.
type shownNode struct {
	Endpoint string    `json:"endpoint"`
	Status   *cli.Part `json:"status,omitempty"` // as in the answer to the node's ClusterService/Status
	Error    string    `json:"error,omitempty"`
}

func shownNodes(nodes []raftboard.NodeStatus) map[string][]shownNode {
	shown := make([]shownNode, 0, len(nodes))
	for i := range nodes {
		node := shownNode{Endpoint: nodes[i].Endpoint}
		if nodes[i].Err != nil {
			node.Error = nodes[i].Err.Error()
		} else {
			node.Status = &cli.Part{Message: statusMessage(&nodes[i].Status)}
		}
		shown = append(shown, node)
	}
	return map[string][]shownNode{"nodes": shown}
}

func statusMessage(s *raftboard.Status) *v1.StatusResponse {
	message := &v1.StatusResponse{
		Cluster: s.Cluster, Generation: s.Generation, Node: s.Node, State: s.State, Leader: s.Leader, LeaderAddress: s.LeaderAddress,
		Term: s.Term, CommitIndex: s.CommitIndex, AppliedIndex: s.AppliedIndex, Version: s.Version, StartedAt: command.TimeToProto(s.StartedAt),
		LastContact: command.DurationToProto(s.LastContact), LogStore: s.LogStore, Sessions: s.Sessions, Ready: s.Ready, NotReady: s.NotReady,
		Jobs: map[string]uint64{}, MembersDiffer: s.MembersDiffer, ClusterVersion: uint32(s.ClusterVersion), ProgramVersion: uint32(s.ProgramVersion),
		LogBytes: s.LogBytes, LogFreeBytes: s.LogFreeBytes, SnapshotIndex: s.SnapshotIndex, SnapshotBytes: s.SnapshotBytes,
		DiskFreeBytes: s.DiskFreeBytes, DiskShort: s.DiskShort,
	}
	if s.BackupInterval > 0 {
		message.BackupAge, message.BackupInterval = durationpb.New(s.BackupAge), durationpb.New(s.BackupInterval)
	}
	for _, b := range s.Backups {
		message.Backups = append(message.Backups, backupMessage(b))
	}
	if s.ClockOffset != nil {
		message.ClockOffset = durationpb.New(*s.ClockOffset)
	}
	for state, n := range s.Jobs {
		message.Jobs[string(state)] = n
	}
	for _, m := range s.Members {
		message.Members = append(message.Members, memberMessage(m))
	}
	return message
}

func writeNodes(p *cli.Program, nodes []raftboard.NodeStatus) error {
	if p.JSON() {
		return p.WriteJSON(shownNodes(nodes))
	}
	rows := make([][]string, 0, len(nodes))
	for i := range nodes {
		s := &nodes[i].Status
		rows = append(rows, []string{
			nodes[i].Endpoint, cli.OrDash(s.Node), cli.OrDash(s.Cluster), cli.OrDash(s.State), cli.OrDash(s.Leader), cli.NumberText(s.Term), cli.NumberText(s.AppliedIndex),
			cli.NumberText(s.Sessions), cli.OrDash(s.LogStore), offsetText(s.ClockOffset), cli.OrDash(cli.StatesText(s.Jobs)), readiness(&nodes[i]),
		})
	}
	header := []string{"endpoint", "node", "cluster", "state", "leader", "term", "applied", "sessions", "log", "clock", "jobs", "ready"}
	if err := p.WriteTable(header, rows); err != nil {
		return err
	}
	return p.WriteLines(append(silent(nodes), compactable(nodes)...))
}

// silent lists why nodes do not answer. In the table, the reasons would widen each row.
func silent(nodes []raftboard.NodeStatus) (lines []string) {
	for i := range nodes {
		if err := nodes[i].Err; err != nil {
			lines = append(lines, fmt.Sprintf("%s does not answer: %v", nodes[i].Endpoint, err))
		}
	}
	return lines
}

// The freed space that makes a stop of the node worthwhile: a share of its log file, and a
// minimum in bytes.
const (
	worthBytes = 256 << 20
	worthShare = 2
)

// compactable returns the nodes whose log file is largely free.
func compactable(nodes []raftboard.NodeStatus) (lines []string) {
	for i := range nodes {
		s := &nodes[i].Status
		if s.LogFreeBytes >= worthBytes && s.LogFreeBytes*worthShare >= s.LogBytes {
			lines = append(lines, fmt.Sprintf("%d of %d MiB of %s's raft log are free; to shrink the log, stop the node and run `conductord log-store compact --data-dir DIR`",
				s.LogFreeBytes>>20, s.LogBytes>>20, s.Node))
		}
	}
	return lines
}

// offsetText shows the error of a node's clock: +1.200s is ahead.
func offsetText(offset *time.Duration) string {
	if offset == nil {
		return "-"
	}
	return fmt.Sprintf("%+.3fs", offset.Seconds())
}

func readiness(node *raftboard.NodeStatus) string {
	switch {
	case node.Err != nil:
		return "no answer"
	case node.Status.Ready:
		return "yes"
	}
	return "no: " + node.Status.NotReady
}
