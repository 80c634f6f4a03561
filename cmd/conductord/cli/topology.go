package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/topology"
)

// CheckTime limits the query of one cluster. All clusters are queried in parallel.
const CheckTime = 5 * time.Second

// topologyFile is the path of the topology: from the flag, else from the environment; empty:
// none.
func (p *Program) topologyFile() string { return cmp.Or(p.topology, p.Value("CONDUCTORD_TOPOLOGY")) }

// OpenTopology opens the topology file that the flag or the environment names.
func (p *Program) OpenTopology() (*topology.Source, error) {
	path := p.topologyFile()
	if path == "" {
		return nil, UsageError(errors.New("no topology: pass its file with --topology (CONDUCTORD_TOPOLOGY)"))
	}
	source, err := topology.Open(topology.Options{File: path})
	if err != nil {
		return nil, UsageError(err)
	}
	return source, nil
}

// boardsOf are the boards that a command line names. A flag is used even with its default value,
// because the command will use that board.
func boardsOf(cmd *cobra.Command, args []string) (boards []string) {
	for i := range args {
		if argumentName(cmd, i, len(args)) == "board" {
			boards = append(boards, args[i])
		}
	}
	for _, name := range []string{"board", "boards"} {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || name == "boards" && (!flag.Changed || flag.Value.Type() == "string") { // a quota's flag is a prefix of names
			continue
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			boards = append(boards, list.GetSlice()...)
		} else if text := flag.Value.String(); text != "" {
			boards = append(boards, strings.Split(text, ",")...)
		}
	}
	return boards
}

// routeServers, if there is a topology, selects the servers of the command's boards. Without boards,
// it selects the cluster that has the first id in the command. --server takes precedence over it. It
// takes precedence over CONDUCTORD_SERVER, which names one cluster for all boards.
func (p *Program) routeServers(ctx context.Context) error {
	if len(p.servers) > 0 || p.topologyFile() == "" {
		return nil
	}
	source, err := p.OpenTopology()
	if err != nil {
		return err
	}
	now := source.Current()
	switch {
	case len(p.boards) > 0:
		p.cluster = now.Route(p.boards[0]).Cluster
	case len(p.ids) > 0:
		if p.cluster, err = p.clusterOf(ctx, source, p.ids[0]); err != nil {
			return err
		}
	default:
		err := fmt.Errorf("the command has no board or id, so the topology in %s selects no cluster: add --server", p.topologyFile())
		return UsageError(Advised(err, "`conductord topology show` lists the servers of each cluster"))
	}
	for _, board := range p.boards {
		if other := now.Route(board).Cluster; other != p.cluster {
			return UsageError(fmt.Errorf("board %.64q is in cluster %q, and board %.64q in cluster %q: a command calls only one cluster; use two commands",
				p.boards[0], p.cluster, board, other))
		}
	}
	p.servers, err = source.Servers(ctx, p.cluster)
	return err
}

// clusterOf queries all clusters in parallel for an id. For a whole id, the first cluster that
// has it ends the query; a shortened id can match in several clusters.
func (p *Program) clusterOf(ctx context.Context, source *topology.Source, id shortID) (string, error) {
	options, err := p.Options(firstPatience)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clusters := source.Current().Clusters
	type answer struct {
		cluster string
		found   bool
		err     error
	}
	answers := make(chan answer, len(clusters)) // never blocks: each cluster sends once
	for name := range clusters {
		go func() {
			found, err := p.hasID(ctx, source, name, options, id)
			answers <- answer{name, found, err}
		}()
	}
	var have []string
	var silent []error
	for range clusters {
		switch got := <-answers; {
		case got.err != nil:
			silent = append(silent, fmt.Errorf("cluster %q: %w", got.cluster, got.err))
		case got.found && id.whole():
			return got.cluster, nil
		case got.found:
			have = append(have, got.cluster)
		}
	}
	digits := id.prefixes[0].Digits
	switch {
	case len(have) > 1:
		slices.Sort(have)
		return "", UsageError(fmt.Errorf("ids in the clusters %s start with %s: use more digits of the id, or add --server", strings.Join(have, ", "), digits))
	case len(silent) > 0:
		err := fmt.Errorf("cannot find %s in the other clusters of the topology: %w", digits, errors.Join(silent...))
		return "", Advised(err, "`conductord topology check` checks the nodes of all clusters")
	case len(have) == 0:
		return "", fmt.Errorf("no cluster of the topology has an id that starts with %s: %w", digits, jobs.ErrNotFound)
	}
	return have[0], nil
}

func (p *Program) hasID(ctx context.Context, source *topology.Source, name string, options raftboard.Options, id shortID) (found bool, err error) {
	if options.Endpoints, err = source.Servers(ctx, name); err != nil {
		return false, err
	}
	cluster, err := p.Dial(ctx, options)
	if err != nil {
		return false, err
	}
	defer cluster.Close()
	for _, prefix := range id.prefixes {
		matches, err := cluster.FindIDs(ctx, prefix)
		if err != nil || len(matches.IDs) > 0 || matches.More {
			return err == nil, err
		}
	}
	return false, nil
}
