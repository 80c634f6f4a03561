package cli

import (
	"context"
	"io"

	"github.com/conductord/conductord/raftboard"
)

// client is a Cluster over the network.
type client struct{ *raftboard.Client }

// Dial connects to a cluster over the network.
func Dial(ctx context.Context, options raftboard.Options) (Cluster, error) {
	connected, err := raftboard.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	return client{connected}, nil
}

func (c client) Nodes(ctx context.Context) ([]raftboard.NodeStatus, error) {
	return c.Cluster(ctx), nil
}

func (c client) Stale() Cluster { return client{c.Client.Stale()} }

func (c client) Backup(ctx context.Context, stale bool) (io.ReadCloser, error) {
	if stale {
		return c.Client.Stale().Backup(ctx)
	}
	return c.Client.Backup(ctx)
}

func (c client) Close() error {
	c.Client.Close()
	return nil
}
