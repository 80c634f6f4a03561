package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// Cluster is what the commands need of a cluster: its board, its logbook, and
// word of its nodes.
type Cluster interface {
	jobs.Board
	logbook.Connection

	// Nodes asks every node for its status. A node that does not answer is in
	// the list with its error.
	Nodes(ctx context.Context) ([]raftboard.NodeStatus, error)

	// TransferLeader hands the leadership over, and returns who leads then.
	TransferLeader(ctx context.Context, to string) (leader string, err error)

	// AddMember, RemoveMember, SetVote and MoveMember change the members; see
	// raftboard.Client.
	AddMember(ctx context.Context, member raftboard.NewMember) (raftboard.Admission, error)
	RemoveMember(ctx context.Context, name string) ([]raftboard.Member, error)
	SetVote(ctx context.Context, name string, vote bool) ([]raftboard.Member, error)
	MoveMember(ctx context.Context, name, raftAddress, apiAddress string) ([]raftboard.Member, error)

	// Upgrade raises the version of the cluster, and returns it.
	Upgrade(ctx context.Context) (version int, err error)

	// Verify compares the states of the members.
	Verify(ctx context.Context) (raftboard.Comparison, error)

	// Backup reads a backup; a stale one is of what one node knows. The caller closes it.
	Backup(ctx context.Context, stale bool) (io.ReadCloser, error)

	Close() error
}

// endpoints are the servers to ask: by flag, else by environment, else the one
// on this machine.
func (p *Program) endpoints() []string {
	given := p.servers
	if len(given) == 0 {
		given = strings.Split(p.Value("CONDUCTORD_SERVER"), ",")
	}
	var endpoints []string
	for _, endpoint := range given {
		if endpoint = strings.TrimSpace(endpoint); endpoint != "" {
			endpoints = append(endpoints, endpoint)
		}
	}
	if len(endpoints) == 0 {
		return []string{DefaultServer}
	}
	return endpoints
}

// ServersOr makes some addresses the servers to ask if none were named.
func (p *Program) ServersOr(addresses []string) {
	if len(p.servers) == 0 && p.Value("CONDUCTORD_SERVER") == "" {
		p.servers = addresses
	}
}

// With does something with a cluster, within the usual time of a call.
func (p *Program) With(ctx context.Context, do func(ctx context.Context, cluster Cluster) error) error {
	return p.within(ctx, callTimeout, callPatience, do)
}

// waiting does something with a cluster that takes as long as it takes.
func (p *Program) waiting(ctx context.Context, do func(ctx context.Context, cluster Cluster) error) error {
	return p.within(ctx, 0, waitPatience, do)
}

// within bounds the time by --timeout, or else by a usual time; 0: no bound.
func (p *Program) within(ctx context.Context, usual, patience time.Duration, do func(ctx context.Context, cluster Cluster) error) error {
	first := firstPatience
	if p.timeout > 0 {
		usual, patience, first = p.timeout, p.timeout, p.timeout
	}
	if usual > 0 {
		bounded, cancel := context.WithTimeout(ctx, usual)
		defer cancel()
		ctx = bounded
	}
	cluster, err := p.connect(ctx, first, patience)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return do(ctx, cluster)
}

// connect finds a node that answers, and soon gives up.
func (p *Program) connect(ctx context.Context, first, patience time.Duration) (Cluster, error) {
	dialling, cancel := context.WithTimeout(ctx, first)
	defer cancel()
	cluster, err := p.Dial(dialling, p.endpoints(), patience)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", strings.Join(p.endpoints(), ", "), err)
	}
	return cluster, nil
}
