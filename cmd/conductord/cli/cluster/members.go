package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// shownMembers is the document of the commands that change members.
type shownMembers struct {
	Members []cli.Part `json:"members"`
}

func memberMessage(m raftboard.Member) *v1.Member {
	return &v1.Member{Name: m.Name, Id: m.ID, RaftAddress: m.RaftAddress, ApiAddress: m.APIAddress, Voter: m.Voter}
}

func writeMembers(p *cli.Program, members []raftboard.Member) error {
	if p.JSON() {
		shown := shownMembers{Members: make([]cli.Part, 0, len(members))}
		for _, m := range members {
			shown.Members = append(shown.Members, cli.Part{Message: memberMessage(m)})
		}
		return p.WriteJSON(shown)
	}
	rows := make([][]string, 0, len(members))
	for _, m := range members {
		rows = append(rows, []string{m.Name, roleText(m.Voter), m.RaftAddress, m.APIAddress, m.ID})
	}
	return p.WriteTable([]string{"name", "role", "raft", "api", "id"}, rows)
}

func roleText(voter bool) string {
	if voter {
		return "voter"
	}
	return "non-voter"
}

// membersOf are the members according to the node that has applied most entries.
func membersOf(nodes []raftboard.NodeStatus) ([]raftboard.Member, error) {
	var newest raftboard.Status
	for i := range nodes {
		if s := nodes[i].Status; nodes[i].Err == nil && s.AppliedIndex >= newest.AppliedIndex {
			newest = s
		}
	}
	if len(newest.Members) == 0 {
		return nil, fmt.Errorf("no node answers: %w", jobs.ErrUnavailable)
	}
	return newest.Members, nil
}

func showMembers(p *cli.Program, nodes []raftboard.NodeStatus) error {
	members, err := membersOf(nodes)
	if err != nil {
		return cli.Because(err, "list the members")
	}
	return writeMembers(p, members)
}

// memberChange is a command that changes one member.
func memberChange(p *cli.Program, use, short, long, doing string, change func(ctx context.Context, cluster cli.Members, name string) ([]raftboard.Member, error)) *cobra.Command {
	return &cobra.Command{
		Use: use + " NODE", Short: short, Long: long, Args: cobra.ExactArgs(1),
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, args []string) error {
			members, err := change(ctx, cluster, args[0])
			if err != nil {
				return cli.Because(err, doing)
			}
			return writeMembers(p, members)
		}),
	}
}

func removeMemberCommand(p *cli.Program) *cobra.Command {
	return memberChange(p, "remove", "Remove a member from the cluster",
		"Remove a member, dead or alive, from the cluster. A running node stops, and its jobs become claimable; to hand\n"+
			"them over immediately, stop the node first. Fails if no majority of the other voters answers. The node's data\n"+
			"directory cannot be reused: to add the machine again, empty the directory and join.",
		"remove the member", func(ctx context.Context, cluster cli.Members, name string) ([]raftboard.Member, error) {
			return cluster.RemoveMember(ctx, name)
		})
}

func promoteCommand(p *cli.Program) *cobra.Command {
	return memberChange(p, "promote", "Give a member a vote: it counts for majorities and can become leader",
		"Give a member a vote. The member must answer and have caught up. A joining node requests its vote automatically.",
		"promote the member", func(ctx context.Context, cluster cli.Members, name string) ([]raftboard.Member, error) {
			return cluster.SetVote(ctx, name, true)
		})
}

func demoteCommand(p *cli.Program) *cobra.Command {
	return memberChange(p, "demote", "Remove a member's vote; the member keeps its state and its conductor",
		"Remove a member's vote. The leader transfers the leadership first. Fails if no majority of the other voters answers.",
		"demote the member", func(ctx context.Context, cluster cli.Members, name string) ([]raftboard.Member, error) {
			return cluster.SetVote(ctx, name, false)
		})
}

func moveMemberCommand(p *cli.Program) *cobra.Command {
	var raftAddress, apiAddress string
	cmd := memberChange(p, "move", "Change the addresses of a member that moved",
		"Change the addresses of a member that moved. First stop the node, move its data directory, and start it with the\n"+
			"new addresses in its configuration. The node keeps its name and id.",
		"move the member", func(ctx context.Context, cluster cli.Members, name string) ([]raftboard.Member, error) {
			return cluster.MoveMember(ctx, name, raftAddress, apiAddress)
		})
	cmd.Flags().StringVar(&raftAddress, "raft", "", "HOST:PORT of the member's raft port")
	cmd.Flags().StringVar(&apiAddress, "api", "", "HOST:PORT of the member's API")
	for _, flag := range []string{"raft", "api"} {
		if err := cmd.MarkFlagRequired(flag); err != nil {
			panic("internal error: " + err.Error())
		}
	}
	return cmd
}
