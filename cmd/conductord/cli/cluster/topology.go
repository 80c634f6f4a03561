package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/topology"
)

// TopologyCommand makes the noun of topology files.
func TopologyCommand(p *cli.Program) *cobra.Command {
	verb := func(use, short, long string, args cobra.PositionalArgs, do func(ctx context.Context, p *cli.Program, source *topology.Source, args []string) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Long: strings.TrimSpace(short + ".\n\n" + long), Args: args,
			RunE: func(cmd *cobra.Command, args []string) error {
				source, err := p.OpenTopology()
				if err != nil {
					return err
				}
				return do(cmd.Context(), p, source, args)
			},
		}
	}
	return cli.Noun("topology", "Show and check the topology, which maps boards to clusters",
		verb("show", "Show the clusters of a topology, their servers, and the rules for boards", "", cobra.NoArgs, showTopology),
		verb("route BOARD…", "Show the cluster of each board, its servers, and the matching rule", "", cobra.MinimumNArgs(1), showRoutes),
		verb("check", "Check that all nodes of all clusters use the same topology as the file",
			"The command queries all clusters in parallel, each for at most 5 s (--timeout). It fails if a\n"+
				"cluster or node does not answer, uses no topology or a different one, or belongs to a different\n"+
				"cluster than in the file.", cobra.NoArgs, checkTopology))
}

func showTopology(_ context.Context, p *cli.Program, source *topology.Source, _ []string) error {
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

func showRoutes(ctx context.Context, p *cli.Program, source *topology.Source, boards []string) error {
	var routes []BoardRoute
	var rows [][]string
	var unresolved error
	now := source.Current()
	for _, board := range boards {
		route := now.Route(board)
		servers, err := source.Servers(ctx, route.Cluster)
		if err != nil {
			servers, unresolved = []string{}, cli.Advised(err, "check the SRV name in the topology, and this machine's resolver")
		}
		routes = append(routes, BoardRoute{board, route.Cluster, route.Rule, servers})
		rows = append(rows, []string{board, route.Cluster, cmp.Or(route.Rule, "default"), cmp.Or(strings.Join(servers, ","), "srv "+now.Clusters[route.Cluster].SRV)})
	}
	var err error
	if p.JSON() {
		err = p.WriteJSON(map[string]any{"routes": routes})
	} else {
		err = p.WriteTable([]string{"board", "cluster", "rule", "servers"}, rows)
	}
	return errors.Join(err, unresolved)
}

// checkedCluster is a row of topology check.
type checkedCluster struct {
	Cluster  string   `json:"cluster"`
	State    string   `json:"state"` // same, differs or unreachable
	Nodes    int      `json:"nodes"`
	Answered int      `json:"answered"`
	Digests  []string `json:"digests,omitempty"` // of the answering nodes, without repeats
	Faults   []string `json:"faults,omitempty"`
}

func checkTopology(ctx context.Context, p *cli.Program, source *topology.Source, _ []string) error {
	if _, err := p.UseProfile(); err != nil {
		return err
	}
	options, err := p.Options(cli.CheckTime)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Timeout, cli.CheckTime))
	defer cancel()
	now := source.Current()
	names := slices.Sorted(maps.Keys(now.Clusters))
	checked := make([]checkedCluster, len(names))
	var checking sync.WaitGroup
	for i, name := range names {
		checking.Go(func() {
			nodes, err := nodesOf(ctx, p, source, name, options)
			checked[i] = compare(now, name, nodes, err)
		})
	}
	checking.Wait()
	var rows [][]string
	var faults, bad []string
	for _, c := range checked {
		rows = append(rows, []string{c.Cluster, c.State, fmt.Sprintf("%d of %d", c.Answered, c.Nodes), cli.OrDash(strings.Join(c.Digests, ","))})
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

// nodesOf requests the status of the nodes of a cluster.
func nodesOf(ctx context.Context, p *cli.Program, source *topology.Source, name string, options raftboard.Options) ([]raftboard.NodeStatus, error) {
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

// compare describes how the nodes of a cluster differ from the file.
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

// BoardRoute is a row of topology route.
type BoardRoute struct {
	Board   string   `json:"board"`
	Cluster string   `json:"cluster"`
	Rule    string   `json:"rule,omitempty"` // empty: the default
	Servers []string `json:"servers"`
}
