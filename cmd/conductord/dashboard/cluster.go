package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// clusterData is the data of the page of the cluster.
type clusterData struct {
	nodesData
	Compared   string // the entry of the last successful comparison; empty: no comparison was requested
	Operations []operation
}

// loadCluster shows the members.
func loadCluster(ctx context.Context, v *visit) (view, error) {
	nodes, err := v.nodes(ctx)
	if err != nil {
		return view{}, err
	}
	data := clusterData{nodesData: nodes}
	if entry, err := strconv.ParseUint(v.query("compared"), 10, 64); err == nil {
		data.Compared = countText(entry)
	}
	data.Operations = v.offered(clusterOperations("", &data), access.AllBoards, "cluster")
	return view{Title: "Cluster", Command: "conductord cluster check", Data: data}, nil
}

// clusterOperations is the table of operations on members; of is nil when an operation is
// performed.
func clusterOperations(_ string, of *clusterData) []operation {
	var all, followers, voters, others []string
	upgradable := of != nil
	if of != nil {
		for _, n := range of.Nodes {
			name := n.Member.GetName()
			all = append(all, name)
			switch {
			case !n.Member.GetVoter():
				others = append(others, name)
			case !n.Leader:
				followers = append(followers, name)
				fallthrough
			default:
				voters = append(voters, name)
			}
			upgradable = upgradable && n.Status.GetProgramVersion() > n.Status.GetClusterVersion()
		}
	}
	member := func(choices []string) []input { return []input{{Name: "node", Label: "Node", Choices: choices}} }
	return []operation{
		{
			Verb: "transfer", Text: "Transfer the leadership", Command: "conductord cluster transfer-leader NODE", Help: "Another node becomes leader. No claim is lost, and clients retry refused calls.",
			Inputs: member(followers), permission: command.Administer, unfit: len(followers) == 0, do: transferLeader,
		},
		{
			Verb: "verify", Text: "Compare the members", Command: "conductord cluster check --states", Help: "Compare checksums of all members at one entry. A member that differs from a majority stops.",
			permission: command.Administer, do: compareMembers,
		},
		{
			Verb: "promote", Text: "Give a vote", Command: "conductord cluster promote NODE", Help: "The member counts for majorities and can become leader. It must have caught up.",
			Inputs: member(others), permission: command.Administer, unfit: len(others) == 0, do: setVote(true),
		},
		{
			Verb: "demote", Text: "Remove a vote", Command: "conductord cluster demote NODE", Help: "The member keeps its state and its conductor.", Danger: true,
			Inputs: member(voters), permission: command.Administer, unfit: len(voters) < 2, do: setVote(false),
		},
		{
			Verb: "remove", Text: "Remove a member", Command: "conductord cluster remove NODE", Danger: true,
			Help:   "A running node stops, and its jobs become claimable. Its data directory cannot be reused.",
			Inputs: member(all), permission: command.Administer, unfit: len(all) < 2, do: func(ctx context.Context, v *visit) (string, error) {
				_, err := ask(ctx, v.api.cluster.RemoveMember, &v1.RemoveMemberRequest{Name: v.form("node")})
				return "cluster", err
			},
		},
		{
			Verb: "upgrade", Text: "Raise the version", Command: "conductord cluster upgrade", Help: "Requires the new program on all nodes. Afterwards, nodes cannot return to the older program.", Danger: true,
			permission: command.Administer, unfit: !upgradable, do: func(ctx context.Context, v *visit) (string, error) {
				_, err := ask(ctx, v.api.cluster.Upgrade, &v1.UpgradeRequest{})
				return "cluster", err
			},
		},
	}
}

// transferTries limits the requests for one transfer. Raft gives up a transfer after an election
// timeout, and a busy node may not take over within this time.
const transferTries = 4

func transferLeader(ctx context.Context, v *visit) (string, error) {
	if v.form("node") == "" {
		return "", fmt.Errorf("%w: field node is empty: choose the new leader", jobs.ErrInvalid)
	}
	var err error
	for range transferTries {
		if _, err = ask(ctx, v.api.cluster.TransferLeader, &v1.TransferLeaderRequest{To: v.form("node")}); connect.CodeOf(err) != connect.CodeUnavailable {
			break // unavailable: no effect
		}
	}
	return "cluster", err
}

func setVote(vote bool) func(context.Context, *visit) (string, error) {
	return func(ctx context.Context, v *visit) (string, error) {
		_, err := ask(ctx, v.api.cluster.SetVote, &v1.SetVoteRequest{Name: v.form("node"), Vote: vote})
		return "cluster", err
	}
}

// compareMembers requests a comparison of the members. The page shows the difference as its
// message.
func compareMembers(ctx context.Context, v *visit) (string, error) {
	answer, err := ask(ctx, v.api.cluster.Verify, &v1.VerifyRequest{})
	if err != nil {
		return "", err
	}
	for _, m := range answer.GetMembers() {
		switch {
		case m.GetDiffers() != "":
			return "", &statusError{http.StatusConflict, fmt.Sprintf("at entry %d, the state of member %s differs in %s, so the member stops: see \"A member differs\" in docs/repair.md", answer.GetIndex(), m.GetName(), m.GetDiffers())}
		case !m.GetSame():
			return "", &statusError{http.StatusServiceUnavailable, fmt.Sprintf("at entry %d, member %s was not compared: %s", answer.GetIndex(), m.GetName(), m.GetError())}
		}
	}
	return "cluster?compared=" + strconv.FormatUint(answer.GetIndex(), 10), nil
}
