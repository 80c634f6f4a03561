package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	clustercmd "github.com/conductord/conductord/cmd/conductord/cli/cluster"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

func clusterCommand(p *cli.Program) *cobra.Command {
	return clustercmd.Command(p, joinCommand(p), replaceCommand(p))
}

func joinCommand(p *cli.Program) *cobra.Command {
	var how membership.Join
	cmd := configured(p, &cobra.Command{
		Use:   "join --config FILE",
		Short: "Add this machine's node to a running cluster",
		Long: "Create the data directory of a node that joins a running cluster. The configuration lists this node and at least\n" +
			"one member; --server names other members. Then start the node, without --init. It copies the state from the\n" +
			"leader, and gets a vote when it has caught up. If the cluster refuses the node, nothing changes. The command is\n" +
			"idempotent.\n" +
			"With access control, requires an administrator's --token-file, or --cert-file and --key-file.",
		Args: cobra.NoArgs,
	}, func(ctx context.Context, loaded config.Config, _ []string) error {
		return join(ctx, p, loaded, how)
	})
	cmd.Flags().BoolVar(&how.NonVoter, "non-voter", false, "join without a vote: the node replicates the state and runs a conductor, but does not count for majorities")
	return cmd
}

func replaceCommand(p *cli.Program) *cobra.Command {
	return configured(p, &cobra.Command{
		Use:   "replace OLD NEW --config FILE",
		Short: "Replace a member of a cluster with this machine's node",
		Long: "Replace member OLD with node NEW, and create the data directory of NEW from its configuration. After the loss of\n" +
			"a disk, use the same name for both. If OLD does not answer, the cluster removes OLD at once. If OLD answers, the\n" +
			"cluster removes OLD when NEW has its vote. Then start NEW, without --init. The command is idempotent.\n" +
			"With access control, requires an administrator's --token-file, or --cert-file and --key-file.",
		Args: cobra.ExactArgs(2),
	}, func(ctx context.Context, loaded config.Config, args []string) error {
		if loaded.Node != args[1] {
			return cli.UsageError(fmt.Errorf("cannot replace a node: the configuration is for node %q, not for %.64q: run the command on the machine of the new node", loaded.Node, args[1]))
		}
		return join(ctx, p, loaded, membership.Join{Replaces: args[0]})
	})
}

// JoinedNode is the output of cluster join and cluster replace.
type JoinedNode struct {
	Node     string `json:"node"`
	Cluster  string `json:"cluster"`
	DataDir  string `json:"data_dir"`
	Voter    bool   `json:"voter"`
	Replaces string `json:"replaces,omitempty"`
}

func join(ctx context.Context, p *cli.Program, loaded config.Config, how membership.Join) error {
	var others []string
	for _, member := range loaded.Cluster.Members {
		if member.Name != loaded.Node {
			others = append(others, member.API)
		}
	}
	p.ServersOr(others)
	p.CredentialsOr(filesOf(loaded))
	options, err := stoppedOptions(p, loaded, false)
	if err != nil {
		return err
	}
	err = p.With(ctx, func(ctx context.Context, cluster cli.Cluster) error {
		return node.JoinCluster(options, how, func(self node.Member, instance uuid.UUID) (membership.Admission, error) {
			admission, err := cluster.AddMember(ctx, raftboard.NewMember{
				Cluster: loaded.Cluster.ID, Name: self.Name, Instance: instance, RaftAddress: self.Raft, APIAddress: self.API, Replaces: how.Replaces,
			})
			told := membership.Admission{Generation: admission.Generation, Origin: admission.Origin, Founders: membersOf(admission.Founders)}
			nodes, _ := cluster.Nodes(ctx) // nodes that do not answer are skipped
			for _, asked := range nodes {
				if asked.Err == nil && asked.Status.Leader == asked.Status.Node {
					told.Members = membersOf(asked.Status.Members)
				}
			}
			return told, err
		})
	})
	if err != nil {
		return err
	}
	joined := JoinedNode{Node: loaded.Node, Cluster: loaded.Cluster.ID, DataDir: options.DataDir, Voter: !how.NonVoter, Replaces: how.Replaces}
	return p.Show(joined, "node %s is a member of cluster %s: start the node, without --init", joined.Node, joined.Cluster)
}

func membersOf(list []raftboard.Member) (members []node.Member) {
	for _, m := range list {
		members = append(members, node.Member{Name: m.Name, Incarnation: strings.TrimPrefix(m.ID, m.Name+"."), Raft: m.RaftAddress, API: m.APIAddress})
	}
	return members
}
