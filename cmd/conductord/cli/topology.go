package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/topology"
)

// checkTime bounds the question to one cluster. All clusters are asked at the same time.
const checkTime = 5 * time.Second

// topologyFile is the file of the topology: by flag, else by environment; empty: none.
func (p *Program) topologyFile() string { return cmp.Or(p.topology, p.Value("CONDUCTORD_TOPOLOGY")) }

func (p *Program) openTopology() (*topology.Source, error) {
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

// boardsOf are the boards that a command line names. A flag counts with its default too, since
// the command will use that board.
func boardsOf(cmd *cobra.Command, args []string) (boards []string) {
	for i := range args {
		if argumentName(cmd, i, len(args)) == "board" {
			boards = append(boards, args[i])
		}
	}
	for _, name := range []string{"board", "boards"} {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || name == "boards" && (!flag.Changed || flag.Value.Type() == "string") { // that of a quota is a beginning of names
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

// routeServers makes the servers of the command's boards those to ask, if there is a topology; without
// boards, those of the cluster that has the first id which the command names. --server wins over
// it. It wins over CONDUCTORD_SERVER, which names one cluster for all boards.
func (p *Program) routeServers(ctx context.Context) error {
	if len(p.servers) > 0 || p.topologyFile() == "" {
		return nil
	}
	source, err := p.openTopology()
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
		err := fmt.Errorf("the command has no board or id, so the topology in %s selects no cluster: name servers (--server)", p.topologyFile())
		return UsageError(advisedError{err, "`conductord topology show` lists the servers of each cluster"})
	}
	for _, board := range p.boards {
		if other := now.Route(board).Cluster; other != p.cluster {
			return UsageError(fmt.Errorf("board %.64q is in cluster %q, and board %.64q in cluster %q: a command calls one cluster: use two commands",
				p.boards[0], p.cluster, board, other))
		}
	}
	p.servers, err = source.Servers(ctx, p.cluster)
	return err
}

// clusterOf asks all clusters at the same time for an id. The first one that has a whole id ends
// the question; the beginning of an id may be found in several.
func (p *Program) clusterOf(ctx context.Context, source *topology.Source, id shortID) (string, error) {
	options, err := p.options(firstPatience)
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
		return "", UsageError(fmt.Errorf("ids in the clusters %s start with %s: use more of the id, or name servers (--server)", strings.Join(have, ", "), digits))
	case len(silent) > 0:
		err := fmt.Errorf("cannot find %s in the other clusters of the topology: %w", digits, errors.Join(silent...))
		return "", advisedError{err, "`conductord topology check` checks the nodes of all clusters"}
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

func (p *Program) topologyCommand() *cobra.Command {
	verb := func(use, short, long string, args cobra.PositionalArgs, do func(ctx context.Context, source *topology.Source, args []string) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Long: strings.TrimSpace(short + ".\n\n" + long), Args: args,
			RunE: func(cmd *cobra.Command, args []string) error {
				source, err := p.openTopology()
				if err != nil {
					return err
				}
				return do(cmd.Context(), source, args)
			},
		}
	}
	return Noun("topology", "Show and check the topology, which maps boards to clusters",
		verb("show", "Show the clusters of a topology, their servers, and the rules for boards", "", cobra.NoArgs, p.showTopology),
		verb("route BOARD…", "Show the cluster of each board, its servers, and the matching rule", "", cobra.MinimumNArgs(1), p.showRoutes),
		verb("check", "Check that all nodes of all clusters use the same topology as the file",
			"The command queries all clusters in parallel, each for at most 5 s (--timeout). It fails if a\n"+
				"cluster or node does not answer, uses no topology or a different one, or belongs to a different\n"+
				"cluster than in the file.", cobra.NoArgs, p.checkTopology))
}

func (p *Program) showTopology(_ context.Context, source *topology.Source, _ []string) error {
	now := source.Current()
	if p.JSON() {
		return p.WriteJSON(struct {
			Digest string `json:"digest"`
			*topology.Topology
		}{now.Digest(), now})
	}
	var clusters, rules [][]string
	for _, name := range slices.Sorted(maps.Keys(now.Clusters)) {
		c := now.Clusters[name]
		clusters = append(clusters, []string{name, c.ID, cmp.Or(strings.Join(c.Servers, ","), "srv "+c.SRV)})
	}
	for _, rule := range slices.Sorted(maps.Keys(now.Boards)) {
		rules = append(rules, []string{rule, strings.Join(now.Boards[rule], ",")})
	}
	rules = append(rules, []string{"all others", now.Default})
	return errors.Join(p.WriteLines([]string{"digest " + now.Digest(), ""}),
		p.WriteTable([]string{"cluster", "id", "servers"}, clusters), p.WriteLines([]string{""}),
		p.WriteTable([]string{"boards", "clusters"}, rules))
}

// boardRoute is a row of topology route.
type boardRoute struct {
	Board   string   `json:"board"`
	Cluster string   `json:"cluster"`
	Rule    string   `json:"rule,omitempty"` // empty: the default
	Servers []string `json:"servers"`
}

func (p *Program) showRoutes(ctx context.Context, source *topology.Source, boards []string) error {
	var routes []boardRoute
	var rows [][]string
	for _, board := range boards {
		route := source.Current().Route(board)
		servers, err := source.Servers(ctx, route.Cluster)
		if err != nil {
			return err
		}
		routes = append(routes, boardRoute{board, route.Cluster, route.Rule, servers})
		rows = append(rows, []string{board, route.Cluster, cmp.Or(route.Rule, "default"), strings.Join(servers, ",")})
	}
	if p.JSON() {
		return p.WriteJSON(map[string]any{"routes": routes})
	}
	return p.WriteTable([]string{"board", "cluster", "rule", "servers"}, rows)
}

// checkedCluster is a row of topology check.
type checkedCluster struct {
	Cluster  string   `json:"cluster"`
	State    string   `json:"state"` // same, differs or unreachable
	Nodes    int      `json:"nodes"`
	Answered int      `json:"answered"`
	Digests  []string `json:"digests,omitempty"` // of the nodes that answer, each once
	Faults   []string `json:"faults,omitempty"`
}

func (p *Program) checkTopology(ctx context.Context, source *topology.Source, _ []string) error {
	if _, err := p.UseProfile(); err != nil {
		return err
	}
	options, err := p.options(checkTime)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.timeout, checkTime))
	defer cancel()
	now := source.Current()
	names := slices.Sorted(maps.Keys(now.Clusters))
	checked := make([]checkedCluster, len(names))
	var checking sync.WaitGroup
	for i, name := range names {
		checking.Go(func() {
			nodes, err := p.nodesOf(ctx, source, name, options)
			checked[i] = compare(now, name, nodes, err)
		})
	}
	checking.Wait()
	var rows [][]string
	var faults, bad []string
	for _, c := range checked {
		rows = append(rows, []string{c.Cluster, c.State, fmt.Sprintf("%d of %d", c.Answered, c.Nodes), OrDash(strings.Join(c.Digests, ","))})
		if faults = append(faults, c.Faults...); len(c.Faults) > 0 {
			bad = append(bad, c.Cluster)
		}
	}
	if p.JSON() {
		err = p.WriteJSON(map[string]any{"digest": now.Digest(), "clusters": checked})
	} else {
		err = errors.Join(p.WriteTable([]string{"cluster", "state", "answered", "digests"}, rows), p.WriteLines(faults))
	}
	if err != nil || len(bad) == 0 {
		return err
	}
	return fmt.Errorf("%d of %d clusters do not use this topology (digest %s) on all nodes: %s", len(bad), len(names), now.Digest(), strings.Join(bad, ", "))
}

// nodesOf asks the nodes of a cluster for their status.
func (p *Program) nodesOf(ctx context.Context, source *topology.Source, name string, options raftboard.Options) ([]raftboard.NodeStatus, error) {
	var err error
	if options.Endpoints, err = source.Servers(ctx, name); err != nil {
		return nil, err
	}
	cluster, err := p.Dial(ctx, options)
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	return cluster.Nodes(ctx)
}

// compare says how the nodes of a cluster differ from the file.
func compare(now *topology.Topology, name string, nodes []raftboard.NodeStatus, err error) checkedCluster {
	c := checkedCluster{Cluster: name, State: "same", Nodes: max(len(nodes), len(now.Clusters[name].Servers))}
	fault := func(state, format string, args ...any) {
		c.State = state
		c.Faults = append(c.Faults, "cluster "+name+": "+fmt.Sprintf(format, args...))
	}
	if err != nil {
		fault("unreachable", "%v", err)
	}
	for _, line := range silent(nodes) {
		fault("unreachable", "%s", line)
	}
	for i := range nodes {
		s, endpoint := &nodes[i].Status, nodes[i].Endpoint
		if nodes[i].Err != nil {
			continue
		}
		if c.Answered++; s.TopologyDigest != "" && !slices.Contains(c.Digests, s.TopologyDigest) {
			c.Digests = append(c.Digests, s.TopologyDigest)
		}
		switch id := now.Clusters[name].ID; {
		case s.Cluster != id:
			fault("differs", "%s is a node of the cluster with the id %q, not %q", endpoint, s.Cluster, id)
		case s.TopologyDigest == "":
			fault("differs", "%s uses no topology: set topology.file in its configuration", endpoint)
		case s.TopologyDigest != now.Digest():
			fault("differs", "%s uses another topology: digest %s, cluster %q", endpoint, s.TopologyDigest, s.TopologyCluster)
		}
	}
	return c
}
