package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/raftboard"
)

func upgradeCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "upgrade",
		Short: "Raise the cluster version when all nodes run the new program",
		Long: "Raise the cluster version to the version of the leader's program. Fails until every member can read this\n" +
			"version. Afterwards, nodes cannot return to the older program. See cluster upgrade-status.",
		Args: cobra.NoArgs,
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, _ []string) error {
			version, err := cluster.Upgrade(ctx)
			if err != nil {
				return cli.Because(err, "upgrade the cluster")
			}
			return p.Show(cli.Part{Message: &v1.UpgradeResponse{Version: uint32(version)}}, "the cluster uses version %d", version)
		}),
	}
}

// UpgradeStatus is the output of cluster upgrade-status.
type UpgradeStatus struct {
	ClusterVersion int           `json:"cluster_version"`
	CanUse         int           `json:"can_use"` // the latest version that all members can read
	Nodes          []NodeVersion `json:"nodes"`
	Next           string        `json:"next"` // the next step
}

// NodeVersion is a member's program version.
type NodeVersion struct {
	Node    string `json:"node"`
	Version string `json:"version,omitempty"`
	CanUse  int    `json:"can_use,omitempty"`
	Error   string `json:"error,omitempty"`
}

func upgradeStatus(nodes []raftboard.NodeStatus) (UpgradeStatus, error) {
	members, err := membersOf(nodes)
	if err != nil {
		return UpgradeStatus{}, err
	}
	var status UpgradeStatus
	missing := false
	for _, member := range members {
		node := NodeVersion{Node: member.Name, Error: "does not answer"}
		for i := range nodes {
			if s := &nodes[i].Status; nodes[i].Err == nil && s.Node == member.Name {
				node = NodeVersion{Node: member.Name, Version: s.Version, CanUse: s.ProgramVersion}
				status.ClusterVersion = max(status.ClusterVersion, s.ClusterVersion)
				if status.CanUse == 0 || s.ProgramVersion < status.CanUse {
					status.CanUse = s.ProgramVersion
				}
			}
		}
		missing = missing || node.Error != ""
		status.Nodes = append(status.Nodes, node)
	}
	switch {
	case missing:
		status.Next = "start the nodes that do not answer"
	case status.CanUse > status.ClusterVersion:
		status.Next = "conductord cluster upgrade"
	default:
		status.Next = "nothing to do, or upgrade the programs of the nodes"
	}
	return status, nil
}

func showUpgradeStatus(p *cli.Program, nodes []raftboard.NodeStatus) error {
	status, err := upgradeStatus(nodes)
	if err != nil {
		return cli.Because(err, "show the versions")
	}
	if p.JSON() {
		return p.WriteJSON(status)
	}
	rows := make([][]string, 0, len(status.Nodes))
	for _, node := range status.Nodes {
		rows = append(rows, []string{node.Node, cli.OrDash(node.Version), cli.OrDash(cli.CountText(node.CanUse)), cli.OrDash(node.Error)})
	}
	if err := p.WriteTable([]string{"node", "program", "can use", "error"}, rows); err != nil {
		return err
	}
	return p.WriteLines([]string{fmt.Sprintf("the cluster uses version %d; next: %s", status.ClusterVersion, status.Next)})
}
