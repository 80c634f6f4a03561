package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
)

func clusterCommand(p *cli.Program) *cobra.Command {
	return p.ClusterCommand(joinCommand(p), replaceCommand(p))
}

func joinCommand(p *cli.Program) *cobra.Command {
	var how node.Join
	cmd := configured(p, &cobra.Command{
		Use:   "join --config FILE",
		Short: "Make this machine's node a member of a cluster that works",
		Long: "Make the data directory of a node that joins a cluster which works. The configuration lists this node and at least\n" +
			"one member to ask; --server names others. Then start the node, without --init: it gets the state from the leader,\n" +
			"and a vote when it has caught up. Nothing is changed if the cluster refuses the node; to repeat it is harmless.\n" +
			"With access control, an administrator runs this: --token-file, or --cert-file and --key-file.",
		Args: cobra.NoArgs,
	}, func(ctx context.Context, loaded config.Config, _ []string) error {
		return join(ctx, p, loaded, how)
	})
	cmd.Flags().BoolVar(&how.NonVoter, "non-voter", false, "never ask for a vote: the node has the state and a conductor, and no part in majorities")
	return cmd
}

func replaceCommand(p *cli.Program) *cobra.Command {
	return configured(p, &cobra.Command{
		Use:   "replace OLD NEW --config FILE",
		Short: "Make this machine's node a member of a cluster in the place of another",
		Long: "Join as the node NEW, which the configuration is for, in the place of the member OLD. NEW may have the name of OLD:\n" +
			"that is how a node begins anew whose disk is lost. A member OLD that does not answer is removed at once, and one that\n" +
			"answers when NEW has its vote. Then start the node, without --init. To repeat it is harmless.\n" +
			"With access control, an administrator runs this: --token-file, or --cert-file and --key-file.",
		Args: cobra.ExactArgs(2),
	}, func(ctx context.Context, loaded config.Config, args []string) error {
		if loaded.Node != args[1] {
			return cli.UsageError(fmt.Errorf("cannot replace a node: the configuration is for node %q, and not for %.64q: run this on the machine of the new node", loaded.Node, args[1]))
		}
		return join(ctx, p, loaded, node.Join{Replaces: args[0]})
	})
}

// JoinedNode is what cluster join and cluster replace say.
type JoinedNode struct {
	Node     string `json:"node"`
	Cluster  string `json:"cluster"`
	DataDir  string `json:"data_dir"`
	Voter    bool   `json:"voter"`
	Replaces string `json:"replaces,omitempty"`
}

func join(ctx context.Context, p *cli.Program, loaded config.Config, how node.Join) error {
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
		return node.JoinCluster(options, how, func(self node.Member, instance uuid.UUID) (node.Admission, error) {
			admission, err := cluster.AddMember(ctx, raftboard.NewMember{
				Cluster: loaded.Cluster.ID, Name: self.Name, Instance: instance, RaftAddress: self.Raft, APIAddress: self.API, Replaces: how.Replaces,
			})
			told := node.Admission{Generation: admission.Generation, Origin: admission.Origin, Founders: membersOf(admission.Founders)}
			nodes, _ := cluster.Nodes(ctx) // those that do not answer know nothing
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
	return p.Show(joined, "node %s is a member of cluster %s: start it now, without --init", joined.Node, joined.Cluster)
}

func membersOf(list []raftboard.Member) (members []node.Member) {
	for _, m := range list {
		members = append(members, node.Member{Name: m.Name, Incarnation: strings.TrimPrefix(m.ID, m.Name+"."), Raft: m.RaftAddress, API: m.APIAddress})
	}
	return members
}
