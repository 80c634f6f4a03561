package node

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

// MakeDataDir makes the data directory of a node: see membership.MakeDataDir.
func MakeDataDir(options Options) error {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return fmt.Errorf("cannot initialize a node: %w", err)
	}
	return membership.MakeDataDir(options.asMember())
}

// JoinCluster makes the data directory of a node that joins a cluster: see membership.JoinCluster.
func JoinCluster(options Options, how membership.Join, ask func(self Member, instance uuid.UUID) (membership.Admission, error)) error {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return fmt.Errorf("cannot join: %w", err)
	}
	return membership.JoinCluster(options.asMember(), how, ask)
}

// RestoreBackup makes the data directory of a new node from a backup: see membership.RestoreBackup.
func RestoreBackup(options Options, from io.Reader, how membership.Restore) (membership.Restored, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return membership.Restored{}, fmt.Errorf("cannot restore: %w", err)
	}
	return membership.RestoreBackup(options.asMember(), from, how)
}

// asMember are the membership options of the node.
func (o Options) asMember() membership.Options {
	return membership.Options{
		Cluster: o.Cluster, Name: o.Name, DataDir: o.DataDir, Init: o.Init, Members: o.Members, LogStore: o.LogStore, RaftListen: o.RaftListen, Logger: o.Logger,
	}
}

// promotionPause is the time between two requests of a joining node for its vote.
const promotionPause = time.Second

// settleIn completes the join of a node that has caught up: it requests a vote for the node, and
// the removal of the node that it replaces. It ends when both are done, or with ctx.
func (n *Node) settleIn(ctx context.Context) {
	if err := n.identity.SetBootstrapped(); err != nil {
		n.fatal(err)
		return
	}
	id := n.identity.Get()
	request := &conductordv1.SetVoteRequest{Name: id.Name, Vote: true, Replaces: id.Joining.Replaces}
	for refused := ""; id.Joining.Vote; {
		err := n.cluster.AskForVote(ctx, request)
		if err == nil {
			break
		}
		if text := err.Error(); text != refused && ctx.Err() == nil {
			n.logger.Warn("cannot get a vote", "error", err)
			refused = text
		}
		select {
		case <-time.After(promotionPause):
		case <-ctx.Done():
			return
		}
	}
	if err := n.identity.Change(func(id *membership.Identity) { id.Joining = nil }); err != nil {
		n.fatal(err)
		return
	}
	n.logger.Info("joined the cluster", "voter", id.Joining.Vote)
}
