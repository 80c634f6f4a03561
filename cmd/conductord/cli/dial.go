package cli

import (
	"context"
	"time"

	"github.com/conductord/conductord/raftboard"
)

// client is a Cluster over the network.
type client struct{ *raftboard.Client }

// Dial connects to a cluster over the network.
func Dial(ctx context.Context, endpoints []string, patience time.Duration) (Cluster, error) {
	connected, err := raftboard.Open(ctx, raftboard.Options{Endpoints: endpoints, Patience: patience})
	if err != nil {
		return nil, err
	}
	return client{connected}, nil
}

func (c client) Nodes(ctx context.Context) ([]Node, error) {
	asked := c.Cluster(ctx)
	nodes := make([]Node, 0, len(asked))
	for _, answer := range asked {
		if answer.Err != nil {
			nodes = append(nodes, Node{Endpoint: answer.Endpoint, Error: answer.Err.Error()})
			continue
		}
		nodes = append(nodes, nodeOf(answer.Endpoint, answer.Status))
	}
	return nodes, nil
}

func nodeOf(endpoint string, s raftboard.Status) Node {
	node := Node{
		Endpoint: endpoint, Name: s.Node, Cluster: s.Cluster, Generation: s.Generation,
		State: s.State, Leader: s.Leader, Term: s.Term, CommitIndex: s.CommitIndex, AppliedIndex: s.AppliedIndex,
		Ready: s.Ready, NotReady: s.NotReady, Version: s.Version, LogStore: s.LogStore, StartedAt: s.StartedAt, Sessions: s.Sessions,
		ClockOffset: s.ClockOffset,
		Jobs:        make(map[string]uint64, len(s.Jobs)),
	}
	for state, count := range s.Jobs {
		node.Jobs[string(state)] = count
	}
	return node
}

func (c client) Close() error {
	c.Client.Close()
	return nil
}
