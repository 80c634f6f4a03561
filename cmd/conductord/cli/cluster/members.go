package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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

// membersOf are the members as the node knows them that has applied most.
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
func memberChange(p *cli.Program, use, short, long, doing string, change func(ctx context.Context, cluster cli.Cluster, name string) ([]raftboard.Member, error)) *cobra.Command {
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
			"directory cannot be reused: to bring the machine back, empty it and join.",
		"remove the member", func(ctx context.Context, cluster cli.Cluster, name string) ([]raftboard.Member, error) {
			return cluster.RemoveMember(ctx, name)
		})
}

func promoteCommand(p *cli.Program) *cobra.Command {
	return memberChange(p, "promote", "Give a member a vote: it counts for majorities and can become leader",
		"Give a member a vote. The member must answer and have caught up. A joining node requests its vote automatically.",
		"promote the member", func(ctx context.Context, cluster cli.Cluster, name string) ([]raftboard.Member, error) {
			return cluster.SetVote(ctx, name, true)
		})
}

func demoteCommand(p *cli.Program) *cobra.Command {
	return memberChange(p, "demote", "Remove a member's vote; the member keeps its state and its conductor",
		"Remove a member's vote. The leader transfers the leadership first. Fails if no majority of the other voters answers.",
		"demote the member", func(ctx context.Context, cluster cli.Cluster, name string) ([]raftboard.Member, error) {
			return cluster.SetVote(ctx, name, false)
		})
}

func moveMemberCommand(p *cli.Program) *cobra.Command {
	var raftAddress, apiAddress string
	cmd := memberChange(p, "move", "Tell the cluster the new addresses of a member",
		"Change the addresses of a member that moved. First stop the node, move its data directory, and start it with the\n"+
			"new addresses in its configuration. The node keeps its name and id.",
		"move the member", func(ctx context.Context, cluster cli.Cluster, name string) ([]raftboard.Member, error) {
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

// Beyond these limits health reports a problem.
const (
	usualLag   = 10_000 // entries that a member is behind
	usualClock = time.Second

	usualBackup = 2 // intervals between backups
)

// Health is what cluster health says.
type Health struct {
	Healthy bool `json:"healthy"`
	// Survives is the number of further voters that can be lost, besides the silent ones.
	// Negative: this number of silent voters must answer first.
	Survives int         `json:"survives"`
	Problems []string    `json:"problems"` // what needs a person
	Notes    []string    `json:"notes"`    // notes for the operator
	Nodes    []shownNode `json:"nodes"`
}

// assess finds the problems of a cluster.
func assess(nodes []raftboard.NodeStatus) (Health, error) {
	members, err := membersOf(nodes)
	if err != nil {
		return Health{}, err
	}
	health := Health{Problems: []string{}, Notes: []string{}, Nodes: shownNodes(nodes)["nodes"]}
	var commit uint64
	for i := range nodes {
		commit = max(commit, nodes[i].Status.CommitIndex)
	}
	if checkLed(nodes) != nil {
		health.Problems = append(health.Problems, "no node knows a leader")
	}
	voters, answering, versions := 0, 0, []string(nil)
	for _, member := range members {
		at := slices.IndexFunc(nodes, func(n raftboard.NodeStatus) bool { return n.Err == nil && n.Status.Node == member.Name })
		if member.Voter {
			voters++
		}
		if at < 0 {
			health.Problems = append(health.Problems, fmt.Sprintf("%s does not answer at %s", member.Name, member.APIAddress))
			continue
		}
		s := &nodes[at].Status
		if member.Voter && s.Ready {
			answering++
		}
		health.Problems = append(health.Problems, problemsOf(s, commit)...)
		if s.MembersDiffer != "" {
			health.Notes = append(health.Notes, fmt.Sprintf("the file of %s is out of date: %s", member.Name, s.MembersDiffer))
		}
		if !slices.Contains(versions, s.Version) {
			versions = append(versions, s.Version)
		}
	}
	if len(versions) > 1 {
		health.Notes = append(health.Notes, "the nodes run different versions: "+strings.Join(versions, ", "))
	}
	if voters%2 == 0 {
		health.Notes = append(health.Notes, fmt.Sprintf("an even number of voters (%d) survives no more losses than one voter less", voters))
	}
	health.Survives = answering - (voters/2 + 1)
	health.Healthy = len(health.Problems) == 0
	return health, nil
}

func problemsOf(s *raftboard.Status, commit uint64) (problems []string) {
	if !s.Ready {
		problems = append(problems, fmt.Sprintf("%s is not ready: %s", s.Node, s.NotReady))
	}
	if s.AppliedIndex+usualLag < commit {
		problems = append(problems, fmt.Sprintf("%s is %d entries behind", s.Node, commit-s.AppliedIndex))
	}
	if s.ClockOffset != nil && s.ClockOffset.Abs() > usualClock {
		problems = append(problems, fmt.Sprintf("the clock of %s is off by %s: check its time service", s.Node, offsetText(s.ClockOffset)))
	}
	if s.BackupInterval > 0 && s.BackupAge > usualBackup*s.BackupInterval {
		problems = append(problems, fmt.Sprintf("the newest scheduled backup of %s is overdue: none for %s, and one is due every %s: see its log",
			s.Node, s.BackupAge.Round(time.Second), s.BackupInterval))
	}
	if len(s.Backups) > 0 && s.Backups[0].Fault != "" {
		problems = append(problems, fmt.Sprintf("the newest scheduled backup of %s cannot be used: %s", s.Node, s.Backups[0].Fault))
	}
	return problems
}

func showHealth(p *cli.Program, nodes []raftboard.NodeStatus) error {
	health, err := assess(nodes)
	if err != nil {
		return cli.Because(err, "assess the cluster")
	}
	lines := []string{fmt.Sprintf("%d more voters can be lost", health.Survives)}
	switch health.Survives {
	case -1:
		lines = []string{"no majority: 1 more voter must answer"}
	case 0:
		lines = []string{"no further voter can be lost"}
	case 1:
		lines = []string{"1 more voter can be lost"}
	default:
		if health.Survives < 0 {
			lines = []string{fmt.Sprintf("no majority: %d more voters must answer", -health.Survives)}
		}
	}
	for _, note := range health.Notes {
		lines = append(lines, "note: "+note)
	}
	write := func() error { return p.WriteLines(lines) }
	if p.JSON() {
		write = func() error { return p.WriteJSON(health) }
	}
	if err := write(); err != nil || health.Healthy {
		return err
	}
	return fmt.Errorf("the cluster needs attention: %s", strings.Join(health.Problems, "; "))
}
